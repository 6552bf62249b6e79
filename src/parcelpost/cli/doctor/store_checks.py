"""Checks of the store: opening, integrity, raw pages, write-ahead log, backups, file permissions."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

from parcelpost.cli.context import CLOCK, open_for_reading, require_store
from parcelpost.cli.doctor.report import CheckContext, CheckResult
from parcelpost.cli.health.integrity import count_orphans, damage_text, damaged_problem, open_problem, page_problems
from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.options import (
    StoreContext,
    store_command,
)
from parcelpost.cli.output import count, size
from parcelpost.errors import StoreCorrupt, StoreError
from parcelpost.storage import backup, locks, migrations, raw_files
from parcelpost.storage.errors import os_error
from parcelpost.storage.snapshot import integrity_problems

_LARGE_WAL_BYTES = 64 * 1024**2
_MOST_PAGES = 2_000
_MOST_FILES = 50_000
_SHOWN = 3
_ORPHAN_AGE = timedelta(days=1)
"""A younger one may be about to be named; none is removed before."""


async def check_opening(case: CheckContext) -> list[CheckResult]:
    store = case.store
    try:
        if not store.path.exists() and not backup.list_backups(store.path):
            return [
                CheckResult(
                    "store", f"there is none at {store.path} yet: the first task or worker makes it", skipped=True
                )
            ]
        async with open_for_reading(store) as database:
            version = await database.read(migrations.version)
    except (StoreError, OSError) as error:
        meant = error if isinstance(error, StoreError) else os_error(error, Path(error.filename or store.path))
        problem = await asyncio.to_thread(open_problem, store, meant, until_over(case))
        return [CheckResult("store", "", [problem])]
    return [CheckResult("store", f"{store.path} opens; its schema is version {version}, as this program has it")]


def until_over(case: CheckContext) -> Callable[[], bool]:
    ends_at = CLOCK.monotonic() + case.limit_seconds
    return lambda: CLOCK.monotonic() > ends_at


async def check_integrity(case: CheckContext) -> list[CheckResult]:
    try:
        async with open_for_reading(case.store) as database:
            found = await database.read(integrity_problems, deep=case.deep, is_over=until_over(case))
    except StoreCorrupt as error:
        return [await _damage_result(case, str(error))]
    if found is None:
        return [CheckResult("store", "", [_unfinished_result(case)])]
    if found:
        return [await _damage_result(case, damage_text(found))]
    how = "every index compared with its table" if case.deep else "quick check"
    return [CheckResult("store", f"the database file is whole ({how})")]


async def _damage_result(case: CheckContext, what: str) -> CheckResult:
    problem = await asyncio.to_thread(damaged_problem, case.store, what, until_over(case))
    return CheckResult("store", "", [problem], damaged=True)


def _unfinished_result(case: CheckContext) -> Problem:
    deep = store_command("check --deep", case.store)
    what = f"the database file could not be checked within {case.limit_seconds:g} s"
    return Problem(what, f"'{deep}' takes the time it needs", "store", deep, warning=True)


async def check_pages(case: CheckContext) -> list[CheckResult]:
    """Of undelivered results; and those that no result names. Both up to a number, unless deep."""
    day_before = (CLOCK.now() - _ORPHAN_AGE).timestamp()
    async with open_for_reading(case.store) as database:
        wrong, looked_at = await page_problems(
            case.store, database, deep=case.deep, most=None if case.deep else _MOST_PAGES
        )
        orphans = await count_orphans(database, before=day_before, most=None if case.deep else _MOST_FILES)
    problems = wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        check = store_command("check", case.store)
        what = f"{count(len(wrong) - _SHOWN, 'more page')} of undelivered results cannot be used"
        problems.append(Problem(what, f"'{check}' lists them all", "store"))
    if orphans:
        clean = store_command("clean", case.store)
        what = f"{count(orphans, 'page')} named by no result"
        problems.append(Problem(what, f"'{clean}' removes what is older than a day", "store", clean, warning=True))
    return [CheckResult("store", f"{count(looked_at, 'page')} of undelivered results looked for", problems)]


async def check_wal(case: CheckContext) -> list[CheckResult]:
    if not case.store.path.exists():
        return []
    if case.wal_bytes <= _LARGE_WAL_BYTES:
        return [CheckResult("space", f"write-ahead log {size(case.wal_bytes)}")]
    clean = store_command("clean", case.store)
    what = f"the write-ahead log {case.store.path}-wal has {size(case.wal_bytes)}"
    remedy = f"end what reads the store all the time (an SQLite shell?); a worker, or '{clean}', then writes it back"
    return [CheckResult("space", "", [Problem(what, remedy, "space", clean, warning=True)])]


async def check_newest_backup(case: CheckContext) -> list[CheckResult]:
    found = backup.list_backups(case.store.path)
    if not found:
        return []
    wrong = await asyncio.to_thread(backup.problem, found[-1], deep=case.deep, is_over=until_over(case))
    if not wrong:
        return [CheckResult("backups", f"{found[-1]} could be restored")]
    command = store_command("backup", case.store)
    what = f"the newest backup, {found[-1]}, could not be restored: {wrong}"
    return [CheckResult("backups", "", [Problem(what, f"make another with '{command}'", "backups", command)])]


_MOST_ENTRIES = 20_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


async def check_permissions(case: CheckContext) -> list[CheckResult]:
    try:
        require_store(case.store.path)
    except (StoreError, OSError):  # that is told already, and another program's file is none of our business
        return []
    seen = list(islice(_store_files(case.store), _MOST_ENTRIES))
    problems = [*_open_to_others(case.store, seen), *_owned_by_others(case.store, seen), *_open_folder(case.store)]
    return [
        CheckResult(
            "store", f"{count(len(seen), 'file or folder', 'files and folders')} for their owner only", problems
        )
    ]


_Entry = tuple[Path, os.stat_result]


def _store_files(store: StoreContext) -> Iterator[_Entry]:
    """The store's own files and folders, as far as they are there. Links are not followed."""
    tops = [store.path, *(store.path.with_name(store.path.name + end) for end in ("-wal", "-shm"))]
    for top in (*tops, *_folders(store)):
        for path in (top, *_below(top)):
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue


