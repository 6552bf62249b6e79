"""Imports the rows of a file in chunks into a worker's store or a gateway's ledger, and reports the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import typer
from msgspec.json import encode

from parcelpost.cli.importer import task_rows
from parcelpost.cli.importer.options import ImportOptions, format_of
from parcelpost.cli.importer.readers import BadRow, InputFile, Reader, Row, open_reader, open_source, read_errors
from parcelpost.cli.importer.task_rows import EXPECTED, ColumnPlan, Columns, field_text, flatten, parse_map, task_or_bad
from parcelpost.cli.output import count, fields, print_json, print_lines, printable, size, table
from parcelpost.cli.platform_names import KnownPlatforms
from parcelpost.cli.progress import Meter
from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput, StoreFull
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.model import Target, Task
from parcelpost.places import county_slug, state_or_text
from parcelpost.protocol.server import check_deliverable
from parcelpost.storage import rows
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

_FIRST_ROWS = 5
_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 4 * 1024 * 1024
_SHOWN_BAD = 20


class NumberedTask(NamedTuple):
    """A task and the number of its row."""

    number: int
    task: Task


class ChunkResult(NamedTuple):
    """Result of adding a chunk of tasks."""

    new: int
    known: int
    """Already existed; left unchanged."""
    refused: list[BadRow]


class Sink(Protocol):
    """Destination of the tasks: a worker's store or a gateway's ledger."""

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """The tasks are durable once this returns. Raises ParcelpostError if no more can be added."""


class ImportCounts:
    """Counts of the rows processed so far."""

    def __init__(self, note: Callable[[BadRow], None]) -> None:
        self._note = note
        self.new = 0
        self.known = 0
        self.bad = 0
        self.first_bad: list[BadRow] = []

    @property
    def read(self) -> int:
        return self.new + self.known + self.bad

    def add_bad(self, bad: list[BadRow]) -> None:
        self.bad += len(bad)
        self.first_bad += bad[: _SHOWN_BAD - len(self.first_bad)]
        for row in bad:
            self._note(row)


class _Chunk(NamedTuple):
    tasks: list[NumberedTask]
    bad: list[BadRow]


class Importer:
    def __init__(self, source: InputFile, reader: Reader, columns: Columns) -> None:
        self._source = source
        self._reader = reader
        self._columns = columns
        self._rows = iter(reader)

    def begin(self, most: int) -> list[Row | BadRow]:
        """Returns the first few rows, which `run` imports with the others."""
        with read_errors(self._source.name):
            first = [row for _, row in zip(range(most), self._rows, strict=False)]
        self._rows = chain(first, self._rows)
        return first

    async def run(self, sink: Sink, counts: ImportCounts, progress: Callable[[int, int | None], None]) -> None:
        """Imports all rows. If it ends early, what was stored stays; importing the file again continues from there.

        Raises InvalidInput if the file is incomplete or damaged, and whatever the sink raises.
        """
        try:
            chunk = await asyncio.to_thread(self._take)
            while chunk.tasks or chunk.bad:
                storing = asyncio.ensure_future(_store_chunk(sink, chunk, counts))
                try:
                    chunk, _ = await asyncio.gather(asyncio.to_thread(self._take), asyncio.shield(storing))
                finally:  # on an interrupt, wait for the chunk being stored, so that the counts match the store
                    await asyncio.wait({storing})
                progress(self._source.done, self._source.total)
        finally:
            self._source.stop()

    def _take(self) -> _Chunk:
        chunk = _Chunk([], [])
        enough = self._reader.bytes + _CHUNK_BYTES
        with read_errors(self._source.name):
            for row in self._rows:
                task = task_rows.task_or_bad(row, self._columns)
                if isinstance(task, BadRow):
                    chunk.bad.append(task)
                else:
                    chunk.tasks.append(NumberedTask(row.number, task))
                if len(chunk.tasks) + len(chunk.bad) >= _CHUNK_ROWS or self._reader.bytes > enough:
                    break
        return chunk


_MAX_TARGETS = 1_000_000


def read_targets(
    file: str, maps: Sequence[str], place: tuple[str, str, str], platforms: KnownPlatforms | None
) -> list[Target]:
    """Returns the parcels in a file, all of one platform, state and county.

    Raises InvalidInput if a row is invalid or of another place: a county that is half refreshed is not what was meant.
    """
    constants = dict(zip(("platform", "state", "county"), place, strict=True))
    columns = Columns(parse_map(maps), constants, platforms)
    own_columns = Columns(parse_map(maps), {})
    targets: list[Target] = []
    with open_source(file) as source:
        reader = open_reader(source, format_of(file, None))
        rows = Importer(source, reader, columns).begin(_MAX_TARGETS + 1)
        if len(rows) > _MAX_TARGETS:
            raise InvalidInput(f"{file} has more than {_MAX_TARGETS:,} rows", hint="split it into several schedules")
        if not rows:
            raise InvalidInput(f"{file} has no rows", hint="a row for each parcel, below a header with parcel_id")
        columns.checked_plan(column_names(reader, rows[:_FIRST_ROWS]), source.name)
        for row in rows:
            task = task_or_bad(row, columns)
            if isinstance(row, Row) and isinstance(task, Task) and (other := _other_place(row, own_columns, task)):
                task = BadRow(row.number, other)
            if isinstance(task, BadRow):
                raise InvalidInput(
                    f"{file}, {reader.unit} {task.number:,}: {task.reason}",
                    hint="correct or remove the row; nothing was added",
                )
            targets.append(task.target)
    return targets


def _other_place(row: Row, columns: Columns, task: Task) -> str:
    """Returns how the row's own platform, state or county differs from the task's, '' if it does not."""
    values, target = flatten(row.values), task.target
    plan = columns.plan(tuple(values))
    for field, wanted, spelled in (
        ("platform", task.platform, str.lower),
        ("state", target.state, state_or_text),
        ("county", target.county, county_slug),
    ):
        own = field_text(field, values[plan.fields[field]]) if field in plan.fields else ""
        if own and spelled(own) != spelled(wanted):
            return f"its {field} is {own!r:.60}, not {wanted}"
    return ""


async def _store_chunk(sink: Sink, chunk: _Chunk, counts: ImportCounts) -> None:
    result = await sink.add(chunk.tasks)
    counts.new += result.new
    counts.known += result.known
    counts.add_bad(sorted([*chunk.bad, *result.refused]))


_CHUNKS_PER_CHECK = 10


class StoreSink:
    def __init__(self, lpm: LocalPersistenceManager, options: StoreOptions, clock: Clock) -> None:
        self._lpm = lpm
        self._options = options
        self._clock = clock
        self._chunks = 0
        self._stored = 0

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """Raises StoreFull at the store's cap (I8)."""
        if self._chunks % _CHUNKS_PER_CHECK == 0:
            await self._require_room()
        self._chunks += 1
        added = await self._lpm.add_tasks(entry.task for entry in numbered)
        self._stored += added.new + added.known
        refused = _refusals(numbered, self._clock, self._options.max_target_bytes) if added.refused else []
        clashes = await _clashes(numbered, self._find) if added.known else []
        return ChunkResult(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        info = await self._lpm.get_task(task_id)
        return info.task if info else None

    async def _require_room(self) -> None:
        """Applies the same limit as the collector: results need room too."""
        usage = await self._lpm.maintenance.usage()
        if usage.level is Level.FINE:
            return
        stopped = f"stopped after {count(self._stored, 'task')}"
        if usage.lacks_inodes:
            raise StoreFull(
                f"the disk has almost no free inodes ({usage.free_inodes:,}; {2 * usage.min_free_inodes:,} are "
                f"reserved for results): {stopped}",
                hint="remove files from that disk (check with 'df -i'), then import again to continue",
            )
        if usage.lacks_disk:
            raise StoreFull(
                f"the disk is nearly full ({size(usage.disk_free)} free; {size(2 * usage.min_free_bytes)} are reserved "
                f"for results): {stopped}",
                hint="free some disk space, then import again to continue",
            )
        raise StoreFull(
            f"the store is nearly full ({size(usage.total)} of at most {size(usage.max_bytes)}): {stopped}",
            hint="make room with 'parcelpost store clean --free-space', then import again to continue",
        )


class LedgerSink:
    """Rejects tasks that a worker's store would reject, or whose results the gateway would reject."""

    def __init__(self, ledger: Ledger, clock: Clock, max_target_bytes: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._max_target_bytes = max_target_bytes

    async def add(self, numbered: list[NumberedTask]) -> ChunkResult:
        """Raises LedgerUnavailable."""
        refused = _refusals(numbered, self._clock, self._max_target_bytes, check_deliverable)
        numbers = {entry.number for entry in refused}
        fit = [entry for entry in numbered if entry.number not in numbers] if numbers else numbered
        added = await self._ledger.add_tasks([entry.task for entry in fit], self._clock.now())
        clashes = await _clashes(fit, self._find) if added.known else []
        return ChunkResult(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        row = await self._ledger.task(task_id)
        return row.task if row else None


def _refusals(
    numbered: list[NumberedTask], clock: Clock, max_target_bytes: int, check: Callable[[Task], None] = lambda _: None
) -> list[BadRow]:
    """Rows that a store would reject or that `check` raises InvalidInput for, with the reason."""
    now = iso(clock.now())
    refused = []
    for number, task in numbered:
        try:
            rows.task_row(task, now, max_target_bytes)
            check(task)
        except InvalidInput as error:
            refused.append(BadRow(number, str(error)))
    return refused


async def _clashes(numbered: list[NumberedTask], find: Callable[[str], Awaitable[Task | None]]) -> list[BadRow]:
    """Rows whose explicit task ID already belongs to another parcel. Derived IDs cannot clash."""
    named = [
        entry
        for entry in numbered
        if entry.task.task_id != task_rows.derived_id(entry.task.platform, entry.task.target)
    ]
    tasks = await asyncio.gather(*(find(entry.task.task_id) for entry in named))
    return [
        BadRow(number, f"task ID {task.task_id!r} already belongs to parcel {known.target.parcel_id!r}")
        for (number, task), known in zip(named, tasks, strict=True)
        if known is not None and not task_rows.is_same_parcel(known, task)
    ]


# Running an import: plan the columns, import with progress, report invalid rows and the totals


def column_names(reader: Reader, first: Sequence[Row | BadRow]) -> tuple[str, ...]:
    """The columns of a file, from its header and first rows."""
    columns = dict.fromkeys(reader.columns)
    for row in first:
        if isinstance(row, Row):
            columns |= dict.fromkeys(task_rows.flatten(row.values))
    if not columns:
        reasons = "; ".join(f"{reader.unit} {row.number}: {row.reason}" for row in first if isinstance(row, BadRow))
        raise InvalidInput(
            f"no rows could be read: {reasons or 'the file has no rows'}", hint="check the file and --format"
        )
    return tuple(columns)


@contextlib.contextmanager
def error_file(path: Path | None, source: str, reader: Reader) -> Iterator[Callable[[BadRow], None]]:
    """Writes invalid rows to the file as they are found. Raises InvalidInput if it cannot be written."""
    if path is None:
        yield lambda bad: None
        return
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise InvalidInput("--errors names the file being imported", hint="choose another file")
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", hint="choose another path for --errors") from error
    with file:
        writer = csv.writer(file)
        writer.writerow((reader.unit, "reason", "text"))
        yield writer.writerow


def show_plan(
    first: Sequence[Row | BadRow], reader: Reader, plan: ColumnPlan, columns: Columns, *, as_json: bool
) -> None:
    """Prints the column plan and the first tasks, for a dry run."""
    rows = [task_rows.task_or_bad(row, columns) for row in first]
    made = [row for row in rows if isinstance(row, Task)]
    bad = [row for row in rows if isinstance(row, BadRow)]
    if as_json:
        print_json({"columns": _plan_document(plan, columns), "first": made, "bad": _bad_document(bad, reader)})
        return
    print_lines(_plan_lines(plan, columns))
    print()
    headers = ("task", "platform", "state", "county", "parcel", "url", "extra")
    print_lines(table(headers, map(_task_cells, made)))
    print_lines(_bad_lines(bad, reader))
    print("\nNothing was stored.")


def show_end(
    reader: Reader, plan: ColumnPlan, columns: Columns, counts: ImportCounts, errors: Path | None, *, as_json: bool
) -> None:
    note = ""
    if reader.text.first_other:
        note = f"{reader.unit} {reader.text.first_other:,} is not UTF-8; it and similar ones were read as Windows-1252"
        print(f"note: {note}", file=sys.stderr)
    for line in _bad_lines(counts.first_bad, reader):
        print(line, file=sys.stderr)
    if counts.bad > len(counts.first_bad):
        where = f"all are in {errors}" if errors else "use --errors PATH to save them all"
        print(f"and {counts.bad - len(counts.first_bad):,} more invalid rows: {where}", file=sys.stderr)
    if as_json:
        totals = {"read": counts.read, "new": counts.new, "known": counts.known, "bad": counts.bad}
        first_bad = _bad_document(counts.first_bad, reader)
        print_json({**totals, "fields": plan.fields, "first_bad": first_bad, "note": note or None})
        return
    chosen = ", ".join(f"{field} from {column!r}" for field, column in plan.fields.items())
    print(f"Columns: {printable(chosen) or 'all set by options'}.")
    for field in plan.missing(columns.constants, EXPECTED):
        print(f"No column was recognized as {field}: it stays empty. Use --{field} or --map {field}=COLUMN to set it.")
    print(f"{count(counts.new, 'new task')}, {counts.known:,} already known, {count(counts.bad, 'invalid row')}.")


def _plan_lines(plan: ColumnPlan, columns: Columns) -> list[str]:
    rows = [(field, f"column {column!r}") for field, column in plan.fields.items()]
    rows += [(field, f"{value!r} for all rows") for field, value in columns.constants.items()]
    rows += [(field, "empty: no column recognized") for field in plan.missing(columns.constants, EXPECTED)]
    rows += [(f"extra {name!r}", f"column {column!r}") for column, name in plan.extra.items()]
    rows += [("not used", f"column {column!r}: set by an option") for column in plan.unused]
    return fields(rows)


def _plan_document(plan: ColumnPlan, columns: Columns) -> dict[str, Any]:
    return {
        "fields": plan.fields,
        "for_all_rows": dict(columns.constants),
        "extra": plan.extra,
        "unused": plan.unused,
    }


def _task_cells(task: Task) -> tuple[str, ...]:
    target = task.target
    extra = encode(target.extra).decode() if target.extra else ""
    return task.task_id, task.platform, target.state, target.county, target.parcel_id, target.url, extra


def _bad_lines(bad: Sequence[BadRow], reader: Reader) -> Iterator[str]:
    for row in bad:
        begins = f" ({row.text[:60]})" if row.text else ""
        yield printable(f"{reader.unit} {row.number:,}: {row.reason}{begins}")


def _bad_document(bad: Sequence[BadRow], reader: Reader) -> list[dict[str, Any]]:
    return [{reader.unit: row.number, "reason": row.reason} for row in bad]


OpenSink = Callable[[], AbstractAsyncContextManager[Sink]]
"""Opens the destination of the tasks."""
Runner = Callable[[Coroutine[Any, Any, None]], None]


def import_file(options: ImportOptions, known: KnownPlatforms, open_sink: OpenSink, run: Runner) -> None:
    """Raises InvalidInput if the file cannot be used, and typer.Exit(1) at the end if rows were invalid."""
    same = {"platform": options.platform, "state": options.state, "county": options.county}
    constants = {field: value.strip() for field, value in same.items() if value.strip()}
    platforms = None if options.any_platform else known
    if platforms is not None and "platform" in constants:
        constants["platform"] = platforms.spelled(constants["platform"])
    columns = Columns(parse_map(options.maps or ()), constants, platforms)
    with open_source(options.file) as source:
        rows = open_reader(source, format_of(options.file, options.kind))
        importer = Importer(source, rows, columns)
        first = importer.begin(_FIRST_ROWS)
        plan = columns.checked_plan(column_names(rows, first), source.name)
        if options.dry_run:
            show_plan(first, rows, plan, columns, as_json=options.as_json)
            return
        with error_file(options.errors, options.file, rows) as note:
            counts = ImportCounts(note)
            _run_import(run, _import_rows(open_sink, importer, counts, source), counts)
    show_end(rows, plan, columns, counts, options.errors, as_json=options.as_json)
    if counts.bad and not options.allow_bad:
        raise typer.Exit(1)


def _run_import(run: Runner, work: Coroutine[Any, Any, None], counts: ImportCounts) -> None:
    try:
        run(work)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {count(counts.new, 'new task')} stored from {count(counts.read, 'row')}. "
            "To continue, import the file again: stored rows are skipped.",
            file=sys.stderr,
        )
        raise


async def _import_rows(open_sink: OpenSink, importer: Importer, counts: ImportCounts, source: InputFile) -> None:
    async with open_sink() as sink, Meter(f"reading {source.name} (bytes)") as meter:
        await importer.run(sink, counts, meter)
