"""The store: whether it opens, whether it is whole, and what lies around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from parcelpost.cli.checking import count_orphans, damage_text, page_problems
from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.options import store_command
from parcelpost.cli.output import count, size
from parcelpost.cli.running import CLOCK, looking
from parcelpost.cli.status_report import Problem
from parcelpost.cli.unopened import damaged, unopened
from parcelpost.errors import StoreCorrupt, StoreError
from parcelpost.storage import backup, migrations
from parcelpost.storage.errors import os_error
from parcelpost.storage.snapshot import integrity_problems

_LARGE_WAL_BYTES = 64 * 1024**2
_MOST_PAGES = 2_000
_MOST_FILES = 50_000
_SHOWN = 3
_ORPHAN_AGE = timedelta(days=1)
"""A younger one may be about to be named; none is removed before."""


async def opening(case: Case) -> list[Answer]:
    store = case.store
    try:
        if not store.exists() and not backup.list_backups(store):
            return [Answer("store", f"there is none at {store} yet: the first task or worker makes it", skipped=True)]
        async with looking(store) as database:
            version = await database.read(migrations.version)
    except (StoreError, OSError) as error:
        meant = error if isinstance(error, StoreError) else os_error(error, Path(error.filename or store))
        problem = await asyncio.to_thread(unopened, store, meant, until_over(case))
        return [Answer("store", "", [problem])]
    return [Answer("store", f"{store} opens; its schema is version {version}, as this program has it")]


def until_over(case: Case) -> Callable[[], bool]:
    ends_at = CLOCK.monotonic() + case.limit_seconds
    return lambda: CLOCK.monotonic() > ends_at


async def wholeness(case: Case) -> list[Answer]:
    try:
        async with looking(case.store) as database:
            found = await database.read(integrity_problems, deep=case.deep, is_over=until_over(case))
    except StoreCorrupt as error:
        return [await _damaged(case, str(error))]
    if found is None:
        return [Answer("store", "", [_unfinished(case)])]
    if found:
        return [await _damaged(case, damage_text(found))]
    how = "every index compared with its table" if case.deep else "quick check"
    return [Answer("store", f"the database file is whole ({how})")]


async def _damaged(case: Case, what: str) -> Answer:
    problem = await asyncio.to_thread(damaged, case.store, what, until_over(case))
    return Answer("store", "", [problem], damaged=True)


def _unfinished(case: Case) -> Problem:
    deep = store_command("check --deep", case.store)
    what = f"the database file could not be checked within {case.limit_seconds:g} s"
    return Problem(what, f"'{deep}' takes the time it needs", "store", deep, warning=True)


async def pages(case: Case) -> list[Answer]:
    """Of undelivered results; and those that no result names. Both up to a number, unless deep."""
    day_before = (CLOCK.now() - _ORPHAN_AGE).timestamp()
    async with looking(case.store) as database:
        wrong, looked_at = await page_problems(database, deep=case.deep, most=None if case.deep else _MOST_PAGES)
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
    return [Answer("store", f"{count(looked_at, 'page')} of undelivered results looked for", problems)]


async def wal(case: Case) -> list[Answer]:
    if not case.store.exists():
        return []
    if case.wal_bytes <= _LARGE_WAL_BYTES:
        return [Answer("space", f"write-ahead log {size(case.wal_bytes)}")]
    clean = store_command("clean", case.store)
    what = f"the write-ahead log {case.store}-wal has {size(case.wal_bytes)}"
    remedy = f"end what reads the store all the time (an SQLite shell?); a worker, or '{clean}', then writes it back"
    return [Answer("space", "", [Problem(what, remedy, "space", clean, warning=True)])]
