"""The `parcelpost tasks` commands: list, show, retry, reject, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from parcelpost.cli.output import Cell, count, examples, fields, moment, print_json, print_lines, size
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
from parcelpost.model import OutboxEntry, TaskInfo, TaskStatus

if TYPE_CHECKING:
    from datetime import datetime

    from parcelpost.cli.paging import ListSpec
    from parcelpost.storage.artifacts import StoredArtifacts
    from parcelpost.storage.db import LocalDatabase
    from parcelpost.storage.operator_actions import Flags, Selection


LIST_EXAMPLES = examples(
    "parcelpost tasks list --status failed --platform vgsi",
    'parcelpost tasks list --error "no such parcel" --since 2d',
    "parcelpost tasks list --status pending --limit 1000 --after 2500 --json",
)
SHOW_EXAMPLES = examples("parcelpost tasks show 7f3a9c", "parcelpost tasks show 7f3a9c --json | jq .history")

_HEADERS = ("seq", "task", "status", "priority", "platform", "state", "county", "parcel", "retries", "updated", "error")
_OPTIONAL_COLUMNS = ("priority", "retries", "state", "updated", "county", "platform", "parcel")


def _list_spec(selection: Selection) -> ListSpec:
    from parcelpost.cli.paging import ListSpec
    from parcelpost.storage.operator_actions import tasks_page

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[TaskInfo]:
        return await database.read(tasks_page, selection, most, after)

    return ListSpec("task", _HEADERS, _OPTIONAL_COLUMNS, read, _task_row, lambda info: info)


def show_task(
    task_id: Annotated[str, typer.Argument(help="The task's ID.", metavar="TASK_ID")],
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one task: its target, its history and the state of its result."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    history = context.run_async(
        store, task_history(store, task_id, f"list them with '{command_line('tasks list', store)}'")
    )
    print_json(_task_document(history)) if as_json else print_lines(_task_lines(history, store))


def _task_row(info: TaskInfo) -> tuple[Cell, ...]:
    task = info.task
    where = (task.platform, task.target.state, task.target.county, task.target.parcel_id)
    return (
        info.seq, task.task_id, info.status.label, task.priority.name.lower(), *where, info.retries,
        moment(info.updated_at), info.error_text,
    )  # fmt: skip


def _task_document(history: TaskHistory) -> dict[str, Any]:
    from msgspec import structs

    from parcelpost.cli.commands.results import result_document

    more = {
        "artifacts": history.artifacts,
        "page": history.page,
        "children": history.children,
        "history": history.history,
    }
    result = result_document(history.result) if history.result else None
    return structs.asdict(history.task) | more | {"result": result}


def _task_lines(history: TaskHistory, store: StoreContext) -> Iterator[str]:
    yield from fields(_task_facts(history, store))
    yield from history_lines(history)


def _task_facts(history: TaskHistory, store: StoreContext) -> Iterator[tuple[str, Cell]]:
    from msgspec.json import encode

    from parcelpost.cli.commands.results import delivery_text

    info, artifacts = history.task, history.artifacts
    task, target = info.task, info.task.target
    yield "task", task.task_id
    yield "status", info.status.label
    yield "platform", task.platform
    yield "parcel", f"{target.parcel_id} in {target.county}, {target.state}"
    yield "url", target.url or None
    yield "extra", encode(target.extra).decode() if target.extra else None
    yield "priority", task.priority.name.lower()
    yield "source", task.source
    yield "type", task.type
    yield "parent task", info.parent_id
    yield "attempts", f"{info.attempts:,}"
    yield "retries", f"{info.retries:,} of {task.max_retries:,}"
    yield "crashes", f"the worker crashed {count(info.recoveries, 'time')}" if info.recoveries else None
    yield "changed", moment(info.updated_at)
    yield "not before", moment(info.available_at)
    yield "lease ends", moment(task.lease_expires_at)
    yield "claimed by", info.claimed_by
    yield "browser", info.assigned_browser
    yield "error", info.error_text
    yield "result", delivery_text(history.result) if history.result else None
    yield from page_facts(history.page)
    yield "more records", count(history.children, "additional record") if history.children else None
    yield "screenshot", artifact_text(store, artifacts.screenshot_path) if artifacts else None
    yield "log", artifact_text(store, artifacts.log_path) if artifacts else None
    yield "last page", artifact_text(store, artifacts.page_path) if artifacts else None


class HistoryStep(Struct, frozen=True):
    at: datetime
    what: str


class RawPage(Struct, frozen=True, kw_only=True):
    """The raw file of a result."""

    path: str
    bytes: int
    """Compressed size on disk."""
    state: str
    """intact, missing or damaged."""


class TaskHistory(Struct, frozen=True, kw_only=True):
    task: TaskInfo
    result: OutboxEntry | None
    artifacts: StoredArtifacts | None
    page: RawPage | None
    children: int
    """Child tasks, one for each further record on its page."""
    history: list[HistoryStep]


async def task_history(store: StoreContext, task_id: str, hint: str) -> TaskHistory:
    """Raises InvalidInput if there is no such task."""
    from parcelpost.cli.context import open_for_reading
    from parcelpost.storage import artifacts, outbox, results, tasks

    async with open_for_reading(store) as database:
        task = await database.read(tasks.get, task_id)
        if task is None:
            raise InvalidInput(f"there is no task {task_id!r}", hint=hint)
        result = await database.read(outbox.get, task_id)
        stored_artifacts = await database.read(artifacts.get, task_id)
        children = await database.read(results.count_children, task_id)
    page = _raw_page(store, result) if result else None
    steps = sorted(_steps(task, result, stored_artifacts), key=lambda step: step.at)
    return TaskHistory(
        task=task, result=result, artifacts=stored_artifacts, page=page, children=children, history=steps
    )


def history_lines(history: TaskHistory) -> Iterator[str]:
    yield ""
    yield "History"
    yield from fields((f"  {moment(step.at)}", step.what) for step in history.history)


def page_facts(page: RawPage | None) -> Iterator[tuple[str, Cell]]:
    if page is not None:
        yield "page", page.path
        yield "page state", f"{page.state}{f', {size(page.bytes)}' if page.bytes else ''}"


def artifact_text(store: StoreContext, path: str | None) -> str | None:
    """The full path of a stored artifact; a path from the record itself is untrusted and returned unchanged."""
    from parcelpost.storage.raw_files import raw_folder

    return str(raw_folder(store.path) / path) if path and path.startswith("artifacts/") else path


def _raw_page(store: StoreContext, entry: OutboxEntry) -> RawPage | None:
    from parcelpost.cli.health.store_files import page_sha256
    from parcelpost.storage.raw_files import inside, raw_folder

    if entry.html_path is None:
        return None
    path = inside(raw_folder(store.path), entry.html_path)
    if not path.is_file():
        return RawPage(path=str(path), bytes=0, state="missing")
    state = "intact" if page_sha256(path) == entry.raw_sha256 else "damaged"
    return RawPage(path=str(path), bytes=path.stat().st_size, state=state)


def _steps(task: TaskInfo, result: OutboxEntry | None, failure: StoredArtifacts | None) -> Iterator[HistoryStep]:
    known = [(task.created_at, f"stored, from {task.task.source}"), (task.started_at, "last started")]
    if failure:
        known.append((failure.created_at, "attempt failed"))
    if task.available_at:
        known.append((task.available_at, f"next retry, after {count(task.retries, 'failed attempt')}"))
    if task.completed_at:
        known.append((task.completed_at, f"ended: {task.status.label}{f', {task.error_text}' if task.error else ''}"))
    if result:
        known += [
            (result.scraped_at if result.data is not None else None, "page scraped"),
            (result.created_at, "record stored" if result.data is not None else "report stored"),
            (result.raw_synced_at, "page delivered"),
            (result.synced_at, "delivered"),
            (result.rejected_at, f"rejected: {result.last_error_text or 'no reason given'}"),
        ]
    return (HistoryStep(at, what) for at, what in known if at is not None)


RETRY_EXAMPLES = examples(
    "parcelpost tasks retry 7f3a9c 81b2d0",
    "parcelpost tasks retry --status failed --platform vgsi",
    'parcelpost tasks retry --error "503" --since 1d --yes',
    "parcelpost tasks retry --completed 7f3a9c",
    "parcelpost tasks retry --status not_found --since 7d",
)
REJECT_EXAMPLES = examples(
    'parcelpost tasks reject 7f3a9c --reason "the county has no such parcel"',
    "parcelpost tasks reject --platform qpublic --county lee --dry-run",
)
DELETE_EXAMPLES = examples(
    "parcelpost tasks delete 7f3a9c",
    "parcelpost tasks delete --status completed --delivery synced --dry-run",
    "parcelpost tasks delete --source local_file --unsynced --yes",
)


def _retry_flags(selection: Selection, include_completed: bool) -> Flags:
    from parcelpost.storage.operator_actions import Flags

    is_named = bool({TaskStatus.COMPLETED, TaskStatus.NOT_FOUND}.intersection(selection.statuses))
    return Flags(include_completed=include_completed or is_named, include_delayed=True)


_RETRY_HELP = """Make failed and expired tasks pending again, and retry delayed ones now.

