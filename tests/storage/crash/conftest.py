"""A disk of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.chaos.disks import LoopDisk, why_not


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[LoopDisk]:
    """256 MB of ext4; skips where there cannot be one."""
    if reason := why_not():
        pytest.skip(reason)
    disk = LoopDisk(tmp_path, megabytes=256)
    try:
        yield disk
    finally:
        disk.remove()
