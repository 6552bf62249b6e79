"""`parcelpost tasks retry`, `reject` and `forget`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.mending.options import DryRun, Everything, Reason, TaskIds, Unsynced
from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath, Yes, command_line

if TYPE_CHECKING:
    from parcelpost.cli.mending.asking import Counts
    from parcelpost.storage.filters import Selection

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
FORGET_EXAMPLES = """
Examples:

\b
  parcelpost tasks forget 7f3a9c
  parcelpost tasks forget --status completed --delivery synced --dry-run
  parcelpost tasks forget --source local_file --unsynced --yes
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
    from parcelpost.storage.admin import RETRY_TASKS, Consent

    asked = Asked(
        word=RETRY_TASKS,
        noun="task",
        past="retried",
        change=lambda mending, which, consent, progress: mending.retry_tasks(which, consent, progress),
        question=lambda counts: f"Retry {number_of(counts, 'task')}?",
        done=lambda counts: f"{number_of(counts, 'task')} pending again.",
        see=command_line("tasks show TASK_ID", store),
        asks_for_one=False,
    )
    named = {TaskStatus.COMPLETED, TaskStatus.NOT_FOUND}.intersection(which.statuses)
    consent = Consent(completed=completed or bool(named), delayed=True)
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, consent, store, yes=yes, dry_run=dry_run, as_json=as_json)


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
    from parcelpost.storage.admin import REJECT_TASKS, Consent

    asked = Asked(
        word=REJECT_TASKS,
        noun="task",
        past="rejected",
        change=lambda mending, which, _consent, progress: mending.reject_tasks(which, reason, progress),
        question=lambda counts: f"End {number_of(counts, 'pending task')} as failed?",
        done=lambda counts: f"{number_of(counts, 'task')} failed: {reason}.",
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, Consent(), store, yes=yes, dry_run=dry_run, as_json=as_json)


def forget(
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
    from parcelpost.storage.admin import FORGET_TASKS, Consent

    asked = Asked(
        word=FORGET_TASKS,
        noun="task",
        past="forgotten",
        change=lambda mending, which, consent, progress: mending.forget_tasks(which, consent, progress),
        question=_question,
        done=_done,
        see=command_line("tasks show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="task")
    do(asked, chosen, Consent(unsynced=unsynced), store, yes=yes, dry_run=dry_run, as_json=as_json)


def _question(counts: Counts) -> str:
    from parcelpost.cli.mending.asking import number_of
    from parcelpost.storage.admin import Fate

    told = counts.get(Fate.REPORTED, 0)
    upstream = f" {told:,} of them an upstream waits for: it is told that they failed." if told else ""
    again = counts.get(Fate.BROUGHT, 0)
    stays = f" {again:,} of them were to be done again: what they brought before stays." if again else ""
    return f"Forget {number_of(counts, 'task')} with results and pages?{upstream}{stays}"


def _done(counts: Counts) -> str:
    from parcelpost.cli.output import count
    from parcelpost.storage.admin import Fate

    told = counts.get(Fate.REPORTED, 0)
    reports = f" {told:,} failed: they go some time after their upstream was told." if told else ""
    again = counts.get(Fate.BROUGHT, 0)
    stays = f" {again:,} will not be done again: what they brought before stays." if again else ""
    return f"{count(counts.get(Fate.DONE, 0), 'task')} forgotten.{reports}{stays}"
