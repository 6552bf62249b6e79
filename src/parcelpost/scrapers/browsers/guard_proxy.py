"""The only way out for a browser: a small proxy on this machine that asks nobody whom the guard does not allow.

Names are resolved here and nowhere else, redirects and web sockets come by as every request does, and each page has a
login of its own by which its bytes are counted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2

from parcelpost.scrapers.browsers.dialing import MOST_HEAD_BYTES, Dialer, Streams
from parcelpost.scrapers.browsers.proxy_heads import Asked, answered, asked
from parcelpost.scrapers.fetch_errors import CannotFetch, FetchFailed, TryLater
from parcelpost.scrapers.guard import Guard, origin_of, port_of
from parcelpost.system import tcp_server

_HEAD_SECONDS = 30.0
_CHUNK_BYTES = 64 * 1024
_MOST_CONNECTIONS = 256
_MOST_REFUSALS = 100
_WANTS_LOGIN = (
    b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="parcelpost"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
_REFUSED = b"HTTP/1.1 502 Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BROKEN = (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError)


class Lease:
    """What one page may load. Ends with all its connections."""

    def __init__(self, address: str, most_bytes: int) -> None:
        self.address = address
        self.user, self.password = secrets.token_hex(8), secrets.token_hex(16)
        self.bytes = 0
        """That went either way."""
        self.refused: dict[str, FetchFailed] = {}
        """Host and port -> why it was not asked, or could not be."""
        self.connections: set[asyncio.Task[None]] = set()
        self._most_bytes = most_bytes

    @property
    def is_used_up(self) -> bool:
        return self.bytes > self._most_bytes

    @property
    def most_bytes(self) -> int:
        return self._most_bytes

    def count(self, size: int) -> None:
        """Raises EOFError where the page has had all that it may have: all its connections end."""
        self.bytes += size
        if self.is_used_up:
            self.cut()
            raise EOFError("the page has loaded too much")

    def refuse(self, place: str, failure: FetchFailed) -> None:
        if len(self.refused) < _MOST_REFUSALS:
            has_port = place.rpartition(":")[2].isdigit() and not place.endswith("]")
            self.refused[place.lower() if has_port else f"{place.lower()}:80"] = failure

    def refusal_of(self, url: httpx2.URL) -> FetchFailed | None:
        """Why the address's host was not asked, or could not be."""
        return self.refused.get(origin_of(url).partition("://")[2])

    def cut(self) -> None:
        for task in self.connections:
            if task is not asyncio.current_task():
                task.cancel()


class GuardProxy:
    """Belongs to one event loop."""

    def __init__(self, guard: Guard, dialer: Dialer) -> None:
        self._guard = guard
        self._dialer = dialer
        self._leases: dict[str, Lease] = {}
        self._open = 0
        self._port = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, guard: Guard, dialer: Dialer) -> AsyncIterator[GuardProxy]:
        proxy = cls(guard, dialer)
        async with tcp_server(proxy._serve, "127.0.0.1", limit=MOST_HEAD_BYTES) as proxy._port:
            yield proxy

    @contextmanager
    def lease(self, most_bytes: int) -> Iterator[Lease]:
        lease = Lease(f"http://127.0.0.1:{self._port}", most_bytes)
        self._leases[lease.user] = lease
        try:
            yield lease
        finally:
            del self._leases[lease.user]
            lease.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= _MOST_CONNECTIONS * max(1, len(self._leases)):
            return
        self._open += 1
        try:
            with contextlib.suppress(*_BROKEN):
                await self._answer(reader, writer)
        finally:
            self._open -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            found = asked(await reader.readuntil(b"\r\n\r\n"))
        if found is not None and (lease := self._lease_of(found)) is not None:
            await self._serve_known(found, lease, Streams(reader, writer))
        else:
            writer.write(_WANTS_LOGIN)
        async with asyncio.timeout(_HEAD_SECONDS):
            writer.close()
            await writer.wait_closed()

    def _lease_of(self, given: Asked) -> Lease | None:
        kind, _, login = given.header(b"proxy-authorization").partition(b" ")
        if kind.lower() != b"basic":
            return None
        try:
            user, _, password = base64.b64decode(login).decode("ascii").partition(":")
        except ValueError:
            return None
        lease = self._leases.get(user)
        return lease if lease is not None and hmac.compare_digest(password, lease.password) else None

    async def _serve_known(self, given: Asked, lease: Lease, browser: Streams) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        lease.connections.add(task)
        try:
            await self._pass_on(given, lease, browser)
        finally:
            lease.connections.discard(task)

    async def _pass_on(self, given: Asked, lease: Lease, browser: Streams) -> None:
        is_tunnel = given.is_tunnel
        try:
            if lease.is_used_up:
                raise CannotFetch(f"the page loads more than {lease.most_bytes:,} bytes")
            url = self._guard.url(f"{'https' if is_tunnel else 'http'}://{given.place}/")
            host, port = url.raw_host.decode("ascii"), port_of(url)
            site = await (self._dialer.tunnel(host, port) if is_tunnel else self._dialer.forward(host, port))
        except (CannotFetch, TryLater) as failure:
            lease.refuse(given.place, failure)
            browser.writer.write(_REFUSED if is_tunnel else b"")  # no answer at all is nothing that a page could read
            return
        try:
            if is_tunnel:
                browser.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _first_of(_copy(browser, site, lease), _copy(site, browser, lease))
            else:
                await self._exchange(given, lease, browser, site)
        finally:
            site.writer.transport.abort()

    async def _exchange(self, given: Asked, lease: Lease, browser: Streams, site: Streams) -> None:
        """One request and its answer, after which both connections end."""
        login = self._dialer.login_header if site.forwards else b""
        site.writer.write(given.head(whole_address=site.forwards, login=login))
        await _copy(browser, site, lease, given.length)
        while True:
            answer = answered(await site.reader.readuntil(b"\r\n\r\n"), given.method)
            lease.count(len(answer.head))
            browser.writer.write(answer.head)
            if answer.is_final:
                break
        await _first_of(_copy(site, browser, lease, answer.length), _copy(browser, site, lease))


async def _copy(source: Streams, sink: Streams, lease: Lease, length: int | None = None) -> None:
    """`length`: None for all that comes."""
    left = length
    while left != 0 and (chunk := await source.reader.read(min(left or _CHUNK_BYTES, _CHUNK_BYTES))):
        left = left - len(chunk) if left is not None else None
        lease.count(len(chunk))
        sink.writer.write(chunk)
        await sink.writer.drain()


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    """Ends with the first of them that ends."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
