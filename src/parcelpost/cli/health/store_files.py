"""Checks of the store's files: opening, database integrity, raw pages (I6), permissions, write-ahead log, backups."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import math
import os
import pwd
import shlex
import stat
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.context import CLOCK, open_for_reading, openers, require_store
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.progress import Meter
from parcelpost.cli.settings_options import StoreContext, command_line, run_command, store_command
from parcelpost.errors import (
    MigrationEdited,
    StoreCorrupt,
    StoreError,
    StoreGone,
    StoreNotFound,
    StoreOutdated,
    StoreReadOnly,
    StoreTooNew,
)
from parcelpost.health_checks import Finding, is_ok
from parcelpost.model import DeliveryState, OutboxEntry
from parcelpost.settings.sources import DEFAULT
from parcelpost.storage import backup, health, locks, migrations, outbox, raw_files, salvage
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.operator_actions import Selection, results_page
from parcelpost.storage.raw_files import inside, raw_folder
from parcelpost.storage.snapshot import integrity_problems, never
from parcelpost.units import age, count, size

_SHOWN = 3
_ENTRIES_AT_A_TIME = 50
_FILES_AT_A_TIME = 500
_CHUNK_BYTES = 1 << 20
_MAX_PAGES = 2_000
_MAX_FILES = 50_000
_ORPHAN_AGE = timedelta(days=1)
"""A younger page may be about to get its result; none is deleted before."""
_LARGE_WAL_BYTES = 64 * 1024**2


class IntegrityReport(Struct, frozen=True, kw_only=True):
    ok: bool
    findings: list[Finding]
    deep: bool
    pages: int
    """Number of undelivered results whose page was checked; 0 if the database itself is damaged."""


async def check_store(store: StoreContext, *, deep: bool) -> IntegrityReport:
    """Read-only. Damage is a finding; a store that cannot be opened for another reason raises."""
    pages = 0
    try:
        async with open_for_reading(store) as database:
            async with Meter("checking the database file"):
                findings = await _damage(store, database, deep=deep) or []
            if not findings:
                findings, pages = await page_findings(store, database, deep=deep)
                findings += await _orphan_findings(store, database)
    except StoreCorrupt as error:
        findings = [damage_finding(store, str(error))]
    return IntegrityReport(ok=is_ok(findings), findings=findings, deep=deep, pages=pages)


# Opening


async def check_opening(case: CheckContext) -> list[CheckResult]:
    store = case.store
    try:
        if not store.path.exists() and not backup.list_backups(store.path):
            text = f"there is no store at {store.path} yet: the first task or worker creates it"
            return [CheckResult("store", text, skipped=True)]
        async with open_for_reading(store) as database:
            version = await database.read(migrations.version)
    except (StoreError, OSError) as error:
        return [CheckResult("store", "", [await asyncio.to_thread(open_finding, store, error, case.deadline())])]
    return [CheckResult("store", f"{store.path} can be opened; its schema version, {version}, is current")]


def open_finding(store: StoreContext, error: StoreError | OSError, is_over: Callable[[], bool] = never) -> Finding:
    """Explains why the store cannot be opened."""
    if isinstance(error, OSError):
        error = os_error(error, Path(error.filename or store.path))
    if isinstance(error, StoreOutdated):
        migrate = store_command("migrate", store)
        fix = f"stop the workers, then run '{migrate}': it makes a backup first"
        return Finding.of("store.outdated", str(error), fix, migrate)
    if isinstance(error, StoreCorrupt):
        return damage_finding(store, str(error), is_over)
    check = {StoreNotFound: "store.missing", StoreGone: "store.moved"}.get(type(error), "store.unreadable")
    if isinstance(error, StoreNotFound | StoreTooNew | MigrationEdited):
        good = newest_good_backup(store, is_over)
        if good is not None:
            restore = restore_command(store, good)
            why = "there are backups of it" if isinstance(error, StoreNotFound) else error.hint
            return Finding.of(check, str(error), f"{why}: '{restore}' restores the newest usable one", restore)
    if isinstance(error, StoreNotFound):
        start = run_command(store, ()) if DEFAULT.exists() else "parcelpost init"
        return Finding.of(check, str(error), f"check the path; for a new store, start with '{start}'", start)
    if isinstance(error, StoreReadOnly) and (allow := _chmod_command(store.path)):
        return Finding.of(check, str(error), f"run '{allow}'", allow)
    return Finding.of(check, str(error), error.hint)


def _chmod_command(store: Path) -> str:
    """The command that gives the owner access; '' if that is not the problem."""
    for path, needed in ((store.parent, stat.S_IRWXU), (store, stat.S_IRUSR | stat.S_IWUSR)):
        try:
            about = path.stat()
        except OSError:
            return ""
        if about.st_uid == os.geteuid() and about.st_mode & needed != needed:
            return f"chmod {'u+rwx' if path != store else 'u+rw'} {shlex.quote(str(path))}"
    return ""


# The database file


async def check_integrity(case: CheckContext) -> list[CheckResult]:
    is_over = case.deadline()
    async with open_for_reading(case.store) as database:
        findings = await _damage(case.store, database, deep=case.deep, is_over=is_over)
    if findings is None:
        deep = store_command("check --deep", case.store)
        message = f"the database file could not be checked within {case.limit_seconds:g} s"
        return [
            CheckResult(
                "store", "", [Finding.of("check.timeout", message, f"run '{deep}', which has no time limit", deep)]
            )
        ]
    how = "every index compared with its table" if case.deep else "quick check"
    return [CheckResult("store", "" if findings else f"the database file is intact ({how})", findings)]


async def _damage(
    store: StoreContext, database: LocalDatabase, *, deep: bool, is_over: Callable[[], bool] = never
) -> list[Finding] | None:
    """Returns None if the check did not finish in time."""
    try:
        problems = await database.read(integrity_problems, deep=deep, is_over=is_over)
    except StoreCorrupt as error:
        return [await asyncio.to_thread(damage_finding, store, str(error), is_over)]
    if not problems:
        return None if problems is None else []
    lines = [line for text in problems for line in text.splitlines() if not line.startswith("***")]
    more = f" (and {len(lines) - _SHOWN:,} more)" if len(lines) > _SHOWN else ""
    message = f"the database file is damaged: {'; '.join(lines[:_SHOWN])}{more}"
    return [await asyncio.to_thread(damage_finding, store, message, is_over)]


# Raw pages


async def check_pages(case: CheckContext) -> list[CheckResult]:
    """Pages of undelivered results, and pages without a result. Limited in number unless deep."""
    async with open_for_reading(case.store) as database:
        wrong, checked = await page_findings(
            case.store, database, deep=case.deep, limit=None if case.deep else _MAX_PAGES
        )
        orphans = await _orphan_findings(case.store, database, limit=None if case.deep else _MAX_FILES)
    findings = wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        check = store_command("check", case.store)
        message = f"{count(len(wrong) - _SHOWN, 'more page')} of undelivered results cannot be used"
        findings.append(Finding.of("store.page_unusable", message, f"'{check}' lists them all"))
    return [CheckResult("store", f"{count(checked, 'page')} of undelivered results checked", [*findings, *orphans])]


async def page_findings(
    store: StoreContext, database: LocalDatabase, *, deep: bool, limit: int | None = None
) -> tuple[list[Finding], int]:
    """Undelivered results whose page is missing, or with `deep` has changed; and how many pages were checked."""
    root = raw_folder(database.path)
    _, crashed = await openers(store)
    checked, findings = 0, []
    undelivered = await database.read(outbox.depth)
    async with Meter("checking pages") as meter:
        async for entries in _undelivered(database):
            named = [entry for entry in entries if entry.html_path]
            for entry, problem in await asyncio.to_thread(_damaged_pages, root, named, deep=deep):
                now = await database.read(outbox.get, entry.task_id)
                if now is not None and now.html_path == entry.html_path and now.synced_at is None:
                    findings.append(_page_finding(store, entry, problem, may_be_journalled=bool(crashed)))
            checked += len(named)
            meter(checked, undelivered.waiting + undelivered.rejected)
            if limit is not None and checked >= limit:
                break
    return findings, checked


async def _undelivered(database: LocalDatabase) -> AsyncIterator[list[OutboxEntry]]:
    for state in (DeliveryState.UNSYNCED, DeliveryState.REJECTED):
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
    """SHA-256 of the page as fetched; None if the file cannot be unpacked."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as page:
            while chunk := page.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def _page_finding(store: StoreContext, entry: OutboxEntry, problem: str, *, may_be_journalled: bool) -> Finding:
    path = raw_folder(store.path) / (entry.html_path or "")
    message = f"the page {path} of task {entry.task_id} {problem}"
    if may_be_journalled:
        command = store_command("clean", store)
        fix = f"run '{command}': opening the store restores pages from the journal of a crashed worker"
        return Finding.of("store.page_unusable", message, fix, command)
    show = command_line(f"results show {shlex.quote(entry.task_id)}", store)
    return Finding.of(
        "store.page_unusable", message, f"restore {path} from a copy; the record itself is intact (see '{show}')"
    )


