"""How our guard's proxy reaches a host: at the very address that was checked, or through the operator's proxy."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import httpcore2
import httpx2

from parcelpost.scrapers.browsers import socks
from parcelpost.scrapers.connecting import proxy_url
from parcelpost.scrapers.fetch_errors import TryLater
from parcelpost.scrapers.guard import Guard

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
        raise TryLater(f"{host}: {problem}"[:300])

    async def _tunnel(self, host: str, port: int) -> Streams:
        if self._proxy is None:
            return await self._direct(host, port)
        streams = await self._through(self._proxy, host, port)
        async with _or_closed(streams):
            if self._proxy.scheme.startswith(b"socks"):
                await socks.connect(streams.reader, streams.writer, host, port, self._login)
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
        with suppress(OSError, TryLater):
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
            raise TryLater(f"{host}: the proxy refused: {said}"[:300])


@asynccontextmanager
async def _or_closed(streams: Streams) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        streams.writer.transport.abort()
        raise
