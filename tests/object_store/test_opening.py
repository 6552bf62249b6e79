"""Addresses of raw stores, and what becomes of the folders behind them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from parcelpost.object_store import RawStore, open_any_raw_store

SHA256 = "ab" * 32
PATH = f"ab/ab/{SHA256}.json.gz"


def _open(place: str) -> RawStore:
    return open_any_raw_store(place, {}, setting="firestore.raw", google_key_file="")


def _mode(folder: Path) -> str:
    return oct(folder.stat().st_mode & 0o7777)


async def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    folder.chmod(0o2775)
    await _open(str(folder)).put("cd" * 32, io.BytesIO(b"packed"), "name", b"{}")
    assert _mode(folder) == "0o2775"


async def test_a_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    _open(str(tmp_path / "above" / "raw"))
    assert [_mode(tmp_path / "above"), _mode(tmp_path / "above" / "raw")] == ["0o700", "0o700"]


@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_a_folder_may_be_named_in_two_ways(tmp_path: Path, form: str) -> None:
    store = _open(form.format(tmp_path / "raw"))
    assert await store.put_record(SHA256, b"packed") == PATH
    assert (tmp_path / "raw" / PATH).read_bytes() == b"packed"
    assert (tmp_path / "raw" / PATH).stat().st_mode & 0o777 == 0o600