async def _orphan_findings(store: StoreContext, database: LocalDatabase, limit: int | None = None) -> list[Finding]:
    """Pages without a result that are a day old, among the first `limit` pages."""
    before = (CLOCK.now() - _ORPHAN_AGE).timestamp()
    pages = islice(_pages(raw_folder(database.path), before), limit)
    orphans = checked = 0
    async with Meter("looking for pages that belong to no result") as meter:
        while batch := await asyncio.to_thread(lambda: list(islice(pages, _FILES_AT_A_TIME))):
            named = await database.read(outbox.named_by_a_result, batch)
            orphans += len(batch) - len(named)
            checked += len(batch)
            meter(checked, None)
    if not orphans:
        return []
    clean = store_command("clean", store)
    message = f"{count(orphans, 'old page')} {'belongs' if orphans == 1 else 'belong'} to no result"
    return [Finding.of("store.orphaned_pages", message, f"run '{clean}', which deletes them", clean)]


def _pages(root: Path, before: float) -> Iterator[str]:
    for folder, _, files in os.walk(root):
        for page in (Path(folder, file) for file in files if file.endswith(".html.gz")):
            if _modified_at(page) < before:
                yield page.relative_to(root).as_posix()


def _modified_at(page: Path) -> float:
    """Infinity if the page is gone."""
    try:
        return page.stat().st_mtime
    except FileNotFoundError:
        return math.inf


