"""A little room set aside for the day the disk is full."""

from __future__ import annotations

from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.durable_files import RESERVE_BYTES, RESERVE_FILES, Reserve
from parcelpost.storage.locks import live_folder


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_reserve_takes_its_room_and_its_inodes_and_gives_them_up_once(tmp_path: Path) -> None:
    reserve, folder = Reserve(tmp_path / "reserve"), tmp_path / "reserve"
    assert reserve.give_up() == 0
    reserve.fill()
    stats = [path.stat() for path in folder.iterdir()]
    assert size(folder) == RESERVE_BYTES
    assert sum(stat.st_blocks for stat in stats) * 512 >= RESERVE_BYTES, "a file of holes sets nothing aside"
    assert len({stat.st_ino for stat in stats}) == RESERVE_FILES
    assert {stat.st_mode & 0o777 for stat in stats} == {0o600}
    reserve.fill()
    assert reserve.give_up() == RESERVE_BYTES
    assert reserve.give_up() == 0
    assert list(folder.iterdir()) == []


def test_a_reserve_that_cannot_be_made_is_no_reason_to_fail(tmp_path: Path) -> None:
    Reserve(tmp_path / "gone" / "reserve").fill()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    Reserve(tmp_path / "link").fill()
    assert not (tmp_path / "elsewhere").exists()


async def test_cleaning_fills_the_reserve_again(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        reserve = live_folder(store) / "reserve"
        assert size(reserve) == RESERVE_BYTES
        (reserve / "3").unlink()
        await lpm.maintenance.clean()
        assert size(reserve) == RESERVE_BYTES
