"""A standalone worker's schedules: known parcels are scraped again, spread, once for each time that is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost.cli.context import store_options
from parcelpost.cli.health.settings import check_ready
from parcelpost.cli.worker_setup import read_targets
from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidSettings
from parcelpost.events import Event, RunSkipped, RunStarted, ScheduleFailed
from parcelpost.model import Result, Site, Source, Target, Task
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from parcelpost.storage import LocalPersistenceManager, StoreOptions, refresh
from parcelpost.storage.operator_actions import Flags, PlannedAction, Selection
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.schedules import StandaloneSchedules, run_prefix
from tests.storage.factories import list_results
from tests.worker.rig import a_context

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = 3_600
UNION = Site("echo", "FL", "union")

SETTINGS = """
[schedules.union]
platform = "echo"
state = "Florida"
county = "Union County"
every = "1d"
window = "2h"
pace = 3_600

[schedules.late]
platform = "echo"
state = "FL"
county = "union"
cron = "0 18 * * *"
timezone = "UTC"
filter = "delinquent"

[schedules.auctions]
platform = "echo"
state = "FL"
county = "alachua"
every = "12h"
list = true
url = "https://example.org/list"
"""


def settings(folder: Path, text: str = SETTINGS) -> Settings:
    file = folder / "parcelpost.toml"
    file.write_text(text)
    return load(config=file, environment={}, flags={}).settings


async def scrape(lpm: LocalPersistenceManager, clock: ManualClock) -> list[str]:
    """Scrapes whatever is due now."""
    done = []
    while claims := await lpm.claim(10):
        for claim in claims:
            done.append(claim.task.target.parcel_id)
            delinquent = claim.task.target.parcel_id == "P2"
            await lpm.save_result(claim, Result(data={"delinquent": delinquent}, scraped_at=clock.now()))
    return done


async def test_known_parcels_are_scraped_again_when_it_is_due(tmp_path: Path) -> None:
    clock, events = ManualClock(START), list[Event]()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=StoreOptions()) as lpm:
        for n in range(4):
            target = Target(parcel_id=f"P{n}", state="FL", county="union")
            await lpm.add_task(Task(task_id=f"t{n}", platform="echo", target=target, source=Source.CLI))
        leased = Target(parcel_id="P9", state="FL", county="union")
        await lpm.add_task(Task(task_id="t9", platform="echo", target=leased, source=Source.GATEWAY))
        assert len(await scrape(lpm, clock)) == 5
        clock.advance(HOUR)
        context = a_context(lpm, NullUpstream(), clock, events.append, settings(tmp_path))
        schedules = StandaloneSchedules(context)
        found: dict[int, list[str]] = {}
        for hour in range(8):
            await schedules.step()
            await StandaloneSchedules(context).step()  # as after a restart
            if done := await scrape(lpm, clock):
                found[hour] = sorted(done)
            clock.advance(HOUR)
        # P2 at 18:00 again: it is delinquent. A gateway refreshes what came from it.
        assert found == {0: ["", "P0"], 1: ["P1"], 2: ["P2"], 3: ["P3"], 5: ["P2"]}
        assert [event.schedule for event in events if isinstance(event, RunStarted)] == ["union", "auctions", "late"]

        since = START + timedelta(hours=1)
        assert await lpm._db.read(refresh.freshness, UNION, since, delinquent_only=False) == (
            4,
            4,
            START + timedelta(hours=1),
            0,
        )
        assert await lpm._db.read(refresh.freshness, UNION, since + timedelta(hours=2), delinquent_only=False) == (
            4,
            2,
            since,
            0,
        )

        clock.advance(5 * 24 * HOUR)  # nobody was running
        for _ in range(3):
            await schedules.step()
        started = [event for event in events if isinstance(event, RunStarted)][3:]
        assert [(event.schedule, event.tasks) for event in started] == [("union", 4), ("late", 1), ("auctions", 1)]
        clock.advance(24 * HOUR)
        await schedules.step()
        skipped = [event.schedule for event in events if isinstance(event, RunSkipped)]
        assert skipped == ["union", "late", "auctions"]  # nothing of the last run was scraped


async def test_a_schedule_does_not_wait_for_one_whose_name_begins_with_its_own(tmp_path: Path) -> None:
    place = 'platform = "echo"\nstate = "FL"\ncounty = "union"\nlist = true\nevery = "1h"\n'
    text = "".join(
        f'[schedules."{name}"]\n{place}url = "https://{name}"\n' for name in ("union", "union-late", "union.2")
    )
    clock, events = ManualClock(START), list[Event]()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=StoreOptions()) as lpm:
        schedules = StandaloneSchedules(a_context(lpm, NullUpstream(), clock, events.append, settings(tmp_path, text)))
        await schedules.step()
        claim = next(claim for claim in await lpm.claim(10) if claim.task.target.url == "https://union")
        await lpm.save_result(claim, Result(data={}, scraped_at=clock.now()))
        clock.advance(HOUR)
        await schedules.step()
    assert [event.schedule for event in events if isinstance(event, RunStarted)][3:] == ["union"]
    assert len([event for event in events if isinstance(event, RunSkipped)]) == 2


async def test_the_parcels_in_a_file_are_scraped_known_or_not(tmp_path: Path) -> None:
    file = tmp_path / "parcels.csv"
    place = 'platform = "echo"\nstate = "FL"\ncounty = "union"\nevery = "1d"\nwindow = "1h"\npace = 60\n'
    given = settings(tmp_path, f'[schedules.few]\n{place}file = "{file}"\n')
    clock, events = ManualClock(START), list[Event]()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=StoreOptions()) as lpm:
        schedules = StandaloneSchedules(a_context(lpm, NullUpstream(), clock, events.append, given), read_targets)
        for _ in range(3):  # it is tried again, and reported once
            await schedules.step()
            clock.advance(301)
        (failed,) = events
        assert isinstance(failed, ScheduleFailed) and "parcels.csv" in failed.error
        file.write_text("parcel_id,book\nP1,7\nP2,8\n")
        await schedules.step()
        assert events[1:] == [RunStarted(schedule="few", tasks=2, late_seconds=1.0)]
        (claim,) = await lpm.claim(10)
        assert (claim.task.target.parcel_id, claim.task.target.extra) == ("P1", {"book": "7"})
        await lpm.save_result(claim, Result(data={}, scraped_at=clock.now()))
        since, prefix = clock.now() - timedelta(hours=1), run_prefix("few")
        assert await lpm._db.read(refresh.freshness_of_runs, prefix, since) == (2, 1, None, 0)
        clock.advance(HOUR / 2)
        assert await scrape(lpm, clock) == ["P2"]
        assert (await lpm._db.read(refresh.freshness_of_runs, prefix, since))[:2] == (2, 2)
        file.write_text("parcel_id\nP3\n")
        clock.advance(24 * HOUR)
        await schedules.step()
        assert await scrape(lpm, clock) == ["P3"]
        oldest = (await lpm._db.read(refresh.freshness_of_runs, prefix, since)).oldest_at
        assert oldest is not None
        file.write_text("parcel_id,book\nP1,7\nP4,\n")
        clock.advance(24 * HOUR)
        await schedules.step()
        for _ in range(2):  # one that was there, one that never was
            (claim,) = await lpm.claim(10)
            await lpm.finish(claim, "no such parcel")
            clock.advance(HOUR)
        freshness = await lpm._db.read(refresh.freshness_of_runs, prefix, since)
        assert freshness == (2, 2, oldest + timedelta(hours=0.5), 2)


WEEKLY = """
[schedules.columbia]
platform = "echo"
state = "FL"
county = "columbia"
every = "7d"

