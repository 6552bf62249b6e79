"""`parcelpost results retry`, `reject` and `delete`."""

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


def retry(
    which: Selection,
    task_ids: TaskIds = None,
    everything: Everything = False,
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="Also those that were rejected with `results reject`.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Send rejected results again. Asks first when more than one would change.

    What was rejected with `results reject` is sent only where its task is named, or with --by-operator.
    """
    from parcelpost.cli.mending.asking import Asked, do, number_of
    from parcelpost.cli.mending.filters import meant
    from parcelpost.storage.admin import RETRY_RESULTS, Flags

    asked = Asked(
        operation=RETRY_RESULTS,
        noun="result",
        past="retried",
        change=lambda admin, which, flags, progress: admin.retry_results(which, flags, progress),
        question=lambda counts: f"Send {number_of(counts, 'rejected result')} again?",
        done=lambda counts: f"{number_of(counts, 'result')} will be sent again.",
        see=command_line("results show TASK_ID", store),
        asks_for_one=False,
    )
    chosen = meant(which, task_ids, everything=everything, what="rejected result")
    flags = Flags(include_rejected_by_operator=by_operator or bool(task_ids))
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
    """Reject results that wait to be sent: they are kept, and sent only after `results retry`. Asks first."""
    from parcelpost.cli.mending.asking import Asked, do, number_of
    from parcelpost.cli.mending.filters import meant
    from parcelpost.storage.admin import REJECT_RESULTS, Flags

    asked = Asked(
        operation=REJECT_RESULTS,
        noun="result",
        past="rejected",
        change=lambda admin, which, _consent, progress: admin.reject_results(which, reason, progress),
        question=lambda counts: f"Reject {number_of(counts, 'result')}, and not send {_them(counts)}?",
        done=lambda counts: f"{number_of(counts, 'result')} rejected: {reason}.",
        see=command_line("results show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="result")
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
    """Remove results with their pages; their tasks stay. Asks first.

    Pages go at once; what the store's file takes less is given back by `parcelpost store clean`.

    Records that were never delivered stay, unless a second question is answered with yes or --unsynced is given. Where
    such a record was an upstream's order, the upstream is told that its task failed.
    """
    from parcelpost.cli.mending.asking import Asked, do
    from parcelpost.cli.mending.filters import meant
    from parcelpost.storage.admin import DELETE_RESULTS, Flags

    asked = Asked(
        operation=DELETE_RESULTS,
        noun="result",
        past="deleted",
        change=lambda admin, which, flags, progress: admin.delete_results(which, flags, progress),
        question=_question,
        done=_done,
        see=command_line("results show TASK_ID", store),
    )
    chosen = meant(which, task_ids, everything=everything, what="result")
    do(asked, chosen, Flags(force=unsynced), store, yes=yes, dry_run=dry_run, as_json=as_json)


def _them(counts: Counts) -> str:
    return "it" if sum(counts.values()) == 1 else "them"


def _question(counts: Counts) -> str:
    from parcelpost.cli.mending.asking import number_of
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" For {told:,} of them the upstream is told that the task failed." if told else ""
    return f"Delete {number_of(counts, 'result')} with pages?{upstream}"


def _done(counts: Counts) -> str:
    from parcelpost.cli.mending.asking import number_of
    from parcelpost.storage.admin import PlannedAction

    told = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    reports = f" In place of {told:,} a report that the task failed is to be delivered." if told else ""
    return f"{number_of(counts, 'result')} deleted.{reports}"
