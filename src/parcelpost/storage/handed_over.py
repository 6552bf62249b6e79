"""How far each of those who get exports has seen the store, in a small file beside it."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidInput
from parcelpost.storage import durable_files
from parcelpost.storage.selecting import Mark, Wanted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class HandedOver(Struct, frozen=True, kw_only=True):
    mark: Mark
    wanted: Wanted
    """What was asked for, but for the mark: what is new for one question is not all that is new for another."""
    at: datetime


def file_of(store: Path, receiver: str) -> Path:
    """Raises InvalidInput."""
    if not _NAME.fullmatch(receiver):
        raise InvalidInput(f"{receiver!r} is no name for who gets the export", hint="use letters, digits, _ and -")
    store = store.resolve()
    return store.with_name(f"{store.name}-exports") / f"{receiver}.json"


def load(file: Path) -> HandedOver | None:
    """None: nothing was handed over yet. Raises InvalidInput."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=HandedOver)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error}", hint="remove it; the next export with --new then has everything"
        ) from error


def keep(file: Path, done: HandedOver) -> None:
    durable_files.replace(file, msgspec.json.encode(done) + b"\n")
