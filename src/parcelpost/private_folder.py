"""Folders that only their owner can look into."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """With mode 700, as all that have to be made above it; what is there stays as it is. Raises OSError."""
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)
