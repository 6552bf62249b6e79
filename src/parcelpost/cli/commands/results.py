"""The `parcelpost results` commands: list, show, retry, reject, delete."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.cli.commands.tasks import TaskHistory, artifact_text, history_lines, page_facts, task_history
from parcelpost.cli.output import Cell, count, examples, fields, moment, print_json, print_lines, printable
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    command_line,
    store_context,
)
from parcelpost.cli.task_filters import (
    CommandText,
    DefaultListGroup,
    Flag,
    add_delete,
    add_list,
    add_reject,
    add_retry,
)
from parcelpost.errors import InvalidInput
from parcelpost.model import DeliveryState, OutboxEntry

if TYPE_CHECKING:
    from parcelpost.cli.paging import ListSpec
    from parcelpost.storage.db import LocalDatabase
    from parcelpost.storage.operator_actions import Flags, Selection


LIST_EXAMPLES = examples(
    "parcelpost results list --delivery unsynced --limit 20",
    "parcelpost results list --delivery rejected --error 422",
    "parcelpost results list --since 2026-11-15 --json | jq '.results[].parcel_id'",
)
SHOW_EXAMPLES = examples(
    "parcelpost results show 7f3a9c",
    "parcelpost results show 7f3a9c --json | jq .data",
    "parcelpost results show 7f3a9c --page > fetched.html",
)

_HEADERS = ("seq", "task", "end", "delivery", "refused", "platform", "state", "county", "parcel", "stored", "error")
_OPTIONAL_COLUMNS = ("refused", "state", "stored", "county", "platform", "parcel", "end")
_CHUNK_BYTES = 1 << 20


def _list_spec(selection: Selection) -> ListSpec:
    from parcelpost.cli.paging import ListSpec
    from parcelpost.storage.operator_actions import results_page

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[OutboxEntry]:
        return await database.read(results_page, selection, most, after, with_data=False)

    return ListSpec("result", _HEADERS, _OPTIONAL_COLUMNS, read, _result_row, result_document)


def show_result(
    task_id: Annotated[str, typer.Argument(help="The task's ID.", metavar="TASK_ID")],
    page: Annotated[bool, typer.Option("--page", help="Write only its page to stdout, as it was fetched.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the result of one task: its record, its history and its raw page."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    hint = f"list them with '{command_line('results list', store)}'"
    history = context.run_async(store, task_history(store, task_id, hint))
    if history.result is None:
        raise InvalidInput(f"task {task_id!r} has no result: it is {history.task.status.label}", hint=hint)
    if page:
        _write_page(history)
    elif as_json:
        more = {"data": _record(history.result), "page": history.page, "history": history.history}
        print_json(result_document(history.result) | more)
    else:
        print_lines(_result_lines(history, history.result, store))


def result_document(entry: OutboxEntry) -> dict[str, Any]:
    """Without the record, which may be large."""
    from msgspec import structs

    return {name: value for name, value in structs.asdict(entry).items() if name != "data"} | {
        "delivery": delivery_text(entry)
    }


def delivery_text(entry: OutboxEntry) -> DeliveryState:
    if entry.synced_at:
        return DeliveryState.SYNCED
    return DeliveryState.REJECTED if entry.rejected_at else DeliveryState.UNSYNCED


def _record(entry: OutboxEntry) -> object:
    from msgspec import Raw

    return None if entry.data is None else Raw(entry.data)


def _write_page(history: TaskHistory) -> None:
    """Not to a terminal: a page may contain control characters."""
    import gzip
    import zlib

    if history.page is None or history.page.state == "missing":
        raise InvalidInput("its page is not on this machine", hint="if it was delivered, the upstream has it")
    if sys.stdout.isatty():
        raise InvalidInput(
            "pages are not written to a terminal", hint="redirect the output to a file: add '> fetched.html'"
        )
    sys.stdout.flush()
    try:
        with gzip.open(history.page.path) as packed:
            while chunk := packed.read(_CHUNK_BYTES):
                sys.stdout.buffer.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InvalidInput(
            f"{history.page.path} cannot be read: {error}", hint="run 'parcelpost store check'"
        ) from error


def _result_row(entry: OutboxEntry) -> tuple[Cell, ...]:
    where = (entry.platform, entry.state, entry.county, entry.parcel_id)
    error = entry.last_error_text or entry.error_text
    return (
        entry.seq, entry.task_id, entry.status.label, delivery_text(entry), entry.sync_attempts, *where,
        moment(entry.created_at), error,
    )  # fmt: skip


def _result_lines(history: TaskHistory, entry: OutboxEntry, store: StoreContext) -> Iterator[str]:
    from msgspec.json import format as indented

    yield from fields(_result_facts(history, entry, store))
    yield from history_lines(history)
    if entry.data is not None:
        yield ""
        yield "Record"
        yield from (printable(line) for line in indented(entry.data, indent=2).decode().splitlines())


def _result_facts(history: TaskHistory, entry: OutboxEntry, store: StoreContext) -> Iterator[tuple[str, Cell]]:
    yield "task", entry.task_id
    yield "result", entry.result_id
    yield "task ended", entry.status.label
    yield "delivery", delivery_text(entry)
    yield "platform", entry.platform
    yield "parcel", f"{entry.parcel_id} in {entry.county}, {entry.state}"
    yield "took", f"{entry.execution_time_ms:,} ms"
    yield "refused", f"{count(entry.sync_attempts, 'time')} by the upstream" if entry.sync_attempts else None
    yield "last reply", entry.last_error_text
    yield "error", entry.error_text
    yield from page_facts(history.page)
    yield "screenshot", artifact_text(store, entry.screenshot_path)
    yield "log", artifact_text(store, entry.log_path)
    yield "page SHA-256", entry.raw_sha256
    yield "idempotency key", entry.idempotency_key


RETRY_EXAMPLES = examples(
    "parcelpost results retry 7f3a9c",
    "parcelpost results retry --all",
    "parcelpost results retry --platform vgsi --error 422 --yes",
)
REJECT_EXAMPLES = examples(
    'parcelpost results reject 7f3a9c --reason "its amounts are wrong"',
    "parcelpost results reject --platform vgsi --since 2h --dry-run",
)
DELETE_EXAMPLES = examples(
    "parcelpost results delete --delivery synced --platform vgsi",
    "parcelpost results delete 7f3a9c --unsynced",
    "parcelpost results delete --delivery rejected --dry-run",
)


def _retry_flags(selection: Selection, by_operator: bool) -> Flags:
    from parcelpost.storage.operator_actions import Flags

    return Flags(include_rejected_by_operator=by_operator or bool(selection.task_ids))


_RETRY_HELP = """Send rejected results again. Asks for confirmation if there are several.

