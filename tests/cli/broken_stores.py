"""Stores that are broken in one way each, and the doctor on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from parcelpost.clock import SystemClock
from parcelpost.model import Result, Source
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run, change, damage, leave_a_death, make_full_store, make_old, make_store, task
from tests.storage.factories import save_one

BACKUP = "parcelpost_20260101T020000.db"


def told(document: Any, words: str) -> dict[str, Any]:
    """The one finding that says so."""
    found: dict[str, Any]
    (found,) = [one for one in document["findings"] if words in one["message"]]
    return found


def do(command: str, run: Run) -> None:
    """What a person pastes into a shell; a worker ends when there is nothing left to do."""
    program, *arguments = shlex.split(command)
    if program == "parcelpost":
        endings = {"run": ["--until-empty"], "init": ["--yes"]}
        ran = run(*arguments, *endings.get(arguments[0], []))
        assert ran.code == 0, (command, ran.out, ran.err)
    else:
        subprocess.run(command, shell=True, check=True, timeout=60)


def backed_up(store: Path, name: str = BACKUP, *, days: float = 0.1) -> Path:
    """A backup of that age, as the janitor makes them."""
    copy = store.parent / "backups" / name
    copy.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(sqlite3.connect(store)) as old, contextlib.closing(sqlite3.connect(copy)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")
    copy.chmod(0o600)
    made = (SystemClock().now() - timedelta(days=days)).timestamp()
    os.utime(copy, (made, made))
    return copy


def readable_by_all(folder: Path) -> Path:
    store = make_full_store(folder / "parcelpost.db")
    store.chmod(0o644)
    (folder / "data" / "vgsi").chmod(0o755)
    return store


def replaceable_by_all(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db")
    folder.chmod(0o777)
    return store


def damaged(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=2_000)
    backed_up(store)
    damage(store)
    return store


def damaged_in_one_page(folder: Path) -> Path:
    """Of the results, as they lie in the middle of the file."""
    store = make_full_store(folder / "parcelpost.db")
    backed_up(store)
    content = store.read_bytes()
    place = next(start for start in range(0, len(content), 8192) if b'{"owner"' in content[start : start + 8192])
    store.write_bytes(content[:place] + b"\xa5" * 8192 + content[place + 8192 :])
    return store


def damaged_as_its_newest_backup(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=2_000)
    backed_up(store, days=1.0)
    damage(backed_up(store, "parcelpost_20260102T020000.db"))
    damage(store)
    return store


def lost(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=1)
    backed_up(store)
    store.unlink()
    return store


def too_new(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db")
    shutil.move(backed_up(store), store.parent / "backups" / "parcelpost_before_v99_20260101T020000.db")
    change(store, "INSERT INTO schema_version VALUES (99, '2026-01-01T00:00:00.000Z', 'of tomorrow', 'x')")
    return store


def edited(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db")
    backed_up(store)
    change(store, "UPDATE schema_version SET checksum = 'x' WHERE version = 1")
    return store


def never_backed_up(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=1)
    make_old(store, hours=27)
    return store


def backed_up_long_ago(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=1)
    backed_up(store, days=3)
    return store


def backed_up_badly(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=1)
    backed_up(store).write_bytes(b"no database at all" * 100)
    return store


def with_orphans(folder: Path) -> Path:
    store = make_full_store(folder / "parcelpost.db")
    page = folder / "data" / "vgsi" / "CT" / "hartford" / "nobody.html.gz"
    page.write_bytes(b"x")
    page.chmod(0o600)
    long_ago = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    os.utime(page, (long_ago, long_ago))
    return store


def left_by_the_dead(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db", tasks=2)
    leave_a_death(store, claims=2)
    return store


def refused(folder: Path) -> Path:
    return make_full_store(folder / "parcelpost.db")


def with_a_long_wal(folder: Path) -> Path:
    store = make_store(folder / "parcelpost.db")
    wal = folder / "parcelpost.db-wal"
    wal.touch(0o600)
    os.truncate(wal, 65 * 1024**2)
    return store


def above_its_cap(folder: Path) -> Path:
    """With PARCELPOST_STORAGE_MAX_BYTES=2MiB."""
    store = make_store(folder / "parcelpost.db")
    long_ago = "2026-01-01T00:00:00.000Z"
    change(
        store,
        f"""INSERT INTO cache (cache_key, size_bytes, created_at, expires_at, last_accessed, data)
            VALUES ('page', 4000000, '{long_ago}', '2099-01-01T00:00:00.000Z', '{long_ago}', randomblob(4000000))""",
    )
    return store


def without_a_worker(folder: Path) -> Path:
    async def make() -> None:
        async with LocalPersistenceManager.open(folder / "parcelpost.db") as lpm:
            await lpm.add_task(task("t", platform="echo", source=Source.CLI))

    asyncio.run(make())
    return folder / "parcelpost.db"


def failing(folder: Path) -> Path:
    async def make() -> None:
        async with LocalPersistenceManager.open(folder / "parcelpost.db") as lpm:
            await lpm.add_task(task("t", platform="echo", source=Source.CLI))
            (claim,) = await lpm.claim()
            await lpm.give_up(claim, "no table")

    asyncio.run(make())
    return folder / "parcelpost.db"


def saved(folder: Path, data: dict[str, Any]) -> Path:
    """One result that waits."""

    async def make() -> None:
        async with LocalPersistenceManager.open(folder / "parcelpost.db") as lpm:
            await save_one(lpm, task("t"), Result(data=data, scraped_at=SystemClock().now()))

    asyncio.run(make())
    return folder / "parcelpost.db"


BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "other users have access": (readable_by_all, "chmod -R go-rwx"),
    "every user can replace files": (replaceable_by_all, "chmod o-w"),
    "malformed": (damaged, "parcelpost store restore --latest --force"),
    "parcelpost.db: database disk image is mal": (damaged_in_one_page, "parcelpost store salvage --replace"),
    "here/parcelpost.db: database disk image": (damaged_as_its_newest_backup, "parcelpost store restore"),
    "there is no store at": (lost, "parcelpost store restore"),
    "has schema version 99": (too_new, "parcelpost store restore"),
    "migration 1 has changed": (edited, "parcelpost store restore"),
    "there is no backup yet": (never_backed_up, "parcelpost store backup"),
    "the newest backup is 3 days old": (backed_up_long_ago, "parcelpost store backup"),
    "cannot be restored": (backed_up_badly, "parcelpost store backup"),
    "1 old page belongs to no result": (with_orphans, "parcelpost store clean"),
    "1 process crashed": (left_by_the_dead, "parcelpost store clean"),
    "the upstream rejected 1 result": (refused, "parcelpost results retry --all"),
    "the write-ahead log": (with_a_long_wal, "parcelpost store clean"),
    "so no tasks are started": (above_its_cap, "parcelpost store clean --free-space"),
    "1 task to do, but no worker is running": (without_a_worker, "parcelpost run --store"),
    "1 of 1 task failed in the last 24 h": (failing, "parcelpost tasks retry --status failed"),
}
"""By what the doctor says of it: how a store is broken so, and how the command begins that mends it."""
