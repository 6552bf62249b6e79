"""The built-in platform for tests and first steps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Retry
from parcelpost.scrapers.platforms.echo import MAX_SIZE_BYTES, Echo
from tests.storage.factories import a_task

MIB = 1024**2


async def echo(clock: ManualClock | None = None, url: str = "", **extra: Json) -> Outcome:
    return await Echo(clock or ManualClock()).scrape(a_task(platform="echo", url=url, extra=extra))


async def done(url: str = "", **extra: Json) -> Done:
    outcome = await echo(None, url, **extra)
    assert isinstance(outcome, Done)
    return outcome


async def record(url: str = "", **extra: Json) -> Mapping[str, Json]:
    data = (await done(url, **extra)).data
    assert isinstance(data, Mapping)
    return data


async def test_the_record_is_the_targets_own_fields() -> None:
    expected = {"parcel_id": "1-2", "state": "CT", "county": "hartford", "owner": "Ann", "beds": 3}
    assert await record(owner="Ann", beds=3) == expected
    assert (await record("https://example.org/1"))["url"] == "https://example.org/1"


async def test_what_is_extra_does_not_replace_the_targets_own_fields() -> None:
    assert (await record(parcel_id="another"))["parcel_id"] == "1-2"


async def test_the_page_is_a_small_html_of_them_escaped() -> None:
    page = (await done(owner="<b>Ann & Söns</b>", beds=[1, "<"])).page
    assert page is not None
    assert page.content_type == "text/html"
    text = page.body.decode()
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>")
    assert "<dt>owner</dt><dd>&lt;b&gt;Ann &amp; Söns&lt;/b&gt;</dd>" in text
    assert "<dd>[1,&quot;&lt;&quot;]</dd>" in text


async def test_the_same_target_gives_the_same_outcome() -> None:
    assert await echo(owner="Ann", size_bytes=5_000) == await echo(owner="Ann", size_bytes=5_000)


@pytest.mark.parametrize("size", [1_000, MIB, 3 * MIB + 7])
async def test_a_page_is_as_large_as_asked_for(size: int) -> None:
    page = (await done(size_bytes=size)).page
    assert page is not None
    assert len(page.body) == size


@pytest.mark.parametrize("no", [False, "false"])
async def test_a_page_may_be_unwanted(no: Json) -> None:
    assert (await done(page=no)).page is None
    assert (await done(page="117")).page is not None


async def test_a_delay_is_slept_on_the_clock() -> None:
    clock = ManualClock()
    assert isinstance(await echo(clock, delay_ms=1_500), Done)
    assert clock.monotonic() == 1.5


ENDS: dict[Json, Outcome] = {
    True: Retry("requested by the task"),
    "retry": Retry("requested by the task"),
    "give_up": GiveUp("requested by the task"),
    "blocked": Blocked("requested by the task"),
    "not_found": NotFound("requested by the task"),
}


@pytest.mark.parametrize(("fail", "expected"), ENDS.items())
async def test_it_ends_as_asked_to_after_the_delay(fail: Json, expected: Outcome) -> None:
    clock = ManualClock()
    assert await echo(clock, fail=fail, delay_ms=2_000) == expected
    assert clock.monotonic() == 2.0


async def test_it_raises_and_exits_as_asked_to() -> None:
    with pytest.raises(ValueError, match="requested by the task"):
        await echo(fail="raise")
    with pytest.raises(SystemExit):
        await echo(fail="exit")


async def test_it_hangs_until_it_is_cancelled() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(echo(fail="hang"), 0.01)


async def test_it_blocks_its_thread_and_then_goes_on() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    assert isinstance(await echo(fail="block", delay_ms=20), Done)
    assert loop.time() - before >= 0.02


@pytest.mark.parametrize("nothing", [None, False, 0, ""])
async def test_a_wish_that_is_empty_is_none(nothing: Json) -> None:
    assert isinstance(await echo(fail=nothing, delay_ms=nothing, size_bytes=nothing), Done)


async def test_a_wish_may_be_text_as_it_comes_from_a_csv_file() -> None:
    outcome = await echo(size_bytes="5000", delay_ms="0", fail="false")
    assert isinstance(outcome, Done)
    assert outcome.page is not None
    assert len(outcome.page.body) == 5000
    assert isinstance(await echo(fail="TRUE"), Retry)


@pytest.mark.parametrize("size", [MAX_SIZE_BYTES + 1, -1, 1.5, "nine", "9" * 13, True, [1], 1e300])
async def test_an_absurd_size_is_given_up_before_anything_is_built(size: Json) -> None:
    outcome = await echo(size_bytes=size)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.startswith("size_bytes must be a whole number from 0 to 536,870,912, not ")


@pytest.mark.parametrize("delay", [-1, "nine", True, [1], float("nan"), float("inf"), 1e300])
async def test_an_absurd_delay_is_given_up_at_once(delay: Json) -> None:
    outcome = await echo(delay_ms=delay)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.startswith("delay_ms must be a number from 0 to 86,400,000, not ")


@pytest.mark.parametrize("fail", ["explode", 1, ["raise"], {"raise": 1}])
async def test_an_unknown_failure_is_given_up(fail: Json) -> None:
    outcome = await echo(fail=fail)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.startswith("fail must be true, false or one of retry, give_up, blocked, not_found, raise, ")
