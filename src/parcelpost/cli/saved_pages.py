"""Pages that somebody saved, or that a store keeps, as files."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from parcelpost.model import GiveUp, Page

STDIN = "-"

_MOST_BYTES = 512 * 1024**2
_GZIP = b"\x1f\x8b"
_TYPES = {".json": "application/json", ".csv": "text/csv"}
_KEPT = ".html.gz"
"""How a store's pages end. Beside each lies its record, which is no page."""


def found(files: Iterable[str]) -> Iterator[str]:
    """The files themselves, and of a folder all that are in it, by name; hidden ones and a store's records are not."""
    for file in files:
        if file != STDIN and Path(file).is_dir():
            yield from _of_folder(file)
        else:
            yield file


def page(file: str) -> Page | GiveUp:
    """A GiveUp where the file cannot be read."""
    try:
        if file == STDIN:
            body = _read(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as opened:
                body = _read(opened)
    except (OSError, EOFError, zlib.error) as error:
        return GiveUp(f"it cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(body) > _MOST_BYTES:
        return GiveUp("it is larger than 512 MiB: is it a page?")
    return Page(body=body, content_type=_TYPES.get(Path(file.removesuffix(".gz")).suffix, "text/html"))


def _of_folder(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        there = set(files)
        for name in sorted(there):
            is_record = name.endswith(".json") and name.removesuffix(".json") + _KEPT in there
            if not name.startswith(".") and not is_record:
                yield str(Path(place, name))


def _read(opened: BinaryIO) -> bytes:
    body = opened.read(_MOST_BYTES + 1)
    if not body.startswith(_GZIP):
        return body
    with gzip.open(BytesIO(body)) as packed:
        return packed.read(_MOST_BYTES + 1)
