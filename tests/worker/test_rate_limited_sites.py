"""A site that has no turn free holds no slot: the others go on beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.events import AttemptEnded, TaskDeferred
from parcelpost.model import Busy, Priority, TaskStatus
from tests.storage.factories import a_task, the_task
from tests.website import Asked, Reply, Website, website
from tests.worker.counties import a_parcel, asked_of, at_counties, serve_parcels
from tests.worker.executing import Works, at_work

SLOTS = 4


async def _until_done(works: Works, tasks: int) -> None:
    async with asyncio.timeout(120):
        while len(works.seen(AttemptEnded)) < tasks:
            works.reported.clear()
            await works.reported.wait()


async def test_a_site_whose_turn_is_far_off_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with website() as site, at_counties(tmp_path, site, paces={"adams": 3_600.0, "baker": 0.0}) as works:
        serve_parcels(site)
        await works.lpm.add_tasks(a_parcel("adams", n) for n in range(500))
        await works.lpm.add_tasks(a_parcel("baker", n) for n in range(30))
        async with works.looping():
            await _until_done(works, 31)
        (first,) = asked_of(site, "adams")  # one of those that the slots began with
        assert int(first) < SLOTS
        assert sorted(asked_of(site, "baker"), key=int) == [str(n) for n in range(30)]
        await _nothing_was_counted(works, set(range(500)) - {int(first)})


async def _nothing_was_counted(works: Works, waiting: set[int]) -> None:
    """Of what was put off: each slot may have learned of the site by one task."""
    put_off = Counter(event.task_id for event in works.seen(TaskDeferred))
    assert sum(task_id.startswith("adams") for task_id in put_off.elements()) < SLOTS
    assert max(put_off.values(), default=0) <= 1
    for number in waiting:
        info = await the_task(works.lpm, f"adams-{number}")
        assert (info.status, info.retries, info.error) == (TaskStatus.PENDING, 0, None)
    assert {event.outcome for event in works.seen(AttemptEnded)} == {"done"}
    assert await works.lpm.is_any_open()


async def test_what_is_put_off_is_done_in_its_turn(tmp_path: Path) -> None:
    paces = {"adams": 0.3, "baker": 0.3, "clark": 0.0}
    async with website() as site, at_counties(tmp_path, site, paces=paces, slots=SLOTS) as works:
        serve_parcels(site)
        await works.lpm.add_tasks(a_parcel(name, n) for name in paces for n in range(8))
        async with works.looping():
            await _until_done(works, 24)
        assert {event.outcome for event in works.seen(AttemptEnded)} == {"done"}
        assert not await works.lpm.is_any_open()
        for name in paces:
            assert sorted(asked_of(site, name)) == [str(n) for n in range(8)]


async def test_one_slot_waits_where_nothing_else_is_to_be_done(tmp_path: Path) -> None:
    clock = ManualClock()
    async with website() as site, at_counties(tmp_path, site, clock, paces={"adams": 10.0}, slots=1) as works:
        serve_parcels(site)
        await works.lpm.add_tasks(a_parcel("adams", n) for n in range(4))
        await works.lpm.add_task(a_parcel("adams", 9, Priority.URGENT))
        async with works.looping():
            await _until_done(works, 5)
        assert asked_of(site, "adams") == ["9", "0", "1", "2", "3"]
        assert works.seen(TaskDeferred) == []
        assert clock.monotonic() >= 40.0


async def test_nobody_waits_for_a_robots_file_that_does_not_come(tmp_path: Path) -> None:
    async with website() as site:
        serve_parcels(site)
        _hang_robots(site, "adams")
        paces = {"adams": 0.0, "baker": 0.0}
        async with at_counties(tmp_path, site, paces=paces, slots=SLOTS, obey_robots=True) as works:
            await works.lpm.add_tasks(a_parcel("adams", n) for n in range(50))
            await works.lpm.add_tasks(a_parcel("baker", n) for n in range(20))
            async with works.looping():
                await _until_done(works, 20)
            assert asked_of(site, "adams") == []
            assert len(asked_of(site, "baker")) == 20


def _hang_robots(site: Website, county: str) -> None:
    async def robots(asked: Asked) -> Reply:
        if asked.headers["host"].startswith(county):
            await asyncio.Event().wait()
        return Reply(status=404)

    site.pages["/robots.txt"] = robots


async def test_any_platform_may_say_that_its_site_is_busy(tmp_path: Path) -> None:
    clock = ManualClock()
    async with at_work(tmp_path, clock) as works:
        await works.add(a_task(), lambda _: Busy("all lines are taken", 30.0))
        assert await works.step() == 0
        info = await the_task(works.lpm)
        assert (info.status, info.retries, info.started_at) == (TaskStatus.PENDING, 0, None)
        assert info.available_at is not None
        assert (info.available_at - clock.now()).total_seconds() == 30.0
        (event,) = works.seen(TaskDeferred)
        assert (event.task_id, event.seconds, event.reason) == ("t1", 30.0, "all lines are taken")
        assert works.seen(AttemptEnded) == []
