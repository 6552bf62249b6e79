"""Where the measuring happens."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = {"tmpfs", "ramfs"}


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A folder on the parent's file system, gone afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


@contextmanager
def fresh_folder(parent: Path, template: Path | None = None) -> Iterator[Path]:
    """A new folder, or a copy of one, with nothing left for the kernel to write when it is handed out."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        if template is not None:
            shutil.copytree(template, folder, dirs_exist_ok=True)
        os.sync()
        yield folder


def file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, as the kernel names it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    holding = [(place, kind) for place, kind in found if folder.resolve().is_relative_to(place)]
    return max(holding, key=lambda mount: len(mount[0]))[1]


def survives_power_loss(kind: str) -> bool:
    return kind not in _IN_MEMORY


def machine(folder: Path) -> dict[str, str | int | float]:
    """`load` is the mean of the last minute: above a tenth or so, something else runs here and the figures suffer."""
    return {
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 2),
        "platform": sys.platform,
        "file_system": file_system(folder),
    }