Asks for confirmation if there are several.
"""
_COMPLETED = Flag(
    "--completed", "Also retry completed and not found tasks, unless their upstream waits for the result."
)
_DELETE_HELP = """Delete tasks with their results, pages, screenshots and logs. Asks for confirmation.

Pages are deleted immediately; `parcelpost store clean` shrinks the store's file.

A task that its upstream is waiting for is reported as failed first, and then deleted. Records that
were never delivered are kept unless you confirm a second question or give --unsynced.
"""

app = typer.Typer(
    help="List, show, retry, reject or delete tasks. Without a command, lists them.",
    cls=DefaultListGroup,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost tasks --status failed",
        "parcelpost tasks show 7f3a9c",
        "parcelpost tasks retry --status failed --platform vgsi",
    ),
)
add_list(app, CommandText("List tasks in the order they were stored.", LIST_EXAMPLES), _list_spec)
app.command("show", epilog=SHOW_EXAMPLES)(show_task)
add_retry(app, "task", CommandText(_RETRY_HELP, RETRY_EXAMPLES), _COMPLETED, _retry_flags)
_REJECT_HELP = (
    "Mark pending tasks as failed without running them, and report that to their upstream. Asks for confirmation."
)
add_reject(app, "task", CommandText(_REJECT_HELP, REJECT_EXAMPLES))
add_delete(app, "task", CommandText(_DELETE_HELP, DELETE_EXAMPLES))
