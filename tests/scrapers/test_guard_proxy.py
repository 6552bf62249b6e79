"""The proxy through which browsers ask: whom it asks, for whom, and how much."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from parcelpost.files_and_sockets import tcp_server
from parcelpost.private_addresses import Resolve, resolve
from parcelpost.scrapers.browser.proxy import GuardProxy, ProxyLease
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater
from parcelpost.scrapers.fetch.exchange import FetchGuard
from tests.website import Asked, Reply, Website

HERE = ("127.0.0.1",)


class Proxied(NamedTuple):
    lease: ProxyLease
    port: int

    async def ask(self, head: str, body: bytes = b"", login: str | None = None) -> bytes:
        """All that comes until the connection ends."""
        reader, writer = await self.connect(head, body, login)
        async with asyncio.timeout(60):
            found = await reader.read()
        writer.close()
        return found

    async def connect(
        self, head: str, body: bytes = b"", login: str | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        known = f"{self.lease.user}:{self.lease.password}" if login is None else login
        given = f"Proxy-Authorization: Basic {base64.b64encode(known.encode()).decode()}\r\n" if known else ""
        writer.write(f"{head}\r\n{given}\r\n".encode() + body)
        return reader, writer


@asynccontextmanager
async def proxied(
    allowed: Sequence[str] = HERE, most_bytes: int = 10**6, proxy: str = "", login: str = "", look_up: Resolve = resolve
) -> AsyncIterator[Proxied]:
    guard = FetchGuard(allowed, look_up)
    async with GuardProxy.open(guard, proxy, login) as opened:
        with opened.lease(most_bytes) as lease:
            yield Proxied(lease, int(lease.address.rpartition(":")[2]))


async def test_a_request_goes_to_its_site_and_says_nothing_of_the_proxy(site: Website) -> None:
    site.page("/parcel", b"found")
    async with proxied() as one:
        body = b"n=1"
        head = f"POST {site.url}/parcel?q=%2F HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nProxy-Connection: keep-alive"
        answer = await one.ask(head, body)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"Connection: close\r\n\r\nfound")
    (asked,) = site.asked
    assert (asked.method, asked.target, asked.body) == ("POST", "/parcel?q=%2F", b"n=1")
    assert not [name for name in asked.headers if name.startswith("proxy")]
    assert one.lease.bytes > 5


async def test_a_tunnel_leads_to_the_site(site: Website) -> None:
    site.page("/", b"inside")
    async with proxied() as one:
        reader, writer = await one.connect(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"inside")).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("login", ["", "somebody:else"])
async def test_only_who_has_a_lease_is_served(site: Website, login: str) -> None:
    async with proxied() as one:
        answer = await one.ask(f"GET {site.url}/ HTTP/1.1\r\nHost: x", login=login)
        assert answer.startswith(b"HTTP/1.1 407")
        assert (await one.ask(f"GET {site.url}/ HTTP/1.1", login=f"{one.lease.user}:no")).startswith(b"HTTP/1.1 407")
    assert site.asked == []


async def test_a_lease_that_has_ended_is_none(site: Website) -> None:
    guard = FetchGuard(HERE)
    async with GuardProxy.open(guard) as opened:
        with opened.lease(10**6) as lease:
            one = Proxied(lease, int(lease.address.rpartition(":")[2]))
            reader, writer = await one.connect(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1")
            await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert (await one.ask(f"GET {site.url}/ HTTP/1.1")).startswith(b"HTTP/1.1 407")


@pytest.mark.parametrize(
    "asked",
    [
        "GET http://127.0.0.1:{port}/ HTTP/1.1",
        "CONNECT 127.0.0.1:{port} HTTP/1.1",
        "CONNECT [::1]:443 HTTP/1.1",
        "GET http://[::ffff:10.0.0.1]/ HTTP/1.1",
        "CONNECT 0x7f.1:443 HTTP/1.1",
        "CONNECT inside.example.org:443 HTTP/1.1",
    ],
)
async def test_a_private_address_is_refused_and_the_lease_knows_why(site: Website, asked: str) -> None:
    async def inside(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with proxied(allowed=(), look_up=inside) as one:
        answer = await one.ask(asked.format(port=site.port))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 502")
        (failure,) = one.lease.refused.values()
        assert isinstance(failure, CannotFetch)
    assert site.asked == []


async def test_the_name_is_resolved_once_and_what_was_checked_is_asked(site: Website) -> None:
    asked: list[str] = []

    async def turning(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    site.page("/", b"ok")
    async with proxied(allowed=("county.example.org",), look_up=turning) as one:
        assert (await one.ask(f"GET http://county.example.org:{site.port}/ HTTP/1.1")).endswith(b"ok")
    assert asked == ["county.example.org"]


async def test_what_cannot_be_reached_is_told() -> None:
    with socket.socket() as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with proxied() as one:
            await one.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1")
            assert isinstance(one.lease.refused[f"127.0.0.1:{port}"], RetryLater)


async def test_a_page_that_loads_too_much_is_cut(site: Website) -> None:
    site.page("/", b"x" * 200_000)
    async with proxied(most_bytes=100_000) as one:
        assert len(await one.ask(f"GET {site.url}/ HTTP/1.1")) < 200_000
        assert one.lease.is_exhausted
        before = len(site.asked)
        assert await one.ask(f"GET {site.url}/ HTTP/1.1") == b""
    assert len(site.asked) == before


async def test_a_head_without_end_is_not_read_for_ever() -> None:
    async with proxied() as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                while not reader.at_eof():
                    writer.write(b"x" * 65536)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()


async def test_after_an_announced_response_the_browser_does_not_use_the_connection_again(site: Website) -> None:
    async def twice(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    site.streams["/"] = twice
    async with proxied() as one:
        assert (await one.ask(f"GET {site.url}/ HTTP/1.1")).endswith(b"Connection: close\r\n\r\nok")


async def test_requests_go_on_to_the_operators_proxy_with_its_login(site: Website) -> None:
    async def inside(_host: str, _port: int) -> Sequence[str]:
        return ["10.0.0.1"]

    site.pages["/parcel"] = lambda _: Reply(b"through both")
    async with proxied((), proxy=site.url, login="me:secret", look_up=inside) as one:
        assert (await one.ask("GET http://93.184.215.14/parcel HTTP/1.1")).endswith(b"through both")
        for host in ("10.0.0.1", "inside.example.org"):
            await one.ask(f"GET http://{host}/parcel HTTP/1.1")
            assert isinstance(one.lease.refused[f"{host}:80"], CannotFetch)
    (asked,) = site.asked
    assert asked.target == "http://93.184.215.14/parcel"
    assert base64.b64decode(asked.headers["proxy-authorization"].split()[1]) == b"me:secret"


@pytest.mark.parametrize(("status", "works"), [("200 OK", True), ("403 Forbidden", False)])
async def test_a_tunnel_goes_through_the_operators_proxy(site: Website, status: str, works: bool) -> None:
    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Asked) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        writer.write(await reader.read(4))
        await writer.drain()

    site.streams["CONNECT"] = tunnel
    async with proxied((), proxy=site.url, login="me:secret") as one:
        reader, writer = await one.connect("CONNECT 93.184.215.14:443 HTTP/1.1")
        writer.write(b"ping")
        answer = await reader.read()
        assert answer.endswith(b"ping") == works
        refused = one.lease.refused.get("93.184.215.14:443")
        assert works == (refused is None)
        assert works or "the proxy refused" in str(refused)
        writer.close()
    assert site.asked[0].target == "93.184.215.14:443"
    assert "proxy-authorization" in site.asked[0].headers


@pytest.mark.parametrize("login", ["", "me:secret"])
async def test_a_tunnel_goes_through_a_socks_proxy(site: Website, login: str) -> None:
    site.page("/parcel", b"through socks")
    heard: list[bytes] = []

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readexactly((await reader.readexactly(2))[1]))
        writer.write(b"\x05\x02" if login else b"\x05\x00")
        if login:
            heard.append(await reader.readexactly(11))
            writer.write(b"\x01\x00")
        heard.append(await reader.readexactly(5 + 18 + 2))
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        await site.serve(reader, writer)

    async with (
        tcp_server(socks, "127.0.0.1") as port,
        proxied((), proxy=f"socks5://127.0.0.1:{port}", login=login) as one,
    ):
        assert (await one.ask("GET http://county.example.org/parcel HTTP/1.1")).endswith(b"through socks")
    assert heard[-1] == b"\x05\x01\x00\x03\x12county.example.org" + (80).to_bytes(2)
    assert heard[1:-1] == ([b"\x01\x02me\x06secret"] if login else [])


async def test_a_socks_proxy_that_refuses_is_told() -> None:
    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(5 + 18 + 2)
        writer.write(b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
        await reader.read()

    async with tcp_server(socks, "127.0.0.1") as port, proxied((), proxy=f"socks5://127.0.0.1:{port}") as one:
        assert await one.ask("GET http://county.example.org/parcel HTTP/1.1") == b""
        assert "the proxy refused" in str(one.lease.refused["county.example.org:80"])