[schedules.late]
platform = "echo"
state = "FL"
county = "columbia"
every = "30d"
filter = "delinquent"
"""


async def test_what_is_delivered_and_deleted_stays_known_to_schedules(tmp_path: Path) -> None:
    given, clock = settings(tmp_path, WEEKLY), ManualClock(START)
    site = Site("echo", "FL", "columbia")
    assert store_options(given).scheduled == {site}
    options = StoreOptions(scheduled=frozenset({site}))
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=options) as lpm:
        for county, number in (("columbia", "P1"), ("columbia", "P2"), ("columbia", "P3"), ("baker", "P4")):
            target = Target(parcel_id=number, state="FL", county=county)
            await lpm.add_task(Task(task_id=number, platform="echo", target=target, source=Source.CLI))
        schedules = StandaloneSchedules(a_context(lpm, NullUpstream(), clock, lambda _: None, given))

        async def deliver() -> None:
            await lpm.mark_synced([entry.result_id for entry in await list_results(lpm) if not entry.synced_at])

        assert len(await scrape(lpm, clock)) == 4
        await deliver()
        for day in range(8):
            clock.advance(24 * HOUR)
            cleaned = await (lpm.maintenance.relieve() if day == 3 else lpm.maintenance.clean())
            assert (cleaned.results, cleaned.tasks) == ((4, 1) if day == 3 else (0, 0))
        assert await lpm.known_parcels(site, delinquent_only=True) == [2]  # its record is deleted
        assert (await lpm._db.read(refresh.freshness, site, START, delinquent_only=False))[:2] == (3, 3)
        await schedules.step()
        clock.advance(24 * HOUR)
        assert sorted(await scrape(lpm, clock)) == ["P1", "P2", "P2", "P3"]  # of both schedules
        await deliver()
        clock.advance(8 * 24 * HOUR)
        assert (await lpm.maintenance.clean()).tasks >= 3  # of each parcel only the newest is kept
        assert len(await lpm.known_parcels(site, delinquent_only=False)) == 3
        await schedules.step()
        for claim in await lpm.claim(1):
            await lpm.finish(claim, "no such parcel")
        assert (await lpm._db.read(refresh.freshness, site, START, delinquent_only=False))[::3] == (2, 1)


async def test_two_schedules_with_files_that_share_a_parcel_each_keep_what_they_know_of_it(tmp_path: Path) -> None:
    file = tmp_path / "parcels.csv"
    file.write_text("parcel_id\nP1\n")
    place = f'platform = "echo"\nstate = "FL"\ncounty = "union"\nfile = "{file}"\n'
    given = settings(
        tmp_path, f'[schedules.daily]\n{place}every = "30d"\n\n[schedules.nightly]\n{place}every = "40d"\n'
    )
    clock = ManualClock(START)
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=store_options(given)) as lpm:
        schedules = StandaloneSchedules(a_context(lpm, NullUpstream(), clock, lambda _: None, given), read_targets)
        await schedules.step()
        for _ in range(2):
            (claim,) = await lpm.claim(1)
            await lpm.save_result(claim, Result(data={}, scraped_at=clock.now()))
            clock.advance(HOUR)
        await lpm.mark_synced([entry.result_id for entry in await list_results(lpm)])
        clock.advance(20 * 24 * HOUR)
        assert (await lpm.maintenance.clean()).results == 2
        for name in ("daily", "nightly"):
            counted = await lpm._db.read(refresh.freshness_of_runs, run_prefix(name), START)
            assert (counted.parcels, counted.fresh) == (1, 1)


async def test_a_task_kept_for_a_schedule_is_retried_itself_and_may_no_longer_be_delinquent(tmp_path: Path) -> None:
    clock, site = ManualClock(START), Site("echo", "FL", "columbia")
    options = StoreOptions(scheduled=frozenset({site}))
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=options) as lpm:
        target = Target(parcel_id="P2", state="FL", county="columbia")
        for task_id, kind in (("plain", "scrape"), ("refresh-late:1", "refresh")):
            await lpm.add_task(Task(task_id=task_id, platform="echo", target=target, source=Source.CLI, type=kind))
            await scrape(lpm, clock)
            await lpm.mark_synced([entry.result_id for entry in await list_results(lpm) if not entry.synced_at])
            clock.advance(400 * 24 * HOUR)
            await lpm.maintenance.clean()
            assert await list_results(lpm) == []
            assert await lpm.known_parcels(site, delinquent_only=True) != []
            done = await lpm.operator.retry_tasks(Selection(), Flags(include_completed=True))
            assert done == {PlannedAction.APPLY: 1}
            (claim,) = await lpm.claim(10)
            assert claim.task.task_id == task_id
            await lpm.save_result(claim, Result(data={}, scraped_at=clock.now()))
            assert await lpm.known_parcels(site, delinquent_only=True) == []
            await lpm.mark_synced([entry.result_id for entry in await list_results(lpm)])
            clock.advance(HOUR)


async def test_a_list_has_a_freshness_and_a_paused_schedule_does_not_run(tmp_path: Path) -> None:
    text = SETTINGS.replace("pace = 3_600", "paused = true") + "paused = false\n"
    clock, events = ManualClock(START), list[Event]()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock, options=StoreOptions()) as lpm:
        target = Target(parcel_id="P1", state="FL", county="union")
        await lpm.add_task(Task(task_id="t1", platform="echo", target=target, source=Source.CLI))
        await scrape(lpm, clock)
        schedules = StandaloneSchedules(a_context(lpm, NullUpstream(), clock, events.append, settings(tmp_path, text)))
        await schedules.step()
        assert [event.schedule for event in events if isinstance(event, RunStarted)] == ["auctions"]

        async def freshness() -> tuple[int, int]:
            since = clock.now() - timedelta(hours=12)
            counted = await lpm._db.read(refresh.freshness_of_runs, run_prefix("auctions"), since)
            return counted.parcels, counted.fresh

        assert await freshness() == (1, 0)
        await scrape(lpm, clock)
        assert await freshness() == (1, 1)
        clock.advance(13 * HOUR)
        assert await freshness() == (1, 0)


def test_a_schedule_that_cannot_be_meant_is_named(tmp_path: Path) -> None:
    good = '[schedules.a]\nplatform = "echo"\nstate = "FL"\ncounty = "union"\n'
    bad = ['every = "often"', "", 'every = "1d"\nfilter = "rich"', 'every = "1d"\nwindow = "3d"']
    bad += ['every = "1d"\nfile = "a.csv"\nlist = true']
    bad += ['every = "1d"\nurl = "https://example.org/"']
    bad += ['every = "1d"\npace = -1', 'every = "1d"\npace = 90_000']
    for wrong in bad:
        with pytest.raises(InvalidSettings) as error:
            settings(tmp_path, good + wrong)
        assert "schedules.a" in str(error.value)
    for state, county in (("Atlantis", "union"), ("FL", "12001")):
        with pytest.raises(InvalidSettings, match=r"schedules\.a"):
            settings(tmp_path, good.replace("FL", state).replace("union", county) + 'every = "1d"\n')
    bad = ['platform = "grizlygis"', 'platform = "grizzly_gis"\nlist = true', 'platform = "govease"\nlist = true']
    bad += [f'platform = "govease"\nlist = true\nurl = "{url}"' for url in ("banana", "http://10.1.2.3/")]
    for wrong in bad:
        given = settings(tmp_path, good.replace('platform = "echo"', wrong) + 'every = "1d"\n')
        with pytest.raises(InvalidSettings, match=r"schedules\.a"):
            check_ready(replace(given, worker=replace(given.worker, mode="standalone")), {})
