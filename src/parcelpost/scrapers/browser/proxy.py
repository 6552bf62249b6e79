"""The local proxy that is a browser's only way out: it connects only to addresses that the guard allows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple

import httpcore2
import httpx2

from parcelpost.scrapers.fetch.errors import CannotFetch, FetchFailed, RetryLater
from parcelpost.scrapers.fetch.guard import Guard, origin_of, port_of, proxy_url
from parcelpost.system import tcp_server

_NO_LOGIN, _LOGIN = 0, 2
_V4, _NAME, _V6 = 1, 3, 4
_SIZES = {_V4: 4, _V6: 16}
_REFUSALS = {
    2: "it does not allow this",
    3: "no way to the network",
    4: "no way to the host",
    5: "nobody answers there",
}


async def socks_connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, login: str = ""
) -> None:
    """`login`: `user:password`. Raises TryLater for a refusal, OSError and EOFError."""
    writer.write(bytes([5, 2, _NO_LOGIN, _LOGIN] if login else [5, 1, _NO_LOGIN]))
    version, method = await reader.readexactly(2)
    if version != 5 or method not in (_NO_LOGIN, _LOGIN if login else _NO_LOGIN):
        raise RetryLater(f"{host}: the proxy refused: it takes none of our ways to sign in")
    if method == _LOGIN:
        await _sign_in(reader, writer, host, login)
    writer.write(bytes([5, 1, 0]) + _place(host) + port.to_bytes(2))
    _, refusal, _, kind = await reader.readexactly(4)
    if refusal:
        raise RetryLater(f"{host}: the proxy refused: {_REFUSALS.get(refusal, f'its reason is {refusal}')}")
    size = _SIZES[kind] if kind in _SIZES else (await reader.readexactly(1))[0]
    await reader.readexactly(size + 2)


async def _sign_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, login: str) -> None:
    user, _, password = login.partition(":")
    writer.write(bytes([1]) + _short(user.encode()) + _short(password.encode()))
    if (await reader.readexactly(2))[1] != 0:
        raise RetryLater(f"{host}: the proxy refused: it does not know us")


def _place(host: str) -> bytes:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return bytes([_NAME]) + _short(host.encode("ascii"))
    return bytes([_V4 if isinstance(address, IPv4Address) else _V6]) + address.packed


def _short(text: bytes) -> bytes:
    return bytes([len(text[:255])]) + text[:255]


_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade"})


class ProxyRequest(NamedTuple):
    method: bytes
    target: bytes
    lines: list[bytes]

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def place(self) -> str:
        """Host and port as they are written."""
        rest = self.target if self.is_tunnel else self.target.partition(b"://")[2]
        return rest.partition(b"/")[0].partition(b"?")[0].decode("latin-1")

    @property
    def path(self) -> bytes:
        return self.target.partition(b"://")[2][len(self.place) :] or b"/"

    @property
    def length(self) -> int:
        """Of its body."""
        given = self.header(b"content-length")
        return int(given) if given.isdigit() else 0

    def header(self, name: bytes) -> bytes:
        return next((line.partition(b":")[2].strip() for line in self.lines if _name(line) == name), b"")

    def head(self, *, whole_address: bool, login: bytes) -> bytes:
        """For the site, or for the next proxy (`whole_address`), which is to close the connection afterwards."""
        first = b" ".join((self.method, self.target if whole_address else self.path, b"HTTP/1.1"))
        return _joined(first, self.lines, login)


def parse_request(head: bytes) -> ProxyRequest | None:
    """None: it is nothing that a browser asks a proxy."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not (parts[0] == b"CONNECT" or parts[1].startswith(b"http://")):
        return None
    return ProxyRequest(parts[0], parts[1], lines)


class ProxyResponse(NamedTuple):
    head: bytes
    """For the browser, which is to close the connection afterwards."""
    is_final: bool
    """False: the answer itself is still to come."""
    length: int | None
    """Of its body; None: it ends with the connection, or tells its end in itself."""


def parse_response(head: bytes, method: bytes) -> ProxyResponse:
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = first.partition(b" ")[2][:3]
    named = {_name(line): line.partition(b":")[2].strip() for line in lines}
    given = named.get(b"content-length", b"")
    length = int(given) if given.isdigit() and b"transfer-encoding" not in named else None
    if method == b"HEAD" or status in (b"204", b"304"):
        length = 0
    return ProxyResponse(_joined(first, lines), not status.startswith(b"1"), length)


def _joined(first: bytes, lines: list[bytes], login: bytes = b"") -> bytes:
    kept = b"".join(line + b"\r\n" for line in lines if _name(line) not in _HOP_BY_HOP)
    return first + b"\r\n" + kept + login + b"Connection: close\r\n\r\n"


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()


MOST_HEAD_BYTES = 256 * 1024
_USUAL_PORTS = {b"http": 80, b"https": 443, b"socks5": 1080, b"socks5h": 1080}


class Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    forwards: bool = False
    """It is a proxy, which wants the whole address."""


