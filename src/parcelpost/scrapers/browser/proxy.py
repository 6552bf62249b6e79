"""The local proxy through which pages reach the network. It connects only to addresses that the guard allows."""

from __future__ import annotations

import asyncio
import base64
import secrets
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

import httpcore2
import httpx2

from parcelpost.files_and_sockets import tcp_server
from parcelpost.private_addresses import origin_of, port_of, proxy_url
from parcelpost.scrapers.fetch.errors import CannotFetch, FetchFailed, RetryLater
from parcelpost.scrapers.fetch.exchange import FetchGuard

_CHUNK_BYTES = 64 * 1024
_USUAL_PORTS = {b"http": 80, b"https": 443, b"socks5": 1080, b"socks5h": 1080}
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade"})
_LOGIN_REQUIRED = (
    b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="parcelpost"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
_REFUSED = b"HTTP/1.1 502 Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class ProxyLease:
    """Lets one page use the proxy, up to `max_bytes`. All its connections end with it."""

    def __init__(self, address: str, max_bytes: int) -> None:
        self.address = address
        self.user, self.password = secrets.token_hex(8), secrets.token_hex(16)
        self.max_bytes = max_bytes
        self.bytes = 0
        """Transferred in both directions."""
        self.refused: dict[str, FetchFailed] = {}
        """`host:port` -> why there was no connection."""
        self._connections: set[asyncio.Task[Any] | None] = set()

    @property
    def login(self) -> dict[str, str]:
        """The proxy setting for Playwright."""
        return {"server": self.address, "username": self.user, "password": self.password}

    @property
    def is_exhausted(self) -> bool:
        return self.bytes > self.max_bytes

    def count(self, size: int) -> None:
        """Ends all connections and raises EOFError once the page has loaded too much data."""
        self.bytes += size
        if self.is_exhausted:
            self.close()
            raise EOFError("the page has loaded too much data")

    def refusal_of(self, url: httpx2.URL) -> FetchFailed | None:
        return self.refused.get(origin_of(url).partition("://")[2])

    @contextmanager
    def connection(self) -> Iterator[None]:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            yield
        finally:
            self._connections.discard(task)

    def close(self) -> None:
        for task in self._connections:
            if task is not None and task is not asyncio.current_task():
                task.cancel()


class _Request(NamedTuple):
    method: bytes
    target: bytes
    authority: str
    """`host:port`."""
    path: bytes
    headers: list[bytes]

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def login(self) -> str:
        """The credentials, `user:password` in base64; '' if there are none."""
        header = next((line for line in self.headers if _name(line) == b"proxy-authorization"), b"")
        return header.rpartition(b" ")[2].decode("latin-1")


class GuardProxy:
    """Belongs to one event loop. Each page has its own lease, with a user name and a password."""

    def __init__(self, guard: FetchGuard, proxy: str = "", login: str = "", timeout: float = 30.0) -> None:
        self._guard = guard
        self._upstream = proxy_url(proxy) if proxy else None
        self._login = login
        self._timeout = timeout
        self._leases: dict[str, ProxyLease] = {}
        """Leases by the secret that authorizes their requests."""
        self._port = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, guard: FetchGuard, proxy: str = "", login: str = "", timeout: float = 30.0
    ) -> AsyncIterator[GuardProxy]:
        """`proxy`: the operator's, for all requests; `login`: its `user:password`. Raises InvalidSettings."""
        opened = cls(guard, proxy, login, timeout)
        async with tcp_server(opened._serve, "127.0.0.1") as opened._port:
            yield opened

    @contextmanager
    def lease(self, max_bytes: int) -> Iterator[ProxyLease]:
        lease = ProxyLease(f"http://127.0.0.1:{self._port}", max_bytes)
        login = _encoded(f"{lease.user}:{lease.password}")
        self._leases[login] = lease
        try:
            yield lease
        finally:
            del self._leases[login]
            lease.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.LimitOverrunError):
            request = _parse(await reader.readuntil(b"\r\n\r\n"))
            lease = self._leases.get(request.login)
            if lease is not None:
                with lease.connection():
                    await self._handle(request, lease, Streams(reader, writer))
            else:
                writer.write(_LOGIN_REQUIRED)
            writer.close()
            await writer.wait_closed()

    async def _handle(self, request: _Request, lease: ProxyLease, browser: Streams) -> None:
        try:
            if lease.is_exhausted:
                raise CannotFetch(f"the page loads more than {lease.max_bytes:,} bytes")
            url = self._guard.url(f"{'https' if request.is_tunnel else 'http'}://{request.authority}/")
            site = await self._connect(url.raw_host.decode("ascii"), port_of(url), tunnel=request.is_tunnel)
        except (CannotFetch, RetryLater) as failure:
            lease.refused[request.authority] = failure
            if request.is_tunnel:  # a page could read the answer to a plain request
                browser.writer.write(_REFUSED)
            return
        try:
            if request.is_tunnel:
                browser.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                answer = _copy(site, browser, lease)
            else:
                site.writer.write(self._request_head(request))
                answer = _copy_answer(site, browser, lease)
            await _first_of(_copy(browser, site, lease), answer)
        finally:
            site.writer.transport.abort()

    def _request_head(self, request: _Request) -> bytes:
        forward = self._forwards_plain_requests
        line = b" ".join((request.method, request.target if forward else request.path, b"HTTP/1.1"))
        return _head(line, request.headers, self._login_header if forward else [])

    @property
    def _forwards_plain_requests(self) -> bool:
        """Unencrypted requests go to an HTTP proxy whole; some allow tunnels to port 443 only."""
        return self._upstream is not None and not self._upstream.scheme.startswith(b"socks")

    @property
    def _login_header(self) -> list[bytes]:
        return [f"Proxy-Authorization: Basic {_encoded(self._login)}".encode()] if self._login else []

    async def _connect(self, host: str, port: int, *, tunnel: bool) -> Streams:
        """Raises CannotFetch and RetryLater."""
        try:
            async with asyncio.timeout(self._timeout):
                if self._upstream is None:
                    return await self._connect_directly(host, port)
                with suppress(OSError, RetryLater):  # the upstream proxy resolves names, but what we can see is checked
                    await self._guard.addresses(host, port)
                if tunnel or not self._forwards_plain_requests:
                    return await self._connect_through(self._upstream, host, port)
                where = (self._upstream.host.decode("ascii"), _port_of(self._upstream))
                return Streams(*await asyncio.open_connection(*where, ssl=_tls(self._upstream)))
        except TimeoutError:
            problem = f"no connection within {self._timeout:g} s"
        except OSError as error:
            problem = error.strerror or str(error)
        raise RetryLater(f"{host}: {problem}"[:300])

    async def _connect_directly(self, host: str, port: int) -> Streams:
        failure = OSError(f"no address for {host}")
        for address in await self._guard.addresses(host, port):
            try:
                return Streams(*await asyncio.open_connection(address, port))
            except OSError as error:
                failure = error
        raise failure

    async def _connect_through(self, upstream: httpcore2.URL, host: str, port: int) -> Streams:
        """A tunnel through the operator's proxy, which resolves the name."""
        from python_socks import ProxyConnectionError, ProxyError, ProxyType
        from python_socks.async_.asyncio.v2 import Proxy

        kind = ProxyType.SOCKS5 if upstream.scheme.startswith(b"socks") else ProxyType.HTTP
        user, _, password = self._login.partition(":")
        proxy = Proxy(
            *(kind, upstream.host.decode("ascii"), _port_of(upstream), user or None, password or None),
            rdns=True,
            proxy_ssl=_tls(upstream),
        )
        try:
            stream = await proxy.connect(host.strip("[]"), port, timeout=self._timeout)
        except ProxyConnectionError as error:
            raise RetryLater(f"{host}: the proxy cannot be reached: {error}"[:300]) from None
        except ProxyError as error:
            raise RetryLater(f"{host}: the proxy refused: {error}"[:300]) from None
        return Streams(stream.reader, stream.writer)


