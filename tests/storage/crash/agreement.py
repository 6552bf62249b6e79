"""Does a store hold exactly what the model holds?"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

from parcelpost.model import OutboxEntry, TaskInfo, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from tests.storage.crash.store_model import StoredResult, StoredTask, StoreModel
from tests.storage.factories import list_results, list_tasks, look, task_counts

_ALL = 10_000


async def assert_agrees(lpm: LocalPersistenceManager, model: StoreModel, now: datetime) -> None:
    """I1, I3, I4 and the outbox's order: every task in its one status, with its result or without."""
    infos = await list_tasks(lpm, limit=_ALL)
    ended = {info.task.task_id: info.completed_at for info in infos if info.completed_at}
    model.adopt(ended, {info.task.task_id for info in infos if info.available_at is None})
    in_order = sorted(model.tasks.values(), key=lambda stored: stored.order)
    assert [_task_facts(info) for info in infos] == [_expected_task(stored) for stored in in_order]

    entries = await list_results(lpm, limit=_ALL)
    results = model.results()
    assert {entry.task_id: _result_facts(entry) for entry in entries} == {
        task_id: _expected_result(result) for task_id, result in results.items()
    }
    assert all(result.result_id in (None, _by_task(entries)[task_id]) for task_id, result in results.items())
    steps = [step for entry in entries if (step := results[entry.task_id].step) is not None]
    assert steps == sorted(steps)
    outbox = await lpm.get_unsynced_results(limit=_ALL)
    assert outbox == [entry for entry in entries if results[entry.task_id].waits]
    await _assert_counts(lpm, model, now)


async def _assert_counts(lpm: LocalPersistenceManager, model: StoreModel, now: datetime) -> None:
    depth = await lpm.queue_depth()
    statuses = Counter(stored.status for stored in model.tasks.values())
    assert {status: getattr(depth, status) for status in TaskStatus} == {
        status: statuses[status] for status in TaskStatus
    }
    results = model.results().values()
    assert depth.unsynced == sum(result.waits for result in results)
    assert depth.rejected == sum(result.rejected for result in results)
    due = [stored.available_at for stored in model.with_status(TaskStatus.PENDING) if stored.available_at is not None]
    assert depth.delayed == sum(moment > now for moment in due)
    found: Counter[tuple[str, TaskStatus]] = Counter()
    for platform, counts in (await task_counts(lpm)).items():
        for status, count in counts.items():
            found[platform, TaskStatus.PENDING if status == "delayed" else TaskStatus(status)] += count
    assert +found == model.counts()
    assert {site.platform for site in await lpm.pauses()} == {
        name for name in model.paused if model.is_paused(name, now)
    }


async def assert_raw_files(lpm: LocalPersistenceManager, model: StoreModel) -> None:
    """I6: the file that a result names holds the page it was saved with, and the record is beside it."""
    results = model.results()
    for entry in await list_results(lpm, limit=_ALL):
        result = results.get(entry.task_id)
        page = result and result.page
        if page is None:
            continue
        assert entry.html_path is not None
        assert entry.json_path is not None
        assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == page
        assert lpm.raw_path(entry.json_path).read_bytes() == entry.data


def assert_intact(store: Path) -> None:
    """SQLite finds nothing wrong."""
    assert look(store, "PRAGMA integrity_check") == [("ok",)]
    assert look(store, "PRAGMA foreign_key_check") == []


def assert_whole(store: Path) -> None:
    """Intact, and no task is half closed (I3); for a store from which nothing was cleaned away yet."""
    assert_intact(store)
    half_closed = """SELECT t.task_id, t.status, r.result_id FROM tasks AS t LEFT JOIN results AS r USING (task_id)
                     WHERE (t.status IN ('pending', 'processing') AND r.synced = 0)
                        OR (t.status IN ('completed', 'failed', 'expired') AND r.task_id IS NULL)"""
    assert look(store, half_closed) == []


def copy_as_a_crash_leaves_it(store: Path, folder: Path) -> Path:
    """The store's files without the memory and the locks of the process that has it open.

    The database first: what is written while this copies is then a page without its row, never a row without its page.
    """
    folder.mkdir()
    for name in (store.name, f"{store.name}-wal"):
        if (store.parent / name).exists():
            shutil.copyfile(store.parent / name, folder / name)
    for name in (f"{store.name}-live", "data"):
        if (store.parent / name).exists():
            shutil.copytree(store.parent / name, folder / name)
    return folder / store.name


def _by_task(entries: list[OutboxEntry]) -> dict[str, str]:
    return {entry.task_id: entry.result_id for entry in entries}


def _task_facts(info: TaskInfo) -> tuple[object, ...]:
    due = info.available_at if info.status is TaskStatus.PENDING else None
    lease = info.task.lease_expires_at
    held = info.claimed_by is not None
    return (info.task.task_id, info.status, held, info.retries, info.recoveries, due, lease, info.completed_at)


def _expected_task(stored: StoredTask) -> tuple[object, ...]:
    due = stored.available_at if stored.status is TaskStatus.PENDING else None
    held, name = stored.token is not None, stored.task.task_id
    return (name, stored.status, held, stored.retries, stored.recoveries, due, stored.lease, stored.completed_at)


def _result_facts(entry: OutboxEntry) -> tuple[object, ...]:
    is_rejected, is_raw_synced = entry.rejected_at is not None, entry.raw_synced_at is not None
    return (entry.success, entry.data, entry.raw_sha256, is_raw_synced, entry.synced_at, is_rejected)


def _expected_result(result: StoredResult) -> tuple[object, ...]:
    digest = None if result.page is None else hashlib.sha256(result.page).hexdigest()
    return (result.success, result.data, digest, result.raw_synced, result.synced_at, result.rejected)