# Write-ahead log


async def check_wal(case: CheckContext) -> list[CheckResult]:
    if not case.store.path.exists():
        return []
    if case.wal_bytes <= _LARGE_WAL_BYTES:
        return [CheckResult("store", f"size of the write-ahead log: {size(case.wal_bytes)}")]
    clean = store_command("clean", case.store)
    message = f"the write-ahead log {case.store.path}-wal has grown to {size(case.wal_bytes)}"
    fix = f"close programs that keep reading the store (an SQLite shell?), then run '{clean}' or start a worker"
    return [CheckResult("store", "", [Finding.of("store.large_wal", message, fix, clean)])]


# Permissions

_MAX_ENTRIES = 20_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_Entry = tuple[Path, os.stat_result]


async def check_permissions(case: CheckContext) -> list[CheckResult]:
    try:
        require_store(case.store.path)
    except (StoreError, OSError):  # reported by another check; and another program's file is not ours to judge
        return []
    entries = list(islice(_store_files(case.store), _MAX_ENTRIES))
    findings = [
        *_open_to_others(case.store, entries),
        *_owned_by_others(case.store, entries),
        *_open_folder(case.store),
    ]
    files = count(len(entries), "file or folder", "files and folders")
    return [CheckResult("store", f"{files}, private to their owner", findings)]


def _store_files(store: StoreContext) -> Iterator[_Entry]:
    """The store's own files and folders that exist. Links are not followed."""
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


def _open_to_others(store: StoreContext, entries: Iterable[_Entry]) -> list[Finding]:
    wide = [path for path, about in entries if not stat.S_ISLNK(about.st_mode) and about.st_mode & _OTHERS]
    if not wide:
        return []
    tops = sorted({_top(store, path) for path in wide})
    own = f" {shlex.quote(str(store.path))}*" if any(_is_sqlites(store, path) for path in tops) else ""
    others = [shlex.quote(str(path)) for path in tops if not _is_sqlites(store, path)]
    command = " ".join((f"chmod -R go-rwx{own}", *others))
    files = count(len(wide), "file or folder", "files and folders")
    message = f"other users have access to {files} of the store: {_names(wide)}"
    return [Finding.of("store.exposed", message, f"run '{command}'", command)]


