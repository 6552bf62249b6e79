"""Store integrity: the database file, its references, the raw pages of undelivered results (I6),
and how to repair a store that cannot be opened."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import math
import os
import shlex
import stat
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.context import CLOCK, open_for_reading, openers, store_options
from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.options import (
    StoreContext,
    command_line,
    store_command,
)
from parcelpost.cli.progress import Meter
from parcelpost.errors import (
    MigrationEdited,
    StoreCorrupt,
    StoreError,
    StoreNotFound,
    StoreOutdated,
    StoreReadOnly,
    StoreTooNew,
)
from parcelpost.model import OutboxEntry
from parcelpost.settings.sources import DEFAULT
from parcelpost.storage import backup, health, locks, outbox, salvage
from parcelpost.storage.admin import Delivery, Selection, results_page
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import inside, raw_folder
from parcelpost.storage.snapshot import file_problems, never

_SHOWN = 3
_ENTRIES_AT_A_TIME = 50
_FILES_AT_A_TIME = 500
_CHUNK_BYTES = 1 << 20


class IntegrityReport(Struct, frozen=True, kw_only=True):
    ok: bool
    deep: bool
    problems: list[Problem]
    pages: int
    """How many pages of undelivered results were looked at: none, when the database itself is damaged."""
    orphans: int
    """Pages that no result names: left by a crash, or just being written."""


async def check_store(store: StoreContext, *, deep: bool) -> IntegrityReport:
    """Only looks. Damage is part of the answer; a store that cannot be opened for another reason raises."""
    pages = orphans = 0
    try:
        async with open_for_reading(store) as database:
            problems = await _database_problems(store, database, deep=deep)
            if not problems:
                problems, pages = await page_problems(store, database, deep=deep)
                orphans = await count_orphans(database)
    except StoreCorrupt as error:
        problems = [damage_problem(store, str(error))]
    return IntegrityReport(ok=not problems, deep=deep, problems=problems, pages=pages, orphans=orphans)


async def _database_problems(store: StoreContext, database: LocalDatabase, *, deep: bool) -> list[Problem]:
    async with Meter("checking the database file"):
        found = (
            await health.health(
                database, locks.live_folder(store.path), store_options(store.settings), CLOCK.now(), check=True
            )
        ).problems
        if deep and not found:
            found = await asyncio.to_thread(file_problems, store.path)
    return [damage_problem(store, damage_text(found))] if found else []


def damage_text(found: list[str]) -> str:
    lines = [line for text in found for line in text.splitlines() if not line.startswith("***")]
    more = f" (and {len(lines) - _SHOWN:,} more findings)" if len(lines) > _SHOWN else ""
    return f"the database file is damaged: {'; '.join(lines[:_SHOWN])}{more}"


def damage_problem(store: StoreContext, what: str, restore: str = "") -> Problem:
    """`restore`: the command for a backup that is whole, where the newest is not."""
    restore = restore or (store_command("restore --latest --force", store) if backup.list_backups(store.path) else "")
    if salvage.can_be_read(store.path):
        command = store_command("salvage --replace", store)
        remedy = f"stop the workers, then run '{command}', which keeps all that can be read"
        return Problem(
            what, remedy + (f", or go back to a backup with '{restore}'" if restore else ""), "store", command
        )
    if restore:
        return Problem(what, f"stop the workers, then run '{restore}'", "store", restore)
    remedy = (
        f"there is no backup; keep a copy of the file and save what can be read with 'sqlite3 {store.path} .recover'"
    )
    return Problem(what, remedy, "store")


async def page_problems(
    store: StoreContext, database: LocalDatabase, *, deep: bool, most: int | None = None
) -> tuple[list[Problem], int]:
    """Of undelivered results whose page is not there, or with `deep` not what it was; and how many were looked at."""
    root = raw_folder(store.path)
    _, dead = await openers(store)
    looked_at, problems = 0, []
    waiting, rejected, _ = await database.read(outbox.depth)
    async with Meter("checking pages") as meter:
        async for entries in _undelivered(database):
            named = [entry for entry in entries if entry.html_path]
            wrong = await asyncio.to_thread(_damaged_pages, root, named, deep=deep)
            for entry, what in wrong:
                now = await database.read(outbox.get, entry.task_id)
                if now is not None and now.html_path == entry.html_path and now.synced_at is None:
                    problems.append(_page_problem(store, entry, what, may_be_journalled=bool(dead)))
            looked_at += len(named)
            meter(looked_at, waiting + rejected)
            if most is not None and looked_at >= most:
                break
    return problems, looked_at


async def _undelivered(database: LocalDatabase) -> AsyncIterator[list[OutboxEntry]]:
    for state in (Delivery.UNSYNCED, Delivery.REJECTED):
        which, after = Selection(delivery=state), 0
        while entries := await database.read(results_page, which, _ENTRIES_AT_A_TIME, after, with_data=False):
            yield entries
            after = entries[-1].seq


def _damaged_pages(root: Path, entries: list[OutboxEntry], *, deep: bool) -> list[tuple[OutboxEntry, str]]:
    wrong = []
    for entry in entries:
        path = inside(root, entry.html_path or "")
        if not path.is_file():
            wrong.append((entry, "is missing"))
        elif deep and page_sha256(path) != entry.raw_sha256:
            wrong.append((entry, "is damaged"))
    return wrong


def page_sha256(path: Path) -> str | None:
    """Of the page's bytes as fetched; None for a file that cannot be unpacked."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as page:
            while chunk := page.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def _page_problem(store: StoreContext, entry: OutboxEntry, what: str, *, may_be_journalled: bool) -> Problem:
    path = raw_folder(store.path) / (entry.html_path or "")
    if may_be_journalled:
        command = store_command("clean", store)
        remedy = f"run '{command}': opening the store restores what a dead worker's journal holds"
    else:
        command = ""
        show = command_line(f"results show {shlex.quote(entry.task_id)}", store)
        remedy = f"put {path} back from a copy; the record itself is whole: '{show}'"
    return Problem(f"the page {path} of task {entry.task_id} {what}", remedy, "store", command)


