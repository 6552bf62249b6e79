"""I2 and I6 against power loss: the writer's disk is cut off with everything lost that was not synced."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from parcelpost.chaos.disks import LoopDisk
from parcelpost.clock import from_iso
from parcelpost.events import Event, OwnerCrashed
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.lengths import short_and_long
from tests.storage.crash.acknowledged import Acknowledged, Writer, rows_without_file
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_result, a_task, look, save_one

pytestmark = [pytest.mark.power_cut, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("disks")]

SAVES_AND_PAGE_BYTES = [(0, 2_000), (40, 2_000), (120, 8_000), (700, 60_000)]
"""The last ones are so many and large that the journal's first segment is full and the next one is used."""
CUTS_AT_NORMAL = 3


@short_and_long("cuts", (8,), (40,))
async def test_at_full_nothing_acknowledged_is_missing_after_power_cuts(loop_disk: LoopDisk, cuts: int) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    acknowledged = Acknowledged()
    for cut in range(cuts):
        count, page_bytes = SAVES_AND_PAGE_BYTES[cut // 2 % len(SAVES_AND_PAGE_BYTES)]
        cut_power_under_a_writer(loop_disk, store, f"w{cut}", acknowledged, count, page_bytes)
        if cut % 2:  # else the next writer has to bring it all back, and may be cut off while it does
            await reopen(store, "FULL")
            assert acknowledged.missing_rows(store) == []
            assert acknowledged.missing_files(store) == []
            assert rows_without_file(store) == []
            assert_whole(store)
    assert acknowledged.saved
    assert acknowledged.delivered


async def test_at_normal_the_store_is_whole_and_says_what_it_may_have_lost(loop_disk: LoopDisk) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    await reopen(store, "NORMAL")
    for cut in range(CUTS_AT_NORMAL):
        acknowledged = Acknowledged()
        cut_power_under_a_writer(loop_disk, store, f"w{cut}", acknowledged, 100, 4_000, "NORMAL")
        events = await reopen(store, "NORMAL")
        (died,) = [event for event in events if isinstance(event, OwnerCrashed)]
        assert died.synchronous == "NORMAL"
        kept = {row[0] for row in look(store, "SELECT result_id FROM results")}
        lost = [saved for saved in acknowledged.saved.values() if saved.result_id not in kept]
        assert died.pages_without_result >= len({saved.html_path for saved in lost})
        last_change = from_iso(died.last_change).timestamp() if died.last_change else 0.0
        assert all(saved.confirmed_at > last_change for saved in lost)
        assert rows_without_file(store) == []
        assert_whole(store)


async def test_a_store_that_was_closed_has_every_file_on_disk_the_records_too(loop_disk: LoopDisk) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    async with LocalPersistenceManager.open(store) as lpm:
        for number in range(3):
            task = a_task(f"t{number}", parcel_id=f"{number}")
            await save_one(lpm, task, a_result({"number": number}, body=b"<p>a page</p>"))
    assert_survives_a_cut(loop_disk, store)


async def test_what_was_brought_back_after_a_kill_is_on_disk_the_records_too(loop_disk: LoopDisk) -> None:
    store = loop_disk.path / "local_data" / "parcelpost.db"
    with Writer(store, "w") as writer:
        writer.read(Acknowledged(), 10)
        writer.kill()
    await reopen(store, "FULL")
    assert_survives_a_cut(loop_disk, store)


def assert_survives_a_cut(disk: LoopDisk, store: Path) -> None:
    disk.cut_power()
    disk.unmount()
    disk.mount()
    for data, json_path in look(store, "SELECT data, json_path FROM results WHERE json_path IS NOT NULL"):
        assert (store.parent / "data" / json_path).read_text() == data
    assert rows_without_file(store) == []
    assert_whole(store)


def cut_power_under_a_writer(
    disk: LoopDisk,
    store: Path,
    seed: str,
    acknowledged: Acknowledged,
    count: int,
    page_bytes: int,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
) -> None:
    with Writer(store, seed, synchronous=synchronous, page_bytes=page_bytes) as writer:
        writer.read(acknowledged, count)
        writer.stop()
        disk.cut_power()
        writer.kill()
        for line in writer.lines():  # said before it was stopped, so before the cut
            acknowledged.note(line)
    disk.unmount()
    disk.mount()


async def reopen(store: Path, synchronous: Literal["FULL", "NORMAL"]) -> list[Event]:
    """A store that was just made may be gone with the power: it confirmed nothing yet."""
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, options=StoreOptions(synchronous=synchronous), emit=events.append):
        pass
    return events
