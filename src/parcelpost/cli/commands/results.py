"""The `parcelpost results` commands: list, show, retry, reject, delete."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.cli.options import (
    After,
    AsJson,
    ConfigOption,
    Limit,
    SetOption,
    StoreContext,
    StoreOption,
    Yes,
    command_line,
    store_context,
)
from parcelpost.cli.output import Cell, fields, moment, print_json, print_lines, printable
from parcelpost.cli.selection import (
    DefaultListGroup,
    DeliveryState,
    DryRun,
    Everything,
    Reason,
    TaskIds,
    Unsynced,
    with_filters,
)
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry

if TYPE_CHECKING:
    from parcelpost.cli.bulk_actions import ActionCounts
    from parcelpost.cli.task_history import TaskHistory
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
_OPTIONAL_COLUMNS = ("attempts", "state", "stored", "county", "platform", "parcel", "end")
_CHUNK_BYTES = 1 << 20


def list_results(
    which: Selection,
    limit: Limit = 100,
    after: After = 0,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """List results in the order stored, without their records."""
    from parcelpost.cli import context
    from parcelpost.cli.paging import ListSpec, print_list
    from parcelpost.storage.admin import results_page

    store = store_context(store_path, config, set_)

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[OutboxEntry]:
        return await database.read(results_page, which, most, after, with_data=False)

    kind = ListSpec("result", _HEADERS, _OPTIONAL_COLUMNS, read, _result_row, result_document)
    context.run_async(store, print_list(store, kind, limit, after, as_json=as_json))


def show_result(
    task_id: Annotated[str, typer.Argument(help="Its task's id.", metavar="TASK_ID")],
    page: Annotated[bool, typer.Option("--page", help="Write its page as it was fetched, and nothing else.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the result of one task: its record, what has happened to it, and its raw page."""
    from parcelpost.cli import context
    from parcelpost.cli.task_history import task_history

    store = store_context(store_path, config, set_)
    hint = f"list them with '{command_line('results list', store)}'"
    found = context.run_async(store, task_history(store, task_id, hint))
    if found.result is None:
        raise InvalidInput(f"there is no result of task {task_id!r}: it is {found.task.status.label}", hint=hint)
    if page:
        _write_page(found)
    elif as_json:
        more = {"data": _record(found.result), "page": found.page, "history": found.history}
        print_json(result_document(found.result) | more)
    else:
        print_lines(_result_lines(found, found.result, store))


def result_document(one: OutboxEntry) -> dict[str, Any]:
    """Without the record, which may be large."""
    from msgspec import structs

    return {name: value for name, value in structs.asdict(one).items() if name != "data"} | {
        "delivery": delivery_text(one)
    }


def delivery_text(one: OutboxEntry) -> DeliveryState:
    if one.synced_at:
        return DeliveryState.SYNCED
    return DeliveryState.REJECTED if one.rejected_at else DeliveryState.UNSYNCED


def _record(one: OutboxEntry) -> object:
    from msgspec import Raw

    return None if one.data is None else Raw(one.data)


def _write_page(found: TaskHistory) -> None:
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


def _result_row(one: OutboxEntry) -> tuple[Cell, ...]:
    where = (one.platform, one.state, one.county, one.parcel_id)
    error = one.last_error_text or one.error_text
    return (
        one.seq, one.task_id, one.status.label, delivery_text(one), one.sync_attempts, *where,
        moment(one.created_at), error,
    )  # fmt: skip


def _result_lines(found: TaskHistory, one: OutboxEntry, store: StoreContext) -> Iterator[str]:
    from msgspec.json import format as indented

    yield from fields(_result_facts(found, one, store))
    yield ""
    yield "History"
    yield from fields((f"  {moment(step.at)}", step.what) for step in found.history)
    if one.data is not None:
        yield ""
        yield "Record"
        yield from (printable(line) for line in indented(one.data, indent=2).decode().splitlines())


def _result_facts(found: TaskHistory, one: OutboxEntry, store: StoreContext) -> Iterator[tuple[str, Cell]]:
    from parcelpost.cli.task_history import artifact_text, page_facts

    yield "task", one.task_id
    yield "result", one.result_id
    yield "task ended", one.status.label
    yield "delivery", delivery_text(one)
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


