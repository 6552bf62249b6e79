"""A clock that was ahead once holds nothing up when it is right again."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.events import ClockSetBack, Event
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import Sample, SyncRound
from parcelpost.storage.options import LONGEST_DELAY
from tests.storage.factories import NOW, a_result, a_task, claim_one, list_tasks, look, save_one

TEN_YEARS = 3_650 * 86_400.0
HOUR = timedelta(hours=1)

_COLUMNS = (
    ("tasks", "available_at"),
    ("tasks", "completed_at"),
    ("results", "synced_at"),
    ("cache", "expires_at"),
    ("sync_log", "created_at"),
    ("agent_metrics", "timestamp"),
    ("platform_pauses", "paused_until"),
)


async def work_in_the_future(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    """Everything that writes a moment for later, or one from which a time is counted."""
    clock.advance(TEN_YEARS)
    await lpm.retry_later(await claim_one(lpm, "retried"), "timeout", HOUR)
    await lpm.release(await claim_one(lpm, "released"), 2 * HOUR)
    await lpm.add_task(a_task("other", platform="beacon"))
    await lpm.pause_platform("beacon", clock.now() + HOUR, "it blocks us")
    await lpm.pause_platform("vgsi", None, "by hand")
    entry = await save_one(lpm, a_task("done", platform="third"), a_result())
    await lpm.mark_synced([entry.result_id])
    await lpm.cache.put("page", b"<p>")
    await lpm.metrics.record(Sample())
    await lpm.sync_log.record(SyncRound(direction="upload", record_type="results", record_count=1, success=True))
    clock.advance(-TEN_YEARS)


async def test_no_delay_that_a_wrong_clock_wrote_is_longer_than_it_was_meant(
    lpm: LocalPersistenceManager, clock: ManualClock, events: list[Event]
) -> None:
    await work_in_the_future(lpm, clock)
    await lpm.maintenance.correct_times()
    assert [event for event in events if isinstance(event, ClockSetBack)] == [
        ClockSetBack(seconds=TEN_YEARS, tasks=2, platforms=1)
    ]
    infos = {info.task.task_id: info for info in await list_tasks(lpm)}
    assert infos["retried"].available_at == NOW + HOUR
    assert infos["released"].available_at == NOW + 2 * HOUR
    assert {site.platform: pause.until for site, pause in (await lpm.pauses()).items()} == {
        "beacon": "2026-01-01T01:00:00.000Z",
        "vgsi": None,
    }
    await lpm.resume_platform("vgsi")
    clock.advance(2 * 3600)
    assert {claim.task.task_id for claim in await lpm.claim(9)} == {"retried", "released", "other"}


async def test_nothing_in_the_store_is_from_the_future_after_that(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock, events: list[Event]
) -> None:
    """So that retention removes it in its time, and a cached page is not taken for fresh for ten years."""
    await work_in_the_future(lpm, clock)
    before = {name: look(store, f"SELECT max({name[1]}) FROM {name[0]}")[0][0] for name in _COLUMNS}
    assert all(moment > "2035" for moment in before.values())
    await lpm.maintenance.correct_times()
    after = {name: look(store, f"SELECT max({name[1]}) FROM {name[0]}")[0][0] for name in _COLUMNS}
    assert all(moment < "2026-01-02" for moment in after.values())
    assert await lpm.cache.get("page") is None
    await lpm.maintenance.correct_times()
    assert len([event for event in events if isinstance(event, ClockSetBack)]) == 1


async def test_a_new_lease_for_a_task_that_waits_for_the_far_future_does_not_keep_it_waiting(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await work_in_the_future(lpm, clock)
    again = [a_task(name, lease_id="new", lease_expires_at=NOW + 24 * HOUR) for name in ("retried", "released")]
    await lpm.add_tasks(again, leased=True)
    await lpm.maintenance.correct_times()
    infos = {info.task.task_id: info for info in await list_tasks(lpm)}
    assert infos["retried"].task.lease_expires_at == NOW + 24 * HOUR
    assert [infos[name].available_at for name in ("retried", "released")] == [NOW + HOUR, NOW + 2 * HOUR]


async def test_a_delay_that_is_longer_than_any_can_be_is_over(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock, events: list[Event]
) -> None:
    """Whatever has written it, and whenever its row was changed since."""
    await lpm.retry_later(await claim_one(lpm, "stranded"), "timeout", HOUR)
    with contextlib.closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE tasks SET available_at = '2036-01-01T00:00:00.000Z'")
    await lpm.retry_later(await claim_one(lpm, "longest"), "timeout", timedelta(days=3_650))
    clock.advance(-30)
    await lpm.maintenance.correct_times()
    assert [event.tasks for event in events if isinstance(event, ClockSetBack)] == [1]
    infos = {info.task.task_id: info for info in await list_tasks(lpm)}
    assert infos["longest"].available_at == NOW + LONGEST_DELAY
    assert [claim.task.task_id for claim in await lpm.claim(9)] == ["stranded"]
    await lpm.maintenance.correct_times()
    assert len([event for event in events if isinstance(event, ClockSetBack)]) == 1


async def test_delays_that_a_right_clock_wrote_stay_as_they_are(
    lpm: LocalPersistenceManager, clock: ManualClock, events: list[Event]
) -> None:
    await lpm.retry_later(await claim_one(lpm), "timeout", 24 * HOUR)
    await lpm.pause_platform("beacon", clock.now() + 8_760 * HOUR)
    clock.advance(-30)  # as clocks are corrected every day
    await lpm.maintenance.correct_times()
    assert not any(isinstance(event, ClockSetBack) for event in events)
    infos = {info.task.task_id: info for info in await list_tasks(lpm)}
    assert infos["t1"].available_at == NOW + 24 * HOUR
