"""The benchmark's executor works with either thing behind it: its imitation of a store keeps up with the store."""

from __future__ import annotations

from pathlib import Path

from bench.overhead import WARM_UP, Pages, bench_platform, execute, null_store
from bench.store.contenders import OPTIONS, make_work
from parcelpost.storage.lpm import LocalPersistenceManager

COUNT = WARM_UP + 20


async def test_results_are_thrown_away() -> None:
    work = make_work(COUNT)
    assert (await execute(null_store(work.tasks), bench_platform(work, Pages(), 0.0), COUNT)).done == COUNT - WARM_UP


async def test_results_are_stored(tmp_path: Path) -> None:
    work = make_work(COUNT)
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=OPTIONS) as lpm:
        await lpm.add_tasks(work.tasks)
        await execute(lpm, bench_platform(work, Pages(), 0.0), COUNT)
        assert len(await lpm.get_unsynced_results(limit=2 * COUNT)) == COUNT
