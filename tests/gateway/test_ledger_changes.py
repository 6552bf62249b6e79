"""The changes that both ledgers find between results."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.events import Event, ResultNotCompared
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.models import ChangeFilter, ParcelFilter
from tests.gateway.factories import NOON, arrival, parcel
from tests.gateway.stage import some_context

HOUR = timedelta(hours=1)


async def test_every_change_is_found_once_and_in_order(ledger: Ledger, now: datetime) -> None:
    async def found(**wanted: Any) -> list[tuple[int, str, str]]:
        page = await ledger.changes(ChangeFilter(**wanted), 0, 100)
        assert (page.next, page.last) == (5, 5)
        return [(row.change_no, row.kind, row.parcel_id) for row in page.rows]

    lien = {"certificate_number": "7", "certificate_year": 2024, "status": "open"}
    batch = [arrival("a", "P", owner_names=["ANN"], liens=[lien]), arrival("b", "Q", owner_names=["BO"])]
    await ledger.store(batch, "w1", now)
    assert await ledger.left_to_compare() == 2
    assert await ledger.find_changes(now, 100) == 2
    assert await ledger.left_to_compare() == 0
    assert await ledger.find_changes(now, 100) == 0
    later: list[dict[str, Any]] = [
        {"owner_names": ["CY"], "liens": [lien]},
        {"owner_names": ["CY"], "liens": [], "unreadable": ["liens"]},
        {"owner_names": ["CY"], "liens": [{**lien, "status": "redeemed"}]},
    ]
    for hours, record in enumerate(later, 1):
        await ledger.store([arrival(f"c{hours}", "P", NOON + hours * HOUR, **record)], "w1", now)
        await ledger.store([arrival(f"c{hours}", "P", NOON + hours * HOUR, **record)], "w1", now)
    while await ledger.find_changes(now + HOUR, 1):
        pass
    expected = [(1, "parcel.new", "P"), (2, "lien.new", "P"), (3, "parcel.new", "Q")]
    expected += [(4, "owner.changed", "P"), (5, "lien.redeemed", "P")]
    assert await found() == expected
    assert await ledger.last_change() == 5
    assert await found(kinds=("lien",)) == [expected[1], expected[4]]
    assert await found(kinds=("owner.changed", "lien.new"), county="union") == [expected[1], expected[3]]
    assert await found(field="owner", kinds=("owner",)) == [expected[3]]
    assert await found(state="GA") == await found(platform="other") == []
    assert await found(found_since=now + HOUR) == expected[3:]
    page = await ledger.changes(ChangeFilter(), 3, 1)
    assert (page.next, page.last) == (4, 5)
    (owner,) = page.rows
    assert (owner.before, owner.after) == (b'{"owner":["ANN"]}', b'{"owner":["CY"]}')
    assert (owner.scraped_at, owner.task_id, owner.found_at) == (NOON + HOUR, "c1", now + HOUR)


async def test_a_page_that_is_parsed_again_changes_nothing_and_is_compared_from_then_on(
    ledger: Ledger, now: datetime
) -> None:
    for at, owner in ((NOON, "ANN"), (NOON, "ANN SMITH"), (NOON + HOUR, "BO")):
        await ledger.store([arrival("a" if at == NOON else "b", "P", at, owner_names=[owner])], "w1", now)
        assert await ledger.find_changes(now, 10) == 1
    new, changed = (await ledger.changes(ChangeFilter(), 0, 10)).rows
    assert (new.kind, changed.kind, changed.before) == ("parcel.new", "owner.changed", b'{"owner":["ANN SMITH"]}')


async def test_changes_are_found_once_and_seen_in_order_while_two_gateways_write_and_look(
    database: str, now: datetime
) -> None:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_ledger(database, 3, SystemClock())) for _ in range(2)]
        writing = True

        async def write(ledger: Ledger, name: str) -> None:
            for number in range(0, 60, 4):
                batch = [arrival(f"{name}{n}", f"{name}{n}", owner_names=["ANN"]) for n in range(number, number + 4)]
                await ledger.store(batch, "w1", now)

        async def find(ledger: Ledger) -> int:
            compared = 0
            while (found := await ledger.find_changes(now, 7)) or writing:
                compared += found
            return compared

        async def follow(ledger: Ledger) -> list[tuple[int, str]]:
            seen: list[tuple[int, str]] = []
            while len(seen) < 120:
                page = await ledger.changes(ChangeFilter(), len(seen), 50)
                assert page.next == len(seen) + len(page.rows), "nothing is skipped: numbers have no gaps"
                seen += [(row.change_no, row.parcel_id) for row in page.rows]
            return seen

        looking = asyncio.gather(*map(find, opened * 2))
        following = asyncio.gather(*map(follow, opened))
        await asyncio.gather(*map(write, opened, "PQ"))
        writing = False
        assert sum(await looking) == 120
        first, second = await following
    assert first == second
    assert [number for number, _ in first] == list(range(1, 121))
    assert len({parcel_id for _, parcel_id in first}) == 120


async def test_a_filter_that_hardly_anything_matches_looks_at_some_changes_at_a_time(
    ledger: Ledger, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.gateway.ledger.queries._MAX_SCANNED", 4)
    await ledger.store([arrival(f"t{n}", f"P{n}") for n in range(9)], "w1", now)
    await ledger.find_changes(now, 100)
    nothing = ChangeFilter(county="nowhere")
    pages = [await ledger.changes(nothing, after, 100) for after in (0, 4, 8, 9)]
    assert [(page.next, page.last, len(page.rows)) for page in pages] == [(4, 9, 0), (8, 9, 0), (9, 9, 0), (9, 9, 0)]


async def test_while_many_results_arrive_the_gateway_looks_for_changes_now_and_then(tmp_path: Path) -> None:
    class Ticking(ManualClock):
        def monotonic(self) -> float:
            self._monotonic += 0.03
            return self._monotonic

    clock = Ticking()
    async with some_context(tmp_path, clock=clock) as context:
        maintenance, now = Maintenance(context), context.clock.now()

        async def step(stored: int) -> int:
            context.counters.count("echo", "stored", stored)
            await maintenance.step()
            return await context.ledger.last_change()

        await context.ledger.store([arrival(f"t{n}", f"P{n}") for n in range(1_000)], "w1", now)
        assert await step(3_000) == await step(3_000) == 300, "three rounds of a hundred each, then it rests"
        clock.advance(10)
        assert await step(3_000) == 600
        assert await step(10) == 1_000, "it catches up when there is time"


async def test_of_scrapes_that_show_the_same_the_first_and_the_last_stay(ledger: Ledger, now: datetime) -> None:
    owners = ["ANN", "ANN", "ANN", "ANN", "BO", "BO", "BO", "ANN"]
    for hour, owner in enumerate(owners):
        scraped = arrival(f"t{hour}", "P", NOON + hour * HOUR, owner_names=[owner], raw_html_hash=str(hour))
        await ledger.store([scraped], "w1", now)
        assert await ledger.find_changes(now, 10) == 1
        await ledger.store([scraped], "w1", now)
    versions = await ledger.versions(parcel("P"), 10)
    assert [version.task_id for version in versions] == ["t7", "t6", "t4", "t3", "t0"]
    (row,) = await ledger.parcels(ParcelFilter(), None, 10)
    assert row.sources[0].scraped_at == NOON + 7 * HOUR
    late = arrival("t1", "P", NOON + HOUR, owner_names=["ANN"])  # delivered again: it is not news
    await ledger.store([late], "w1", now)
    assert await ledger.find_changes(now, 10) <= 1
    kinds = [change.kind for change in (await ledger.changes(ChangeFilter(), 0, 100)).rows]
    assert kinds == ["parcel.new", "owner.changed", "owner.changed"]


async def test_the_newest_scrape_stays_if_its_task_was_run_again(ledger: Ledger, now: datetime) -> None:
    async def scrape(task_id: str, hours: int) -> None:
        seen = arrival(task_id, "P", NOON + hours * HOUR, owner_names=["ANN"], raw_html_hash=str(hours))
        await ledger.store([seen], "w1", now)

    for hours, task_id in enumerate(("first", "again")):
        await scrape(task_id, hours)
    await ledger.find_changes(now, 10)
    await scrape("between", 2)
    await scrape("again", 3)
    assert await ledger.find_changes(now, 10) == 2
    versions = await ledger.versions(parcel("P"), 10)
    assert [version.task_id for version in versions] == ["again", "first"]
    (row,) = await ledger.parcels(ParcelFilter(), None, 10)
    assert row.sources[0].scraped_at == versions[0].scraped_at == NOON + 3 * HOUR


async def test_a_nul_in_a_record_stops_no_changes(ledger: Ledger, now: datetime) -> None:
    lien = {"case_number": "C\0 7", "status": "open"}
    for hours, sales in enumerate(([], [{"date": "2026-01-01\0"}])):
        await ledger.store([arrival(f"t{hours}", "P", NOON + hours * HOUR, sales=sales, liens=[lien])], "w1", now)
    assert await ledger.find_changes(now, 10) == 2
    found = (await ledger.changes(ChangeFilter(), 0, 100)).rows
    assert [(row.kind, row.subject) for row in found[1:]] == [("lien.new", "C 7"), ("sale.new", "2026-01-01")]


async def test_sources_of_a_parcel_are_compared_in_the_order_of_their_scrapes(ledger: Ledger, now: datetime) -> None:
    async def scrape(platform: str, hours: int, owner: str) -> None:
        seen = arrival(f"{platform}{hours}", parcel("P", platform), NOON + hours * HOUR, owner_names=[owner])
        await ledger.store([seen], "w1", now)

    await scrape("echo", 0, "ANN")
    await scrape("other", 0, "ANN")
    await ledger.find_changes(now, 10)
    for platform, hours, owner in (("echo", 1, "BO"), ("echo", 5, "ANN"), ("other", 3, "BO")):
        await scrape(platform, hours, owner)
    assert await ledger.find_changes(now, 10) == 3
    found = (await ledger.changes(ChangeFilter(), 1, 100)).rows
    assert [(row.kind, row.task_id) for row in found] == [("owner.changed", "echo1"), ("owner.changed", "echo5")]


async def test_a_result_that_cannot_be_compared_stops_no_other(tmp_path: Path) -> None:
    events: list[Event] = []
    async with some_context(tmp_path, events=events) as context:
        ledger, now = context.ledger, context.clock.now()
        await ledger.store([arrival(f"t{n}", f"P{n}") for n in range(5)], "w1", now)
        with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as db:
            db.execute("UPDATE results SET data = '{' WHERE task_id = 't2'")
        assert await ledger.left_to_compare() == 5
        await Maintenance(context).step()
        found = (await ledger.changes(ChangeFilter(), 0, 100)).rows
        assert [row.task_id for row in found] == ["t0", "t1", "t3", "t4"]
        assert await ledger.left_to_compare() == 0
    (failed,) = [event for event in events if isinstance(event, ResultNotCompared)]
    assert (failed.platform, failed.task_id) == ("echo", "t2")


async def test_a_scrape_that_was_dropped_while_its_page_was_parsed_again_waits_no_longer(
    ledger: Ledger, now: datetime
) -> None:
    async def scrape(hours: int, **more: Any) -> None:
        seen = arrival(f"t{hours}", "P", NOON + hours * HOUR, owner_names=["ANN"], **more)
        await ledger.store([seen], "w1", now)

    for hours in range(4):
        await scrape(hours)
    await scrape(2, parser_version="echo/2")
    for left in (4, 3, 2, 1, 0):
        assert await ledger.find_changes(now, 1) == 1
        assert await ledger.left_to_compare() == left
    assert [version.task_id for version in await ledger.versions(parcel("P"), 10)] == ["t3", "t0"]
