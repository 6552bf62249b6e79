"""The `parcelpost tasks` commands: list, show, retry, reject, delete."""

from __future__ import annotations

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
from parcelpost.cli.output import Cell, count, fields, moment, print_json, print_lines
from parcelpost.cli.selection import DefaultListGroup, DryRun, Everything, Reason, TaskIds, Unsynced, with_filters
from parcelpost.model import TaskInfo

if TYPE_CHECKING:
    from parcelpost.cli.bulk_actions import ActionCounts
    from parcelpost.cli.task_history import TaskHistory
    from parcelpost.storage.admin import Selection
    from parcelpost.storage.db import LocalDatabase


LIST_EXAMPLES = """
Examples:

\b
  parcelpost tasks list --status failed --platform vgsi
  parcelpost tasks list --error "no such parcel" --since 2d
  parcelpost tasks list --status pending --limit 1000 --after 2500 --json
"""
SHOW_EXAMPLES = """
Examples:

\b
  parcelpost tasks show 7f3a9c
  parcelpost tasks show 7f3a9c --json | jq .history
"""

_HEADERS = ("seq", "task", "status", "priority", "platform", "state", "county", "parcel", "retries", "updated", "error")
_OPTIONAL_COLUMNS = ("priority", "retries", "state", "updated", "county", "platform", "parcel")


