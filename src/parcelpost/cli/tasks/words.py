"""`parcelpost tasks retry`, `reject` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.mending.options import DryRun, Everything, Reason, TaskIds, Unsynced
from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath, Yes, command_line

if TYPE_CHECKING:
    from parcelpost.cli.mending.asking import Counts
    from parcelpost.storage.admin import Selection

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


def retry(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    completed: Annotated[
        bool,
        typer.Option("--completed", help="Also completed and not found ones that were delivered: scrape them anew."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Let failed and expired tasks start anew, as if they had just come in; what waits for another try is tried now.

    Asks first when more than one would change.
    """
    from parcelpost.cli.mending.asking import Asked, do, number_of
    from parcelpost.cli.mending.filters import meant
    from parcelpost.model import TaskStatus
    from parcelpost.storage.admin import RETRY_TASKS, Flags

    asked = Asked(
        operation=RETRY_TASKS,
        noun="task",
        past="retried",
        change=lambda admin, which, flags, progress: admin.retry_tasks(which, flags, progress),
        question=lambda counts: f"Retry {number_of(counts, 'task')}?",
        done=lambda counts: f"{number_of(counts, 'task')} pending again.",
        see=command_line("tasks show TASK_ID", store),
        asks_for_one=False,
    )
    named = {TaskStatus.COMPLETED, TaskStatus.NOT_FOUND}.intersection(which.statuses)
    flags = Flags(include_completed=completed or bool(named), include_delayed=True)
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, flags, store, yes=yes, dry_run=dry_run, as_json=as_json)


def reject(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    reason: Reason = "rejected",
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Let pending tasks end as failed, undone. Where they came from an upstream, it is told. Asks first."""
    from parcelpost.cli.mending.asking import Asked, do, number_of
    from parcelpost.cli.mending.filters import meant
    from parcelpost.storage.admin import REJECT_TASKS, Flags

    asked = Asked(
        operation=REJECT_TASKS,
        noun="task",
        past="rejected",
        change=lambda admin, which, _consent, progress: admin.reject_tasks(which, reason, progress),
        question=lambda counts: f"End {number_of(counts, 'pending task')} as failed?",
        done=lambda counts: f"{number_of(counts, 'task')} failed: {reason}.",
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, Flags(), store, yes=yes, dry_run=dry_run, as_json=as_json)


def delete(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    unsynced: Unsynced = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Remove tasks with their results, pages, screenshots and logs. Asks first.

    Pages go at once; what the store's file takes less is given back by `parcelpost store clean`.

    An upstream's task that it knows no end of ends as failed, which it is told; the task goes after that. Records that
    were never delivered stay, unless a second question is answered with yes or --unsynced is given.
    """
    from parcelpost.cli.mending.asking import Asked, do
    from parcelpost.cli.mending.filters import meant
    from parcelpost.storage.admin import DELETE_TASKS, Flags

    asked = Asked(
        operation=DELETE_TASKS,
        noun="task",
        past="deleted",
        change=lambda admin, which, flags, progress: admin.delete_tasks(which, flags, progress),
        question=_question,
        done=_done,
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, Flags(force=unsynced), store, yes=yes, dry_run=dry_run, as_json=as_json)


def _question(counts: Counts) -> str:
    from parcelpost.cli.mending.asking import number_of
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" {told:,} of them an upstream waits for: it is told that they failed." if told else ""
    again = counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    stays = f" {again:,} of them were to be done again: what they brought before stays." if again else ""
    return f"Delete {number_of(counts, 'task')} with results and pages?{upstream}{stays}"


def _done(counts: Counts) -> str:
    from parcelpost.cli.output import count
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    reports = f" {told:,} failed: they go some time after their upstream was told." if told else ""
    again = counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    stays = f" {again:,} will not be done again: what they brought before stays." if again else ""
    return f"{count(counts.get(PlannedAction.APPLY, 0), 'task')} deleted.{reports}{stays}"