def _encoded(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def _port_of(upstream: httpcore2.URL) -> int:
    return upstream.port or _USUAL_PORTS[upstream.scheme]


def _tls(upstream: httpcore2.URL) -> ssl.SSLContext | None:
    return httpx2.create_ssl_context() if upstream.scheme == b"https" else None


def _parse(head: bytes) -> _Request:
    """Raises EOFError if it is not a proxy request."""
    line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not (parts[0] == b"CONNECT" or parts[1].startswith(b"http://")):
        raise EOFError("not a request to a proxy")
    method, target, _ = parts
    host, _, path = target.removeprefix(b"http://").partition(b"/")
    authority = host.decode("latin-1").lower()
    has_port = authority.rpartition(":")[2].isdigit()
    return _Request(method, target, authority if has_port else f"{authority}:80", b"/" + path, headers)


def _head(first_line: bytes, headers: Iterable[bytes], login: Iterable[bytes] = ()) -> bytes:
    """Removes hop-by-hop headers; the connection is closed after the response."""
    kept = [line for line in headers if _name(line) not in _HOP_BY_HOP]
    return b"\r\n".join((first_line, *kept, *login, b"Connection: close", b"", b""))


def _name(header: bytes) -> bytes:
    return header.partition(b":")[0].strip().lower()


async def _copy(source: Streams, sink: Streams, lease: ProxyLease) -> None:
    while chunk := await source.reader.read(_CHUNK_BYTES):
        lease.count(len(chunk))
        sink.writer.write(chunk)
        await sink.writer.drain()


async def _copy_answer(site: Streams, browser: Streams, lease: ProxyLease) -> None:
    """Adds `Connection: close`: the browser's next request on this connection might be for another site."""
    status = b"1"
    while status.startswith(b"1"):  # 103 announces the answer
        first_line, *headers = (await site.reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
        status = first_line.partition(b" ")[2]
        lease.count(len(first_line))
        browser.writer.write(_head(first_line, headers))
    await _copy(site, browser, lease)


async def _first_of(*copies: Coroutine[Any, Any, None]) -> None:
    """Returns when the first of them ends, and cancels the others."""
    tasks = [asyncio.create_task(copy) for copy in copies]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