Results that were rejected with `results reject` are sent only if their task ID is given, or with --by-operator.
"""
_BY_OPERATOR = Flag("--by-operator", "Also send results that were rejected with `results reject`.")
_DELETE_HELP = """Delete results with their pages; their tasks stay. Asks for confirmation.

Pages are deleted immediately; `parcelpost store clean` shrinks the store's file.

Records that were never delivered are kept unless you confirm a second question or give --unsynced. If an upstream is
waiting for such a record, it is notified that the task failed.
"""

app = typer.Typer(
    help="List, show, retry, reject or delete results. Without a command, lists them.",
    cls=DefaultListGroup,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost results --delivery rejected", "parcelpost results show 7f3a9c", "parcelpost results retry --all"
    ),
)
add_list(
    app, CommandText("List results, without their records, in the order they were stored.", LIST_EXAMPLES), _list_spec
)
app.command("show", epilog=SHOW_EXAMPLES)(show_result)
add_retry(app, "result", CommandText(_RETRY_HELP, RETRY_EXAMPLES), _BY_OPERATOR, _retry_flags)
_REJECT_HELP = (
    "Reject results that are waiting to be sent. They are kept, and sent only after `results retry`. "
    "Asks for confirmation."
)
add_reject(app, "result", CommandText(_REJECT_HELP, REJECT_EXAMPLES))
add_delete(app, "result", CommandText(_DELETE_HELP, DELETE_EXAMPLES))