def list_tasks(
    which: Selection,
    limit: Limit = 100,
    after: After = 0,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """List tasks in the order stored."""
    from parcelpost.cli import context
    from parcelpost.cli.paging import ListSpec, print_list
    from parcelpost.storage.admin import tasks_page

    store = store_context(store_path, config, set_)

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[TaskInfo]:
        return await database.read(tasks_page, which, most, after)

    kind = ListSpec("task", _HEADERS, _OPTIONAL_COLUMNS, read, _task_row, lambda one: one)
    context.run_async(store, print_list(store, kind, limit, after, as_json=as_json))


def show_task(
    task_id: Annotated[str, typer.Argument(help="Its id.", metavar="TASK_ID")],
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one task: what was ordered, what has happened to it, and what became of its result."""
    from parcelpost.cli import context
    from parcelpost.cli.task_history import task_history

    store = store_context(store_path, config, set_)
    found = context.run_async(
        store, task_history(store, task_id, f"list them with '{command_line('tasks list', store)}'")
    )
    print_json(_task_document(found)) if as_json else print_lines(_task_lines(found, store))


def _task_row(one: TaskInfo) -> tuple[Cell, ...]:
    task = one.task
    where = (task.platform, task.target.state, task.target.county, task.target.parcel_id)
    return (
        one.seq, task.task_id, one.status.label, task.priority.name.lower(), *where, one.retries,
        moment(one.updated_at), one.error_text,
    )  # fmt: skip


def _task_document(found: TaskHistory) -> dict[str, Any]:
    from msgspec import structs

    from parcelpost.cli.commands.results import result_document

    more = {"artifacts": found.artifacts, "page": found.page, "children": found.children, "history": found.history}
    result = result_document(found.result) if found.result else None
    return structs.asdict(found.task) | more | {"result": result}


def _task_lines(found: TaskHistory, store: StoreContext) -> Iterator[str]:
    yield from fields(_task_facts(found, store))
    yield ""
    yield "History"
    yield from fields((f"  {moment(step.at)}", step.what) for step in found.history)


def _task_facts(found: TaskHistory, store: StoreContext) -> Iterator[tuple[str, Cell]]:
    from msgspec.json import encode

    from parcelpost.cli.commands.results import delivery_text
    from parcelpost.cli.task_history import artifact_text, page_facts

    one, kept = found.task, found.artifacts
    task, target = one.task, one.task.target
    yield "task", task.task_id
    yield "status", one.status.label
    yield "platform", task.platform
    yield "parcel", f"{target.parcel_id} in {target.county}, {target.state}"
    yield "url", target.url or None
    yield "also given", encode(target.extra).decode() if target.extra else None
    yield "priority", task.priority.name.lower()
    yield "source", task.source
    yield "type", task.type
    yield "a record of", one.parent_id
    yield "retries", f"{one.retries:,} of at most {task.max_retries:,}"
    yield "worker died", f"{one.recoveries:,} times while holding it" if one.recoveries else None
    yield "changed", moment(one.updated_at)
    yield "not before", moment(one.available_at)
    yield "lease ends", moment(task.lease_expires_at)
    yield "held by", one.claimed_by
    yield "browser", one.assigned_browser
    yield "error", one.error_text
    yield "result", delivery_text(found.result) if found.result else None
    yield from page_facts(found.page)
    yield "also on it", count(found.children, "further record") if found.children else None
    yield "screenshot", artifact_text(store, kept.screenshot_path) if kept else None
    yield "log", artifact_text(store, kept.log_path) if kept else None


RETRY_EXAMPLES = """
Examples:

\b
  parcelpost tasks retry 7f3a9c 81b2d0
  parcelpost tasks retry --status failed --platform vgsi
  parcelpost tasks retry --error "503" --since 1d --yes
  parcelpost tasks retry --completed 7f3a9c
  parcelpost tasks retry --status not_found --since 7d
"""
REJECT_EXAMPLES = """
Examples:

\b
  parcelpost tasks reject 7f3a9c --reason "the county has no such parcel"
  parcelpost tasks reject --platform qpublic --county lee --dry-run
"""
DELETE_EXAMPLES = """
Examples:

\b
  parcelpost tasks delete 7f3a9c
  parcelpost tasks delete --status completed --delivery synced --dry-run
  parcelpost tasks delete --source local_file --unsynced --yes
"""


def retry_tasks(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    completed: Annotated[
        bool,
        typer.Option("--completed", help="Also completed and not found ones that were delivered: scrape them anew."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Let failed and expired tasks start anew, as if they had just come in; what waits for another try is tried now.

    Asks first when more than one would change.
    """
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action, total_text
    from parcelpost.cli.selection import require_selection
    from parcelpost.model import TaskStatus
    from parcelpost.storage.admin import RETRY_TASKS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=RETRY_TASKS,
        noun="task",
        past="retried",
        change=lambda admin, which, flags, progress: admin.retry_tasks(which, flags, progress),
        question=lambda counts: f"Retry {total_text(counts, 'task')}?",
        done=lambda counts: f"{total_text(counts, 'task')} pending again.",
        see=command_line("tasks show TASK_ID", store),
        asks_for_one=False,
    )
    named = {TaskStatus.COMPLETED, TaskStatus.NOT_FOUND}.intersection(which.statuses)
    flags = Flags(include_completed=completed or bool(named), include_delayed=True)
    chosen = require_selection(which, task_ids, everything=everything, what="task")
    run_bulk_action(asked, chosen, flags, store, yes=yes, dry_run=dry_run, as_json=as_json)


def reject_tasks(
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
    """Let pending tasks end as failed, undone. Where they came from an upstream, it is told. Asks first."""
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action, total_text
    from parcelpost.cli.selection import require_selection
    from parcelpost.storage.admin import REJECT_TASKS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=REJECT_TASKS,
        noun="task",
        past="rejected",
        change=lambda admin, which, _consent, progress: admin.reject_tasks(which, reason, progress),
        question=lambda counts: f"End {total_text(counts, 'pending task')} as failed?",
        done=lambda counts: f"{total_text(counts, 'task')} failed: {reason}.",
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = require_selection(which, task_ids, everything=everything, what="task")
    run_bulk_action(asked, chosen, Flags(), store, yes=yes, dry_run=dry_run, as_json=as_json)


def delete_tasks(
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
    """Remove tasks with their results, pages, screenshots and logs. Asks first.

    Pages go at once; what the store's file takes less is given back by `parcelpost store clean`.

    An upstream's task that it knows no end of ends as failed, which it is told; the task goes after that. Records that
    were never delivered stay, unless a second question is answered with yes or --unsynced is given.
    """
    from parcelpost.cli.bulk_actions import BulkAction, run_bulk_action
    from parcelpost.cli.selection import require_selection
    from parcelpost.storage.admin import DELETE_TASKS, Flags

    store = store_context(store_path, config, set_)
    asked = BulkAction(
        operation=DELETE_TASKS,
        noun="task",
        past="deleted",
        change=lambda admin, which, flags, progress: admin.delete_tasks(which, flags, progress),
        question=_delete_question,
        done=_delete_summary,
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = require_selection(which, task_ids, everything=everything, what="task")
    run_bulk_action(asked, chosen, Flags(force=unsynced), store, yes=yes, dry_run=dry_run, as_json=as_json)


def _delete_question(counts: ActionCounts) -> str:
    from parcelpost.cli.bulk_actions import total_text
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" {told:,} of them an upstream waits for: it is told that they failed." if told else ""
    again = counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    stays = f" {again:,} of them were to be done again: what they brought before stays." if again else ""
    return f"Delete {total_text(counts, 'task')} with results and pages?{upstream}{stays}"


def _delete_summary(counts: ActionCounts) -> str:
    from parcelpost.cli.output import count
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    reports = f" {told:,} failed: they go some time after their upstream was told." if told else ""
    again = counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    stays = f" {again:,} will not be done again: what they brought before stays." if again else ""
    return f"{count(counts.get(PlannedAction.APPLY, 0), 'task')} deleted.{reports}{stays}"


app = typer.Typer(
    help="The tasks of the store: list, show one, try again, reject, delete. Without a command they are listed.",
    cls=DefaultListGroup,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost tasks --status failed
      parcelpost tasks show 7f3a9c
      parcelpost tasks retry --status failed --platform vgsi
    """,
)
app.command("list", epilog=LIST_EXAMPLES)(with_filters(list_tasks))
app.command("show", epilog=SHOW_EXAMPLES)(show_task)
app.command("retry", epilog=RETRY_EXAMPLES)(with_filters(retry_tasks))
app.command("reject", epilog=REJECT_EXAMPLES)(with_filters(reject_tasks))
app.command("delete", epilog=DELETE_EXAMPLES)(with_filters(delete_tasks))
