"""One store is one worker upstream, whichever of its processes speaks."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import InvalidSettings
from parcelpost.events import Event, WorkerIdChanged, ignore
from parcelpost.model import Result, Source, Target, Task
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.identity import process_name, settle_worker_id


def opened(store: Path) -> AbstractAsyncContextManager[LocalPersistenceManager]:
    return LocalPersistenceManager.open(store, worker="worker")


async def test_the_first_process_decides_the_id_and_every_other_has_the_same(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with opened(store) as first, opened(store) as second:
        made = await settle_worker_id(first, "", ignore)
        assert await settle_worker_id(second, "", ignore) == made
        assert [process_name(one, made) for one in (first, second)] == [made, f"{made}-2"]
        with pytest.raises(InvalidSettings, match=f"worker.id is another, and the store .* is worker {made} upstream"):
            await settle_worker_id(second, "another", ignore)
    async with opened(store) as later:
        assert await settle_worker_id(later, "", ignore) == made, "kept over restarts"


async def test_another_id_waits_until_nothing_is_held_under_the_old_one(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    target = Target(parcel_id="1", state="CT", county="hartford")
    events: list[Event] = []
    async with opened(store) as lpm:
        assert await settle_worker_id(lpm, "old", events.append) == "old"
        await lpm.add_task(Task(task_id="t1", platform="echo", target=target, source=Source.GATEWAY))
        with pytest.raises(InvalidSettings, match="collected under that id") as refused:
            await settle_worker_id(lpm, "new", events.append)
        assert "worker.id=old" in refused.value.hint
        assert "store upstream --worker-id new" in refused.value.hint
        (claim,) = await lpm.claim(1)
        result_id = await lpm.save_result(claim, Result(data={}, scraped_at=SystemClock().now()))
        with pytest.raises(InvalidSettings, match="collected under that id"):
            await settle_worker_id(lpm, "new", events.append)
        await lpm.mark_synced([result_id or ""])
        assert events == []
        assert await settle_worker_id(lpm, "new", events.append) == "new"
        assert events == [WorkerIdChanged(old="old", new="new")]
        await lpm.add_task(Task(task_id="t2", platform="echo", target=target, source=Source.CLI))
        assert await settle_worker_id(lpm, "newer", events.append) == "newer", "a task of its own is no gateway's"
