"""`parcelpost store salvage`, and what status says of a damaged store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

from parcelpost.clock import SystemClock
from parcelpost.model import OutboxEntry
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.snapshot import DAMAGE_STATE, DamageNote
from tests.cli.support import COMMAND, Run, holder, make_store, task
from tests.storage.factories import a_result

PAGE = 8192
SAVED = 60


def make_damaged(store: Path) -> Path:
    """Undelivered results on several pages, of which one in the middle is nonsense."""

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_tasks(task(f"t{number}") for number in range(SAVED))
            results = (a_result({"note": "lien " * 200}) for _ in range(SAVED))
            saves = (
                lpm.save_result(claim, result) for claim, result in zip(await lpm.claim(SAVED), results, strict=True)
            )
            await asyncio.gather(*saves)
            await lpm.maintenance.give_back()

    asyncio.run(make())
    content = store.read_bytes()
    pages = [start for start in range(0, len(content), PAGE) if content[start : start + PAGE].count(b"lien ") > 200]
    middle = pages[len(pages) // 2]
    store.write_bytes(content[:middle] + b"\xa5" * PAGE + content[middle + PAGE :])
    return store


async def undelivered(store: Path) -> list[OutboxEntry]:
    async with LocalPersistenceManager.open(store) as lpm:
        return await lpm.get_unsynced_results(1_000)


def test_a_damaged_store_is_salvaged_and_replaced_and_delivery_goes_on(tmp_path: Path, run: Run) -> None:
    store = make_damaged(tmp_path / "parcelpost.db")
    damaged = store.read_bytes()
    ran = run("store", "salvage", "--store", store)
    assert (ran.code, store.read_bytes()) == (0, damaged)
    (copy,) = (tmp_path / "backups").glob("parcelpost_salvaged_*.db")
    assert f"'parcelpost store restore {copy} --force --store {store}'" in ran.out
    assert "results: t" in ran.out
    copy.unlink()
    outcome = run("store", "salvage", "--replace", "--json", "--store", store).document
    lost = outcome["salvaged"]["lost_rows"]
    assert 0 < lost < 20
    assert outcome["salvaged"]["tasks_again"] == lost
    assert Path(outcome["previous"]).read_bytes() == damaged
    assert run("store", "check", "--deep", "--store", store).code == 0
    assert len(asyncio.run(undelivered(store))) == SAVED - lost == outcome["salvaged"]["undelivered"]


def test_status_names_damage_that_it_or_a_worker_came_upon_until_the_store_is_salvaged(
    tmp_path: Path, run: Run
) -> None:
    async def come_upon() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.state.put(DAMAGE_STATE, DamageNote(at=SystemClock().now()))

    for number, store in enumerate([make_damaged(tmp_path / "a" / "parcelpost.db"), make_store(tmp_path / "b.db")]):
        if number:
            asyncio.run(come_upon())
        said = run("status", "--store", store).out
        assert said.startswith("Error: ")
        assert f"'parcelpost store salvage --replace --store {store}'" in said.splitlines()[0]
        assert run("store", "salvage", "--replace", "--store", store).code == 0
        assert "salvage" not in run("status", "--store", store).out


def test_it_is_refused_while_a_worker_has_the_store_open_and_where_there_is_none(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=1)
    with holder(store):
        ran = run("store", "salvage", "--store", store)
    assert ran.code != 0
    assert "stop the worker first" in ran.err
    assert "there is no store" in run("store", "salvage", "--store", tmp_path / "other.db").err
    there = tmp_path / "there.db"
    there.write_bytes(b"")
    assert "already exists" in run("store", "salvage", "--to", there, "--store", store).err


def test_ctrl_c_leaves_everything_as_it_was(tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=20_000)
    before = store.read_bytes()
    command = [COMMAND, "store", "salvage", "--replace", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not list(tmp_path.glob("backups/*.partial")):
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert store.read_bytes() == before
    assert not list(tmp_path.glob("backups/*"))
