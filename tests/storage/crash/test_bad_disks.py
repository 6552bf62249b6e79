"""Disks that fail or cannot be written: a clear error, nothing confirmed is lost, and it goes on where it can."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.chaos.disks import LoopDisk, why_not
from parcelpost.errors import StoreError, StoreFailed, StoreFull, StoreReadOnly
from parcelpost.storage import LocalPersistenceManager, durable_files, migrations
from parcelpost.storage.raw_journal import JournalRecord, RawJournal, read_segment, segment_paths
from tests.storage.crash.acknowledged import rows_without_file
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_result, a_task, claim_one, look, save_one

pytestmark = pytest.mark.xdist_group("disks")

ROOT = Path(__file__).parents[3]
NOBODY = 65534


@pytest.mark.parametrize("kind", ["pages", "no pages"])
def test_when_a_file_cannot_grow_the_error_is_clear_and_the_store_goes_on_as_soon_as_it_can(
    store: Path, kind: str
) -> None:
    command = [sys.executable, "-m", "tests.storage.crash.limited_process", str(store), kind]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    seen = json.loads(ended.stdout)
    assert len(seen["confirmed"]) > 2
    assert len(seen["errors"]) > 2
    assert set(seen["errors"]) <= {StoreFailed.__name__, StoreFull.__name__}
    assert seen["unsynced"] == len(seen["confirmed"])
    assert_whole(store)
    assert rows_without_file(store) == []
    assert {row[0] for row in look(store, "SELECT result_id FROM results")} == set(seen["confirmed"])


async def test_a_disk_that_fails_under_the_store_is_said_by_every_call_and_loses_nothing(loop_disk: LoopDisk) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    confirmed = []
    with pytest.raises(StoreError):  # closing finds the disk failed, too
        async with LocalPersistenceManager.open(store) as lpm:
            for number in range(5):
                entry = await save_one(lpm, f"t{number}", a_result(body=b"<p>page</p>"))
                confirmed.append(entry.result_id)
            claim = await claim_one(lpm, "held")
            loop_disk.cut_power()
            for _ in range(3):
                with pytest.raises(StoreFailed) as failed:
                    await lpm.add_task(a_task("new"))
                assert failed.value.hint
                for body in (None, b"<p>new</p>"):
                    with pytest.raises(StoreFailed):
                        await lpm.save_result(claim, a_result(body=body))
                with pytest.raises(StoreFailed):
                    await lpm.claim()
    loop_disk.unmount()
    loop_disk.mount()
    async with LocalPersistenceManager.open(store) as lpm:
        assert [entry.result_id for entry in await lpm.get_unsynced_results()] == confirmed
        depth = await lpm.queue_depth()
        assert (depth.pending, depth.processing, depth.completed) == (1, 0, 5)
    assert rows_without_file(store) == []
    assert_whole(store)


def test_what_the_raw_journal_has_confirmed_after_a_failed_fsync_survives_a_power_cut(tmp_path: Path) -> None:
    """A file with a failed fsync must not be written again: ext4 may keep the new data in memory only."""
    if reason := why_not():
        pytest.skip(reason)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        disk = LoopDisk(folder, megabytes=32, thin=True)
        try:
            assert lost_after_a_failed_fsync(disk) == []
            return
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        finally:
            disk.remove()
    pytest.skip("the file system gave itself up each time")


def lost_after_a_failed_fsync(disk: LoopDisk) -> list[str]:
    root, live = disk.path / "data", disk.path / "live"
    root.mkdir()
    live.mkdir()
    for _ in range(2_000):  # the file system's own journal has all its room, and mostly goes on
        (disk.path / "used").write_bytes(b"1")
        durable_files.sync_path(disk.path / "used")
        (disk.path / "used").unlink()
    journal = RawJournal(live, "owner", root)
    early = JournalRecord("early.html.gz", b"page")
    journal.append([early])
    disk.exhaust()
    for number in range(5):
        with contextlib.suppress(OSError):  # the first ones may fit into blocks that the device has already
            while True:
                journal.append([JournalRecord(f"p/{number}.html.gz", os.urandom(1_000))])
        time.sleep(0.05)  # for the thread that settles
    disk.replenish()
    (disk.path / "probe").touch()
    confirmed = [early]
    while len(confirmed) < 20:
        record = JournalRecord(f"q/{len(confirmed)}.html.gz", os.urandom(1_000))
        try:
            journal.append([record])
            confirmed.append(record)
        except OSError as error:  # an error of the past is told once
            if error.errno == errno.EROFS:
                raise
    disk.cut_power()
    with contextlib.suppress(OSError):
        journal.close()
    disk.unmount()
    disk.mount()
    found = {record for path in segment_paths(live, "owner") for record in read_segment(path)}
    return [record.name for record in confirmed if record not in found]


def test_files_are_not_durable_if_another_process_was_told_that_they_are_not(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    disk = LoopDisk(tmp_path, megabytes=32, thin=True)
    try:
        root = disk.path / "data"
        root.mkdir()
        names = [str(number) for number in range(200)]
        with contextlib.closing(durable_files.WrittenFiles(root)) as written:
            written.sync(names)
            disk.exhaust()
            for name in names:
                (root / name).write_bytes(os.urandom(4_000))
            told = subprocess.run(["sync", "--file-system", root], check=False, stderr=subprocess.DEVNULL)
            assert told.returncode
            with pytest.raises(OSError, match=r"Input/output error|No space left"):
                written.sync(names)
    finally:
        disk.remove()


async def test_a_store_on_a_disk_that_is_mounted_read_only_is_refused_until_it_is_writable(loop_disk: LoopDisk) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "t1", a_result(body=b"<p>page</p>"))
    loop_disk.make_read_only(True)
    await assert_read_only(store)
    loop_disk.make_read_only(False)
    async with LocalPersistenceManager.open(store) as lpm:
        assert (await lpm.queue_depth()).unsynced == 1
        await save_one(lpm, "t2", a_result(body=b"<p>page</p>"))


async def test_there_is_no_making_a_store_on_a_read_only_disk(loop_disk: LoopDisk) -> None:
    loop_disk.make_read_only(True)
    with pytest.raises(StoreReadOnly):
        async with LocalPersistenceManager.open(loop_disk.path / "local_data" / "parcelpost.db"):
            pass


@pytest.fixture
def plain_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Owned by a user without rights, and seen by all; root steps down to that user for the test."""
    known = migrations.load()  # the project may be in a folder that only root can read
    monkeypatch.setattr(migrations, "load", lambda: known)
    with tempfile.TemporaryDirectory(prefix="parcelpost-") as folder:
        me = os.geteuid()
        if me == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(me)


@pytest.mark.parametrize(
    ("what", "mode"),
    [("parcelpost.db", 0o400), ("parcelpost.db", 0o000), (".", 0o500), ("parcelpost.db-live", 0o500)],
)
async def test_a_store_without_the_right_to_write_is_said_to_be_read_only(
    plain_folder: Path, what: str, mode: int
) -> None:
    store = plain_folder / "local_data" / "parcelpost.db"
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm)
    forbidden = store.parent / what
    content, old_mode = store.read_bytes(), forbidden.stat().st_mode
    forbidden.chmod(mode)
    await assert_read_only(store)
    forbidden.chmod(old_mode)
    assert store.read_bytes() == content
    async with LocalPersistenceManager.open(store) as lpm:
        assert (await lpm.queue_depth()).unsynced == 1


async def assert_read_only(store: Path) -> None:
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StoreReadOnly) as refused:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(a_task("new"))
    assert refused.value.hint
    assert not refused.value.retry_helps
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
