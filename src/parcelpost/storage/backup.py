"""Backups: made while the store is in use, verified, kept for a while, and brought back with care."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import (
    BackupBehind,
    BackupFailed,
    NotAStore,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreInUse,
    StoreNotFound,
    StoreTooNew,
)
from parcelpost.storage import durable_files, locks, migrations, tasks
from parcelpost.storage.errors import translate
from parcelpost.storage.snapshot import copies, file_problems, integrity_problems, never, snapshot

Progress = Callable[[int, int], None]
"""Called with the pages done and the pages in all."""


class Backup(Struct, frozen=True, kw_only=True):
    path: str
    bytes: int
    removed: int
    """Older backups that went, beyond the number to keep."""


class Contents(Struct, frozen=True, kw_only=True):
    """What a store or a backup holds, as far as it matters for replacing one by the other."""

    schema_version: int
    last_change: str
    last_task: int
    """The highest seq, like last_result: clocks are set back, these are not."""
    last_result: int
    tasks: int
    results: int
    unsynced: int


class Restored(Struct, frozen=True, kw_only=True):
    path: str
    contents: Contents
    set_aside: str | None
    """Where the store that was there before is kept."""


def make(store: Path, now: datetime, keep: int, progress: Progress | None = None) -> Backup:
    """`backups/{name}_{YYYYMMDDTHHMMSS}.db` beside the store; beyond `keep`, the oldest go."""
    folder = store.parent / "backups"
    path = folder / f"{copies(store)}_{now:%Y%m%dT%H%M%S}.db"
    _check_room(store, folder)
    snapshot(store, path, progress)
    _remove_abandoned_parts(folder)
    older = [backup for backup in found(store) if backup != path]
    surplus = older[: max(0, len(older) - max(keep - 1, 0))]
    for backup in surplus:
        backup.unlink(missing_ok=True)
    return Backup(path=str(path), bytes=path.stat().st_size, removed=len(surplus))


def _remove_abandoned_parts(folder: Path, name: str = "") -> None:
    """Copies (of that name) that a process died over; one whose process lives may still be growing."""
    for part in folder.glob(f"{glob.escape(name)}*.partial"):
        pid = re.search(r"\.(\d+)-[0-9a-f]{8}\.partial$", part.name)
        if pid is None or not _is_running(int(pid[1])):
            part.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def found(store: Path) -> list[Path]:
    """The backups made by `make`, the oldest first. Copies made before a migration or a restore are not among them."""
    stamp = "[0-9]" * 8 + "T" + "[0-9]" * 6
    return sorted((store.parent / "backups").glob(f"{glob.escape(copies(store))}_{stamp}.db"))


def candidates(store: Path) -> list[Path]:
    """What could be put in the store's place, the newest first: backups, and copies made before a migration."""
    before = (store.parent / "backups").glob(f"{glob.escape(copies(store))}_before_v*.db")
    return sorted((*found(store), *before), key=lambda path: path.stat().st_mtime, reverse=True)


def fault(path: Path, *, deep: bool = False, is_over: Callable[[], bool] = never) -> str:
    """Why this program could not use a backup; '' where it can. Raises TimeoutError where it is over before that."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            migrations.pending(db, migrations.load())
            wrong = integrity_problems(db, deep=deep, is_over=is_over)
    except StoreError as error:
        return str(error)
    except sqlite3.Error as error:
        return str(translate(error, path))
    if wrong is None:
        raise TimeoutError
    return wrong[0].splitlines()[-1] if wrong else ""


def restore(
    source: Path, store: Path, live: Path, now: datetime, *, force: bool = False, progress: Progress | None = None
) -> Restored:
    """Puts a backup in the store's place. What was there is set aside, never deleted.

    Refuses a backup that is not whole or is from a newer program. Without `force` also refuses when a live process has
    the store open, or when the store holds changes that the backup does not.
    """
    store = store.resolve()
    contents = _inspect_backup(source)
    alive, _ = locks.openers(live)
    if alive and not force:
        raise StoreInUse(f"{store} is open in {', '.join(alive)}", hint="stop the worker first, or add --force")
    if store.exists() and not force:
        _refuse_to_lose(store, contents)
    aside = _aside_path(store, now) if store.exists() else None
    _remove_abandoned_parts(store.parent, f"{store.name}.restoring")
    ready = store.with_name(store.name + ".restoring")
    snapshot(source, ready, progress)  # whole, and on the disk, before anything is changed
    try:
        if alive and aside is not None:
            snapshot(store, aside)
            _copy_into_live(ready, store)
        else:
            _set_aside(store, aside or _aside_path(store, now))
            ready.replace(store)
            durable_files.sync_path(store.parent)
    finally:
        ready.unlink(missing_ok=True)
    return Restored(path=str(store), contents=contents, set_aside=str(aside) if aside else None)


def contents(path: Path) -> Contents:
    """Raises StoreCorrupt, NotAStore or StoreTooNew."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            version = migrations.version(db)
            if version == 0:
                raise NotAStore(f"{path} is empty")
            newest = max(migration.version for migration in migrations.load())
            if version > newest:
                raise StoreTooNew(f"{path} has schema version {version}, this program knows {newest}")
            return Contents(
                schema_version=version,
                last_change=last_change(db),
                last_task=db.execute("SELECT coalesce(max(seq), 0) FROM tasks").fetchone()[0],
                last_result=db.execute("SELECT coalesce(max(seq), 0) FROM results").fetchone()[0],
                tasks=db.execute("SELECT count(*) FROM tasks").fetchone()[0],
                results=db.execute("SELECT count(*) FROM results").fetchone()[0],
                unsynced=db.execute("SELECT count(*) FROM results WHERE synced = 0").fetchone()[0],
            )
    except sqlite3.Error as error:
        raise translate(error, path) from error


