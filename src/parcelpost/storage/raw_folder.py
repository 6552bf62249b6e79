"""Which folder holds a store's raw files: each store has its own, marked with the store's name and id."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from pathlib import Path

import msgspec

from parcelpost.clock import Clock, iso
from parcelpost.storage import durable_files, outbox, state
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import HOLDER_FILE

_ID_STATE = "store_id"


class _Holder(msgspec.Struct, frozen=True):
    """The store whose pages a folder holds. Files are renamed and copied: only the name and the id together tell."""

    name: str
    id: str


class _StoreId(msgspec.Struct, frozen=True):
    id: str


def raw_folder(store: Path) -> Path:
    """The store's own folder of raw files: `data/` beside it, or `{name}-data/` where `data/` is another store's."""
    store = store.resolve()
    holders = {folder: found for folder in _raw_folders(store) if (found := _holder(folder)) is not None}
    named = [folder for folder, found in holders.items() if found.name == store.name]
    if len(named) == 1:
        return named[0]
    return _raw_folder(store, _id_of(store) if holders else None)  # a look into the file leaves SQLite's own beside it


def _raw_folders(store: Path) -> list[Path]:
    """Where its pages may be, the likeliest first."""
    return [store.with_name(f"{store.name}-data"), store.parent / "data", *sorted(store.parent.glob("*-data"))]


def _raw_folder(store: Path, store_id: str | None) -> Path:
    shared, own = store.parent / "data", store.with_name(f"{store.name}-data")
    for folder in _raw_folders(store):
        holder = _holder(folder)
        if holder is None or (store_id is not None and holder.id != store_id):
            continue
        if holder.name == store.name or (store_id and (folder == own or not _may_be(folder, holder))):
            return folder
    if _holder(shared) is None and not own.exists():
        return shared
    return own if _holder(own) is None or store_id is None else store.with_name(f"{store.name}-{store_id[:8]}-data")


def _may_be(folder: Path, holder: _Holder) -> bool:
    """Whether the store that a folder names is still there. One that cannot be read may be it."""
    named = folder.with_name(holder.name)
    return named.exists() and _id_of(named) in (None, holder.id)


def _holder(folder: Path) -> _Holder | None:
    """None where no store has taken the folder."""
    try:
        return msgspec.json.decode((folder / HOLDER_FILE).read_bytes(), type=_Holder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.MsgspecError:
        return _Holder("", "")  # somebody's, and nobody knows whose


def _id_of(store: Path) -> str | None:
    """None where the file is not there, cannot be read, or was never opened for writing."""
    try:
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
            kept = state.get(db, _ID_STATE, _StoreId)
    except sqlite3.Error:
        return None
    return None if kept is None else kept.id


async def own_id(database: LocalDatabase, clock: Clock) -> str:
    """Kept in the store itself, where copies and backups of it have it too."""
    if kept := await database.read(state.get, _ID_STATE, _StoreId):
        return kept.id
    known = None
    if await database.read(outbox.names_a_page):  # not a new one: the id was lost to damage
        known = _holder(_raw_folder(database.path, None))
    new = _StoreId(known.id if known and known.name == database.path.name else secrets.token_hex(16))
    return (await database.write(state.settle, _ID_STATE, new, iso(clock.now()))).id


async def take_raw_folder(database: LocalDatabase, store_id: str) -> Path:
    """Makes the store's raw folder, with a file in it that names the store, so that no other store takes it.

    One that should hold pages and is not there, or is empty, stays as it is: its volume may not be mounted yet.
    """
    store = database.path
    folder, me = _raw_folder(store, store_id), _Holder(store.name, store_id)
    holder = _holder(folder)
    if holder is not None and holder != me:  # it was renamed, or is a copy
        durable_files.replace(folder / HOLDER_FILE, msgspec.json.encode(me))
    elif holder is None and not (is_empty(folder) and await database.read(outbox.awaits_pages)):
        durable_files.make_folder(folder)
        _name_holder(folder, me)
    if _raw_folder(store, store_id) == folder:
        return folder
    return await take_raw_folder(database, store_id)  # another store was first


def is_empty(folder: Path) -> bool:
    """Or not there."""
    return not folder.is_dir() or next(folder.iterdir(), None) is None


def _name_holder(folder: Path, holder: _Holder) -> None:
    """Of two stores that do this at once, the first is named. After a power cut the file is whole, or not there."""
    partial = folder / f"{HOLDER_FILE}-{secrets.token_hex(4)}"
    try:
        durable_files.replace(partial, msgspec.json.encode(holder))
        with contextlib.suppress(FileExistsError):
            (folder / HOLDER_FILE).hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)
    durable_files.sync_path(folder)
    durable_files.sync_path(folder.parent)