def _folders(store: StoreContext) -> tuple[Path, ...]:
    return locks.live_folder(store.path), raw_files.raw_folder(store.path), store.path.parent / "backups"


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in (*folders, *files))


def _open_to_others(store: StoreContext, seen: Iterable[_Entry]) -> list[Problem]:
    wide = [path for path, about in seen if not stat.S_ISLNK(about.st_mode) and about.st_mode & _OTHERS]
    if not wide:
        return []
    tops = sorted({_top(store, path) for path in wide})
    own = f" {shlex.quote(str(store.path))}*" if any(_is_sqlites(store, path) for path in tops) else ""
    others = [shlex.quote(str(path)) for path in tops if not _is_sqlites(store, path)]
    command = " ".join((f"chmod -R go-rwx{own}", *others))
    what = f"others may use {count(len(wide), 'file or folder', 'files and folders')} of the store: {_names(wide)}"
    return [Problem(what, f"run '{command}'", "store", command)]


def _top(store: StoreContext, path: Path) -> Path:
    """The folder of the store's that it is in, or itself."""
    return next((folder for folder in _folders(store) if folder == path or folder in path.parents), path)


def _is_sqlites(store: StoreContext, path: Path) -> bool:
    """The file and what SQLite has beside it, which comes and goes."""
    return path.name in (store.path.name, f"{store.path.name}-wal", f"{store.path.name}-shm")


def _names(paths: list[Path]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(str, paths[:_SHOWN])) + more


def _owned_by_others(store: StoreContext, seen: Iterable[_Entry]) -> list[Problem]:
    """As after a command that was run as root."""
    owner = store.path.stat().st_uid
    strange = [path for path, about in seen if about.st_uid != owner]
    if not strange:
        return []
    what = f"{count(len(strange), 'file')} of the store belong to another user than the store: {_names(strange)}"
    tops = " ".join(shlex.quote(str(path)) for path in sorted({_top(store, path) for path in strange}))
    command = f"sudo chown -R {_user(owner)} {tops}"
    return [Problem(what, f"run '{command}', and commands as {_user(owner)}", "store", command)]


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _open_folder(store: StoreContext) -> list[Problem]:
    """Where everybody may write, everybody may put another file in the store's place."""
    folder = store.path.resolve().parent
    mode = folder.stat().st_mode
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    command = f"chmod o-w {shlex.quote(str(folder))}"
    return [Problem(f"every user may replace files in {folder}", f"run '{command}'", "store", command)]
