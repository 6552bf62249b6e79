"""Functions and classes of others, as platforms."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any, ClassVar

import pytest

from parcelpost.clock import Clock, ManualClock
from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.plugin_adapter import PluginAdapter
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.sandbox import Sandbox
from tests.scrapers.fetching import fetching
from tests.storage.factories import a_task
from tests.website import Website

IDENTITY = {"parcel_id": "1-2", "state": "CT", "county": "hartford", "platform": "vgsi"}
HTML = "<html><b>Ann</b></html>"


@pytest.fixture
async def lpm(tmp_path: Path) -> AsyncIterator[LocalPersistenceManager]:
    async with LocalPersistenceManager.open(tmp_path / "store.db") as opened:
        yield opened


async def outcome_of(offered: Callable[..., Any], task: Task | None = None, **how: Any) -> Outcome:
    found = PluginAdapter(offered, **how).scrape(task or a_task())
    return await found if isinstance(found, Awaitable) else found


async def data_of(offered: Callable[..., Any], task: Task | None = None, **how: Any) -> Json:
    outcome = await outcome_of(offered, task, **how)
    assert isinstance(outcome, Done), outcome
    return outcome.data


# What it may answer


async def test_a_plain_function_answers_at_once_and_outside_of_any_loop() -> None:
    found = PluginAdapter(lambda target: {"owner": "Ann"}).scrape(a_task())
    assert found == Done(data={**IDENTITY, "owner": "Ann"})


async def test_an_async_function_is_awaited() -> None:
    async def scrape(target: Any) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"owner": target.county}

    assert (await data_of(scrape))["owner"] == "hartford"


async def test_what_the_record_says_of_itself_stands() -> None:
    assert await data_of(lambda: {"parcel_id": "9", "county": "Hartford"}) == {
        **IDENTITY,
        "parcel_id": "9",
        "county": "Hartford",
    }


async def test_none_is_not_found() -> None:
    assert isinstance(await outcome_of(lambda target: None), NotFound)
    assert isinstance(await outcome_of(lambda target: []), NotFound)


async def test_a_generator_gives_several_records_and_none_is_given_the_targets_number() -> None:
    def scrape(target: Any) -> Iterator[dict[str, str]]:
        yield {"parcel_id": "1"}
        yield {"case": "7"}

    outcome = await outcome_of(scrape)
    rest = {"state": "CT", "county": "hartford", "platform": "vgsi"}
    assert outcome == Done(data={**rest, "parcel_id": "1"}, additional_records=({**rest, "case": "7"},))


async def test_an_async_generator_does_too() -> None:
    async def scrape(target: Any) -> AsyncIterator[dict[str, str]]:
        yield {"parcel_id": "1"}
        yield {"parcel_id": "2"}

    outcome = await outcome_of(scrape)
    assert isinstance(outcome, Done)
    assert [one["parcel_id"] for one in outcome.additional_records] == ["2"]


async def test_a_generator_without_end_is_given_up() -> None:
    def scrape() -> Iterator[dict[str, str]]:
        while True:
            yield {}

    async def scrape_async() -> AsyncIterator[dict[str, str]]:
        while True:
            yield {}

    for endless in (scrape, scrape_async):
        assert await outcome_of(endless) == GiveUp("it returned more than 100,000 records")


@pytest.mark.parametrize("outcome", [NotFound("x"), Retry("x"), Blocked("x"), GiveUp("x"), Done(data={})])
async def test_an_outcome_stays_as_it_is(outcome: Outcome) -> None:
    assert await outcome_of(lambda task: outcome) is outcome


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (7, "it returned an int, which is not a record"),
        ([{"a": 1}, 7], "it returned an int among its records, which is not a record"),
        (HTML, "it returned a str, and there is no parse function for it"),
    ],
)
async def test_what_is_no_record_is_given_up_with_the_reason(answer: object, reason: str) -> None:
    assert await outcome_of(lambda: answer) == GiveUp(reason)


# Text and what reads it


def parse_html(html: str) -> dict[str, str]:
    return {"owner": html[9:12]}


async def test_text_is_kept_as_the_raw_page_and_read_by_the_other_function() -> None:
    outcome = await outcome_of(lambda id: HTML, a_task(url="https://example.org/1"), parse=parse_html)  # noqa: A006
    page = Page(body=HTML.encode(), content_type="text/html; charset=utf-8", url="https://example.org/1")
    assert outcome == Done(data={**IDENTITY, "owner": "Ann"}, page=page)


async def test_bytes_and_pages_go_to_the_parser_as_they_are() -> None:
    for answer in (HTML.encode(), Page(body=HTML.encode(), url="u")):
        seen: list[object] = []
        outcome = await outcome_of(
            lambda answer=answer: answer, parse=lambda found, seen=seen: seen.append(found) or {}
        )
        assert isinstance(outcome, Done)
        assert seen == [answer]
        assert outcome.page is not None
        assert outcome.page.body == HTML.encode()


async def test_either_may_be_async_and_the_parser_may_ask_for_the_target_too() -> None:
    async def read(html: str, county: str) -> dict[str, str]:
        return {"in": county}

    async def fetch(parcel_id: str) -> str:
        return HTML

    assert (await data_of(fetch, parse=read))["in"] == "hartford"
    assert (await data_of(lambda: HTML, parse=read))["in"] == "hartford"


async def test_a_parser_that_finds_nothing_is_not_found_and_an_empty_page_is_tried_again() -> None:
    assert isinstance(await outcome_of(lambda: HTML, parse=lambda html: None), NotFound)
    assert await outcome_of(lambda: " \n", parse=parse_html) == Retry("the page is empty")


async def test_a_challenge_page_is_blocked_and_never_parsed() -> None:
    outcome = await outcome_of(lambda: "<title>Just a moment...</title>", parse=lambda html: 1 / 0)
    assert isinstance(outcome, Blocked)


# What it may ask for


async def test_parameters_are_filled_by_their_names() -> None:
    def scrape(id: str, state: str, county: str, url: str, *, task_id: str, platform: str) -> dict[str, Any]:  # noqa: A002
        return {"all": [id, state, county, url, task_id, platform]}

    data = await data_of(scrape, a_task(url="u"))
    assert data["all"] == ["1-2", "CT", "hartford", "u", "t1", "vgsi"]


async def test_a_target_is_both_a_dict_and_an_object_unless_it_is_annotated() -> None:
    task = a_task(extra={"beds": 3})

    def loose(target):  # type: ignore[no-untyped-def]
        return {"seen": [target["parcel_id"], target.county, target.get("beds"), target.extra, hasattr(target, "no")]}

    def strict(target: Target) -> dict[str, Any]:
        return {"seen": isinstance(target, Target)}

    def resolved(thing: Any) -> dict[str, Any]:
        return {"seen": thing is task}

    resolved.__annotations__["thing"] = Task
    assert (await data_of(loose, task))["seen"] == ["1-2", "hartford", 3, {"beds": 3}, False]
    assert (await data_of(strict, task))["seen"] is True
    assert (await data_of(resolved, task))["seen"] is True
    assert (await data_of(lambda target: {"n": target}, task))["n"]["parcel_id"] == "1-2"


async def test_a_single_parameter_of_another_name_gets_the_parcels_number() -> None:
    def scrape(folio: str, timeout: float = 5.0) -> dict[str, Any]:
        return {"seen": [folio, timeout]}

    assert (await data_of(scrape))["seen"] == ["1-2", 5.0]
    assert (await data_of(scrape, a_task(extra={"folio": "F1", "timeout": 9})))["seen"] == ["F1", 9]
    assert await data_of(dict[str, Any].fromkeys, parse="") == {**IDENTITY, "1": None, "-": None, "2": None}


async def test_what_the_target_does_not_have_is_given_up_with_its_name() -> None:
    def scrape(parcel_id: str, book: str, page: str) -> dict[str, str]:
        return {"at": book + page}

    outcome = await outcome_of(scrape)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.endswith("scrape needs book, which the target does not have")
    assert (await data_of(scrape, a_task(extra={"book": "A", "page": "1"})))["at"] == "A1"


# Classes


class Lookup:
    made: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.made.append(threading.get_ident())

    def fetch(self, id: str) -> str:  # noqa: A002
        return HTML

    def parse(self, html: str) -> dict[str, str]:
        return parse_html(html)

    def lookup(self, pin: str) -> str:
        return f"<i>{pin}</i>"

    def read(self, html: str) -> dict[str, str]:
        return {"pin": html[3:6]}


async def test_a_class_has_fetch_and_parse_or_methods_that_are_named() -> None:
    assert await data_of(Lookup) == {**IDENTITY, "owner": "Ann"}
    assert await data_of(Lookup()) == {**IDENTITY, "owner": "Ann"}  # type: ignore[arg-type]
    assert await data_of(Lookup, scrape="lookup", parse="read") == {**IDENTITY, "pin": "1-2"}


async def test_each_thread_has_its_own_instance_of_a_class() -> None:
    adapted = PluginAdapter(Lookup)
    Lookup.made.clear()
    threads = [threading.Thread(target=lambda: [adapted.scrape(a_task()) for _ in range(3)]) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len(Lookup.made) == 2


async def test_what_lacks_the_methods_is_not_a_platform() -> None:
    with pytest.raises(TypeError, match=r"an int is not a platform: it has no fetch or scrape method"):
        PluginAdapter(7)
    for plugin in (Lookup, Lookup()):
        with pytest.raises(TypeError, match="a Lookup has no absent method"):
            PluginAdapter(plugin, parse="absent")
        with pytest.raises(TypeError, match="a Lookup is not a platform: it has no absent method"):
            PluginAdapter(plugin, scrape="absent")


# Fetching


FETCHED = "<html><b>Ann</b> and more</html>"


async def fetched(
    site: Website, plugin: Any, *, parse: Any = "", times: int = 1, clock: Clock | None = None, **options: Any
) -> list[Outcome]:
    """As a worker does it: each attempt in a sandbox, with a session of its own."""
    stage, found = Sandbox("test"), []
    async with fetching(clock, **options) as one:
        adapted = PluginAdapter(plugin, parse=parse, sessions=lambda task: one.fetcher.session())
        for _ in range(times):
            outcome = await stage.run(adapted.scrape, a_task(url=f"{site.url}/1"), 60)
            assert outcome is not None
            found.append(outcome)
        await stage.close()
    return found


async def get(url: str, fetch: Any) -> Page:
    page: Page = await fetch(url)
    return page


def get_plain(url: str, fetch: Any) -> Page:
    page: Page = fetch(url)
    return page


class Fetches:
    """Has a method for it, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def fetch(self, url: str, fetch: Any) -> str:
        self.calls += 1
        return (await get(url, fetch)).body.decode()

    async def parse(self, html: str) -> dict[str, int | str]:
        return {"owner": html[9:12], "calls": self.calls}


