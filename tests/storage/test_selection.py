"""Filters against a plain filter of the same rows, and pages of what they find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parcelpost.clock import ManualClock
from parcelpost.model import DeliveryState, OutboxEntry, Priority, Source, TaskInfo, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import NOW, a_result, a_task, list_results, list_tasks

PLATFORMS = ("vgsi", "qpublic")
STATES = ("CT", "ct", "FL")
COUNTIES = ("hartford", "Lee", "")
PARCELS = ("1-2", "1_2%", "'; DROP TABLE tasks; --", "ß")
ERRORS = ("no such parcel", "No Such Table", "50% of \\it", "")
SOURCES = tuple(Source)


async def _fill(store: Path) -> tuple[list[TaskInfo], list[OutboxEntry]]:
    """Every fate, spread over all that can be filtered by; its tasks and results."""
    clock = ManualClock()
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        for n in range(120):
            clock.advance(60)
            await lpm.add_task(
                a_task(
                    f"t{n}",
                    platform=PLATFORMS[n % 2],
                    state=STATES[n % 3],
                    county=COUNTIES[n // 2 % 3],
                    parcel_id=PARCELS[n // 3 % 4],
                    source=SOURCES[n // 5 % 4],
                    priority=Priority(1 + n // 7 % 4),
                )
            )
        for n, claim in enumerate(await lpm.claim(100)):
            clock.advance(1)
            error = ERRORS[n // 4 % 4]
            match n % 4:
                case 0:
                    await lpm.give_up(claim, error)
                case 1:
                    await lpm.retry_later(claim, error, timedelta(hours=n))
                case _ if (result_id := await lpm.save_result(claim, a_result())) and n % 3 == 0:
                    await lpm.mark_rejected([result_id], error)
                case _ if result_id and n % 3 == 1:
                    await lpm.mark_synced([result_id])
        return await list_tasks(lpm, limit=1_000), await list_results(lpm, limit=1_000)


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


SELECTIONS = st.builds(
    Selection,
    task_ids=_or_none(st.lists(st.sampled_from(["t0", "t3", "t17", "t99", "nobody"])).map(tuple)),
    statuses=st.lists(st.sampled_from(TaskStatus), max_size=2).map(tuple),
    platform=_or_none(st.sampled_from([*PLATFORMS, "' OR 1 = 1 --"])),
    state=_or_none(st.sampled_from(STATES)),
    county=_or_none(st.sampled_from([*COUNTIES, "lEE"])),
    parcel_id=_or_none(st.sampled_from([*PARCELS, "%"])),
    source=_or_none(st.sampled_from(SOURCES)),
    priority=_or_none(st.sampled_from(Priority)),
    delivery=_or_none(st.sampled_from(DeliveryState)),
    error=_or_none(st.sampled_from(["such", "SUCH t", "%", "_", "\\", "no reason"])),
    since=_or_none(st.integers(0, 130).map(lambda minutes: NOW + timedelta(minutes=minutes))),
)


def _fits(which: Selection, task: TaskInfo, result: OutboxEntry | None, where: Any, changed: Any) -> bool:
    """The same in plain Python. `where` has state, county and parcel."""
    texts = [task.error, result.error if result else None, result.last_error if result else None]
    checks: list[tuple[object, Callable[[], bool]]] = [
        (which.task_ids, lambda: task.task.task_id in (which.task_ids or ())),
        (which.statuses or None, lambda: task.status in which.statuses),
        (which.platform, lambda: task.task.platform == which.platform),
        (which.state, lambda: where.state.lower() == (which.state or "").lower()),
        (which.county, lambda: where.county.lower() == (which.county or "").lower()),
        (which.parcel_id, lambda: where.parcel_id == which.parcel_id),
        (which.source, lambda: task.task.source == which.source),
        (which.priority, lambda: task.task.priority == which.priority),
        (which.delivery, lambda: result is not None and _delivery(result) == which.delivery),
        (which.error, lambda: any((which.error or "").lower() in (text or "").lower() for text in texts)),
        (which.since, lambda: changed >= which.since),
    ]
    return all(is_fitting() for said, is_fitting in checks if said is not None)


def _delivery(entry: OutboxEntry) -> DeliveryState:
    if entry.synced_at:
        return DeliveryState.SYNCED
    return DeliveryState.REJECTED if entry.rejected_at else DeliveryState.UNSYNCED


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TaskInfo], list[OutboxEntry]]:
    store = tmp_path_factory.mktemp("filtering") / "store.db"
    return (store, *asyncio.run(_fill(store)))


def test_a_filter_finds_what_a_plain_filter_finds(filled: tuple[Path, list[TaskInfo], list[OutboxEntry]]) -> None:
    store, tasks, results = filled
    by_task = {entry.task_id: entry for entry in results}
    info = {one.task.task_id: one for one in tasks}
    assert {_delivery(entry) for entry in results} == set(DeliveryState)
    with asyncio.Runner() as runner:
        opened = LocalPersistenceManager.open(store)
        lpm = runner.run(opened.__aenter__())

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(SELECTIONS)
        def check(which: Selection) -> None:
            found = runner.run(list_tasks(lpm, which, limit=1_000))
            expected = [
                one
                for one in tasks
                if _fits(which, one, by_task.get(one.task.task_id), one.task.target, one.updated_at)
            ]
            assert [one.seq for one in found] == [one.seq for one in expected]
            entries = runner.run(list_results(lpm, which, limit=1_000))
            assert [entry.seq for entry in entries] == [
                entry.seq for entry in results if _fits(which, info[entry.task_id], entry, entry, entry.created_at)
            ]

        check()
        runner.run(opened.__aexit__(None, None, None))
