"""`parcelpost results list` and `results show`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.cli.mending.filters import DeliveryState
from parcelpost.cli.options import DEFAULT_STORE, After, AsJson, Limit, StorePath, command_line
from parcelpost.cli.output import Cell, fields, moment, print_json, print_lines, printable
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry

if TYPE_CHECKING:
    from parcelpost.cli.mending.history import Story
    from parcelpost.storage.admin import Selection
    from parcelpost.storage.db import LocalDatabase

LIST_EXAMPLES = """
Examples:

\b
  parcelpost results list --delivery unsynced --limit 20
  parcelpost results list --delivery rejected --error 422
  parcelpost results list --since 2026-11-15 --json | jq '.results[].parcel_id'
"""
SHOW_EXAMPLES = """
Examples:

\b
  parcelpost results show 7f3a9c
  parcelpost results show 7f3a9c --json | jq .data
  parcelpost results show 7f3a9c --page > fetched.html
"""

_HEADERS = ("seq", "task", "end", "delivery", "attempts", "platform", "state", "county", "parcel", "stored", "error")
_SPARE = ("attempts", "state", "stored", "county", "platform", "parcel", "end")
_CHUNK_BYTES = 1 << 20


def list_(
    which: Selection, limit: Limit = 100, after: After = 0, store: StorePath = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """List results in the order stored, without their records."""
    from parcelpost.cli import running
    from parcelpost.cli.mending.lists import Kind, print_list
    from parcelpost.storage.admin import results_page

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[OutboxEntry]:
        return await database.read(results_page, which, most, after, with_data=False)

    kind = Kind("result", _HEADERS, _SPARE, read, _row, document)
    running.run(store, print_list(store, kind, limit, after, as_json=as_json))


def show(
    task_id: Annotated[str, typer.Argument(help="Its task's id.", metavar="TASK_ID")],
    page: Annotated[bool, typer.Option("--page", help="Write its page as it was fetched, and nothing else.")] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show the result of one task: its record, what has happened to it, and its raw page."""
    from parcelpost.cli import running
    from parcelpost.cli.mending.history import story

    hint = f"list them with '{command_line('results list', store)}'"
    found = running.run(store, story(store, task_id, hint))
    if found.result is None:
        raise InvalidInput(f"there is no result of task {task_id!r}: it is {found.task.status.label}", hint=hint)
    if page:
        _write_page(found)
    elif as_json:
        more = {"data": _record(found.result), "page": found.page, "history": found.history}
        print_json(document(found.result) | more)
    else:
        print_lines(_lines(found, found.result, store))


def document(one: OutboxEntry) -> dict[str, Any]:
    """Without the record, which may be large."""
    from msgspec import structs

    return {name: value for name, value in structs.asdict(one).items() if name != "data"} | {"delivery": delivery(one)}


def delivery(one: OutboxEntry) -> DeliveryState:
    if one.synced_at:
        return DeliveryState.SYNCED
    return DeliveryState.REJECTED if one.rejected_at else DeliveryState.UNSYNCED


def _record(one: OutboxEntry) -> object:
    from msgspec import Raw

    return None if one.data is None else Raw(one.data)


def _write_page(found: Story) -> None:
    """Not onto a terminal: a page may hold anything."""
    import gzip
    import zlib

    if found.page is None or found.page.state == "missing":
        raise InvalidInput("there is no page of it on this disk", hint="the upstream has it, once it was delivered")
    if sys.stdout.isatty():
        raise InvalidInput("a page is not written onto a terminal", hint="add '> fetched.html'")
    sys.stdout.flush()
    try:
        with gzip.open(found.page.path) as packed:
            while chunk := packed.read(_CHUNK_BYTES):
                sys.stdout.buffer.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InvalidInput(f"{found.page.path} cannot be read: {error}", hint="'parcelpost store check'") from error


def _row(one: OutboxEntry) -> tuple[Cell, ...]:
    where = (one.platform, one.state, one.county, one.parcel_id)
    error = one.last_error_text or one.error_text
    return (
        one.seq, one.task_id, one.status.label, delivery(one), one.sync_attempts, *where, moment(one.created_at), error,
    )  # fmt: skip


def _lines(found: Story, one: OutboxEntry, store: Path) -> Iterator[str]:
    from msgspec.json import format as indented

    yield from fields(_facts(found, one, store))
    yield ""
    yield "History"
    yield from fields((f"  {moment(step.at)}", step.what) for step in found.history)
    if one.data is not None:
        yield ""
        yield "Record"
        yield from (printable(line) for line in indented(one.data, indent=2).decode().splitlines())


def _facts(found: Story, one: OutboxEntry, store: Path) -> Iterator[tuple[str, Cell]]:
    from parcelpost.cli.mending.history import artifact_text, page_facts

    yield "task", one.task_id
    yield "result", one.result_id
    yield "task ended", one.status.label
    yield "delivery", delivery(one)
    yield "platform", one.platform
    yield "parcel", f"{one.parcel_id} in {one.county}, {one.state}"
    yield "took", f"{one.execution_time_ms:,} ms"
    yield "attempts", one.sync_attempts
    yield "last answer", one.last_error_text
    yield "error", one.error_text
    yield from page_facts(found.page)
    yield "screenshot", artifact_text(store, one.screenshot_path)
    yield "log", artifact_text(store, one.log_path)
    yield "page's SHA-256", one.raw_sha256
    yield "sent as", one.idempotency_key