class Dialer:
    """Raises CannotFetch for what may not be asked, and TryLater for what cannot be reached within `timeout`."""

    def __init__(self, guard: Guard, proxy: str = "", login: str = "", timeout: float = 30.0) -> None:
        """Raises InvalidSettings."""
        self._guard = guard
        self._proxy = proxy_url(proxy) if proxy else None
        self._login = login
        self._timeout = timeout

    async def tunnel(self, host: str, port: int) -> Streams:
        """What is written arrives there as it is."""
        return await self._in_time(host, self._tunnel(host, port))

    async def forward(self, host: str, port: int) -> Streams:
        """For one request that is not encrypted."""
        if self._proxy is None or self._proxy.scheme.startswith(b"socks"):
            return await self.tunnel(host, port)
        return await self._in_time(host, self._through(self._proxy, host, port))

    @property
    def login_header(self) -> bytes:
        """By which the operator's proxy knows us; b"" where it wants none."""
        if not self._login:
            return b""
        return b"Proxy-Authorization: Basic " + base64.b64encode(self._login.encode()) + b"\r\n"

    async def _in_time(self, host: str, dialing: Awaitable[Streams]) -> Streams:
        try:
            async with asyncio.timeout(self._timeout):
                return await dialing
        except TimeoutError:
            problem = f"no connection within {self._timeout:g} s"
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RetryLater(f"{host}: {problem}"[:300])

    async def _tunnel(self, host: str, port: int) -> Streams:
        if self._proxy is None:
            return await self._direct(host, port)
        streams = await self._through(self._proxy, host, port)
        async with _or_closed(streams):
            if self._proxy.scheme.startswith(b"socks"):
                await socks_connect(streams.reader, streams.writer, host, port, self._login)
            else:
                await self._ask_for_tunnel(streams, host, port)
        return Streams(streams.reader, streams.writer)

    async def _direct(self, host: str, port: int) -> Streams:
        failure = OSError(f"no address for {host}")
        for address in await self._guard.addresses(host, port):
            try:
                return Streams(*await asyncio.open_connection(address, port, limit=MOST_HEAD_BYTES))
            except OSError as error:
                failure = error
        raise failure

    async def _through(self, proxy: httpcore2.URL, host: str, port: int) -> Streams:
        """The proxy resolves the name; what we can see of it is checked here, and what we cannot is left to it."""
        with suppress(OSError, RetryLater):
            await self._guard.addresses(host, port)
        secure = httpx2.create_ssl_context() if proxy.scheme == b"https" else None
        place, number = proxy.host.decode("ascii"), proxy.port or _USUAL_PORTS[proxy.scheme]
        opened = await asyncio.open_connection(place, number, ssl=secure, limit=MOST_HEAD_BYTES)
        return Streams(*opened, forwards=True)

    async def _ask_for_tunnel(self, streams: Streams, host: str, port: int) -> None:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        asked = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n".encode("ascii")
        streams.writer.write(asked + self.login_header + b"\r\n")
        answer = await streams.reader.readuntil(b"\r\n\r\n")
        status = answer.split(b" ", 2)[1:2]
        if not status or not status[0].startswith(b"2"):
            said = answer.partition(b"\r\n")[0].decode("latin-1")
            raise RetryLater(f"{host}: the proxy refused: {said}"[:300])


@asynccontextmanager
async def _or_closed(streams: Streams) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        streams.writer.transport.abort()
        raise


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


class ProxyLease:
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
        self._leases: dict[str, ProxyLease] = {}
        self._open = 0
        self._port = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, guard: Guard, dialer: Dialer) -> AsyncIterator[GuardProxy]:
        proxy = cls(guard, dialer)
        async with tcp_server(proxy._serve, "127.0.0.1", limit=MOST_HEAD_BYTES) as proxy._port:
            yield proxy

    @contextmanager
    def lease(self, most_bytes: int) -> Iterator[ProxyLease]:
        lease = ProxyLease(f"http://127.0.0.1:{self._port}", most_bytes)
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
            found = parse_request(await reader.readuntil(b"\r\n\r\n"))
        if found is not None and (lease := self._lease_of(found)) is not None:
            await self._serve_known(found, lease, Streams(reader, writer))
        else:
            writer.write(_WANTS_LOGIN)
        async with asyncio.timeout(_HEAD_SECONDS):
            writer.close()
            await writer.wait_closed()

    def _lease_of(self, given: ProxyRequest) -> ProxyLease | None:
        kind, _, login = given.header(b"proxy-authorization").partition(b" ")
        if kind.lower() != b"basic":
            return None
        try:
            user, _, password = base64.b64decode(login).decode("ascii").partition(":")
        except ValueError:
            return None
        lease = self._leases.get(user)
        return lease if lease is not None and hmac.compare_digest(password, lease.password) else None

    async def _serve_known(self, given: ProxyRequest, lease: ProxyLease, browser: Streams) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        lease.connections.add(task)
        try:
            await self._pass_on(given, lease, browser)
        finally:
            lease.connections.discard(task)

    async def _pass_on(self, given: ProxyRequest, lease: ProxyLease, browser: Streams) -> None:
        is_tunnel = given.is_tunnel
        try:
            if lease.is_used_up:
                raise CannotFetch(f"the page loads more than {lease.most_bytes:,} bytes")
            url = self._guard.url(f"{'https' if is_tunnel else 'http'}://{given.place}/")
            host, port = url.raw_host.decode("ascii"), port_of(url)
            site = await (self._dialer.tunnel(host, port) if is_tunnel else self._dialer.forward(host, port))
        except (CannotFetch, RetryLater) as failure:
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

    async def _exchange(self, given: ProxyRequest, lease: ProxyLease, browser: Streams, site: Streams) -> None:
        """One request and its answer, after which both connections end."""
        login = self._dialer.login_header if site.forwards else b""
        site.writer.write(given.head(whole_address=site.forwards, login=login))
        await _copy(browser, site, lease, given.length)
        while True:
            answer = parse_response(await site.reader.readuntil(b"\r\n\r\n"), given.method)
            lease.count(len(answer.head))
            browser.writer.write(answer.head)
            if answer.is_final:
                break
        await _first_of(_copy(site, browser, lease, answer.length), _copy(browser, site, lease))


async def _copy(source: Streams, sink: Streams, lease: ProxyLease, length: int | None = None) -> None:
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
