"""Backups: creates them while the store is in use, verifies, rotates and restores them."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from parcelpost.clock import iso
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
from parcelpost.storage.snapshot import copies, file_problems, integrity_problems, never, open_read_only, snapshot

Progress = Callable[[int, int], None]
"""Called with the pages done and the total."""


class Backup(Struct, frozen=True, kw_only=True):
    path: str
    bytes: int
    removed: int
    """Older backups that were deleted, beyond the number to keep."""


class Contents(Struct, frozen=True, kw_only=True):
    """What a store or a backup holds, to decide whether one may replace the other."""

    schema_version: int
    last_change: str
    last_task: int
    """The highest seq, like `last_result`: unlike times, these never go back."""
    last_result: int
    tasks: int
    results: int
    unsynced: int


class Restored(Struct, frozen=True, kw_only=True):
    path: str
    contents: Contents
    previous: str | None
    """The previous store, kept in `backups/`."""


def make(store: Path, now: datetime, keep: int, progress: Progress | None = None) -> Backup:
    """Writes `backups/{name}_{YYYYMMDDTHHMMSS}.db` beside the store, and deletes the oldest beyond `keep`."""
    folder = store.parent / "backups"
    path = folder / f"{copies(store)}_{now:%Y%m%dT%H%M%S}.db"
    _check_room(store, folder)
    snapshot(store, path, progress)
    _remove_abandoned_parts(folder)
    older = [backup for backup in list_backups(store) if backup != path]
    surplus = older[: max(0, len(older) - max(keep - 1, 0))]
    for backup in surplus:
        backup.unlink(missing_ok=True)
    return Backup(path=str(path), bytes=path.stat().st_size, removed=len(surplus))


def _remove_abandoned_parts(folder: Path, name: str = "") -> None:
    """Deletes partial copies of crashed processes, but not those that a live process is writing."""
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


def list_backups(store: Path) -> list[Path]:
    """Returns the backups made by `make`, the oldest first; no copies made before a migration or a restore."""
    stamp = "[0-9]" * 8 + "T" + "[0-9]" * 6
    return sorted((store.parent / "backups").glob(f"{glob.escape(copies(store))}_{stamp}.db"))


def candidates(store: Path) -> list[Path]:
    """Returns what can be restored, the newest first: backups, and copies made before a migration."""
    before = (store.parent / "backups").glob(f"{glob.escape(copies(store))}_before_v*.db")
    return sorted((*list_backups(store), *before), key=lambda path: path.stat().st_mtime, reverse=True)


def problem(path: Path, *, deep: bool = False, is_over: Callable[[], bool] = never) -> str:
    """Returns why a backup cannot be used, '' if it can. Raises TimeoutError if `is_over` interrupts the check."""
    try:
        with contextlib.closing(open_read_only(path)) as db:
            migrations.pending(db, migrations.load())
            problems = integrity_problems(db, deep=deep, is_over=is_over)
    except StoreError as error:
        return str(error)
    except sqlite3.Error as error:
        return str(translate(error, path))
    if problems is None:
        raise TimeoutError
    return problems[0].splitlines()[-1] if problems else ""


def restore(
    source: Path, store: Path, live: Path, now: datetime, *, force: bool = False, progress: Progress | None = None
) -> Restored:
    """Replaces the store with a backup. The previous store is kept in `backups/`, never deleted.

    Refuses a backup that is damaged or from a newer program. Without `force` also refuses if a live process has the
    store open, or if the store has changes that the backup lacks.
    """
    store = store.resolve()
    contents = _inspect_backup(source)
    alive, _ = locks.owners(live)
    if alive and not force:
        raise StoreInUse(f"{store} is open in {', '.join(alive)}", hint="stop the worker first, or add --force")
    if store.exists() and not force:
        _refuse_to_lose_changes(store, contents)
    kept = _kept_path(store, now) if store.exists() else None
    _remove_abandoned_parts(store.parent, f"{store.name}.restoring")
    ready = store.with_name(store.name + ".restoring")
    snapshot(source, ready, progress)  # complete and durable before the store is changed
    try:
        if alive and kept is not None:
            snapshot(store, kept)
            _copy_into_live(ready, store, now)
        else:
            _keep_previous(store, kept or _kept_path(store, now))
            ready.replace(store)
            durable_files.sync_path(store.parent)
    finally:
        ready.unlink(missing_ok=True)
    return Restored(path=str(store), contents=contents, previous=str(kept) if kept else None)


def contents(path: Path) -> Contents:
    """Raises StoreCorrupt, NotAStore or StoreTooNew."""
    try:
        with contextlib.closing(open_read_only(path)) as db:
            version = migrations.version(db)
            if version == 0:
                raise NotAStore(f"{path} is empty")
            newest = max(migration.version for migration in migrations.load())
            if version > newest:
                raise StoreTooNew(f"{path} has schema version {version}, this program supports versions up to {newest}")
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
    """Returns when a task or result last changed, '' for an empty store."""
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
        raise StoreCorrupt(f"the backup {source} is damaged: {problems[0]}", hint="use an older backup")
    return contents(source)


def _refuse_to_lose_changes(store: Path, backup: Contents) -> None:
    try:
        present = contents(store)
    except StoreError as error:
        raise type(error)(
            f"the store at {store} cannot be compared with the backup: {error}",
            hint="add --force to replace it; the damaged file is kept in backups/",
        ) from error
    has_more_rows = present.last_task > backup.last_task or present.last_result > backup.last_result
    if has_more_rows or present.last_change > backup.last_change:
        raise BackupBehind(
            f"the store is newer than the backup: its last change is {present.last_change}, the backup's is "
            f"{backup.last_change or 'none'}; it has {present.results:,} results ({present.unsynced:,} not delivered), "
            f"the backup {backup.results:,}"
        )


def _kept_path(store: Path, now: datetime) -> Path:
    folder = store.parent / "backups"
    durable_files.make_folder(folder)
    stem = f"{copies(store)}_before_restore_{now:%Y%m%dT%H%M%S}"
    names = chain([f"{stem}.db"], (f"{stem}_{number}.db" for number in count(2)))
    return next(path for name in names if not (path := folder / name).exists())


def _keep_previous(store: Path, kept: Path) -> None:
    """Links the store to a second name and empties its WAL, so that one rename can replace it.

    A WAL left behind would be applied to the restored file.
    """
    wal = store.with_name(store.name + "-wal")
    try:
        if store.exists():
            _empty_wal(store)
            _link(store, kept)
        if wal.exists() and wal.stat().st_size:  # the store is damaged or missing
            _link(wal, kept.with_name(kept.name + "-wal"))
        durable_files.sync_path(kept.parent)
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink(missing_ok=True)
        durable_files.sync_path(store.parent)
    except OSError as error:
        raise BackupFailed(f"cannot keep the previous store {store}: {error}") from error


def _empty_wal(store: Path) -> None:
    """Moves the WAL into the database file, if that is an intact database."""
    try:
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=rw", uri=True, timeout=10)) as db:
            db.execute("PRAGMA synchronous = FULL")
            is_busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        if not isinstance(translate(error, store), StoreCorrupt | NotAStore):
            raise BackupFailed(f"cannot keep the previous store {store}: {error}") from error
    else:
        if is_busy:
            raise StoreBusy(f"another program is reading {store}")


def _link(file: Path, name: Path) -> None:
    try:
        name.hardlink_to(file)
    except OSError:  # another file system, or one without links
        with durable_files.atomic_file(name) as partial:
            shutil.copyfile(file, partial)


def _copy_into_live(ready: Path, store: Path, now: datetime) -> None:
    """One SQLite transaction: processes that have the store open see the old state, then the new."""
    try:
        with (
            contextlib.closing(sqlite3.connect(ready)) as old,
            contextlib.closing(sqlite3.connect(store, timeout=10)) as new,
        ):
            # The backup's claims are no longer valid, even if their owner still has the store open.
            with old:
                tasks.release_owned(old, None, iso(now))
            old.backup(new)
    except sqlite3.Error as error:
        raise BackupFailed(f"cannot restore into the open store {store}: {error}") from error


def _check_room(store: Path, folder: Path) -> None:
    durable_files.make_folder(folder)
    needed = sum(part.stat().st_size for end in ("", "-wal") if (part := store.with_name(store.name + end)).exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupFailed(
            f"a backup needs up to {needed:,} bytes, but only {free:,} are free in {folder}",
            hint="free some disk space",
        )