def last_change(db: sqlite3.Connection) -> str:
    """The newest moment that the store knows of; empty for an empty store."""
    query = """
    SELECT max(coalesce((SELECT created_at FROM tasks ORDER BY seq DESC LIMIT 1), ''),
               coalesce((SELECT max(completed_at) FROM tasks WHERE completed_at IS NOT NULL), ''),
               coalesce((SELECT created_at FROM results ORDER BY seq DESC LIMIT 1), ''),
               coalesce((SELECT max(synced_at) FROM results WHERE synced = 1), ''))"""
    return str(db.execute(query).fetchone()[0])


def _inspect_backup(source: Path) -> Contents:
    if not source.exists():
        raise StoreNotFound(f"there is no backup at {source}", hint="list them with 'parcelpost store status'")
    problems = file_problems(source)
    if problems:
        raise StoreCorrupt(f"the backup {source} is not whole: {problems[0]}", hint="take an older backup")
    return contents(source)


def _refuse_to_lose(store: Path, backup: Contents) -> None:
    try:
        present = contents(store)
    except StoreError as error:
        raise type(error)(
            f"the store at {store} cannot be read to compare: {error}",
            hint="add --force to replace it; the damaged file is set aside",
        ) from error
    has_more_rows = present.last_task > backup.last_task or present.last_result > backup.last_result
    if has_more_rows or present.last_change > backup.last_change:
        raise BackupBehind(
            f"the store is newer than the backup: its last change is {present.last_change}, the backup's is "
            f"{backup.last_change or 'none'}; it has {present.results:,} results ({present.unsynced:,} not delivered), "
            f"the backup {backup.results:,}"
        )


def _aside_path(store: Path, now: datetime) -> Path:
    folder = store.parent / "backups"
    durable_files.make_folder(folder)
    stem = f"{copies(store)}_before_restore_{now:%Y%m%dT%H%M%S}"
    names = chain([f"{stem}.db"], (f"{stem}_{number}.db" for number in count(2)))
    return next(path for name in names if not (path := folder / name).exists())


def _set_aside(store: Path, aside: Path) -> None:
    """Gives the store a second name, and leaves it whole without a WAL: one file, which one rename can replace.

    A WAL left behind would be applied to the file that takes the store's place.
    """
    wal = store.with_name(store.name + "-wal")
    try:
        if store.exists():
            _empty_wal(store)
            _second_name(store, aside)
        if wal.exists() and wal.stat().st_size:  # of a store that is damaged, or gone
            _second_name(wal, aside.with_name(aside.name + "-wal"))
        durable_files.sync_path(aside.parent)
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink(missing_ok=True)
        durable_files.sync_path(store.parent)
    except OSError as error:
        raise BackupFailed(f"{store} could not be set aside: {error}") from error


def _empty_wal(store: Path) -> None:
    """What is in the WAL goes into the file itself, as far as that is a database still."""
    try:
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=rw", uri=True, timeout=10)) as db:
            db.execute("PRAGMA synchronous = FULL")
            is_busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        if not isinstance(translate(error, store), StoreCorrupt | NotAStore):
            raise BackupFailed(f"{store} could not be set aside: {error}") from error
    else:
        if is_busy:
            raise StoreBusy(f"another program reads {store}")


def _second_name(file: Path, name: Path) -> None:
    try:
        name.hardlink_to(file)
    except OSError:  # another file system, or one without links
        partial = name.with_name(f"{name.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shutil.copyfile(file, partial)
            durable_files.sync_path(partial)
            partial.replace(name)
        finally:
            partial.unlink(missing_ok=True)


def _copy_into_live(ready: Path, store: Path) -> None:
    """One transaction of SQLite's: the processes that have the store open see the old state, then the new."""
    try:
        with (
            contextlib.closing(sqlite3.connect(ready)) as old,
            contextlib.closing(sqlite3.connect(store, timeout=10)) as new,
        ):
            # The claims of the backup's time are nobody's now, though their owner may still have the store open.
            with old:
                tasks.release_all(old)
            old.backup(new)
    except sqlite3.Error as error:
        raise BackupFailed(f"could not restore into the live store {store}: {error}") from error


def _check_room(store: Path, folder: Path) -> None:
    durable_files.make_folder(folder)
    needed = sum(part.stat().st_size for end in ("", "-wal") if (part := store.with_name(store.name + end)).exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupFailed(
            f"a backup needs up to {needed:,} bytes, and {free:,} are free in {folder}", hint="free disk space"
        )
