"""Samples, and the windows a heartbeat reports."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import Sample, Window
from tests.storage.factories import NOW, a_result, a_task, claim_one, save_one

FULL = Sample(
    tasks_completed=5,
    tasks_failed=1,
    average_execution_time_ms=812,
    browsers_active=3,
    ram_used_gb=1.5,
    ram_percent=40.5,
    cpu_percent=99.9,
    cache_hit_rate=0.35,
    sync_latency_ms=120,
)


async def test_samples_come_back_the_oldest_first(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.metrics.record(FULL)
    clock.advance(60)
    await lpm.metrics.record(Sample())
    found = await lpm.metrics.since(NOW)
    assert [(entry.timestamp, entry.sample) for entry in found] == [(NOW, FULL), (NOW + timedelta(minutes=1), Sample())]


async def test_samples_are_given_since_a_moment_and_up_to_a_limit(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    for n in range(5):
        await lpm.metrics.record(Sample(tasks_completed=n))
        clock.advance(60)
    found = await lpm.metrics.since(NOW + timedelta(minutes=2))
    assert [entry.sample.tasks_completed for entry in found] == [2, 3, 4]
    assert len(await lpm.metrics.since(NOW, limit=2)) == 2
    assert await lpm.metrics.since(NOW + timedelta(days=1)) == []


async def test_a_window_counts_what_ended_within_it(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    assert await lpm.metrics.window() == Window(completed=0, failed=0, average_execution_time_ms=None)
    await save_one(lpm, "old", a_result(execution_time_ms=9_000))
    await lpm.give_up(await claim_one(lpm, "old failure"), "no")
    clock.advance(61)
    await save_one(lpm, "t1", a_result(execution_time_ms=100))
    clock.advance(30)
    await save_one(lpm, "t2", a_result(execution_time_ms=300))
    await lpm.give_up(await claim_one(lpm, "t3"), "no")
    await lpm.add_task(a_task("t4", lease_expires_at=clock.now()))
    await lpm.expire_tasks()
    await claim_one(lpm, "under way")
    assert await lpm.metrics.window() == Window(completed=2, failed=2, average_execution_time_ms=200.0)
    assert await lpm.metrics.window(seconds=10) == Window(completed=1, failed=2, average_execution_time_ms=300.0)
    assert (await lpm.metrics.window(seconds=3600)).completed == 3
    clock.advance(3600)
    assert await lpm.metrics.window() == Window(completed=0, failed=0, average_execution_time_ms=None)


async def test_an_end_without_a_record_has_no_time_to_average(lpm: LocalPersistenceManager) -> None:
    await save_one(lpm, "t1", a_result(execution_time_ms=100))
    await lpm.finish(await claim_one(lpm, "t2"))
    assert await lpm.metrics.window() == Window(completed=2, failed=0, average_execution_time_ms=100.0)


async def test_a_window_is_right_while_many_write(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(100))
    claims = await lpm.claim(100)
    await asyncio.gather(*(lpm.save_result(claim, a_result(execution_time_ms=50)) for claim in claims))
    assert await lpm.metrics.window() == Window(completed=100, failed=0, average_execution_time_ms=50.0)