def _top(store: StoreContext, path: Path) -> Path:
    """The folder of the store that the path is in, or the path itself."""
    return next((folder for folder in _folders(store) if folder == path or folder in path.parents), path)


def _is_sqlites(store: StoreContext, path: Path) -> bool:
    """The database file, or one of SQLite's beside it, which come and go."""
    return path.name in (store.path.name, f"{store.path.name}-wal", f"{store.path.name}-shm")


def _names(paths: list[Path]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(str, paths[:_SHOWN])) + more


def _owned_by_others(store: StoreContext, entries: Iterable[_Entry]) -> list[Finding]:
    """For example after a command that was run as root."""
    owner = store.path.stat().st_uid
    strange = [path for path, about in entries if about.st_uid != owner]
    if not strange:
        return []
    message = f"another user owns {count(len(strange), 'file')} of the store: {_names(strange)}"
    tops = " ".join(shlex.quote(str(path)) for path in sorted({_top(store, path) for path in strange}))
    command = f"sudo chown -R {_user(owner)} {tops}"
    return [Finding.of("store.wrong_owner", message, f"run '{command}', and run parcelpost as {_user(owner)}", command)]


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _open_folder(store: StoreContext) -> list[Finding]:
    """Whoever can write to the folder can replace the store's file."""
    folder = store.path.resolve().parent
    mode = folder.stat().st_mode
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    command = f"chmod o-w {shlex.quote(str(folder))}"
    return [Finding.of("store.exposed", f"every user can replace files in {folder}", f"run '{command}'", command)]


_BACKUP_IS_OLD = timedelta(days=2)
_FIRST_BACKUP_IS_DUE = timedelta(hours=26)  # one is made every day at a set hour
_MAX_BACKUPS_TRIED = 10


def backup_findings(store: StoreContext, state: health.Health) -> list[Finding]:
    command = store_command("backup", store)
    newest = state.newest_backup_age_seconds
    if newest is None:
        is_due = state.last_change and state.age_seconds > _FIRST_BACKUP_IS_DUE.total_seconds()
        return [Finding.of("backup.none", "there is no backup yet", f"run '{command}'", command)] if is_due else []
    if newest <= _BACKUP_IS_OLD.total_seconds():
        return []
    return [Finding.of("backup.old", f"the newest backup is {age(newest)} old", f"run '{command}'", command)]


async def check_newest_backup(case: CheckContext) -> list[CheckResult]:
    backups = backup.list_backups(case.store.path)
    if not backups:
        return []
    wrong = await asyncio.to_thread(backup.problem, backups[-1], deep=case.deep, is_over=case.deadline())
    if not wrong:
        return [CheckResult("backup", f"{backups[-1]} can be restored")]
    command = store_command("backup", case.store)
    message = f"the newest backup, {backups[-1]}, cannot be restored: {wrong}"
    return [CheckResult("backup", "", [Finding.of("backup.unusable", message, f"run '{command}'", command)])]


def damage_finding(store: StoreContext, message: str, is_over: Callable[[], bool] = never) -> Finding:
    """Suggests the newest backup that is intact."""
    backups = backup.list_backups(store.path)
    good = newest_good_backup(store, is_over) if backups else None
    is_newest = good is None or good == backups[-1]
    restore = store_command("restore --latest --force", store) if backups else ""
    restore = restore if good is None or is_newest else restore_command(store, good)
    if salvage.can_be_read(store.path):
        command = store_command("salvage --replace", store)
        fix = f"stop the workers, then run '{command}', which keeps everything that can be read"
        fix += f", or restore a backup with '{restore}'" if restore else ""
        return Finding.of("store.damaged", message, fix, command)
    if restore:
        return Finding.of("store.damaged", message, f"stop the workers, then run '{restore}'", restore)
    fix = f"there is no backup; copy the file and recover what can be read with 'sqlite3 {store.path} .recover'"
    return Finding.of("store.damaged", message, fix)


def restore_command(store: StoreContext, source: Path) -> str:
    return store_command(f"restore {shlex.quote(str(source))} --force", store)


def newest_good_backup(store: StoreContext, is_over: Callable[[], bool]) -> Path | None:
    for candidate in backup.candidates(store.path)[:_MAX_BACKUPS_TRIED]:
        try:
            if not backup.problem(candidate, is_over=is_over):
                return candidate
        except TimeoutError:
            return None
    return None
