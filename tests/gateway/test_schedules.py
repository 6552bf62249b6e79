"""Schedules on both ledgers: what is due is started once, spread, and never piles up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import structs
from msgspec.json import encode

from parcelpost.cli.platform_names import KnownPlatforms
from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.events import Event, ScheduleFailed
from parcelpost.gateway.context import Context
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.models import (
    Freshness,
    IngestedResult,
    RefreshFilter,
    RunOutcome,
    Schedule,
    ScheduleRow,
    Scope,
    WorkerHeartbeat,
)
from parcelpost.gateway.schedules import (
    FreshnessCache,
    NewSchedule,
    ScheduleRunner,
    blocked_workers,
    is_in_ledger,
    make_schedule,
    schedule_findings,
    schedule_statuses,
)
from parcelpost.model import PausedSite, Priority, Site, Target, Task
from parcelpost.schedule import Timing, make_timing
from parcelpost.settings import Settings
from parcelpost.settings.schema import FetchSettings
from tests.gateway.factories import arrival, parcel
from tests.gateway.stage import a_client, some_context

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_schedule(name: str = "union", scope: Scope = Scope.KNOWN, every: str = "1d", **changes: Any) -> Schedule:
    given = {"window_seconds": 3_600.0, "pace_seconds": 10.0, "created_at": START, "county": "union", **changes}
    return Schedule(
        name=name, platform="echo", state="FL", timing=make_timing(every, "", "UTC", ""), scope=scope, **given
    )


async def store(ledger: Ledger, numbers: Sequence[int], at: datetime, county: str = "union", **data: Any) -> None:
    """Scrapes of parcels that the schedule covers."""
    results = [arrival(f"{county}-{n}-{at:%d%H}", parcel(f"P{n:03}", county=county), at, **data) for n in numbers]
    await ledger.store([with_target(result) for result in results], "w1", at)


def with_target(result: IngestedResult) -> IngestedResult:
    key = result.source
    target = encode(Target(parcel_id=key.norm, state=key.state, county=key.county)).decode()
    return structs.replace(result, target=target)


async def add(ledger: Ledger, schedule: Schedule, targets: Sequence[Target] = (), due: datetime = START) -> ScheduleRow:
    assert await ledger.add_schedule(schedule, targets, due)
    return await the(ledger, schedule.name)


async def the(ledger: Ledger, name: str = "union") -> ScheduleRow:
    (row,) = await ledger.schedules(name)
    return row


async def work(ledger: Ledger, now: datetime, most: int = 1_000) -> list[str]:
    """What one worker does at once: takes what is queued, and delivers it."""
    grants = await ledger.grant("w1", ["echo"], most, now, now + HOUR)
    tasks = [grant.task for grant in grants]
    results = [arrival(one.task_id, parcel(one.target.parcel_id, county=one.target.county), now) for one in tasks]
    if results:
        await ledger.store([with_target(result) for result in results], "w1", now)
    return [one.target.parcel_id for one in tasks]


def the_runner(context: Context) -> ScheduleRunner:
    return ScheduleRunner(context.ledger, context.clock, context.emit)


@pytest.fixture
async def context(database: str, tmp_path: Path) -> AsyncIterator[Context]:
    events: list[Event] = []
    async with some_context(tmp_path, clock=ManualClock(START), events=events, database=database) as opened:
        yield opened


async def test_a_run_is_spread_over_its_window_and_ends_with_its_last_task(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(60), START - HOUR)
    await add(ledger, a_schedule())
    scraped: list[list[str]] = []
    for _ in range(8):
        await runner.step()
        scraped.append(await work(ledger, clock.now()))
        for _ in range(10):
            clock.advance(60)
            await runner.step()
    assert list(map(len, scraped)) == [0, 11, 10, 10, 10, 10, 9, 0]  # the first step only starts it
    assert list(chain.from_iterable(scraped)) == [f"P{n:03}" for n in range(60)]
    await runner.step()
    row = await the(ledger)
    assert (row.run, row.last_run and row.last_run.outcome) == (None, RunOutcome.ENDED)
    assert row.last_run and (row.last_run.total, row.last_run.added, row.last_run.done) == (60, 60, 60)
    assert row.next_run_at == START + timedelta(days=1)


async def test_a_run_that_takes_long_does_not_pile_up_and_what_was_missed_is_made_up_for_once(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(3), START - HOUR)
    row = await add(ledger, a_schedule(every="1h", window_seconds=0.0))
    for _ in range(4):
        await runner.step()
        clock.advance(1_700)
    runs = await ledger.schedule_runs(row.schedule_no, 10)
    assert [(run.outcome, run.added) for run in runs] == [(RunOutcome.SKIPPED, 0), (RunOutcome.RUNNING, 3)]
    assert len(await work(ledger, clock.now())) == 3
    await runner.step()
    await ledger.set_paused(row.schedule_no, clock.now())
    clock.advance(5 * 3_600)
    await runner.step()
    assert (await the(ledger)).run is None
    await ledger.set_paused(row.schedule_no, None)
    clock.advance(100)
    for _ in range(3):
        await runner.step()
        clock.advance(60)
    newest, *_ = runs = await ledger.schedule_runs(row.schedule_no, 10)
    assert [run.outcome for run in runs].count(RunOutcome.RUNNING) == 1
    assert (newest.outcome, len(runs)) == (RunOutcome.RUNNING, 3)  # one for all that were missed
    row = await the(ledger)
    assert row.next_run_at > clock.now()
    far = START + timedelta(days=400)  # by a clock that was ahead
    await ledger.set_next_run(row.schedule_no, row.next_run_at, far)
    await runner.step()
    assert (await the(ledger)).next_run_at == row.next_run_at
    assert newest.outcome is RunOutcome.RUNNING
    stale = structs.replace(row, run=structs.replace(newest, added=0, after_norm="", all_added=False))
    assert await ledger.delete_schedule(row.schedule_no)
    assert not await ledger.delete_schedule(row.schedule_no)
    assert await ledger.extend_run(stale, 3, clock.now(), clock.now()) == 3  # by a gateway that read it before
    assert await work(ledger, clock.now()) == []
    assert (await add(ledger, a_schedule())).schedule_no > row.schedule_no  # counts are cached by it


async def test_two_gateways_and_one_that_was_killed_start_and_queue_each_once(database: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        clock = ManualClock(START)
        folders = [tmp_path / name for name in "ab"]
        contexts = [
            await stack.enter_async_context(some_context(folder, clock=clock, database=database)) for folder in folders
        ]
        ledger = contexts[0].ledger
        await store(ledger, range(40), START - HOUR)
        for name in ("one", "two"):
            await add(ledger, a_schedule(name, window_seconds=0.0, county="union" if name == "one" else "columbia"))
        await store(ledger, range(5), START - HOUR, county="columbia")
        runners = [the_runner(context) for context in contexts]
        stale = await ledger.schedules()
        for _ in range(12):
            await asyncio.gather(*(runner.step() for runner in runners * 2))
            # What a killed gateway had begun is done again, from what it had read.
            running = [row for row in await ledger.schedules() if row.run]
            await asyncio.gather(*(ledger.extend_run(row, 7, clock.now(), clock.now()) for row in running))
            await asyncio.gather(*(ledger.start_run(row, 9, clock.now(), START + HOUR) for row in stale))
            clock.advance(60)
        rows = await contexts[1].ledger.schedules()
        for row in rows:
            (run,) = await ledger.schedule_runs(row.schedule_no, 10)
            assert row.run == run
            assert (run.added, run.all_added, row.open_tasks) == (run.total, True, run.total), run
        assert sorted(row.open_tasks for row in rows) == [5, 40]
        assert len(await work(ledger, clock.now())) == 45


async def test_a_schedule_is_never_seen_without_its_targets(ledger: Ledger) -> None:
    targets = [Target(parcel_id=f"P{n}", state="FL", county="union") for n in range(20_000)]
    adding = asyncio.create_task(ledger.add_schedule(a_schedule("file", Scope.FILE), targets, START))
    while not (rows := await ledger.schedules()):
        await asyncio.sleep(0)
    assert await ledger.freshness(rows[0], START) == Freshness(parcels=20_000, fresh=0, oldest_at=None)
    assert (rows[0].targets, await adding) == (20_000, True)
    assert not await ledger.add_schedule(a_schedule("file", Scope.FILE), targets[:1], START)


async def test_a_list_and_a_file_bring_parcels_that_nobody_knew(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    targets = [Target(parcel_id=f"P{n:03}", state="FL", county="union") for n in range(3)]
    await store(ledger, [0], START - HOUR)
    await add(ledger, a_schedule("file", Scope.FILE, window_seconds=0.0), targets)
    await add(
        ledger, a_schedule("list", Scope.LIST), [Target(parcel_id="", state="FL", county="union", url="https://l")]
    )
    file, of_list = await the(ledger, "file"), await the(ledger, "list")
    assert (file.targets, of_list.targets) == (3, 1)
    assert await ledger.freshness(file, START - 2 * HOUR) == Freshness(parcels=3, fresh=1, oldest_at=None)
    assert await ledger.freshness(of_list, START - 2 * HOUR) == Freshness(parcels=1, fresh=0, oldest_at=None)
    for _ in range(5):
        await runner.step()
        clock.advance(60)
    grants = await ledger.grant("w1", ["echo"], 10, clock.now(), clock.now() + HOUR)
    assert sorted(grant.task.target.parcel_id for grant in grants) == ["", "P000", "P001", "P002"]
    assert {(grant.task.type, grant.task.priority) for grant in grants} == {("refresh", Priority.BATCH)}
    results = [arrival(one.task.task_id, parcel(one.task.target.parcel_id or "L-1"), clock.now()) for one in grants]
    await ledger.store([with_target(result) for result in results], "w1", clock.now())
    for _ in range(2):
        await runner.step()
    assert (await ledger.freshness(await the(ledger, "file"), START)).share == 1
    assert (await ledger.freshness(await the(ledger, "list"), START)).share == 1


async def test_freshness_is_of_the_parcels_that_the_schedule_refreshes(context: Context) -> None:
    ledger = context.ledger
    await store(ledger, range(8), START - 48 * HOUR, delinquent=True)
    await store(ledger, range(6), START - 2 * HOUR)
    await store(ledger, range(10, 20), START - HOUR, county="columbia")
    known, late = await add(ledger, a_schedule()), await add(ledger, a_schedule("late", Scope.DELINQUENT))
    since = known.schedule.fresh_since(START)
    assert since == START - 25 * HOUR  # an interval, and the window in which a run may reach it
    assert await ledger.freshness(known, since) == Freshness(parcels=8, fresh=6, oldest_at=START - 48 * HOUR)
    assert await ledger.freshness(late, since) == Freshness(parcels=2, fresh=0, oldest_at=START - 48 * HOUR)
    assert (await ledger.freshness(await add(ledger, a_schedule("none", county="baker")), since)).share is None


async def test_a_blocked_site_rests_until_a_worker_gets_through(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(300), START - HOUR)
    await add(ledger, a_schedule(window_seconds=0.0))

    async def beat(worker_id: str, *blocked: PausedSite) -> None:
        heartbeat = WorkerHeartbeat(worker_id=worker_id, platforms=("echo", "vgsi"), blocked=blocked)
        await ledger.record_heartbeat(heartbeat, clock.now(), clock.now() + HOUR, START)

    union, other = PausedSite("echo", "FL", "union"), PausedSite("echo", "FL", "columbia")
    for _ in range(3):
        await beat("w1", union)
        await beat("w2", PausedSite("echo"), PausedSite("vgsi"))
        await runner.step()
        clock.advance(600)
    await beat("w1", union)
    await beat("w2", PausedSite("echo"), PausedSite("vgsi"))
    row = await the(ledger)
    assert (row.run is not None, row.open_tasks) == (True, 0)
    assert blocked_workers(row, await ledger.workers(), clock.now()) == ["w1", "w2"]
    await beat("w2", PausedSite("vgsi"), other)
    await runner.step()
    assert (await the(ledger)).open_tasks == 6  # a minute's worth of the pace, not all that was missed
    clock.advance(10)
    await runner.step()
    assert (await the(ledger)).open_tasks == 7


async def test_the_schedules_of_a_site_share_its_pace_and_take_turns(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(40), START - HOUR, delinquent=True)
    await store(ledger, range(40), START - HOUR, county="columbia")
    names = ("late", "other", "union")
    await add(ledger, a_schedule("union", window_seconds=0.0))
    await add(ledger, a_schedule("late", Scope.DELINQUENT, window_seconds=0.0))
    await add(ledger, a_schedule("other", window_seconds=0.0, county="columbia"))
    for _ in range(101):
        await runner.step()
        clock.advance(2)
    queued = [row.open_tasks for row in await ledger.schedules()]
    assert (queued[0] + queued[2], queued[1]) == (21, 21), dict(zip(names, queued, strict=True))
    assert min(queued) >= 10


async def test_a_schedule_that_fails_does_not_stop_the_others(database: str, tmp_path: Path) -> None:
    events, clock = list[Event](), ManualClock(START)
    async with some_context(tmp_path, clock=clock, events=events, database=database) as context:
        ledger, runner = context.ledger, the_runner(context)
        await store(ledger, range(3), START - HOUR)
        broken = Timing(every_seconds=86_400, at="02:00", timezone="Europe/Atlantis")
        await add(ledger, structs.replace(a_schedule("broken"), timing=broken))
        await add(ledger, a_schedule(window_seconds=0.0))
        for _ in range(3):
            await runner.step()
            clock.advance(60)
        assert (await the(ledger)).open_tasks == 3
        (failed,) = [event for event in events if isinstance(event, ScheduleFailed)]
        assert failed.schedule == "broken" and "Europe/Atlantis" in failed.error
        statuses = await schedule_statuses(ledger, (), clock.now(), FreshnessCache())
        assert [(status.name, status.status) for status in statuses] == [("broken", "failing"), ("union", "running")]
        (finding,) = [one for one in schedule_findings(statuses, clock.now()) if one.id == "schedule.failing"]
        assert finding.is_error and "failing for 3 min" in finding.message and "Europe/Atlantis" in finding.message
        await ledger.set_error((await the(ledger)).schedule_no, "was wrong", clock.now())
        await runner.step()
        assert (await the(ledger)).error == "", "it works again"


async def test_urgent_tasks_go_first_and_sites_take_turns(ledger: Ledger, now: datetime) -> None:
    def at(county: str, number: int, priority: Priority = Priority.NORMAL, platform: str = "echo") -> Task:
        target = Target(parcel_id=f"{county}{number}", state="FL", county=county)
        return Task(task_id=f"{county}{number}{priority}", platform=platform, target=target, priority=priority)

    async def taken(most: int) -> list[str]:
        grants = await ledger.grant("w1", ["echo", "other"], most, now, now + HOUR)
        return [grant.task.target.parcel_id for grant in grants]

    await ledger.add_tasks([at("a", n) for n in range(6)], now)
    assert await taken(2) == ["a0", "a1"]
    await ledger.add_tasks([at("b", n, platform="other") for n in range(3)], now)
    await ledger.add_tasks([at("a", n) for n in range(6, 8)], now)
    await ledger.add_tasks([at("c", 0, Priority.URGENT)], now)
    assert await taken(5) == ["c0", "a2", "b0", "a3", "b1"]
    # One that comes back is the next of its site; nobody gets ahead because it had waited long.
    await ledger.end_task("a03", "w1", error="busy", again=True, now=now)
    await ledger.add_tasks([at("d", n) for n in range(3)], now)
    assert await taken(10) == ["a0", "a4", "b2", "d0", "a5", "d1", "a6", "d2", "a7"]
    await ledger.store([with_target(arrival(f"t{n}", parcel(f"P{n}"), now)) for n in range(3)], "w1", now)
    await ledger.add_tasks([at("e", n) for n in range(2)], now)
    assert await ledger.refresh(RefreshFilter(), Priority.NORMAL, now, 10) == 3
    assert await taken(10) == ["e0", "P0", "e1", "P1", "P2"]


async def test_a_platform_that_only_workers_know_can_be_scheduled(context: Context) -> None:
    new = {"name": "ours", "platform": "homemade", "state": "FL", "county": "union", "every": "7d"}
    async with a_client(structs.replace(context, platforms=KnownPlatforms(Settings()))) as client:
        assert (await client.post("/v1/schedules", json=new)).status_code == 422
        heartbeat, now = WorkerHeartbeat(worker_id="w1", platforms=("homemade",)), context.clock.now()
        await context.ledger.record_heartbeat(heartbeat, now, now, now)
        assert (await client.post("/v1/schedules", json=new)).status_code == 200


async def test_schedules_are_added_shown_and_ordered_over_http(context: Context) -> None:
    clock, maintenance = context.clock, Maintenance(context)
    assert isinstance(clock, ManualClock)
    await store(context.ledger, range(4), START - 30 * 24 * HOUR)
    new: dict[str, Any] = {"name": "union", "platform": "echo", "state": "Florida", "county": "Union", "every": "7d"}
    async with a_client(context) as client:

        async def act(action: str, name: str = "union") -> httpx2.Response:
            return await client.post(f"/v1/schedules/{name}", json={"action": action})

        wrong: list[dict[str, Any]] = [
            {"name": "Union!"},
            {"every": ""},
            {"county": ""},
            {"window": "8d"},
            {"scope": "file"},
            {"url": "https://x"},
            {"county": "u" * 501},
            {"scope": "list", "url": "https://x/" + "a" * 2_000},
        ]
        wrong += [{"scope": "file", "parcels": ["P-1", parcel]} for parcel in ("", "P-1\0x", "9" * 501, " - ")]
        wrong += [{"pace_seconds": 0.1}, {"state": "Atlantis"}, {"scope": "all"}, {"at": "25:00"}, {"name": "a\0"}]
        for change in wrong:
            assert (await client.post("/v1/schedules", json=new | change)).status_code == 422, change
        added = await client.post("/v1/schedules", json=new)
        assert added.status_code == 200, added.text
        assert (added.json()["county"], added.json()["fresh_share"], added.json()["status"]) == ("union", 0, "waiting")
        assert (await client.post("/v1/schedules", json=new)).status_code == 409
        file = new | {
            "name": "file",
            "scope": "file",
            "parcels": ["P-1", "P-2", "p 1"],
            "at": "02:00",
            "timezone": "UTC",
        }
        assert (await client.post("/v1/schedules", json=file)).json()["parcels"] == 2
        assert [one["name"] for one in (await client.get("/v1/schedules")).json()["schedules"]] == ["file", "union"]
        assert "schedule_fresh_ratio{" not in (await client.get("/metrics")).text  # the first run may take its time
        await maintenance.step()
        clock.advance(9 * 86_400)
        detail = (await client.get("/v1/schedules/union")).json()
        assert (detail["schedule"]["status"], detail["runs"][0]["total"]) == ("running", 4)
        assert (await act("run-now")).status_code == 422  # one is in progress
        overview = (await client.get("/v1/overview")).json()
        assert [one["name"] for one in overview["schedules"]] == ["file", "union"]
        stale = [found for found in overview["findings"] if found["id"] == "schedule.stale"]
        assert len(stale) == 2 and "4 of 4 parcels in union, FL" in stale[1]["message"]
        metrics = (await client.get("/metrics")).text
        labels = 'county="union",platform="echo",schedule="union",state="FL"'
        assert f"parcelpost_gateway_schedule_fresh_ratio{{{labels}}} 0.0" in metrics
        assert 'parcelpost_gateway_schedule_status{schedule="union",status="running"} 1.0' in metrics
        assert (await act("pause")).json()["schedule"]["next_run_at"] is None
        assert (await act("resume")).json()["schedule"]["status"] == "running"
        assert (await act("delete")).json()["schedule"] is None
        for reply in (await act("delete"), await act("pause", "none"), await client.get("/v1/schedules/union")):
            assert reply.status_code == 404


def test_a_list_needs_a_platform_with_lists_and_an_address_that_workers_accept() -> None:
    def made(platform: str, url: str, scope: Scope = Scope.LIST, allowed: tuple[str, ...] = (), **more: Any) -> Site:
        settings = Settings(fetch=FetchSettings(allow_private=allowed))
        place: dict[str, Any] = {"state": "FL", "county": "union", "every": "1d"}
        new = NewSchedule(name="a", platform=platform, url=url, scope=scope, **place)
        schedule, _ = make_schedule(new, START, KnownPlatforms(settings), **more)
        return schedule.site

    page = "https://example.org/list"
    assert made("govease", page) == Site("govease", "FL", "union")
    for platform in ("grizzly_gis", "arcgis"):
        for is_known in (False, True):
            with pytest.raises(InvalidInput, match="has no lists"):
                made(platform, page, is_known=is_known)
    days = [Target(parcel_id="all", state="FL", county="union", url=page, extra={"where": "1=1"})]
    assert made("arcgis", page, targets=days).platform == "arcgis"
    wrong = ("banana", "ftp://example.org/", "http://127.0.0.1/", "http://localhost:8000/", "https://example.org:22/")
    for url in wrong:
        with pytest.raises(InvalidInput, match="url: "):
            made("govease", url)
    assert made("govease", "http://localhost:8137/", allowed=("127.0.0.1",)).platform == "govease"
    with pytest.raises(InvalidInput, match="url: 'banana'"):  # any platform, but no other kind of address
        make_schedule(
            NewSchedule(
                name="a", platform="own", state="FL", county="union", every="1d", scope=Scope.LIST, url="banana"
            ),
            START,
            None,
        )


async def test_parcels_that_the_site_no_longer_has_are_counted_beside_the_others(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(4), START - HOUR)
    targets = [Target(parcel_id=number, state="FL", county="union") for number in ("P000", "P003", "NEW-1", "NEW-2")]
    options: dict[str, Any] = {"window_seconds": 0.0, "pace_seconds": 0.001}
    await add(ledger, a_schedule(**options))
    await add(ledger, a_schedule("file", Scope.FILE, **options), targets)

    async def run(gone: Sequence[str]) -> None:
        for _ in range(3):
            await runner.step()
            clock.advance(60)
        for grant in await ledger.grant("w1", ["echo"], 100, clock.now(), clock.now() + HOUR):
            task = grant.task
            if task.target.parcel_id in gone:
                await ledger.end_task(task.task_id, "w1", error="none", again=False, now=clock.now(), not_found=True)
            else:
                key = parcel(task.target.parcel_id, county="union")
                await ledger.store([with_target(arrival(task.task_id, key, clock.now()))], "w1", clock.now())
        await runner.step()

    async def counted(name: str) -> tuple[int, int, int]:
        row = await the(ledger, name)
        freshness = await ledger.freshness(row, row.schedule.fresh_since(clock.now()))
        return freshness.parcels, freshness.fresh, freshness.not_found

    await run(["P003", "NEW-2"])
    assert (await counted("union"), await counted("file")) == ((4, 4, 1), (2, 2, 2))  # NEW-1 is known now
    clock.advance(86_401)
    assert await counted("union") == (4, 0, 1)
    await run(["P003"])  # NEW-2 was added to the site; P003 is gone for good
    assert (await counted("union"), await counted("file")) == ((5, 5, 1), (3, 3, 1))
    clock.advance(86_400)
    await run([])
    assert (await counted("union"), await counted("file")) == ((6, 6, 0), (4, 4, 0))


async def test_parcels_that_the_site_no_longer_has_stay_known_when_old_tasks_are_deleted(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)
    await store(ledger, range(2), START - HOUR)
    targets = [Target(parcel_id=number, state="FL", county="union") for number in ("P000", "NEW-1")]
    options: dict[str, Any] = {"window_seconds": 0.0, "pace_seconds": 0.001, "every": "10d"}
    await add(ledger, a_schedule(**options))
    await add(ledger, a_schedule("file", Scope.FILE, **options), targets)

    async def run() -> int:
        for _ in range(3):
            await runner.step()
            clock.advance(60)
        grants = await ledger.grant("w1", ["echo"], 100, clock.now(), clock.now() + HOUR)
        for grant in grants:
            await ledger.end_task(grant.task.task_id, "w1", error="none", again=False, now=clock.now(), not_found=True)
        await runner.step()
        return len(grants)

    async def counted() -> list[tuple[int, int]]:
        found = [await ledger.freshness(row, START - 2 * HOUR) for row in await ledger.schedules()]
        return [(freshness.parcels, freshness.not_found) for freshness in found]

    async def pruned() -> int:
        return await ledger.prune(clock.now(), START - HOUR, 1_000)

    assert await run() == 4
    assert await counted() == [(0, 2), (0, 2)]
    clock.advance(9 * 86_400)
    assert await pruned() == 0
    assert await counted() == [(0, 2), (0, 2)]
    clock.advance(2 * 86_400)
    assert await run() == 4
    assert await pruned() == 6  # the tasks of both first runs, and the runs
    assert await counted() == [(0, 2), (0, 2)]


async def test_a_run_whose_tasks_all_fail_is_a_finding_at_once_and_a_paused_schedule_is_none(context: Context) -> None:
    ledger, clock, runner = context.ledger, context.clock, the_runner(context)
    assert isinstance(clock, ManualClock)

    async def findings() -> list[str]:
        statuses = await schedule_statuses(ledger, (), clock.now(), FreshnessCache())
        return [finding.id for finding in schedule_findings(statuses, clock.now())]

    await store(ledger, range(3), START - 48 * HOUR)
    row = await add(ledger, a_schedule(window_seconds=0.0, pace_seconds=0.001))
    for _ in range(3):
        await runner.step()
        clock.advance(60)
    for grant in await ledger.grant("w1", ["echo"], 100, clock.now(), clock.now() + HOUR):
        await ledger.end_task(grant.task.task_id, "w1", error="the site is down", again=False, now=clock.now())
    assert await findings() == []
    await runner.step()
    (status,) = await schedule_statuses(ledger, (), clock.now(), FreshnessCache())
    assert (status.status, status.message) == ("failing", "all 3 tasks of its last run failed")
    assert await findings() == ["schedule.failing"]
    clock.advance(2 * 86_400)
    assert await findings() == ["schedule.failing", "schedule.stale"]
    await runner.step()
    for _ in range(2):
        clock.advance(86_400)
        await runner.step()
    runs = await ledger.schedule_runs(row.schedule_no, 10)
    assert [run.outcome for run in runs] == ["skipped", "skipped", "running", "ended"]
    assert await findings() == ["schedule.failing", "schedule.stale"]
    await ledger.set_paused(row.schedule_no, clock.now())
    assert await findings() == []


def test_a_list_has_an_hour_for_its_one_task_and_several_have_a_day() -> None:
    place: dict[str, Any] = {"platform": "own", "state": "FL", "county": "union", "url": "https://example.org/"}
    new = NewSchedule(name="a", scope=Scope.LIST, every="7d", **place)
    days = [Target(parcel_id=day, state="FL", county="union", url="https://example.org/") for day in "ab"]
    windows = [make_schedule(new, START, None, targets)[0].window_seconds for targets in ((), days)]
    assert windows == [3_600, 86_400]


async def test_a_county_that_only_the_ledger_knows_can_be_scheduled(ledger: Ledger) -> None:
    known = KnownPlatforms(Settings())
    new = NewSchedule(name="a", platform="vgsi", state="florida", county="Nowhere County", every="7d")
    assert not await is_in_ledger(ledger, new)
    with pytest.raises(InvalidInput, match="no known site"):
        make_schedule(new, START, known)
    await ledger.store([arrival("t1", parcel("P1", "vgsi", county="nowhere"), START)], "w1", START)
    assert await is_in_ledger(ledger, new)
    schedule, _ = make_schedule(new, START, known, is_known=True)
    assert schedule.site == Site("vgsi", "FL", "nowhere")
    assert not await is_in_ledger(ledger, structs.replace(new, state="Atlantis"))