async def count_orphans(database: LocalDatabase, *, before: float | None = None, most: int | None = None) -> int:
    """Pages that no result names, last changed before that moment (of the epoch), among the first so many pages."""
    root = raw_folder(database.path)
    pages = islice(_pages(root, before), most)
    orphans = looked_at = 0
    async with Meter("looking for pages that no result names") as meter:
        while batch := await asyncio.to_thread(lambda: list(islice(pages, _FILES_AT_A_TIME))):
            named = await database.read(outbox.named_by_a_result, batch)
            orphans += len(batch) - len(named)
            looked_at += len(batch)
            meter(looked_at, None)
    return orphans


def _pages(root: Path, before: float | None) -> Iterator[str]:
    for folder, _, files in os.walk(root):
        for page in (Path(folder, file) for file in files if file.endswith(".html.gz")):
            if before is None or _modified_at(page) < before:
                yield page.relative_to(root).as_posix()


def _modified_at(page: Path) -> float:
    """Of one that is gone by now: never."""
    try:
        return page.stat().st_mtime
    except FileNotFoundError:
        return math.inf


_MOST_TRIED = 10


def open_problem(store: StoreContext, error: StoreError, is_over: Callable[[], bool] = never) -> Problem:
    if isinstance(error, StoreOutdated):
        migrate = store_command("migrate", store)
        return Problem(str(error), f"stop the workers, then run '{migrate}': a backup is made first", "store", migrate)
    if isinstance(error, StoreCorrupt):
        return damaged_problem(store, str(error), is_over)
    if isinstance(error, StoreNotFound | StoreTooNew | MigrationEdited):
        good = _newest_good_backup(store, is_over)
        if good is not None:
            restore = _restore_command(store, good)
            what = "there are backups of one: " if isinstance(error, StoreNotFound) else f"{error.hint}: "
            return Problem(str(error), f"{what}'{restore}' goes back to the newest that can be used", "store", restore)
    if isinstance(error, StoreNotFound):
        start = "parcelpost run" if DEFAULT.exists() else "parcelpost init"
        return Problem(str(error), f"check the path; if all is new here, begin with '{start}'", "store", start)
    if isinstance(error, StoreReadOnly) and (allow := _chmod_command(store)):
        return Problem(str(error), f"run '{allow}'", "store", allow)
    return Problem(str(error), error.hint, "store")


def _chmod_command(store: StoreContext) -> str:
    """What lets its owner in, who asks; '' where that is not what is wrong."""
    for path, needed in ((store.path.parent, stat.S_IRWXU), (store.path, stat.S_IRUSR | stat.S_IWUSR)):
        try:
            about = path.stat()
        except OSError:
            return ""
        if about.st_uid == os.geteuid() and about.st_mode & needed != needed:
            return f"chmod {'u+rwx' if path != store.path else 'u+rw'} {shlex.quote(str(path))}"
    return ""


def damaged_problem(store: StoreContext, what: str, is_over: Callable[[], bool] = never) -> Problem:
    """With the newest backup that is whole itself."""
    backups = backup.list_backups(store.path)
    good = _newest_good_backup(store, is_over) if backups else None
    is_newest = good is None or good == backups[-1]
    return damage_problem(store, what, "" if good is None or is_newest else _restore_command(store, good))


def _restore_command(store: StoreContext, source: Path) -> str:
    return store_command(f"restore {shlex.quote(str(source))} --force", store)


def _newest_good_backup(store: StoreContext, is_over: Callable[[], bool]) -> Path | None:
    for one in backup.candidates(store.path)[:_MOST_TRIED]:
        try:
            if not backup.problem(one, is_over=is_over):
                return one
        except TimeoutError:
            return None
    return None
