"""Salvage: copies the readable rows of a damaged store into a new file.

Reads ranges of rowids from both ends, and halves a range between two unreadable places until every row was tried alone.
Takes a record whose own pages are damaged from the file next to its raw page, and unreadable tasks and results from the
newest intact backup. The damaged store is only read; no lock or other file is created next to it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from parcelpost.errors import StoreCorrupt
from parcelpost.storage import durable_files, migrations, outbox, tasks
from parcelpost.storage.raw_files import file_matches, inside, page_content
from parcelpost.storage.snapshot import DAMAGE_STATE, file_problems, open_read_only

Progress = Callable[[int, int | None], None]
"""Called with the number of rows done, and None because the total is unknown."""

_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
_NOT_COPIED = frozenset({"schema_version", "storage_usage", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})
_BATCH = 500
_MAX_LISTED = 1_000
_FIRST, _LAST = -(2**63), 2**63 - 1

_MISSING_TASKS = """
SELECT r.platform, r.created_at, r.success, r.task_id, r.state, r.county, r.parcel_id FROM results AS r
WHERE NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.task_id = r.task_id)
"""
_WITHOUT_RESULT = """
SELECT seq, status FROM tasks
WHERE task_id = ? AND completed_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM results AS r WHERE r.task_id = tasks.task_id)
"""


_STORE_ID = "SELECT value FROM worker_state WHERE name = 'store_id'"


class _Unread(NamedTuple):
    """A row of tasks or results that cannot be read."""

    lost: LostRow
    task_id: str
    """'' if no index names it; then only its rowid is known."""
    rowid: int


class LostRow(Struct, frozen=True, kw_only=True):
    table: str
    row: str
    """Its task id if known, else its rowid."""
    reason: str


class Salvaged(Struct, frozen=True, kw_only=True):
    path: str
    rows: dict[str, int]
    """Copied rows by table."""
    lost: list[LostRow]
    """Unreadable rows, the first thousand."""
    lost_rows: int
    backup: str | None
    """The backup that unreadable rows were taken from."""
    from_backup: dict[str, int]
    """How many of `rows` came from the backup: tasks and results."""
    records_from_files: int
    """Records damaged in the database and taken from the files beside their raw pages."""
    tasks_from_results: int
    """Tasks with damaged rows, created again so that their results can be delivered."""
    tasks_again: int
    """Tasks that run again because their results were damaged."""
    undelivered: int
    """Results in the new file that wait for delivery."""


class Cancelled(Exception):
    """The salvage was cancelled and left nothing behind."""


def salvage(
    store: Path,
    destination: Path,
    raw_root: Path,
    now: str,
    *,
    backups: Sequence[Path] = (),
    progress: Progress = lambda *_: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Salvaged:
    """Writes a new, intact store to `destination`, atomically. No process may have the damaged one open.

    Unreadable tasks and results are taken from the first intact one of `backups`, the newest first.

    Raises StoreCorrupt if not even the schema can be read, and Cancelled.
    """
    with durable_files.atomic_file(destination) as partial:
        with contextlib.closing(_open_damaged(store)) as old, contextlib.closing(_create_new(old, partial, now)) as new:
            copied = _Copy(old, new, raw_root, now, progress, is_cancelled).run(backups)
        if problems := file_problems(partial):
            raise StoreCorrupt(f"the copy of {store} is damaged: {problems[0]}")
    return msgspec.structs.replace(copied, path=str(destination))


def can_be_read(store: Path) -> bool:
    """Whether at least the schema of the damaged store can be read."""
    try:
        _open_damaged(store).close()
    except (StoreCorrupt, sqlite3.Error, OSError):
        return False
    return True


def _open_damaged(store: Path) -> sqlite3.Connection:
    wal = store.with_name(store.name + "-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    how = "mode=ro&vfs=unix-none" if has_wal else "immutable=1"
    db = sqlite3.connect(f"{store.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
    try:
        if has_wal:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")  # keeps the index of the WAL in memory
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'").fetchone()
    except sqlite3.Error as error:
        db.close()
        raise StoreCorrupt(
            f"{store}: its schema, which locates all tables, is damaged ({error})",
            hint="nothing can be salvaged: run 'parcelpost store restore --latest --force'",
        ) from error
    return db


def _create_new(old: sqlite3.Connection, path: Path, now: str) -> sqlite3.Connection:
    """Creates a store with the schema version of the damaged one if that is readable, else with the newest."""
    known = migrations.load()
    with contextlib.suppress(*_DAMAGE):
        version = migrations.version(old)
        known = [migration for migration in known if migration.version <= version] or known
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA page_size = 8192")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA synchronous = OFF")  # the whole file is synced at the end
    migrations.apply(db, known, now)
    return db


class _Copy:
    def __init__(
        self,
        old: sqlite3.Connection,
        new: sqlite3.Connection,
        raw_root: Path,
        now: str,
        progress: Progress,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._now = now
        self._old = old
        self._new = new
        self._raw_root = raw_root
        self._progress = progress
        self._is_cancelled = is_cancelled
        self._done = 0
        self._rows: Counter[str] = Counter()
        self._lost: list[LostRow] = []
        self._lost_rows = 0
        self._unread: list[_Unread] = []
        self._from_files = 0
        self._from_backup: Counter[str] = Counter()

    def run(self, backups: Sequence[Path]) -> Salvaged:
        tables = self._new.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").fetchall()
        self._new.execute("BEGIN")
        for (table,) in tables:
            if table not in _NOT_COPIED:
                self._copy_table(table)
        backup = self._newest_intact(backups) if self._unread else None
        if backup is not None:
            with contextlib.closing(open_read_only(backup)) as db:
                self._fill(db)
        again = self._repeat_lost_results()
        made = self._restore_missing_tasks()
        self._new.execute("DELETE FROM worker_state WHERE name = ?", (DAMAGE_STATE,))
        self._new.execute(
            "UPDATE storage_usage SET bytes = (SELECT coalesce(sum(raw_bytes), 0) FROM results) WHERE kind = 'raw'"
        )
        self._new.execute("COMMIT")
        waiting = "SELECT count(*) FROM results WHERE synced = 0 AND rejected_at IS NULL"
        return Salvaged(
            path="",
            rows=dict(self._rows),
            lost=self._lost,
            lost_rows=self._lost_rows,
            backup=None if backup is None else str(backup),
            from_backup=dict(self._from_backup),
            records_from_files=self._from_files,
            tasks_from_results=made,
            tasks_again=again,
            undelivered=self._new.execute(waiting).fetchone()[0],
        )

    def _copy_table(self, table: str) -> None:
        ours = self._columns(self._new, table)
        try:
            theirs = self._columns(self._old, table)
        except _DAMAGE as error:
            self._lose(table, "all rows", str(error))
            return
        columns = [name for name in ours if name in theirs]
        self._insert_all(table, ["rowid", *columns], self._around_damage(table, columns))

    @staticmethod
    def _columns(db: sqlite3.Connection, table: str) -> list[str]:
        return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]

    def _around_damage(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yields all readable rows, and records the others as lost."""
        wanted = (
            f"SELECT rowid, {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
        )
        ranges = [(_FIRST, _LAST)]
        lost: list[tuple[int, str]] = []
        found: set[int] = set()
        while ranges:
            if self._is_cancelled():
                raise Cancelled
            low, high = ranges.pop()
            reached, reason = low, ""
            try:
                for row in self._scan(wanted, low, high):
                    found.add(row[0])
                    yield from _decoded(row, columns, lost)
                    reached = row[0] + 1
                continue
            except _DAMAGE as error:
                reason = str(error)
            last = high
            try:
                for row in self._scan(f"{wanted} DESC", reached, high):
                    found.add(row[0])
                    yield from _decoded(row, columns, lost)
                    last = row[0] - 1
                continue  # readable the second time
            except _DAMAGE:
                pass
            if reached >= last:
                if reached == last:
                    lost.append((reached, reason))
                continue
            if reached == _FIRST or last == _LAST:  # that end is unreadable: search only where rows may be
                first, final = self._bounds(table)
                reached, last = max(reached, first), min(last, final)
                if reached > last:
                    if not final:
                        self._lose(table, "an unknown number of rows", reason)
                    continue
            middle = (reached + last) // 2
            ranges += [(middle + 1, last), (reached, middle)]
        if table in ("tasks", "results"):
            named = self._names_of_rows(table).keys() - found - {rowid for rowid, _ in lost}
            lost += [(rowid, "its place in the table is damaged") for rowid in sorted(named)]
        yield from self._parts_of(table, columns, lost)

    def _scan(self, wanted: str, low: int, high: int) -> Iterator[tuple[Any, ...]]:
        """Goes on behind text that cannot be decoded: a search by rowid may miss what only a scan finds."""
        self._old.text_factory = _text
        try:
            yield from self._old.execute(wanted, (low, high))
        finally:
            self._old.text_factory = str

    def _bounds(self, table: str) -> tuple[int, int]:
        """Returns the lowest and the highest rowid in the indexes."""
        numbers: list[int] = []
        for rowids in self._rowids_of_indexes(table):
            numbers += rowids
        return (min(numbers), max(numbers)) if numbers else (1, 0)

    def _rowids_of_indexes(self, table: str) -> Iterator[list[int]]:
        for row in self._old.execute(f"PRAGMA index_list({table})").fetchall():
            names = [f'"{info[2]}"' for info in self._old.execute(f"PRAGMA index_info({row[1]})") if info[2]]
            partial = self._old.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (row[1],)).fetchone()
            where = str(partial[0]).partition(" WHERE ")[2] if row[4] and partial else ""
            query = f"SELECT rowid FROM {table} INDEXED BY {row[1]}" + (f" WHERE {where}" if where else "")
            order = f" ORDER BY {', '.join(names)}"
            rowids: list[int] = []
            for direction in ("", " DESC"):
                with contextlib.suppress(*_DAMAGE):
                    rowids += [entry[0] for entry in self._old.execute(f"{query}{order}{direction}")]
            yield rowids

    def _parts_of(
        self, table: str, columns: Sequence[str], lost: Sequence[tuple[int, str]]
    ) -> Iterator[tuple[Any, ...]]:
        """Yields results with damaged records, taken from their files. Records the others as lost."""
        if not lost:
            return
        names = self._names_of_rows(table)
        for rowid, reason in lost:
            restored = self._from_file(columns, rowid) if table == "results" else None
            if restored is not None:
                self._from_files += 1
                yield restored
            elif rowid in names or not names:
                self._lose(table, names.get(rowid, str(rowid)), reason, names.get(rowid, ""), rowid)

    def _names_of_rows(self, table: str) -> dict[int, str]:
        """Returns rowid -> task id from the indexes."""
        if table not in ("tasks", "results"):
            known: set[int] = set()
            for rowids in self._rowids_of_indexes(table):
                known.update(rowids)
            return {rowid: str(rowid) for rowid in known}
        names: dict[int, str] = {}
        for direction in ("ASC", "DESC"):
            with contextlib.suppress(*_DAMAGE):
                names.update(self._old.execute(f"SELECT rowid, task_id FROM {table} ORDER BY task_id {direction}"))
        return names

    def _from_file(self, columns: Sequence[str], rowid: int) -> tuple[Any, ...] | None:
        wanted = ", ".join("NULL" if name == "data" else name for name in columns)
        try:
            row = self._old.execute(
                f"SELECT rowid, {wanted} FROM results NOT INDEXED WHERE rowid = ?", (rowid,)
            ).fetchone()
        except _DAMAGE:
            return None
        return None if row is None else self._with_record(columns, row)

    def _with_record(self, columns: Sequence[str], row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Returns the row with the record from its file, None if the file has another record."""
        values = dict(zip(columns, row[1:], strict=True))
        if not values.get("json_path"):
            return None
        try:
            data = (self._raw_root / values["json_path"]).read_bytes()
        except (OSError, ValueError):
            return None
        if not _fits(values["idempotency_key"], data):
            return None
        return (row[0], *({**values, "data": data.decode()}[name] for name in columns))

    def _insert_all(self, table: str, columns: Sequence[str], readable: Iterator[tuple[Any, ...]]) -> None:
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        for row in readable:
            values = self._checked(columns, row) if table == "results" else row
            try:
                if values is None:
                    raise ValueError("its record is damaged")
                self._new.execute(insert, values)
                self._rows[table] += 1
            except (sqlite3.Error, ValueError, OverflowError) as error:  # garbage that looked like a row
                task_id = str(dict(zip(columns, row, strict=True)).get("task_id", ""))
                self._lose(table, task_id or str(row[0]), str(error), task_id)
            self._done += 1
            if self._done % _BATCH == 0:
                self._progress(self._done, None)
                if self._is_cancelled():
                    raise Cancelled

    def _checked(self, columns: Sequence[str], row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Checks a record against its hash, because a damaged page in a long record may still be valid text."""
        values = dict(zip(columns, row, strict=True))
        data = values["data"]
        if data is None or _fits(values["idempotency_key"], str(data).encode()):
            return row
        if (restored := self._with_record(columns[1:], row)) is not None:
            self._from_files += 1
            return restored
        return row if _is_json(str(data)) else None

    def _newest_intact(self, backups: Sequence[Path]) -> Path | None:
        own = self._new.execute(_STORE_ID).fetchone()
        for path in backups:
            if not file_problems(path):
                with contextlib.closing(open_read_only(path)) as db:
                    if own is None or db.execute(_STORE_ID).fetchone() in (None, own):
                        return path
        return None

    def _fill(self, backup: sqlite3.Connection) -> None:
        """Takes unreadable rows from a backup: first tasks, then results of tasks that have not run again since."""
        filled: list[tuple[_Unread, str]] = []
        for unread in sorted(self._unread, key=lambda unread: unread.lost.table, reverse=True):
            row = self._in_backup(backup, unread)
            if row is None or (unread.lost.table == "results" and not self._is_the_lost_result(backup, row)):
                continue
            if self._put(unread.lost.table, row):
                filled.append((unread, row["task_id"]))
        tasks.release_owned(self._new, None, self._now)  # no process works on this store
        for _, task_id in filled:
            tasks.end_like_result(self._new, task_id)
        restored = {id(unread.lost) for unread, _ in filled}
        self._unread = [unread for unread in self._unread if id(unread.lost) not in restored]
        self._lost = [row for row in self._lost if id(row) not in restored]
        self._lost_rows -= len(filled)

    def _in_backup(self, backup: sqlite3.Connection, unread: _Unread) -> dict[str, Any] | None:
        table = unread.lost.table
        theirs = self._columns(backup, table)
        columns = [name for name in self._columns(self._new, table) if name in theirs]
        key, value = ("task_id", unread.task_id) if unread.task_id else ("rowid", unread.rowid)
        row = backup.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {key} = ?", (value,)).fetchone()
        return None if row is None else dict(zip(columns, row, strict=True))

    def _is_the_lost_result(self, backup: sqlite3.Connection, row: Mapping[str, Any]) -> bool:
        """Whether its task has not run again since the backup, and its page can still be delivered.

        If it was delivered since then, sending it again changes nothing upstream (I5).
        """
        end = "SELECT completed_at FROM tasks WHERE task_id = ?"
        task = (row["task_id"],)
        now, then = self._new.execute(end, task).fetchone(), backup.execute(end, task).fetchone()
        if now is not None and (then is None or now[0] is None or now[0] != then[0]):
            return False
        if row["synced"] or row["rejected_at"] or not row["html_path"]:
            return True
        page = page_content(inside(self._raw_root, row["html_path"]))
        return page is not None and file_matches(page, row["raw_sha256"])

    def _put(self, table: str, row: dict[str, Any]) -> bool:
        """Returns False if the row conflicts with another one."""
        if self._new.execute(f"SELECT 1 FROM {table} WHERE seq = ?", (row["seq"],)).fetchone():
            row = {**row, "seq": None}
        insert = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        try:
            self._new.execute(insert, list(row.values()))
        except sqlite3.IntegrityError:
            return False
        self._rows[table] += 1
        self._from_backup[table] += 1
        return True

    def _repeat_lost_results(self) -> int:
        """Handles tasks whose results are lost: failed ones are reported again, the others run again (I1)."""
        lost = [unread.task_id for unread in self._unread if unread.lost.table == "results"]
        ended = [row for task_id in lost for row in self._new.execute(_WITHOUT_RESULT, (task_id,))]
        outbox.report(self._new, [seq for seq, status in ended if status != "completed"])
        again = [seq for seq, status in ended if status == "completed"]
        tasks.repeat_lost(self._new, again)
        return len(again)

    def _restore_missing_tasks(self) -> int:
        common = "SELECT source FROM tasks GROUP BY source ORDER BY count(*) DESC LIMIT 1"
        source = (self._new.execute(common).fetchone() or ("gateway",))[0]
        missing = self._new.execute(_MISSING_TASKS).fetchall()
        for platform, ended_at, success, *names in missing:
            tasks.add_ended(self._new, source, platform, tasks.Child(*names), ended_at, success)
        return len(missing)

    def _lose(self, table: str, row: str, reason: str, task_id: str = "", rowid: int = 0) -> None:
        self._lost_rows += 1
        lost = LostRow(table=table, row=row[:200], reason=reason[:200])
        if table in ("tasks", "results") and (task_id or rowid):
            self._unread.append(_Unread(lost, task_id, rowid))
        if len(self._lost) < _MAX_LISTED or table == "results":
            self._lost.append(lost)


class _Undecodable(bytes):
    """Text that is not UTF-8."""


def _text(content: bytes) -> str | _Undecodable:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _Undecodable(content)


def _decoded(row: tuple[Any, ...], columns: Sequence[str], lost: list[tuple[int, str]]) -> Iterator[tuple[Any, ...]]:
    """Yields the row, or records it as lost."""
    values = zip(columns, row[1:], strict=True)
    if bad := next((name for name, value in values if isinstance(value, _Undecodable)), ""):
        lost.append((row[0], f"its column {bad!r} is not UTF-8"))
    else:
        yield row


def _fits(key: object, data: bytes) -> bool:
    return str(key).rpartition(":")[2] == sha256(data).hexdigest()


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True
