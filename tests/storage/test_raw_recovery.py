"""Files that a power cut took are made whole from the journal (I6)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.events import Event, OwnerCrashed
from parcelpost.model import OutboxEntry
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.locks import live_folder
from parcelpost.storage.raw_journal import JournalRecord, RawJournal, segment_paths
from tests.storage.factories import a_result, save_one

BODY = b"<html>" + b"a row of the table " * 500


async def leave_journal(store: Path, clock: ManualClock, count: int = 1) -> list[OutboxEntry]:
    """Stores results and leaves their journal behind, as a process that lost power does."""
    async with LocalPersistenceManager.open(store, clock=clock, worker="cut") as lpm:
        entries = [await save_one(lpm, f"t{n}", a_result({"n": n}, body=BODY + b"%d" % n)) for n in range(count)]
        (journal,) = live_folder(store).glob("cut-*.0.raw")
        content = journal.read_bytes()
    journal.write_bytes(content)
    return entries


async def reopen(store: Path, clock: ManualClock) -> OwnerCrashed:
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, clock=clock, emit=events.append):
        pass
    (died,) = [event for event in events if isinstance(event, OwnerCrashed)]
    assert list(live_folder(store).glob("*.raw")) == []
    return died


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_page_is_restored(store: Path, clock: ManualClock, damage: Callable[[Path], object]) -> None:
    """I6"""
    (entry,) = await leave_journal(store, clock)
    path = store.parent / "data" / str(entry.html_path)
    before = path.read_bytes()
    damage(path)
    assert (await reopen(store, clock)).raw_files_restored == 1
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_record_beside_the_page_is_restored(
    store: Path, clock: ManualClock, damage: Callable[[Path], object]
) -> None:
    (entry,) = await leave_journal(store, clock)
    path = store.parent / "data" / str(entry.json_path)
    damage(path)
    await reopen(store, clock)
    assert path.read_bytes() == entry.data


async def test_a_folder_that_did_not_reach_the_disk_is_made_again(store: Path, clock: ManualClock) -> None:
    (entry,) = await leave_journal(store, clock)
    shutil.rmtree(store.parent / "data")
    assert (await reopen(store, clock)).raw_files_restored == 1
    assert (store.parent / "data" / str(entry.html_path)).exists()
    assert (store.parent / "data" / str(entry.json_path)).read_bytes() == entry.data


async def test_whole_pages_are_left_alone(store: Path, clock: ManualClock) -> None:
    entries = await leave_journal(store, clock, 3)
    before = [(store.parent / "data" / str(entry.html_path)).stat().st_ino for entry in entries]
    died = await reopen(store, clock)
    assert (died.raw_files_restored, died.pages_without_result) == (0, 0)
    assert [(store.parent / "data" / str(entry.html_path)).stat().st_ino for entry in entries] == before


async def test_only_what_is_damaged_is_restored(store: Path, clock: ManualClock) -> None:
    entries = await leave_journal(store, clock, 250)
    for entry in entries[::50]:
        (store.parent / "data" / str(entry.html_path)).unlink()
    assert (await reopen(store, clock)).raw_files_restored == 5


def leave_page(store: Path, record: JournalRecord) -> None:
    """A journal of one page that a dead process left, in place of all others."""
    live = live_folder(store)
    journal = RawJournal(live, "other-1-0", store.parent / "data")
    journal.append([record])
    (segment,) = segment_paths(live, "other-1-0")
    content = segment.read_bytes()
    journal.close()
    for left in live.glob("*.raw"):
        left.unlink()
    segment.write_bytes(content)


async def test_a_page_whose_result_was_lost_is_counted_and_not_restored(store: Path, clock: ManualClock) -> None:
    """What NORMAL may lose to a power cut, and says so."""
    await leave_journal(store, clock)
    leave_page(store, JournalRecord("vgsi/CT/hartford/gone.html.gz", b"gz"))
    died = await reopen(store, clock)
    assert (died.owner, died.pages_without_result, died.raw_files_restored) == ("other-1-0", 1, 0)
    assert not (store.parent / "data" / "vgsi" / "CT" / "hartford" / "gone.html.gz").exists()


async def test_a_journal_page_that_is_not_the_results_page_does_not_replace_it(store: Path, clock: ManualClock) -> None:
    """I6: the hash in the row decides."""
    (entry,) = await leave_journal(store, clock)
    path = store.parent / "data" / str(entry.html_path)
    before = path.read_bytes()
    leave_page(store, JournalRecord(str(entry.html_path), b"another page's bytes"))
    assert (await reopen(store, clock)).raw_files_restored == 0
    assert path.read_bytes() == before


async def test_a_cut_journal_is_read_as_far_as_it_is_whole(store: Path, clock: ManualClock) -> None:
    entries = await leave_journal(store, clock, 3)
    (journal,) = live_folder(store).glob("*.raw")
    journal.write_bytes(journal.read_bytes()[:-3])
    for entry in entries[:2]:
        (store.parent / "data" / str(entry.html_path)).unlink()
    assert (await reopen(store, clock)).raw_files_restored == 2
