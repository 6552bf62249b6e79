"""Receipts that the store does not take are told beside it, where `parcelpost status` finds that.

The store itself cannot be asked to keep this. The file's room is taken while there is some, and written in place.
"""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from parcelpost.storage.opening import live_folder

_ROOM_BYTES = 4_096
_MOST_CHARS = 500


class Held(Struct, frozen=True, kw_only=True):
    since: datetime
    results: int
    """How many were delivered and cannot be marked."""
    error: str
    remedy: str


class HeldNote:
    """Written by the process that delivers. What cannot be written, even so, is only in the log."""

    def __init__(self, store: Path) -> None:
        self._path = _path(store)

    def write(self, held: Held | None) -> None:
        """None: the store takes them."""
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(handle, _text(held).ljust(_ROOM_BYTES), 0)
            finally:
                os.close(handle)


def read_held(store: Path) -> Held | None:
    """What the process that delivers, or the last one that did, has written."""
    try:
        return msgspec.json.decode(_path(store).read_bytes(), type=Held | None)
    except (OSError, msgspec.DecodeError):
        return None


def _text(held: Held | None) -> bytes:
    if held is None:
        return b"null"
    return msgspec.json.encode(msgspec.structs.replace(held, error=held.error[:_MOST_CHARS]))


def _path(store: Path) -> Path:
    return live_folder(store) / "receipts.held"
