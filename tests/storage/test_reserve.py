"""A little room set aside for the day the disk is full."""

from __future__ import annotations

from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.opening import live_folder
from parcelpost.storage.reserve import RESERVE_BYTES, Reserve


def test_a_reserve_takes_its_room_and_gives_it_up_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve")
    assert reserve.give_up() == 0
    reserve.fill()
    stat = (tmp_path / "reserve").stat()
    assert stat.st_size == RESERVE_BYTES
    assert stat.st_blocks * 512 >= RESERVE_BYTES, "a file of holes sets nothing aside"
    assert stat.st_mode & 0o777 == 0o600
    reserve.fill()
    assert reserve.give_up() == RESERVE_BYTES
    assert reserve.give_up() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_reserve_that_cannot_be_made_is_no_reason_to_fail(tmp_path: Path) -> None:
    Reserve(tmp_path / "gone" / "reserve").fill()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    Reserve(tmp_path / "link").fill()
    assert not (tmp_path / "elsewhere").exists()


async def test_cleaning_fills_the_reserve_again(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        reserve = live_folder(store) / "reserve"
        assert reserve.stat().st_size == RESERVE_BYTES
        reserve.unlink()
        await lpm.janitor.clean()
        assert reserve.stat().st_size == RESERVE_BYTES
