"""A store whose files are deleted, moved or replaced while it is open: nothing more is confirmed, and it is said."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parcelpost.errors import StoreGone
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.locks import owners_of_moved
from tests.storage.factories import a_result, a_task, claim_one, look, save_one

LOSSES: dict[str, Callable[[Path], object]] = {
    "the database is deleted": lambda store: store.unlink(),
    "the database is moved": lambda store: store.rename(store.with_name("elsewhere.db")),
    "the WAL is deleted": lambda store: store.with_name(store.name + "-wal").unlink(),
    "another file takes its place": lambda store: Path(shutil.copy(store, store.with_name("new"))).replace(store),
    "its folder is moved": lambda store: store.parent.rename(store.parent.with_name("elsewhere")),
    "its folder is deleted": lambda store: shutil.rmtree(store.parent),
    "the raw folder is moved": lambda store: (store.parent / "data").rename(store.parent / "elsewhere"),
    "the raw folder is deleted": lambda store: shutil.rmtree(store.parent / "data"),
}


async def test_nothing_is_confirmed_after_the_files_are_gone(tmp_path: Path) -> None:
    for number, (what, lose) in enumerate(LOSSES.items()):
        store = tmp_path / f"{number}" / "local_data" / "parcelpost.db"
        try:
            async with LocalPersistenceManager.open(store) as lpm:
                await save_one(lpm, "before", a_result(body=b"<p>before</p>"))
                assert lpm.missing == "", what
                claim = await claim_one(lpm, "after")
                lose(store)
                for body in (b"<p>after</p>", b"<p>again</p>"):
                    with pytest.raises(StoreGone, match=r"deleted or moved|replaced by another") as gone:
                        await lpm.save_result(claim, a_result(body=body))
                    assert gone.value.retry_helps, what
                    assert "raw" not in what or "store restore" not in gone.value.hint, what
                assert lpm.missing, what
        except StoreGone:
            pass  # closing may say so, too
        if "raw" not in what:
            continue
        assert look(store, "SELECT task_id FROM results") == [("before",)], what


async def test_what_was_moved_away_and_is_back_goes_on_where_it_was(tmp_path: Path) -> None:
    for moved in ("local_data", "local_data/parcelpost.db", "local_data/data"):
        store = tmp_path / moved.replace("/", "_") / "local_data" / "parcelpost.db"
        there, away = store.parent.parent / moved, store.parent.parent / "away"
        async with LocalPersistenceManager.open(store) as lpm:
            await save_one(lpm, "before", a_result(body=b"<p>before</p>"))
            claim = await claim_one(lpm, "after")
            there.rename(away)
            with pytest.raises(StoreGone):
                await lpm.save_result(claim, a_result(body=b"<p>after</p>"))
            away.rename(there)
            assert lpm.missing == ""
            assert await lpm.save_result(claim, a_result(body=b"<p>after</p>")) is not None
        assert look(store, "SELECT task_id FROM results ORDER BY seq") == [("before",), ("after",)]


async def test_a_store_that_starts_without_its_pages_waits_for_them_and_makes_no_empty_folder(store: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        entry = await save_one(lpm, "before", a_result(body=b"<p>before</p>"))
    data, away = store.parent / "data", store.parent / "away"
    data.rename(away)
    for is_mount_point in (False, True):  # a volume that is not mounted leaves an empty folder
        if is_mount_point:
            data.mkdir()
        async with LocalPersistenceManager.open(store) as lpm:
            assert str(data) in lpm.missing
            with pytest.raises(StoreGone):
                lpm.check_raw_folder()
            await lpm.add_task(a_task("more", platform="other"))  # what needs no page goes on
    data.rmdir()
    away.rename(data)
    async with LocalPersistenceManager.open(store) as lpm:
        assert lpm.missing == ""
        assert lpm.raw_path(str(entry.html_path)).exists()
    shutil.rmtree(data)
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.mark_rejected([entry.result_id], "its page is lost")
    async with LocalPersistenceManager.open(store) as lpm:  # nothing waits for the pages any more
        assert lpm.missing == ""
        await save_one(lpm, "after", a_result(body=b"<p>after</p>"))


async def test_no_new_store_takes_the_place_of_one_that_was_moved_away(store: Path, tmp_path: Path) -> None:
    away, wal = store.with_name("away"), store.with_name(store.name + "-wal")
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "before")
        store.rename(away)
        for is_empty_file in (False, True):  # which is no store either
            if is_empty_file:
                store.touch()
            with pytest.raises(StoreGone, match=rf"process {os.getpid()} has .* open, but its file was moved") as gone:
                async with LocalPersistenceManager.open(store):
                    pass
            assert "put it back" in gone.value.hint
        away.rename(store)
        await save_one(lpm, "after")
        killed = tmp_path / "killed.db"  # what a kill would leave
        shutil.copy(store, killed)
        left = Path(shutil.copy(wal, tmp_path / "killed.db-wal")).read_bytes()
    assert left
    lost = tmp_path / "lost.db"
    lost_wal = Path(shutil.copy(tmp_path / "killed.db-wal", tmp_path / "lost.db-wal"))
    assert look(killed, "SELECT task_id FROM results ORDER BY seq") == [("before",), ("after",)]
    with pytest.raises(StoreGone, match=r"lost\.db-wal next to it contains part of one"):
        async with LocalPersistenceManager.open(lost):
            pass
    assert (lost.exists(), lost_wal.read_bytes()) == (False, left)


async def test_a_store_made_where_one_was_moved_away_is_another_one(tmp_path: Path) -> None:
    store, away = tmp_path / "local_data" / "parcelpost.db", tmp_path / "away" / "parcelpost.db"
    page = a_result(body=b"<p>of the new one</p>")
    async with LocalPersistenceManager.open(store) as moved:
        await save_one(moved, "before")
        assert moved.leader_locks.take("sync")
        claim = await claim_one(moved, "after")
        store.parent.rename(away.parent)
        assert not moved.leader_locks.take("janitor"), "nobody looks after a store that is away"
        async with LocalPersistenceManager.open(store) as new:
            await save_one(new, "after", page)
            with pytest.raises(StoreGone, match="replaced by another file"):
                await moved.save_result(claim, a_result(body=b"<p>of the old one</p>"))
            assert "replaced by another file" in moved.watch_files()
            assert [owner.pid for owner in owners_of_moved(store)] == [os.getpid()], "`status` says so"
            assert not moved.leader_locks.take("sync"), "it is the new store's"
            assert new.leader_locks.take("sync")
            assert [entry.task_id for entry in await new.get_unsynced_results(10)] == ["after"]
        async with LocalPersistenceManager.open(away) as peer:
            assert peer.leader_locks.take("sync"), "who works on the moved store is not held up"
    assert look(store, "SELECT task_id FROM results") == [("after",)]
    assert look(away, "SELECT task_id FROM results") == [("before",)]
    pages = [gzip.decompress(file.read_bytes()) for file in store.parent.rglob("*.html.gz")]
    assert pages == [b"<p>of the new one</p>"]