RETRY_EXAMPLES = """
Examples:

\b
  parcelpost results retry 7f3a9c
  parcelpost results retry --all
  parcelpost results retry --platform vgsi --error 422 --yes
"""
REJECT_EXAMPLES = """
Examples:

\b
  parcelpost results reject 7f3a9c --reason "its amounts are wrong"
  parcelpost results reject --platform vgsi --since 2h --dry-run
"""
DELETE_EXAMPLES = """
Examples:

\b
  parcelpost results delete --delivery synced --platform vgsi
  parcelpost results delete 7f3a9c --unsynced
  parcelpost results delete --delivery rejected --dry-run
"""


def retry_results(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="Also those that were rejected with `results reject`.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Send rejected results again. Asks first when more than one would change.

    What was rejected with `results reject` is sent only where its task is named, or with --by-operator.
    """
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action, total_text
    from parcelpost.cli.selection import require_selection
    from parcelpost.storage.admin import RETRY_RESULTS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=RETRY_RESULTS,
        noun="result",
        past="retried",
        change=lambda admin, which, flags, progress: admin.retry_results(which, flags, progress),
        question=lambda counts: f"Send {total_text(counts, 'rejected result')} again?",
        done=lambda counts: f"{total_text(counts, 'result')} will be sent again.",
        see=command_line("results show TASK_ID", store),
        asks_for_one=False,
    )
    chosen = require_selection(which, task_ids, everything=everything, what="rejected result")
    flags = Flags(include_rejected_by_operator=by_operator or bool(task_ids))
    run_bulk_action(asked, chosen, flags, store, yes=yes, dry_run=dry_run, as_json=as_json)


def reject_results(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    reason: Reason = "rejected",
    dry_run: DryRun = False,
    yes: Yes = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Reject results that wait to be sent: they are kept, and sent only after `results retry`. Asks first."""
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action, total_text
    from parcelpost.cli.selection import require_selection
    from parcelpost.storage.admin import REJECT_RESULTS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=REJECT_RESULTS,
        noun="result",
        past="rejected",
        change=lambda admin, which, _consent, progress: admin.reject_results(which, reason, progress),
        question=lambda counts: f"Reject {total_text(counts, 'result')}, and not send {_result_count(counts)}?",
        done=lambda counts: f"{total_text(counts, 'result')} rejected: {reason}.",
        see=command_line("results show TASK_ID", store),
    )
    chosen = require_selection(which, task_ids, everything=everything, what="result")
    run_bulk_action(asked, chosen, Flags(), store, yes=yes, dry_run=dry_run, as_json=as_json)


def delete_results(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    unsynced: Unsynced = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove results with their pages; their tasks stay. Asks first.

    Pages go at once; what the store's file takes less is given back by `parcelpost store clean`.

    Records that were never delivered stay, unless a second question is answered with yes or --unsynced is given. Where
    such a record was an upstream's order, the upstream is told that its task failed.
    """
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action
    from parcelpost.cli.selection import require_selection
    from parcelpost.storage.admin import DELETE_RESULTS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=DELETE_RESULTS,
        noun="result",
        past="deleted",
        change=lambda admin, which, flags, progress: admin.delete_results(which, flags, progress),
        question=_delete_question,
        done=_delete_summary,
        see=command_line("results show TASK_ID", store),
    )
    chosen = require_selection(which, task_ids, everything=everything, what="result")
    run_bulk_action(asked, chosen, Flags(force=unsynced), store, yes=yes, dry_run=dry_run, as_json=as_json)


def _result_count(counts: ActionCounts) -> str:
    return "it" if sum(counts.values()) == 1 else "them"


def _delete_question(counts: ActionCounts) -> str:
    from parcelpost.cli.bulk_actions import total_text
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" For {told:,} of them the upstream is told that the task failed." if told else ""
    return f"Delete {total_text(counts, 'result')} with pages?{upstream}"


def _delete_summary(counts: ActionCounts) -> str:
    from parcelpost.cli.bulk_actions import total_text
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    reports = f" In place of {told:,} a report that the task failed is to be delivered." if told else ""
    return f"{total_text(counts, 'result')} deleted.{reports}"


app = typer.Typer(
    help="The results of the store: list, show one, send again, reject, delete. Without a command they are listed.",
    cls=DefaultListGroup,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost results --delivery rejected
      parcelpost results show 7f3a9c
      parcelpost results retry --all
    """,
)
app.command("list", epilog=LIST_EXAMPLES)(with_filters(list_results))
app.command("show", epilog=SHOW_EXAMPLES)(show_result)
app.command("retry", epilog=RETRY_EXAMPLES)(with_filters(retry_results))
app.command("reject", epilog=REJECT_EXAMPLES)(with_filters(reject_results))
app.command("delete", epilog=DELETE_EXAMPLES)(with_filters(delete_results))
