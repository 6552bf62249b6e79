"""One answer: what it means, how large and how slow it may be, and what is kept of it."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.files_and_sockets import tcp_server
from parcelpost.model import REFRESH, Blocked, GiveUp, NotFound, Page, Retry
from parcelpost.scrapers.fetch.errors import CannotFetch, PageNotFound, RetryLater, SiteBlocked, outcome_of
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.scrapers.fetching import fetching
from tests.storage.factories import a_result, a_task, requeue
from tests.website import Asked, Reply, Website

CHALLENGE = b"<html><head><title>Just a moment...</title></head><body></body></html>"


async def test_each_status_has_its_meaning(site: Website) -> None:
    meanings: dict[type[Exception], tuple[int, ...]] = {
        PageNotFound: (404, 410),
        SiteBlocked: (401, 403, 451),
        CannotFetch: (400, 405, 418),
        RetryLater: (408, 429, 500, 502, 503, 599),
    }
    for failure, statuses in meanings.items():
        for status in statuses:
            site.page("/", b"no", status)
            async with fetching() as one:
                with pytest.raises(failure, match=str(status)):
                    await one.session.get(f"{site.url}/")


def test_each_failure_has_its_outcome() -> None:
    assert outcome_of(PageNotFound("a")) == NotFound("a")
    assert outcome_of(SiteBlocked("b", 60.0)) == Blocked("b", 60.0)
    assert outcome_of(RetryLater("c", 5.0)) == Retry("c", 5.0)
    assert outcome_of(CannotFetch("d")) == GiveUp("d")


@pytest.mark.parametrize("status", [200, 403, 503])
async def test_a_robot_check_is_never_answered(site: Website, status: int) -> None:
    site.page("/", CHALLENGE, status)
    async with fetching() as one:
        with pytest.raises(SiteBlocked, match="robot check"):
            await one.session.get(f"{site.url}/")


@pytest.mark.parametrize(
    ("location", "failure"),
    [
        ("/Account/Login?next=/", SiteBlocked),
        ("/Terms.aspx", SiteBlocked),
        ("/captcha/", SiteBlocked),
        ("/SessionExpired.aspx", RetryLater),
    ],
)
async def test_a_redirect_to_where_only_a_person_gets_on_ends_there(
    site: Website, location: str, failure: type[Exception]
) -> None:
    site.page("/", b"", 302, Location=location)
    async with fetching() as one:
        with pytest.raises(failure):
            await one.session.get(f"{site.url}/")
    assert site.paths == ["/"]


async def test_redirects_are_followed_five_times(site: Website) -> None:
    for number in range(6):
        site.page(f"/{number}", b"", 302, Location=f"/{number + 1}")
    site.page("/6", b"end")
    async with fetching() as one:
        page = await one.session.get(f"{site.url}/1")
        assert (page.body, page.url) == (b"end", f"{site.url}/6")
        with pytest.raises(RetryLater, match="5 times"):
            await one.session.get(f"{site.url}/0")


async def test_a_form_is_posted_and_kept_through_a_307_only(site: Website) -> None:
    site.page("/303", b"", 303, Location="/end")
    site.page("/307", b"", 307, Location="/end")
    site.page("/end", b"ok")
    async with fetching() as one:
        await one.session.post(f"{site.url}/303", {"pin": "1 2", "empty": ""})
        await one.session.post(f"{site.url}/307", {"pin": "1 2", "empty": ""})
    assert [(asked.method, asked.form) for asked in site.asked] == [
        ("POST", {"pin": "1 2", "empty": ""}),
        ("GET", {}),
        ("POST", {"pin": "1 2", "empty": ""}),
        ("POST", {"pin": "1 2", "empty": ""}),
    ]


async def test_a_token_stays_on_its_site(site: Website) -> None:
    site.page("/", b"", 302, Location=f"http://localhost:{site.port}/there")
    site.page("/there", b"ok")
    async with fetching(allow_private=("127.0.0.1", "localhost", "::1")) as one:
        await one.session.get(f"{site.url}/", headers={"Authorization": "Basic abc"})
    first, second = site.asked
    assert first.headers["authorization"] == "Basic abc"
    assert "authorization" not in second.headers


async def test_cookies_belong_to_one_session(site: Website) -> None:
    site.page("/", b"ok", Set_Cookie="CFID=7; Path=/; HttpOnly")
    async with fetching() as one:
        session = one.session
        await session.get(f"{site.url}/")
        await session.post(f"{site.url}/", {})
        await one.session.get(f"{site.url}/")
    assert [asked.headers.get("cookie") for asked in site.asked] == [None, "CFID=7", None]


async def test_the_charset_is_kept(site: Website) -> None:
    site.page("/", "Peña".encode("latin-1"), Content_Type="text/html; charset=ISO-8859-1")
    async with fetching() as one:
        page = await one.session.get(f"{site.url}/")
    assert page.content_type == "text/html; charset=ISO-8859-1"


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_packed_pages_are_unpacked(site: Website, pack: Any) -> None:
    body = b"<html>" + b"record " * 10_000 + b"</html>"
    name = "gzip" if pack is gzip.compress else "deflate"
    site.page("/", pack(body), Content_Encoding=name)
    site.page("/cut", pack(body)[:-20], Content_Encoding=name)
    site.page("/bad", b"not packed at all", Content_Encoding=name)
    site.page("/odd", body, Content_Encoding="br")
    async with fetching() as one:
        assert (await one.session.get(f"{site.url}/")).body == body
        for path in ("/cut", "/bad", "/odd"):
            with pytest.raises(RetryLater):
                await one.session.get(f"{site.url}{path}")


async def test_a_gigabyte_is_not_read_to_its_end(site: Website) -> None:
    sent = 0

    async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        for _part in range(1024):
            writer.write(b" " * 1024**2)
            await writer.drain()
            sent += 1024**2

    site.streams["/"] = stream
    async with fetching(max_page_bytes=1024**2) as one:
        with pytest.raises(CannotFetch, match="longer than 1,048,576 bytes"):
            await one.session.get(f"{site.url}/")
    assert sent < 64 * 1024**2


async def test_a_bomb_is_not_unpacked(site: Website) -> None:
    bomb = gzip.compress(b"\0" * 64 * 1024**2, 9)
    assert len(bomb) < 1024**2
    site.page("/", bomb, Content_Encoding="gzip")
    async with fetching(max_page_bytes=1024**2) as one:
        with pytest.raises(CannotFetch, match="longer"):
            await one.session.get(f"{site.url}/")


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("pack", [zlib.compress, raw_deflate, gzip.compress])
async def test_deflate_is_understood_with_and_without_its_head(site: Website, pack: Any) -> None:
    packed = pack(b"record " * 10_000)

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: {len(packed)}\r\n\r\n"
        writer.write(head.encode())
        for part in (packed[:1], packed[1:2], packed[2:]):
            writer.write(part)
            await writer.drain()

    site.streams["/"] = drip
    async with fetching() as one:
        assert (await one.session.get(f"{site.url}/")).body == b"record " * 10_000


@pytest.mark.parametrize("status", [200, 500])
async def test_what_unpacks_to_nothing_is_not_read_to_its_end(site: Website, status: int) -> None:
    site.page("/", gzip.compress(b"") * 500_000, status, Content_Encoding="gzip")
    site.page("/stuffed", b"".join(_stuffed_gzip() for _ in range(40)), status, Content_Encoding="gzip")
    async with fetching(max_page_bytes=100_000) as one:
        for path in ("/", "/stuffed"):
            with pytest.raises(
                CannotFetch if status == 200 else RetryLater, match="longer" if status == 200 else "500"
            ):
                await one.session.get(f"{site.url}{path}")


async def test_endlessly_many_parts_are_not_unpacked(site: Website) -> None:
    site.page("/", gzip.compress(b"") * 10_001, Content_Encoding="gzip")
    async with fetching() as one:
        with pytest.raises(RetryLater, match="10,000 parts"):
            await one.session.get(f"{site.url}/")


def _stuffed_gzip() -> bytes:
    """Of nothing, with a long name of a file in its head."""
    packed = gzip.compress(b"")
    return packed[:3] + b"\x08" + packed[4:10] + b"n" * 50_000 + b"\0" + packed[10:]


async def test_a_slow_drip_ends_with_the_time(site: Website) -> None:
    async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    site.streams["/"] = stream
    async with fetching(timeout_seconds=0.2) as one:
        with pytest.raises(RetryLater, match=r"within 0\.2 s"):
            await one.session.get(f"{site.url}/")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"\0nonsense\r\n\r\n"])
async def test_an_answer_that_breaks_off_is_tried_again(site: Website, said: bytes) -> None:
    async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        writer.write(said)

    site.streams["/"] = stream
    async with fetching() as one:
        with pytest.raises(RetryLater):
            await one.session.get(f"{site.url}/")


async def test_a_host_that_is_not_there_is_tried_again() -> None:
    async with fetching() as one:
        with pytest.raises(RetryLater):
            await one.session.get("http://127.0.0.1:1/")
        with pytest.raises(RetryLater):
            await one.session.get("http://no-such-host.invalid/")


# The page cache


@pytest.fixture
async def lpm(tmp_path: Path) -> AsyncIterator[LocalPersistenceManager]:
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=CLOCK) as opened:
        yield opened


CLOCK = ManualClock()


async def test_a_second_run_asks_the_site_nothing(site: Website, lpm: LocalPersistenceManager) -> None:
    site.page("/robots.txt", b"User-agent: *\nAllow: /")
    site.page("/", b"record", Content_Type="text/html; charset=utf-8")
    told = None
    for _ in range(2):
        async with fetching(CLOCK, cache=lpm.cache, obey_robots=True) as one:
            session = one.session
            page = await session.get(f"{site.url}/")
            assert (page.body, page.content_type) == (b"record", "text/html; charset=utf-8")
            await session.cache_pages()
            told = one.told[-1]
    assert site.paths == ["/robots.txt", "/"]
    assert told is not None
    assert told.cached


async def test_a_task_that_an_operator_retries_asks_the_site(site: Website, lpm: LocalPersistenceManager) -> None:
    await lpm.add_task(a_task("t1"))
    site.page("/parcel", b"<h1>parcel</h1>")

    async def scraped() -> int:
        """How often the site was asked."""
        before = len(site.asked)
        (claim,) = await lpm.claim(1)
        async with fetching(CLOCK, cache=lpm.cache) as one:
            session = one.fetcher.session(task=claim.task)
            page = await session.get(f"{site.url}/parcel") if await session.cached_page("several") is None else None
            session.cache_as("several", page or Page(body=b""))
            await session.cache_pages()
        await lpm.mark_synced([await lpm.save_result(claim, a_result()) or ""])
        return len(site.asked) - before

    assert await scraped() == 1
    await lpm.add_task(a_task("t2"))
    assert await scraped() == 0, "another task has the page from the cache"
    assert await requeue(lpm, ["t1"], completed=True) == 1
    assert await scraped() == 1
    await lpm.add_task(replace(a_task("t3"), type=REFRESH))
    assert await scraped() == 1, "the gateway refreshes it"


async def test_a_page_past_its_time_is_asked_for_with_conditions(site: Website, lpm: LocalPersistenceManager) -> None:
    def page(asked: Asked) -> Reply:
        if asked.headers.get("if-none-match") == '"v1"':
            return Reply(b"", 304)
        return Reply(b"record", headers={"ETag": '"v1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})

    site.pages["/"] = page
    async with fetching(CLOCK, cache=lpm.cache) as one:
        for days in (0, 2, 0):
            CLOCK.advance(days * 86_400)
            session = one.session
            assert (await session.get(f"{site.url}/")).body == b"record"
            assert session.fetched_at is not None
            await session.cache_pages()
    assert len(site.asked) == 2
    assert site.asked[1].headers["if-modified-since"] == "Thu, 01 Jan 2026 00:00:00 GMT"


async def test_what_gave_no_record_is_not_kept_and_what_was_kept_is_forgotten(
    site: Website, lpm: LocalPersistenceManager
) -> None:
    site.page("/", b"half a page")
    async with fetching(CLOCK, cache=lpm.cache) as one:
        await one.session.get(f"{site.url}/")
        session = one.session
        await session.get(f"{site.url}/")
        await session.cache_pages()
        session = one.session
        await session.get(f"{site.url}/")
        await session.drop_cached()
        await one.session.get(f"{site.url}/")
    assert len(site.asked) == 3


# Proxies, and callers elsewhere


async def test_requests_go_through_a_proxy(site: Website) -> None:
    site.page("/parcel", b"through the proxy")
    proxy = f"http://127.0.0.1:{site.port}"
    async with fetching(proxy=proxy, proxy_login="me:secret", allow_private=()) as one:
        page = await one.session.get("http://93.184.215.14/parcel?n=1")
        with pytest.raises(CannotFetch, match="private"):
            await one.session.get("http://10.0.0.1/parcel")
    assert page.body == b"through the proxy"
    assert [asked.target for asked in site.asked] == ["http://93.184.215.14/parcel?n=1"]
    assert site.asked[0].headers["proxy-authorization"].startswith("Basic ")


async def test_a_tunnel_that_the_proxy_refuses_is_tried_again(site: Website) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    site.streams["CONNECT"] = refuse
    async with fetching(proxy=site.url, allow_private=()) as one:
        with pytest.raises(RetryLater, match="proxy"):
            await one.session.get("https://93.184.215.14/")
    assert site.asked[0].target == "93.184.215.14:443"


async def test_requests_go_through_a_socks_proxy(site: Website) -> None:
    site.page("/parcel", b"through socks")
    asked_for: list[bytes] = []

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(b"\x05\x00")
        asked_for.append(await reader.readexactly(10))
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        await site.serve(reader, writer)

    async with (
        tcp_server(socks, "127.0.0.1") as port,
        fetching(proxy=f"socks5://127.0.0.1:{port}", allow_private=()) as one,
    ):
        page = await one.session.get("http://93.184.215.14/parcel")
    assert page.body == b"through socks"
    assert asked_for == [b"\x05\x01\x00\x01" + bytes([93, 184, 215, 14]) + (80).to_bytes(2)]


async def test_another_loop_may_ask_and_its_cancellation_ends_the_request(site: Website) -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter, __: Asked) -> None:
        await reader.read()
        gone.set()

    site.streams["/hang"] = hang
    site.page("/", b"ok")

    async def elsewhere() -> bytes:
        hanging = asyncio.create_task(one.session.get(f"{site.url}/hang"))
        while not any(asked.path == "/hang" for asked in site.asked):
            await asyncio.sleep(0.001)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        body: bytes = (await one.session.get(f"{site.url}/")).body
        return body

    async with fetching() as one:
        answers: list[bytes] = []
        thread = threading.Thread(target=lambda: answers.append(asyncio.run(elsewhere())))
        thread.start()
        await gone.wait()
        await asyncio.to_thread(thread.join)
    assert answers == [b"ok"]
