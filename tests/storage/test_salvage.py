"""What can be read of a damaged store is read, whatever lies beside it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import iso
from parcelpost.errors import StoreCorrupt
from parcelpost.events import Event, StoreDamaged
from parcelpost.model import Claim, Result, Site, TaskStatus
from parcelpost.storage import LocalPersistenceManager, backup, salvage
from parcelpost.storage.raw_files import raw_folder
from tests.storage.crash.agreement import assert_intact
from tests.storage.factories import NOW, a_result, a_task, look

PAGE = 8192
SAVED, PENDING = 300, 200
LONG = "t7"
"""The task whose record takes several pages."""


async def make_store(store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{n}", parcel_id=f"p{n}") for n in range(SAVED + PENDING))
        await asyncio.gather(*(lpm.save_result(claim, result_of(claim)) for claim in await lpm.claim(SAVED)))
        await lpm.pause_platform("beacon", reason="asked to wait")
        await lpm.maintenance.give_back()  # all of it is in the database file


def result_of(claim: Claim) -> Result:
    name = claim.task.task_id
    text = "lien " * (10_000 if name == LONG else 100)
    return a_result({"note": f"{name} {text}"}, body=b"<p>" if name == LONG else None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "local_data"
    asyncio.run(make_store(folder / "parcelpost.db"))
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """Results that wait for delivery, one of them long, and tasks that wait to be done."""
    shutil.copytree(made, tmp_path / "local_data")
    return tmp_path / "local_data" / "parcelpost.db"


def pages_with(store: Path, text: bytes, *, overflow: bool = False) -> list[int]:
    """The leaves of a table that hold such a text, or pages with the rest of a long one."""
    content = store.read_bytes()
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    kind = 0 if overflow else 13  # an overflow page begins with the number of the next one
    return [number for number, page in enumerate(pages, 1) if page[0] == kind and text in page]


RESULTS, TASKS, LONG_RECORD = b'{"note":"t', b'"parcel_id":"p', b"lien lien"


def overwrite(store: Path, page: int, *, seed: int = 7, offset: int = 0) -> None:
    with store.open("r+b") as file:
        file.seek((page - 1) * PAGE + offset)
        file.write(random.Random(seed).randbytes(PAGE - offset))


def salvaged(store: Path, *backups: Path) -> tuple[salvage.Salvaged, Path]:
    before = store.read_bytes()
    target = store.parent / "salvaged.db"
    found = salvage.salvage(store, target, raw_folder(store), iso(NOW), backups=backups)
    assert store.read_bytes() == before
    assert_intact(target)
    return found, target


async def undelivered(store: Path) -> set[str]:
    async with LocalPersistenceManager.open(store) as lpm:
        return {entry.task_id for entry in await lpm.get_unsynced_results(1_000)}


async def test_a_damaged_page_in_the_middle_of_the_results_costs_only_its_own_rows(store: Path) -> None:
    leaves = pages_with(store, RESULTS)
    overwrite(store, leaves[len(leaves) // 2])
    found, target = salvaged(store)
    lost = {row.row for row in found.lost}
    assert 0 < len(lost) < 30
    assert {row.table for row in found.lost} == {"results"}
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)} - lost
    assert found.undelivered == SAVED - len(lost)
    assert found.rows["tasks"] == SAVED + PENDING
    assert found.tasks_again == len(lost)
    async with LocalPersistenceManager.open(target) as lpm:
        for task_id in lost:
            info = await lpm.get_task(task_id)
            assert info is not None
            assert info.status is TaskStatus.PENDING
        assert Site("beacon", "", "") in await lpm.pauses()


async def test_what_a_search_by_number_misses_is_found_by_a_scan(made: Path, store: Path) -> None:
    """A wrong number in the page above the leaves, between two texts that cannot be decoded."""
    root = look(made / store.name, "SELECT rootpage FROM sqlite_schema WHERE name = 'results'")[0][0]
    content = bytearray(store.read_bytes())
    start = (root - 1) * PAGE
    half = int.from_bytes(content[start + 3 : start + 5], "big") // 2
    cell = start + int.from_bytes(content[start + 12 + 2 * half : start + 14 + 2 * half], "big")
    content[cell + 4 : cell + 6] = b"\x80\x01"  # where each search begins: all numbers seem to be larger
    for name in (b"t50", b"t250"):
        content[content.index(b'{"note":"' + name + b" lien") + 15] = 0xFF
    store.write_bytes(content)
    found, target = salvaged(store)
    lost = {row.row for row in found.lost if row.table == "results"}
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)} - lost
    assert lost <= {"t50", "t250"}


async def test_a_damaged_page_in_the_middle_of_the_tasks_costs_no_result(store: Path) -> None:
    for leaf in pages_with(store, TASKS)[1:3]:
        overwrite(store, leaf)
    found, target = salvaged(store)
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)}
    assert found.tasks_from_results > 0
    assert {row.table for row in found.lost} == {"tasks"}
    assert found.rows["tasks"] + found.lost_rows == SAVED + PENDING
    assert all(row.row.startswith("t") for row in found.lost)


async def test_a_damaged_index_costs_nothing(made: Path, store: Path) -> None:
    for index in ("results_outbox", "sqlite_autoindex_results_1", "tasks_ready"):
        overwrite(store, look(made / store.name, f"SELECT rootpage FROM sqlite_schema WHERE name = '{index}'")[0][0])
    found, target = salvaged(store)
    assert (found.lost_rows, found.undelivered) == (0, SAVED)
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)}


async def test_a_record_with_a_damaged_overflow_page_comes_from_the_file_beside_its_page(store: Path) -> None:
    overflow = pages_with(store, LONG_RECORD, overflow=True)
    assert len(overflow) >= 3
    overwrite(store, overflow[1])  # its number of the next page is nonsense
    found, target = salvaged(store)
    assert (found.lost_rows, found.records_from_files) == (0, 1)
    async with LocalPersistenceManager.open(target) as lpm:
        entry = await lpm.get_result(LONG)
        assert entry is not None
        assert entry.data is not None
        assert b"t7 lien" in entry.data


async def test_a_record_whose_text_was_changed_on_the_disk_is_not_taken_for_good(store: Path) -> None:
    overflow = pages_with(store, LONG_RECORD, overflow=True)
    with store.open("r+b") as file:
        file.seek((overflow[2] - 1) * PAGE + 100)
        file.write(b"sold " * 10)
    found, target = salvaged(store)
    assert (found.lost_rows, found.records_from_files) == (0, 1)
    async with LocalPersistenceManager.open(target) as lpm:
        entry = await lpm.get_result(LONG)
        assert entry is not None
        assert b"sold" not in (entry.data or b"")


async def test_many_damaged_pages_cost_what_was_on_them(store: Path) -> None:
    for leaf in pages_with(store, RESULTS)[::5]:
        overwrite(store, leaf, seed=leaf)
    found, target = salvaged(store)
    rest = await undelivered(target)
    assert len(rest) == found.undelivered > SAVED // 2
    assert len(rest) + sum(row.table == "results" for row in found.lost) == SAVED


async def test_where_the_schema_is_damaged_that_is_said_and_nothing_is_left_behind(store: Path) -> None:
    overwrite(store, 1, offset=100)
    with pytest.raises(StoreCorrupt, match="its schema, which locates all tables, is damaged"):
        salvaged(store)
    assert not list(store.parent.glob("salvaged*"))


async def test_what_was_only_in_the_wal_of_a_dead_process_is_salvaged_too(store: Path) -> None:
    copy = store.parent / "copy" / store.name
    copy.parent.mkdir()
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("UPDATE tasks SET error = 'new' WHERE task_id = 't0'")
        for end in ("", "-wal"):
            copy.with_name(copy.name + end).write_bytes(store.with_name(store.name + end).read_bytes())
    assert copy.with_name(copy.name + "-wal").stat().st_size
    leaves = pages_with(store, RESULTS)
    overwrite(copy, leaves[len(leaves) // 2])
    found, target = salvaged(copy)
    assert 0 < found.lost_rows < 30
    assert look(target, "SELECT error FROM tasks WHERE task_id = 't0'") == [("new",)]
    assert sorted(path.name for path in copy.parent.iterdir()) == [copy.name, f"{copy.name}-wal", "salvaged.db"]


async def test_a_salvage_that_is_broken_off_leaves_nothing(store: Path) -> None:
    with pytest.raises(salvage.Cancelled):
        salvage.salvage(store, store.parent / "salvaged.db", raw_folder(store), iso(NOW), is_cancelled=lambda: True)
    assert not list(store.parent.glob("salvaged*"))


async def test_delivery_goes_on_around_a_damaged_page(store: Path) -> None:
    leaves = pages_with(store, RESULTS)
    overwrite(store, leaves[0])
    overwrite(store, leaves[len(leaves) // 2])
    delivered: list[str] = []
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
        while entries := await lpm.get_unsynced_results(20):
            await lpm.mark_raw_synced([entry.result_id for entry in entries])
            await lpm.mark_synced([entry.result_id for entry in entries])
            delivered += [entry.task_id for entry in entries]
        await lpm.maintenance.give_back()
    assert len([event for event in events if isinstance(event, StoreDamaged)]) == 1
    assert look(store, "SELECT count(*) FROM worker_state WHERE name = 'damage'") == [(1,)]
    assert SAVED - 60 < len(delivered) == len(set(delivered)) < SAVED
    found, target = salvaged(store)
    assert {f"t{n}" for n in range(SAVED)} - set(delivered) == {row.row for row in found.lost}
    assert len(await undelivered(target)) < 10  # read and delivered, and not to be marked beside the damaged page
    assert look(target, "SELECT count(*) FROM worker_state WHERE name = 'damage'") == [(0,)]


TASK_IDS = "SELECT task_id, status, target_json, completed_at FROM tasks ORDER BY task_id"


async def test_rows_that_cannot_be_read_come_from_the_newest_backup_that_is_whole(store: Path) -> None:
    older = Path(backup.make(store, NOW - timedelta(days=1), keep=9).path)
    newer = Path(backup.make(store, NOW, keep=9).path)
    overwrite(newer, pages_with(newer, RESULTS)[3])
    tasks = look(store, TASK_IDS)
    for kind in (RESULTS, TASKS):
        leaves = pages_with(store, kind)
        for leaf in leaves[len(leaves) // 2 :][:2]:
            overwrite(store, leaf, seed=leaf)
    found, target = salvaged(store, newer, older)
    assert (found.lost, found.lost_rows, found.tasks_again, found.tasks_from_results) == ([], 0, 0, 0)
    assert found.backup == str(older)
    assert found.from_backup["results"] > 0 and found.from_backup["tasks"] > 0
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)}
    assert look(target, TASK_IDS) == tasks


async def test_a_task_that_was_claimed_at_the_time_of_its_backup_is_not_claimed_afterwards(store: Path) -> None:
    """The salvaged store has its result if that was saved since; else it runs again."""
    async with LocalPersistenceManager.open(store) as lpm:
        claims = await lpm.claim(PENDING)
        copy = Path(backup.make(store, NOW, keep=9).path)
        await asyncio.gather(*(lpm.save_result(claim, result_of(claim)) for claim in claims[: PENDING // 2]))
        await lpm.maintenance.give_back()
    before = dict(look(store, "SELECT task_id, status FROM tasks"))
    for leaf in pages_with(store, TASKS):
        overwrite(store, leaf, seed=leaf)
    found, target = salvaged(store, copy)
    assert found.from_backup["tasks"] == SAVED + PENDING
    assert dict(look(target, "SELECT task_id, status FROM tasks")) == before


async def test_a_backup_takes_nothing_back_that_was_done_since(store: Path) -> None:
    """Delivered since: it is sent again under its key. Done again since: it is not the record of before."""
    copy = Path(backup.make(store, NOW, keep=9).path)
    async with LocalPersistenceManager.open(store) as lpm:
        entries = await lpm.get_unsynced_results(1_000)
        await lpm.mark_synced([one.result_id for one in entries if one.html_path is None])
        await lpm.maintenance.give_back()
    leaf = pages_with(store, RESULTS)[-2]
    probe = Path(shutil.copy(store, store.with_name("probe.db")))
    overwrite(probe, leaf)
    on_leaf = {row.row for row in salvaged(probe)[0].lost}
    again = min(on_leaf)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("UPDATE tasks SET completed_at = '2030-01-01T00:00:00.000Z' WHERE task_id = ?", (again,))
    keys = dict(look(copy, "SELECT task_id, idempotency_key FROM results"))
    overwrite(store, leaf)
    found, target = salvaged(store, copy)
    assert [row.row for row in found.lost] == [again]
    assert found.from_backup == {"results": len(on_leaf) - 1}
    assert found.tasks_again == 1
    async with LocalPersistenceManager.open(target) as lpm:
        waiting = {one.task_id: one.idempotency_key for one in await lpm.get_unsynced_results(1_000)}
        assert waiting == {task_id: keys[task_id] for task_id in on_leaf - {again} | {LONG}}
        info = await lpm.get_task(again)
        assert info is not None and info.status is TaskStatus.PENDING


async def test_a_result_whose_page_is_gone_is_not_taken_from_a_backup(store: Path) -> None:
    copy = Path(backup.make(store, NOW, keep=9).path)
    for file in raw_folder(store).rglob("*.html.gz"):
        file.unlink()
    for leaf in pages_with(store, RESULTS):
        overwrite(store, leaf, seed=leaf)
    found, target = salvaged(store, copy)
    assert [row.row for row in found.lost] == [LONG]
    assert (found.tasks_again, found.undelivered) == (1, SAVED - 1)
    assert await undelivered(target) == {f"t{n}" for n in range(SAVED)} - {LONG}


async def test_delivery_goes_on_around_a_record_whose_bytes_are_damaged(store: Path) -> None:
    content = store.read_bytes()
    store.write_bytes(content.replace(b'{"note":"t9 lien', b'{"note":"t9 \xff\xff\xff\xff'))
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
        delivered = {entry.task_id for entry in await lpm.get_unsynced_results(SAVED)}
        with pytest.raises(StoreCorrupt, match="a stored value is damaged"):
            await lpm.get_result("t9")
    assert delivered == {f"t{n}" for n in range(SAVED)} - {"t9"}
    assert [event for event in events if isinstance(event, StoreDamaged)] == [StoreDamaged(path=str(store))]
