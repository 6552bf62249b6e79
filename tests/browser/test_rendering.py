"""Pages that a browser shows, from a real Chromium, and what a page can try."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from parcelpost import __version__
from parcelpost.clock import SystemClock
from parcelpost.events import PageFetched
from parcelpost.scrapers.fetch.errors import CannotFetch, HostBusy, PageNotFound, RetryLater, SiteBlocked
from parcelpost.scrapers.platform import Choose, Click, Fill, WaitFor
from parcelpost.storage import LocalPersistenceManager
from tests.browser.leasing import RenderingPool, rendering
from tests.website import Asked, Reply, Website, website

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("rendering")]

BUILT = b"""<html><head><link rel="dns-prefetch" href="//elsewhere.example.org"><title>Parcel</title></head><body>
<img src="/picture.png"><video src="/film.mp4"></video><script src="http://www.googletagmanager.com/gtm.js"></script>
<style>@font-face { font-family: x; src: url(/letters.woff) } p { font-family: x }</style><p>x</p>
<script>fetch('/record').then(r => r.text()).then(t => { document.body.insertAdjacentHTML('beforeend', t) })</script>
</body></html>"""
CHALLENGE = b"""<html><head><title>Just a moment...</title></head><body>
<script>document.cookie = 'passed=1'; location.reload()</script></body></html>"""


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Website]:
    async with website() as one:
        one.page("/built", BUILT)
        one.page("/record", b"<b id='owner'>DOE ANN</b>")
        yield one


async def test_a_page_is_read_when_what_is_waited_for_is_there(guarded: RenderingPool, site: Website) -> None:
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/built", until="#owner")
        await session.end(failed=False)
    assert b'<b id="owner">DOE ANN</b>' in page.body
    assert page.body.rstrip().endswith(b"</html>")
    assert (page.url, page.content_type) == (f"{site.url}/built", "text/html; charset=utf-8")
    assert sorted(asked.path for asked in site.asked) == ["/built", "/record"], "pictures, films, fonts and trackers"
    agent = site.asked[0].headers["user-agent"]
    assert "Chrome/" in agent
    assert agent.endswith(f" parcelpost/{__version__}")
    (told,) = [event for event in one.events if isinstance(event, PageFetched)]
    assert (told.method, told.status, told.bytes) == ("RENDER", 200, len(page.body))


async def test_what_is_not_blocked_is_loaded(guarded: RenderingPool, site: Website) -> None:
    async with rendering(guarded, block=("font",)) as one:
        session = one.session()
        await session.rendered(f"{site.url}/built", until="#owner")
        await session.end(failed=False)
    assert "/picture.png" in site.paths


async def test_a_page_that_is_fresh_in_the_cache_is_not_asked_for(
    guarded: RenderingPool, site: Website, tmp_path: Path
) -> None:
    async with (
        LocalPersistenceManager.open(tmp_path / "store.db", clock=SystemClock()) as lpm,
        rendering(guarded, cache=lpm.cache) as one,
    ):
        first = one.session()
        page = await first.rendered(f"{site.url}/built", until="#owner")
        await first.cache_pages()
        await first.end(failed=False)
        before = len(site.asked)
        assert await one.session().rendered(f"{site.url}/built", until="#owner") == page
        assert len(site.asked) == before
        assert one.leases == 1
        plain = await one.session().get(f"{site.url}/built")
        assert plain.body == BUILT


async def test_a_record_in_a_frame_is_the_page(guarded: RenderingPool, site: Website) -> None:
    site.page("/outer", b"<html><body>outer<iframe src='/inner'></iframe></body></html>")
    site.page("/inner", b"<html><body><i id='record'>inner</i></body></html>")
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/outer", until="#record")
        await session.end(failed=False)
    assert b"inner" in page.body
    assert b"outer" not in page.body
    assert page.url == f"{site.url}/outer"


async def test_where_what_is_waited_for_does_not_appear_the_frame_with_the_most_text_is_the_page(
    guarded: RenderingPool, site: Website
) -> None:
    site.page("/outer", b"<html><body>outer<iframe src='/note'></iframe><iframe src='/inner'></iframe></body></html>")
    site.page("/note", b"<html><body>short</body></html>")
    site.page("/inner", b"<html><body>the parcel that was requested does not exist</body></html>")
    async with rendering(guarded, quiet_seconds=0.5) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/outer", until="#never")
        await session.end(failed=False)
    assert b"does not exist" in page.body
    assert b"outer" not in page.body


async def test_a_page_is_complete_although_it_keeps_a_stream_open(guarded: RenderingPool, site: Website) -> None:
    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Asked) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()

    site.streams["/events"] = stream
    site.page("/live", b"<html><body><b>live</b><script>new EventSource('/events')</script></body></html>")
    async with rendering(guarded, quiet_seconds=0.5, page_seconds=10.0) as one:
        session = one.session()
        await session.rendered(f"{site.url}/live", until="#never")
        await session.end(failed=True)
    assert "/events" in site.paths
    assert "'#never' did not appear" in one.artifacts[0].log


async def test_steps_are_taken_before_a_page_is_read(guarded: RenderingPool, site: Website) -> None:
    site.page(
        "/search",
        b"""<html><body><form action="/found"><input name="parcel"><select name="year"><option value="1">2025
        <option value="2">2026</select><button>Search</button></form></body></html>""",
    )
    site.pages["/found"] = lambda asked: Reply(f"<html><body><b id=x>{asked.query}</b></body></html>".encode())
    steps = (Fill("[name=parcel]", "7-1"), Choose("[name=year]", "2026"), Click("button"), WaitFor("#x"))
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/search", steps=steps)
        await session.end(failed=False)
    assert b"'parcel': '7-1', 'year': '2'" in page.body
    assert page.url.endswith("/found?parcel=7-1&year=2")


async def test_a_step_that_cannot_be_taken_is_named_and_the_page_is_read_as_it_is(
    guarded: RenderingPool, site: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.scrapers.browser.renderer._STEP_SECONDS", 0.2)
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/built", steps=[Click("#nothing"), Click("#owner")])
        await session.end(failed=True)
    assert b"<title>Parcel</title>" in page.body
    assert "incomplete: Click #nothing: " in one.artifacts[0].log


async def test_a_status_means_what_it_means_without_a_browser(guarded: RenderingPool, site: Website) -> None:
    meanings = {404: PageNotFound, 403: SiteBlocked, 418: CannotFetch, 500: RetryLater, 503: RetryLater}
    async with rendering(guarded) as one:
        for status, failure in meanings.items():
            site.page("/", b"<html><body><script>fetch('/record')</script></body></html>", status)
            session = one.session()
            with pytest.raises(failure, match=str(status)):
                await session.rendered(f"{site.url}/", until="#owner")
            await session.end(failed=False)
    assert "/record" not in site.paths, "its scripts do not run"


async def test_a_host_that_asks_for_rest_gets_it(guarded: RenderingPool, site: Website) -> None:
    site.page("/", b"<html><body>slowly</body></html>", 429, Retry_After="7")
    async with rendering(guarded) as one:
        session = one.session()
        with pytest.raises(RetryLater) as busy:
            await session.rendered(f"{site.url}/")
        await session.end(failed=False)
        assert busy.value.after_seconds == 7.0
        with pytest.raises(HostBusy):
            await one.session("t2").get(f"{site.url}/")


@pytest.mark.parametrize("status", [200, 403])
async def test_a_robot_check_is_never_passed_not_by_its_own_script_either(
    guarded: RenderingPool, site: Website, status: int
) -> None:
    def check(asked: Asked) -> Reply:
        passed = "passed=1" in asked.headers.get("cookie", "")
        return Reply(b"<html><body><b id=owner>DOE</b></body></html>") if passed else Reply(CHALLENGE, status)

    site.pages["/"] = check
    async with rendering(guarded) as one:
        session = one.session()
        with pytest.raises(SiteBlocked):
            await session.rendered(f"{site.url}/", until="#owner", keep_cookies=True)
        await session.end(failed=True)
    assert "ended: the site shows a robot check" in one.artifacts[0].log
    assert "script-src" not in one.artifacts[0].log, "what we do to a page is no error of its own"


_SHOWS_IT = "t => { document.open(); document.write(t); document.close() }"


@pytest.mark.parametrize(
    "page",
    [
        CHALLENGE.replace(b"</body>", b"<!--" + b"x" * 80_000 + b"--></body>"),
        f"<html><body><script>fetch('/check').then(r => r.text()).then({_SHOWS_IT})</script></body></html>".encode(),
        b"<html><body><iframe src='/check'></iframe></body></html>",
        b"<html><body><script>setTimeout(() => { document.title = 'Just a moment...' }, 100)</script></body></html>",
    ],
    ids=["a large one", "asked for by a script", "in a frame", "made by a script"],
)
async def test_a_robot_check_is_known_however_it_comes(guarded: RenderingPool, site: Website, page: bytes) -> None:
    def check(asked: Asked) -> Reply:
        passed = "passed=1" in asked.headers.get("cookie", "")
        return Reply(b"<html><body><b id=owner>DOE</b></body></html>" if passed else CHALLENGE)

    def first(asked: Asked) -> Reply:
        return check(asked) if "passed=1" in asked.headers.get("cookie", "") else Reply(page)

    site.pages.update({"/": first, "/check": check})
    async with rendering(guarded, quiet_seconds=1.0) as one:
        session = one.session()
        with pytest.raises(SiteBlocked):
            await session.rendered(f"{site.url}/", until="#owner")
        await session.end(failed=False)
    assert not any("passed=1" in asked.headers.get("cookie", "") for asked in site.asked)


async def test_where_only_a_person_gets_on_it_ends(guarded: RenderingPool, site: Website) -> None:
    async with rendering(guarded) as one:
        for place, failure in {
            "/Account/Login": SiteBlocked,
            "/Terms.aspx": SiteBlocked,
            "/Expired": RetryLater,
        }.items():
            site.page(place, b"<html><body>who are you?</body></html>")
            site.page("/redirect", b"", 302, Location=place)
            site.page("/script", f"<html><body><script>location.href = '{place}'</script></body></html>".encode())
            for path in ("/redirect", "/script"):
                session = one.session()
                with pytest.raises(failure):
                    await session.rendered(f"{site.url}{path}", until="#owner")
                await session.end(failed=False)
            assert place not in site.paths


async def test_a_private_address_is_never_asked(guarded: RenderingPool, site: Website) -> None:
    async def inside(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2"]

    there = f"http://127.0.0.2:{site.port}/secret"
    site.page("/script", f"<html><body><script>location.href = '{there}'</script></body></html>".encode())
    site.page("/redirect", b"", 302, Location=there)
    site.page("/dns", b"", 302, Location="http://inside.example.org/secret")
    site.page("/tunnel", b"", 302, Location="https://inside.example.org/secret")
    async with rendering(guarded, resolve=inside) as one:
        for path in ("/script", "/redirect", "/dns", "/tunnel"):
            session = one.session()
            with pytest.raises(CannotFetch, match="private address"):
                await session.rendered(f"{site.url}{path}")
            await session.end(failed=False)
    assert site.paths == ["/script", "/redirect", "/dns", "/tunnel"]


async def test_a_robot_check_of_another_site_that_a_page_leads_to_is_none_to_pass(
    guarded: RenderingPool, site: Website
) -> None:
    there = f"http://localhost:{site.port}"  # another site to a browser, in another process
    site.page("/", f"<html><body><script>location.href = '{there}/check'</script></body></html>".encode())
    site.page("/on", f"<html><body><script>location.href = '{there}/built'</script></body></html>".encode())
    site.page("/check", CHALLENGE)
    async with rendering(guarded, fetch={"allow_private": ("127.0.0.1", "localhost")}) as one:
        session = one.session()
        with pytest.raises(SiteBlocked):
            await session.rendered(f"{site.url}/", until="#owner")
        page = await session.rendered(f"{site.url}/on", until="#owner")
        await session.end(failed=False)
    assert page.url == f"{there}/built"
    assert site.paths.count("/check") == 1


async def test_no_part_of_a_page_reaches_a_private_address_or_goes_by_udp(
    guarded: RenderingPool, site: Website
) -> None:
    heard: list[bytes] = []

    class Heard(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            heard.append(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Heard, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    script = f"""<html><body><script>
    const tried = [fetch('http://127.0.0.2:{site.port}/secret').catch(() => 0),
      fetch('/away').catch(() => 0),
      new Promise(done => {{ const socket = new WebSocket('ws://127.0.0.2:{site.port}/socket');
        socket.onerror = socket.onclose = done; }})];
    const peer = new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{port}'}}]}});
    peer.createDataChannel('x'); peer.createOffer().then(offer => peer.setLocalDescription(offer));
    tried.push(new Promise(done => {{ peer.onicegatheringstatechange = () =>
      peer.iceGatheringState == 'complete' && done(); }}));
    Promise.all(tried).then(() => {{ document.body.innerHTML = '<b id=done></b>' }});
    </script></body></html>"""
    site.page("/", script.encode())
    site.page("/away", b"", 302, Location=f"http://127.0.0.2:{site.port}/secret")
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/", until="#done")
        await session.end(failed=False)
    transport.close()
    assert b'id="done"' in page.body
    assert sorted(site.paths) == ["/", "/away"]
    assert heard == []


async def test_a_page_that_leads_on_for_ever_is_left(guarded: RenderingPool, site: Website) -> None:
    site.page("/", b"<html><body><script>location.href = '/?' + Math.random()</script></body></html>")
    async with rendering(guarded, max_navigations=4) as one:
        session = one.session()
        with pytest.raises(RetryLater, match="more than 4 times"):
            await session.rendered(f"{site.url}/", until="#owner")
        await session.end(failed=False)
    assert len(site.asked) <= 4


async def test_a_page_that_leads_to_nothing_is_no_page(guarded: RenderingPool, site: Website) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        there = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        site.page("/script", f"<html><body><b id=owner></b><script>location.href = '{there}'</script></html>".encode())
        site.page("/invalid", b"", 302, Location="http://[")
        async with rendering(guarded, quiet_seconds=2.0) as one:
            for path in ("/script", "/invalid"):
                session = one.session()
                with pytest.raises((RetryLater, CannotFetch)):
                    await session.rendered(f"{site.url}{path}", until="#more")
                await session.end(failed=False)


async def test_a_page_that_loads_too_much_is_given_up(guarded: RenderingPool, site: Website) -> None:
    site.page("/", b"<html><body><script src='/large.js'></script></body></html>")
    site.page("/large.js", b"/*" + b"x" * 2_000_000 + b"*/")
    async with rendering(guarded, max_page_bytes=1_000_000) as one:
        session = one.session()
        with pytest.raises(CannotFetch, match="1,000,000 bytes"):
            await session.rendered(f"{site.url}/", until="#owner")
        await session.end(failed=False)


async def test_a_page_that_grows_too_long_is_given_up(guarded: RenderingPool, site: Website) -> None:
    site.page("/", b"<html><body><script>document.write('x'.repeat(300000) + '<b id=y>')</script></body></html>")
    async with rendering(guarded, fetch={"max_page_bytes": 200_000}) as one:
        session = one.session()
        with pytest.raises(CannotFetch, match="200,000 bytes"):
            await session.rendered(f"{site.url}/", until="#y")
        await session.end(failed=False)


async def test_a_file_to_be_saved_is_no_page(guarded: RenderingPool, site: Website) -> None:
    site.page("/", b"data", Content_Disposition="attachment; filename=x.bin", Content_Type="application/x-thing")
    async with rendering(guarded) as one:
        session = one.session()
        with pytest.raises(CannotFetch, match="file"):
            await session.rendered(f"{site.url}/")
        await session.end(failed=False)


async def test_dialogs_and_windows_hold_up_nobody(guarded: RenderingPool, site: Website) -> None:
    site.page(
        "/",
        b"""<html><body><a id="a" href="/file" download></a><script>
        alert('hello'); if (!confirm('really?')) { window.open('/window'); window.open('/window'); a.click();
          setTimeout(() => { document.body.innerHTML = '<b id=owner></b>' }, 200) }</script></body></html>""",
    )
    async with rendering(guarded) as one:
        session = one.session()
        page = await session.rendered(f"{site.url}/", until="#owner")
        await session.end(failed=True)
    assert b'id="owner"' in page.body
    assert "/window" not in site.paths
    assert "dialog alert, dismissed: hello" in one.artifacts[0].log


async def test_a_site_that_does_not_answer_is_tried_later(guarded: RenderingPool, site: Website) -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter, __: Asked) -> None:
        await reader.read()

    site.streams["/"] = hang
    async with rendering(guarded, page_seconds=0.7) as one:
        session = one.session()
        with pytest.raises(RetryLater, match=r"within 0.7 s"):
            await session.rendered(f"{site.url}/")
        await session.end(failed=True)
    assert "ended: 127.0.0.1: no page within 0.7 s\n" in one.artifacts[0].log
    assert one.artifacts[0].screenshot is not None


FLOODS = {
    "requests": "for (let i = 0; i < 120; i++) new Image().src = '/?' + i",
    "frames": "for (let i = 0; i < 120; i++) document.body.append(document.createElement('iframe'))",
    "windows": "for (let i = 0; i < 4; i++) window.open('/window')",
    "errors": "for (let i = 0; i < 120; i++) setTimeout(() => nowhere(), 0)",
    "dialogs": "for (let i = 0; i < 120; i++) alert(i)",
}


async def test_whatever_a_page_does_without_end_is_stopped(
    guarded: RenderingPool, site: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.scrapers.browser.page_watch._MAX_MESSAGES", 100)
    async with rendering(guarded) as one:
        for kind, script in FLOODS.items():
            site.page("/", f"<html><body><script>{script}</script></body></html>".encode())
            session = one.session(kind)
            with pytest.raises(RetryLater, match="too many messages"):
                await session.rendered(f"{site.url}/", until="#owner")
            await session.end(failed=False)


async def test_robots_txt_is_kept_to_wherever_a_page_leads(guarded: RenderingPool, site: Website) -> None:
    site.page("/robots.txt", b"User-agent: parcelpost\nDisallow: /private\n", Content_Type="text/plain")
    site.page("/", b"<html><body><script>location.href = '/private/1'</script></body></html>")
    async with rendering(guarded, fetch={"obey_robots": True}) as one:
        for path in ("/private/1", "/"):
            session = one.session()
            with pytest.raises(CannotFetch, match=r"robots\.txt"):
                await session.rendered(f"{site.url}{path}")
            await session.end(failed=False)
    assert sorted(set(site.paths)) == ["/", "/robots.txt"]


async def test_a_selector_that_is_none_is_told(guarded: RenderingPool, site: Website) -> None:
    async with rendering(guarded) as one:
        session = one.session()
        with pytest.raises(CannotFetch, match="not a CSS selector"):
            await session.rendered(f"{site.url}/built", until="][")
        await session.end(failed=False)
