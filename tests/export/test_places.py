"""A file is there when it is whole, and until then what was there before."""

from __future__ import annotations

import asyncio
import errno
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from parcelpost.errors import InvalidInput, ParcelpostError
from parcelpost.export import Format
from parcelpost.export.exporter import ExportOptions, export, plan_export
from parcelpost.model import OutboxEntry
from tests.export.factories import NOW, an_entry, exported

FORMATS = list(Format)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("form", FORMATS)
async def test_files_are_for_their_owner_and_nothing_else_is_left(tmp_path: Path, form: Format) -> None:
    done = await exported(f"{tmp_path}/a/b/", an_entry(), form=form)
    folder = tmp_path / "a" / "b"
    assert sorted(folder.iterdir()) == sorted(done.files)
    assert {mode(file) for file in done.files} == {0o600}
    assert mode(folder) == mode(tmp_path / "a") == 0o700


async def test_what_is_there_is_replaced_only_by_word(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("mine")
    with pytest.raises(InvalidInput, match="already exists") as refused:
        await exported(file, an_entry())
    assert "--force" in refused.value.hint
    assert file.read_text() == "mine"
    await exported(file, an_entry(), replace=True)
    assert file.read_text().startswith("platform,")


async def test_one_file_of_several_that_is_there_stops_all(tmp_path: Path) -> None:
    (tmp_path / "liens.csv").write_text("mine")
    with pytest.raises(InvalidInput, match=r"liens\.csv already exists"):
        await exported(tmp_path, an_entry())
    assert [path.name for path in tmp_path.iterdir()] == ["liens.csv"]


async def test_a_folder_or_a_device_is_no_file_to_replace(tmp_path: Path) -> None:
    (tmp_path / "parcels.csv").mkdir()
    for output in (f"{tmp_path}/", "/dev/null"):
        with pytest.raises(InvalidInput, match="exists and is not a file"):
            await exported(output, an_entry(), form=Format.CSV, replace=True)


@pytest.mark.parametrize("form", FORMATS)
async def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path, form: Format) -> None:
    file = tmp_path / f"a.{form}"
    file.write_text("old")

    async def pages() -> AsyncIterator[Sequence[OutboxEntry]]:
        yield [an_entry()]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ParcelpostError, match="No space left on device") as failed:
        what = plan_export(str(file), None, None)
        await export(pages(), what, ExportOptions(now=NOW), replace=True, progress=lambda done: None)
    assert "existing files were not changed" in failed.value.hint
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "old"


@pytest.mark.parametrize("form", FORMATS)
async def test_ctrl_c_leaves_nothing_half(tmp_path: Path, form: Format) -> None:
    reading = asyncio.Event()

    async def pages() -> AsyncIterator[Sequence[OutboxEntry]]:
        yield [an_entry()]
        reading.set()
        await asyncio.Event().wait()

    what = plan_export(str(tmp_path / f"a.{form}"), None, None)
    running = asyncio.create_task(
        export(pages(), what, ExportOptions(now=NOW), replace=False, progress=lambda done: None)
    )
    await reading.wait()
    assert [path.name for path in tmp_path.iterdir()] == [f".a.{form}.partial"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(tmp_path.iterdir()) == []


async def test_ctrl_c_does_not_wait_for_a_workbook_to_be_packed(tmp_path: Path) -> None:
    """Packing is one long call in a thread; it ends at its next write."""
    last = asyncio.Event()

    async def pages() -> AsyncIterator[Sequence[OutboxEntry]]:
        yield [an_entry({"legal_description": f"{n} " * 200}, f"{n}") for n in range(2_000)]
        last.set()

    what = plan_export(str(tmp_path / "a.xlsx"), None, None)
    running = asyncio.create_task(
        export(pages(), what, ExportOptions(now=NOW), replace=False, progress=lambda done: None)
    )
    await last.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(tmp_path.iterdir()) == []


async def test_what_a_killed_export_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / ".a.csv.partial"
    left.mkdir()
    (left / "a.csv").write_text("half")
    (left / "tmp123").write_text("half")
    await exported(tmp_path / "a.csv", an_entry())
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


async def test_two_exports_into_one_file_do_not_mix(tmp_path: Path) -> None:
    async def pages() -> AsyncIterator[Sequence[OutboxEntry]]:
        with pytest.raises(ParcelpostError, match="another export with the same name is writing"):
            await exported(tmp_path / "a.csv", an_entry())
        yield [an_entry()]

    what = plan_export(str(tmp_path / "a.csv"), None, None)
    done = await export(pages(), what, ExportOptions(now=NOW), replace=False, progress=lambda done: None)
    assert done.rows == {"parcels": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ParcelpostError, match=r"cannot write .*file"):
        await exported(tmp_path / "file" / "a.csv", an_entry())
