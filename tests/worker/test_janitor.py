"""The janitor's rounds: each chore at its local hour, once, and caught up with after a downtime."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.errors import StoreFailed
from parcelpost.events import BackupMade, Event, LoopFailed, StorageLevelChanged, StoreCleaned
from parcelpost.model import BrowserState, TaskStatus
from parcelpost.settings import Settings
from parcelpost.settings.schema import ExecutorSettings, JanitorSettings
from parcelpost.storage import LocalPersistenceManager, StoreOptions, backup, cache
from parcelpost.storage.health import Level
from parcelpost.storage.history import SyncRound
from parcelpost.storage.locks import live_folder
from parcelpost.worker.janitor import STATE, Janitor, LastRuns
from parcelpost.worker.status import read_statuses
from tests.storage.crash.peer import Peer
from tests.storage.factories import (
    a_result,
    a_task,
    claim_one,
    deliver,
    list_results,
    look,
    save_one,
    the_result,
    the_task,
)
from tests.worker.rig import a_janitor

HOUR = 3_600
DAY = 24 * HOUR
NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"  # as a rule, so that no time zone files are needed


class House:
    """One opener of the store, and its janitor."""

    def __init__(self, lpm: LocalPersistenceManager, clock: ManualClock) -> None:
        self.lpm = lpm
        self.clock = clock
        self.log: list[tuple[datetime, Event]] = []
        self.janitor = self.new_janitor()

    def new_janitor(self, settings: JanitorSettings | None = None, *, max_task_age_hours: float = 0.0) -> Janitor:
        """As after a restart."""
        executor = ExecutorSettings(max_task_age_hours=max_task_age_hours)
        return a_janitor(
            self.lpm, self.clock, self.note, Settings(janitor=settings or JanitorSettings(), executor=executor)
        )

    async def set_level(self, level: Level) -> None:
        usage = await self.lpm.maintenance.usage()
        self.janitor.context.control.usage = replace(usage, level=level)

    def note(self, event: Event) -> None:
        self.log.append((self.clock.now(), event))

    def times(self, kind: type[Event]) -> list[str]:
        return [f"{moment:%d %H:%M}" for moment, event in self.log if isinstance(event, kind)]

    async def pass_time(self, seconds: float, every: float = 1_800) -> None:
        """Turns of the janitor at the given distance, the first of them now."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() <= end:
            await self.janitor.do_chores()
            self.clock.advance(every)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the local time zone; UTC until then."""

    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    change("UTC0")
    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def housed(store: Path, clock: ManualClock, options: StoreOptions | None = None) -> AsyncIterator[House]:
    houses: list[House] = []

    def emit(event: Event) -> None:
        for house in houses:
            house.note(event)

    async with LocalPersistenceManager.open(store, clock=clock, emit=emit, options=options or StoreOptions()) as lpm:
        houses.append(House(lpm, clock))
        yield houses[0]


@pytest.fixture
async def house(store: Path, clock: ManualClock) -> AsyncIterator[House]:
    async with housed(store, clock) as opened:
        yield opened


async def test_the_first_start_of_a_new_store_has_missed_nothing(house: House) -> None:
    assert await house.janitor.do_chores() == 15
    await house.pass_time(13 * HOUR)
    assert house.log == []


async def test_each_chore_is_done_once_a_day_at_its_hour(house: House, store: Path) -> None:
    await house.pass_time(3 * DAY)
    assert house.times(BackupMade) == ["02 02:00", "03 02:00", "04 02:00"]
    assert house.times(StoreCleaned) == ["02 03:00", "03 03:00", "04 03:00"]
    assert len(backup.list_backups(store)) == 3


async def test_the_hours_are_the_operators(house: House) -> None:
    house.janitor = house.new_janitor(JanitorSettings(backup_at="14:30", clean_at="00:00"))
    await house.pass_time(2 * DAY)
    assert house.times(BackupMade) == ["01 14:30", "02 14:30"]
    assert house.times(StoreCleaned) == ["02 00:00", "03 00:00"]


async def test_the_hours_are_local(house: House, zone: Callable[[str], None]) -> None:
    zone(NEW_YORK)
    await house.pass_time(2 * DAY)
    assert house.times(BackupMade) == ["02 07:00", "03 07:00"]
    assert house.times(StoreCleaned) == ["02 08:00", "03 08:00"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2026-03-07T00:00Z", ["07 07:00", "08 07:00", "09 06:00"]),  # on the 8th there is no 02:00
        ("2026-10-31T00:00Z", ["31 06:00", "01 07:00", "02 07:00"]),
    ],
)
async def test_when_summer_time_begins_or_ends_each_chore_is_still_done_once_a_day(
    store: Path, zone: Callable[[str], None], start: str, expected: list[str]
) -> None:
    zone(NEW_YORK)
    async with housed(store, ManualClock(datetime.fromisoformat(start))) as house:
        await house.pass_time(3 * DAY - HOUR)
        assert house.times(BackupMade) == expected
        assert len(house.times(StoreCleaned)) == 3


async def test_after_three_days_of_downtime_what_was_missed_is_done_once(store: Path, clock: ManualClock) -> None:
    async with housed(store, clock) as house:
        await house.pass_time(DAY)
    clock.advance(3 * DAY)
    async with housed(store, clock) as house:
        now = f"{clock.now():%d %H:%M}"
        await house.pass_time(12 * HOUR, every=HOUR)
        assert house.times(BackupMade) == [now]
        assert house.times(StoreCleaned) == [now]


async def test_a_restart_between_two_nights_repeats_nothing(store: Path, clock: ManualClock) -> None:
    async with housed(store, clock) as house:
        await house.pass_time(DAY)
        assert len(house.log) == 2
    async with housed(store, clock) as house:
        await house.pass_time(HOUR)
        assert house.log == []


async def test_a_backup_that_fails_is_tried_again_after_ten_minutes_and_holds_up_nothing(
    house: House, store: Path
) -> None:
    in_the_way = store.parent / "backups"
    in_the_way.write_text("not a folder")
    await house.pass_time(13.5 * HOUR)  # the next one at 02:00
    await house.pass_time(HOUR, every=60)
    assert house.times(LoopFailed)[:3] == ["02 02:00", "02 02:10", "02 02:20"]
    assert house.times(StoreCleaned) == ["02 03:00"]
    failure = next(event for _, event in house.log if isinstance(event, LoopFailed))
    assert (failure.loop, failure.next_in_seconds) == ("janitor: backup", 600)
    assert str(in_the_way) in failure.error
    in_the_way.unlink()
    house.clock.advance(600)
    await house.janitor.do_chores()
    assert len(house.times(BackupMade)) == 1
    await house.pass_time(2 * HOUR, every=300)
    assert len(house.times(BackupMade)) == 1


async def test_a_backup_whose_moment_cannot_be_kept_is_not_made_again_and_again(house: House, store: Path) -> None:
    """Every further one would push out an older one."""
    await house.janitor.do_chores()
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("CREATE TRIGGER no BEFORE UPDATE ON worker_state BEGIN SELECT raise(ABORT, 'no'); END")
    house.clock.advance(14.5 * HOUR)
    with pytest.raises(sqlite3.IntegrityError):
        await house.janitor.do_chores()
    await house.janitor.do_chores()
    await house.janitor.do_chores()
    assert house.times(BackupMade) == ["02 02:30"]


async def test_a_moment_far_ahead_was_written_by_a_wrong_clock_and_is_not_waited_for(house: House) -> None:
    wrong = house.clock.now() + timedelta(days=3_650)
    await house.lpm.state.put(STATE, LastRuns(backup=wrong, clean=wrong, vacuum=wrong))
    await house.pass_time(2 * DAY)
    assert house.times(BackupMade) == ["02 02:00", "03 02:00"]
    assert house.times(StoreCleaned) == ["02 03:00", "03 03:00"]


async def test_a_task_that_a_clock_put_off_by_ten_years_is_due_when_it_was_meant_to_be(house: House) -> None:
    house.clock.advance(3_650 * DAY)
    await house.lpm.retry_later(await claim_one(house.lpm), "timeout", timedelta(hours=1))
    house.clock.advance(-3_650 * DAY)
    await house.janitor.do_chores()
    house.clock.advance(HOUR)
    assert len(await house.lpm.claim()) == 1


async def test_a_clock_that_is_set_back_by_an_hour_makes_no_second_backup(house: House) -> None:
    await house.pass_time(13.5 * HOUR)
    await house.pass_time(60, every=60)
    assert house.times(BackupMade) == ["02 02:00"]
    house.clock.advance(-HOUR)
    await house.pass_time(12 * HOUR)
    assert house.times(BackupMade) == ["02 02:00"]
    await house.pass_time(DAY)
    assert len(house.times(BackupMade)) == 2


async def test_a_full_vacuum_is_made_once_a_week_if_it_pays(house: House, store: Path) -> None:
    """SQLite counts a full vacuum as a change of the schema."""
    rebuilt = []
    await house.pass_time(DAY)
    for _ in range(15):
        before = look(store, "PRAGMA schema_version")
        await house.lpm.cache.put("k", os.urandom(1_000_000))
        await house.lpm._db.write(cache.shrink, 0)
        house.clock.advance(DAY - 1_800)
        await house.janitor.do_chores()
        house.clock.advance(1_800)
        if look(store, "PRAGMA schema_version") != before:
            rebuilt.append(f"{house.clock.now():%d}")
        assert look(store, "PRAGMA freelist_count") == [(0,)]
    assert rebuilt == ["08", "15"]
    assert len(house.times(StoreCleaned)) == 16


async def test_tasks_whose_lease_is_over_end_expired_and_are_reported(house: House) -> None:
    lease = house.clock.now() + timedelta(minutes=5)
    await house.lpm.add_tasks([a_task("leased", lease_expires_at=lease), a_task("free")])
    await house.janitor.do_chores()
    assert (await house.lpm.queue_depth()).pending == 2
    house.clock.advance(300)
    await house.janitor.do_chores()
    assert (await the_task(house.lpm, "leased")).status is TaskStatus.EXPIRED
    assert (await the_task(house.lpm, "free")).status is TaskStatus.PENDING
    (report,) = await house.lpm.get_unsynced_results()
    assert (report.task_id, report.status) == ("leased", TaskStatus.EXPIRED)


async def test_tasks_wait_for_as_long_as_it_takes_unless_an_age_is_set(house: House) -> None:
    await house.lpm.add_task(a_task())
    house.clock.advance(30 * DAY)
    await house.janitor.do_chores()
    assert (await the_task(house.lpm)).status is TaskStatus.PENDING
    house.janitor = house.new_janitor(max_task_age_hours=30 * 24)
    await house.janitor.do_chores()
    assert (await the_task(house.lpm)).status is TaskStatus.PENDING
    house.clock.advance(1)
    await house.janitor.do_chores()
    assert (await the_task(house.lpm)).status is TaskStatus.EXPIRED
    assert len(await house.lpm.get_unsynced_results()) == 1


async def test_a_task_that_is_worked_on_does_not_expire(house: House) -> None:
    lease = house.clock.now() + timedelta(minutes=5)
    claim = await claim_one(house.lpm, a_task(lease_expires_at=lease))
    house.janitor = house.new_janitor(max_task_age_hours=1)
    house.clock.advance(DAY)
    await house.janitor.do_chores()
    assert await house.lpm.save_result(claim, a_result()) is not None


async def test_what_a_dead_process_held_comes_back(store: Path) -> None:
    """I9"""
    async with housed(store, ManualClock()) as house:
        await house.lpm.add_task(a_task())
        with Peer(store) as peer:
            assert peer.ask("claim", "1") == ["t1"]
            await house.janitor.do_chores()
            assert (await the_task(house.lpm)).status is TaskStatus.PROCESSING
            peer.kill()
            await house.janitor.do_chores()
        assert (await the_task(house.lpm)).status is TaskStatus.PENDING


async def test_at_the_cap_what_is_delivered_goes_at_most_once_a_minute(house: House) -> None:
    """I8"""
    await house.set_level(Level.COLLECTOR_STOPS)
    waiting = await save_one(house.lpm, "waiting")
    await deliver(house.lpm, (await save_one(house.lpm, "t1")).result_id)
    await house.pass_time(59, every=15)
    assert len(house.times(StoreCleaned)) == 1
    assert [entry.task_id for entry in await list_results(house.lpm)] == ["waiting"]
    await deliver(house.lpm, (await save_one(house.lpm, "t2")).result_id)
    await house.janitor.do_chores()
    assert len(house.times(StoreCleaned)) == 2
    assert await the_result(house.lpm, "waiting") == waiting
    assert len(await list_results(house.lpm)) == 1
    await house.set_level(Level.FINE)
    await house.pass_time(600, every=15)
    assert len(house.times(StoreCleaned)) == 2


async def test_the_worker_goes_on_after_the_cap_without_a_restart(store: Path, clock: ManualClock) -> None:
    """I8: delivered pages, and the journals that were kept for speed, make room."""
    options = StoreOptions(max_bytes=3_000_000, min_free_bytes=0)
    async with housed(store, clock, options) as house:
        control = house.janitor.context.control
        for _ in range(3):
            while control.level is not Level.EXECUTOR_STOPS:
                entry = await save_one(house.lpm, f"t{clock.now()}", a_result(body=os.urandom(100_000)))
                await deliver(house.lpm, entry.result_id)
                await house.janitor.watch_storage()
                clock.advance(1)
            clock.advance(60)
            await house.janitor.do_chores()
            await house.janitor.watch_storage()
            assert await list_results(house.lpm) == []
        assert [event.level for _, event in house.log if isinstance(event, StorageLevelChanged)][-1] == "fine"
        assert len(await list_results(house.lpm)) == 0


async def test_relief_at_the_cap_waits_for_nothing_that_may_fail(house: House, store: Path) -> None:
    gate = live_folder(store) / "gate"
    gate.unlink()
    gate.mkdir()
    await house.set_level(Level.EXECUTOR_STOPS)
    with pytest.raises(StoreFailed):
        await house.janitor.do_chores()
    assert len(house.times(StoreCleaned)) == 1
    gate.rmdir()
    assert await house.janitor.do_chores() == 15


async def test_of_two_openers_one_keeps_house_until_it_leaves(house: House, store: Path) -> None:
    await house.janitor.do_chores()
    async with housed(store, house.clock) as peer:
        house.clock.advance(15 * HOUR)
        assert await peer.janitor.do_chores() == 5
        assert peer.log == []
        await house.janitor.do_chores()
        assert [type(event) for _, event in house.log] == [BackupMade, StoreCleaned]
        house.lpm.leader_locks.release()
        assert await peer.janitor.do_chores() == 15
        assert peer.log == [], "what the other has done is done"
        house.clock.advance(DAY)
        await peer.janitor.do_chores()
        assert [type(event) for _, event in peer.log] == [BackupMade, StoreCleaned]


async def test_at_the_cap_an_opener_without_the_duty_gives_back_its_own_journal(house: House, store: Path) -> None:
    await house.janitor.do_chores()
    async with housed(store, house.clock) as peer:
        await save_one(peer.lpm, "t1", a_result(body=os.urandom(100_000)))
        assert (await house.lpm.maintenance.usage()).journal >= 100_000
        await peer.set_level(Level.COLLECTOR_STOPS)
        assert await peer.janitor.do_chores() == 5
        assert (await house.lpm.maintenance.usage()).journal == 0
        assert peer.log == []
        entry = await the_result(peer.lpm)
        assert peer.lpm.raw_path(str(entry.html_path)).exists()


async def test_a_long_chore_holds_up_neither_the_watch_over_the_store_nor_what_is_published(house: House) -> None:
    """Another program has the store locked, so that the chores and the records wait."""
    control = house.janitor.context.control
    with contextlib.closing(sqlite3.connect(house.lpm.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for seconds in (0, 5, 5):
            control.usage = None
            house.clock.advance(seconds)
            assert await house.janitor.step() == 0.5
            assert control.usage is not None
        assert house.janitor.chores_seconds == 10
        other.execute("ROLLBACK")
    await house.janitor.close()
    assert [status.name for status in await read_statuses(house.lpm.state)] == ["worker-1"]


async def test_a_chore_that_fails_again_and_again_is_tried_later_each_time(house: House, store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("DROP TABLE agent_metrics")
    while len(house.times(LoopFailed)) < 5:
        house.clock.advance(15)
        await house.janitor.step()
        await asyncio.sleep(0.001)
    failures = [event for _, event in house.log if isinstance(event, LoopFailed)]
    assert [event.in_a_row for event in failures[:5]] == [1, 2, 3, 4, 5]
    assert [event.next_in_seconds for event in failures[:5]] == [1, 2, 4, 8, 16]
    await house.janitor.close()


async def test_a_sample_is_taken_every_minute(house: House) -> None:
    start = house.clock.now()
    await house.pass_time(300, every=15)
    samples = await house.lpm.metrics.since(start)
    assert [(timed.timestamp - start).total_seconds() for timed in samples] == [60, 120, 180, 240, 300]


async def test_a_sample_tells_of_the_last_minute(house: House) -> None:
    start = house.clock.now()
    await save_one(house.lpm, "early")
    house.clock.advance(90)
    await save_one(house.lpm, "done", a_result(execution_time_ms=40))
    await house.lpm.give_up(await claim_one(house.lpm, "failed"), "no")
    await house.lpm.cache.put("page", b"<html>")
    assert await house.lpm.cache.get("page") and not await house.lpm.cache.get("another page")
    for milliseconds in (900, 250):
        house.clock.advance(1)
        sent = SyncRound(
            direction="upload", record_type="results", record_count=1, success=True, duration_ms=milliseconds
        )
        await house.lpm.sync_log.record(sent)
    await house.janitor.do_chores()
    (timed,) = await house.lpm.metrics.since(start)
    sample = timed.sample
    assert (sample.cache_hit_rate, sample.sync_latency_ms) == (0.5, 250)
    assert (sample.tasks_completed, sample.tasks_failed, sample.average_execution_time_ms) == (1, 1, 40)
    assert sample.cpu_percent is not None
    assert 0 < (sample.ram_percent or 0) <= 100
    assert (sample.ram_used_gb or 0) > 0
    assert sample.browsers_active == 0


async def test_a_sample_counts_the_browsers_of_all_processes_on_the_store(house: House) -> None:
    start = house.clock.now()
    browser = BrowserState(browser_id=0, status="idle", last_health_check=start, created_at=start)
    for number, status in enumerate(("idle", "busy", "crashed", "restarting", "busy")):
        await house.lpm.browsers.put(replace(browser, browser_id=number, status=status))
    house.clock.advance(60)
    await house.janitor.do_chores()
    (timed,) = await house.lpm.metrics.since(start)
    assert timed.sample.browsers_active == 3