async def get_each(url: str, fetch: Any) -> AsyncIterator[dict[str, str]]:
    for number in "12":
        yield {"parcel_id": number, "page": (await fetch(url)).body.decode()}


def get_each_plain(url: str, fetch: Any) -> Iterator[dict[str, str]]:
    for number in "12":
        yield {"parcel_id": number, "page": fetch(url).body.decode()}


def decorated(function: Any) -> Any:
    """As many a decorator is: plain, whatever it is put on."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return call


def on_a_thread(function: Any) -> Any:
    @wraps(function)
    async def call(*given: Any, **named: Any) -> Any:
        return await asyncio.to_thread(function, *given, **named)

    return call


class Called:
    async def __call__(self, url: str, fetch: Any) -> Page:
        return await get(url, fetch)


def owner(page: Page) -> dict[str, str]:
    return {"owner": page.body.decode()[9:12]}


FORMS = [get, get_plain, partial(get), partial(get_plain), decorated(get), decorated(get_plain), on_a_thread(get_plain)]


@pytest.mark.parametrize("function", [*FORMS, Called()])
async def test_a_function_with_a_fetch_parameter_gets_a_polite_fetch(site: Website, function: Any) -> None:
    site.page("/1", FETCHED.encode())
    (outcome,) = await fetched(site, function, parse=owner)
    assert isinstance(outcome, Done), outcome
    assert outcome.data == {**IDENTITY, "owner": "Ann"}
    assert outcome.page is not None
    assert (outcome.page.body, outcome.page.url) == (FETCHED.encode(), f"{site.url}/1")
    assert outcome.scraped_at is not None


async def test_a_class_and_an_async_generator_may_ask_for_it_too(site: Website) -> None:
    site.page("/1", FETCHED.encode())
    first, second = await fetched(site, Fetches, times=2)
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert (first.data, second.data) == ({**IDENTITY, "owner": "Ann", "calls": 1}, {**first.data, "calls": 2})  # type: ignore[dict-item]
    for generator in (get_each, get_each_plain):
        (outcome,) = await fetched(site, generator)
        assert isinstance(outcome, Done)
        assert [one["parcel_id"] for one in (outcome.data, *outcome.additional_records)] == ["1", "2"]  # type: ignore[index]


@pytest.mark.parametrize("function", [get, get_plain])
async def test_a_page_that_gave_a_record_is_asked_for_once(
    site: Website, lpm: LocalPersistenceManager, function: Any
) -> None:
    site.page("/1", FETCHED.encode())
    outcomes = await fetched(site, function, cache=lpm.cache, times=3, parse=owner)
    assert all(isinstance(one, Done) for one in outcomes)
    assert len(site.asked) == 1
    (outcome,) = await fetched(site, function, cache=lpm.cache, parse=lambda page: None)
    assert isinstance(outcome, NotFound)
    await fetched(site, function, cache=lpm.cache, parse=owner)
    assert len(site.asked) == 2


@pytest.mark.parametrize("function", [get, get_plain, get_each, get_each_plain])
async def test_a_fetch_that_fails_ends_the_task_as_the_site_says(site: Website, function: Any) -> None:
    for status, kind in ((404, NotFound), (403, Blocked), (500, Retry), (400, GiveUp)):
        site.page("/1", b"no", status)
        (outcome,) = await fetched(site, function, parse=owner)
        assert isinstance(outcome, kind), outcome


@pytest.mark.parametrize("function", [get, get_plain])
async def test_fetch_obeys_robots_refuses_private_addresses_and_waits_its_turn(site: Website, function: Any) -> None:
    site.page("/robots.txt", b"User-agent: *\nDisallow: /1")
    site.page("/1", FETCHED.encode())
    (outcome,) = await fetched(site, function, parse=owner, obey_robots=True)
    assert isinstance(outcome, GiveUp)
    assert "robots.txt" in outcome.reason
    assert [asked.path for asked in site.asked] == ["/robots.txt"]
    (outcome,) = await fetched(site, function, parse=owner, allow_private=())
    assert isinstance(outcome, GiveUp)
    assert "private" in outcome.reason
    clock = ManualClock()
    started = clock.monotonic()
    outcomes = await fetched(site, function, parse=owner, times=3, clock=clock, pace_seconds=7.0)
    assert all(isinstance(one, Done) for one in outcomes)
    assert clock.monotonic() - started >= 14.0
    assert len(site.asked) == 4


async def test_a_function_that_downloads_by_itself_is_not_slowed_down(site: Website) -> None:
    def download(url: str) -> str:
        with urllib.request.urlopen(url) as response:
            text: str = response.read().decode()
        return text

    site.page("/robots.txt", b"User-agent: *\nDisallow: /")
    site.page("/1", FETCHED.encode())
    clock = ManualClock()
    started = clock.monotonic()
    outcomes = await fetched(site, download, parse=parse_html, times=3, clock=clock, pace_seconds=7.0, obey_robots=True)
    assert all(isinstance(one, Done) for one in outcomes)
    assert clock.monotonic() == started
    assert [asked.path for asked in site.asked] == ["/1"] * 3


async def test_where_nothing_is_fetched_a_function_that_must_is_given_up() -> None:
    assert await outcome_of(get) == GiveUp("get needs fetch, which is not available here")

    def may(parcel_id: str, fetch: Any = None) -> dict[str, bool]:
        return {"fetched": fetch is not None}

    assert (await data_of(may))["fetched"] is False


# Reading what was kept


def read_again(page: Page, parse: Any) -> object:
    return PluginAdapter(lambda: "", parse=parse).parse("vgsi", page, a_task().target)


def as_text(html: str) -> dict[str, Any]:
    return {"is": [type(html).__mro__[-2].__name__, html[:6]]}


def as_bytes(html: bytes) -> dict[str, Any]:
    return {"is": [type(html).__mro__[-2].__name__, html[:6].decode()]}


def as_page(html: Page) -> dict[str, Any]:
    return {"is": [type(html).__name__, html.body[:6].decode()]}


OF_TEXT, OF_BYTES = "text/html; charset=utf-8", "application/octet-stream"


def test_a_parser_is_given_what_it_is_annotated_with(subtests: pytest.Subtests) -> None:
    for content_type in [OF_TEXT, OF_BYTES, "text/html; charset=iso-8859-1", "text/html"]:
        for parse, kind in [(as_text, "str"), (as_bytes, "bytes"), (as_page, "Page")]:
            with subtests.test(content_type=content_type, parse=parse, kind=kind):
                outcome = read_again(Page(body=FETCHED.encode(), content_type=content_type), parse)
                assert isinstance(outcome, Done)
                assert outcome.data == {**IDENTITY, "is": [kind, "<html>"]}


def test_one_that_says_nothing_is_given_what_scraping_gave_it_and_may_ask_it_as_a_page() -> None:
    def parse(found):  # type: ignore[no-untyped-def]
        return {"text": isinstance(found, str), "starts": found[:3] in ("<ht", b"<ht"), "body": found.body.decode()}

    for content_type, is_text in ((OF_TEXT, True), (OF_BYTES, False), ("text/html", True), ("application/json", True)):
        outcome = read_again(Page(body=FETCHED.encode(), content_type=content_type), parse)
        assert isinstance(outcome, Done)
        assert outcome.data == {**IDENTITY, "text": is_text, "starts": True, "body": FETCHED}


async def test_an_outcome_of_the_parser_keeps_the_page() -> None:
    outcome = await outcome_of(lambda: HTML, parse=lambda html: Done(data={"a": 1}))
    assert isinstance(outcome, Done)
    assert outcome.page is not None


async def test_what_reads_again_asks_nobody_and_may_be_async() -> None:
    async def parse(html: str, county: str) -> dict[str, str]:
        return {"in": county}

    found = read_again(Page(body=b"<p>"), parse)
    assert isinstance(found, Awaitable)
    assert (await found) == Done(data={**IDENTITY, "in": "hartford"}, page=Page(body=b"<p>"))
    wants = GiveUp("owner_online needs fetch, which is not available here")
    assert read_again(Page(body=b"<p>"), owner_online) == wants
    assert read_again(Page(body=b" "), parse) == Retry("the page is empty")
    without = PluginAdapter(lambda: "")
    assert not without.can_parse
    assert without.parse("vgsi", Page(body=b"<p>"), a_task().target) == GiveUp("there is no parse function")


def owner_online(html: str, fetch: Any) -> dict[str, str]:
    raise AssertionError
