"""Operator actions on many tasks or results: count what would change, confirm, then do it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from parcelpost.cli.context import open_for_reading, open_for_writing, run_async
from parcelpost.cli.output import confirm, count, print_json, printable
from parcelpost.cli.progress import Meter
from parcelpost.cli.settings_options import StoreContext, command_line
from parcelpost.errors import InvalidInput
from parcelpost.storage import operator_actions
from parcelpost.storage.operator_actions import (
    CHANGES,
    Flags,
    Operation,
    OperatorActions,
    PlannedAction,
    Progress,
    Selection,
    stored_until,
)

_OF_ONE = {
    PlannedAction.PROCESSING: "{id!r} is being processed by {holder}: wait until it finishes, or stop that worker",
    PlannedAction.CHILD: "{id!r} is an additional record of another task's page, and is deleted with that task",
    PlannedAction.PENDING: "{id!r} is pending",
    PlannedAction.ENDED: "{id!r} has already ended",
    PlannedAction.COMPLETED: "{id!r} is completed (add --completed to scrape it again)",
    PlannedAction.SUPERSEDED: "a newer task scraped the parcel of {id!r}: retry that one",
    PlannedAction.UNREPORTED: "the outcome of {id!r} has not been reported yet (if it never will be, reject it)",
    PlannedAction.PAGE_SHARED: "other results need the page of {id!r}: delete the task with all its records",
    PlannedAction.DELIVERED: "the result of {id!r} has already been delivered",
    PlannedAction.WAITING: "the result of {id!r} is already waiting to be sent",
    PlannedAction.REJECTED: "the result of {id!r} is already rejected",
}
_UNDELIVERED = {
    "retried": "the result of {id!r} has not been delivered yet",
    "deleted": "the record of {id!r} was never delivered (add --unsynced to delete it for good)",
}
_OF_MANY = {
    PlannedAction.PROCESSING: "being processed",
    PlannedAction.CHILD: "additional records of other tasks' pages",
    PlannedAction.PENDING: "pending",
    PlannedAction.ENDED: "already ended",
    PlannedAction.COMPLETED: "completed (add --completed)",
    PlannedAction.SUPERSEDED: "scraped again by newer tasks",
    PlannedAction.UNREPORTED: "not reported upstream yet",
    PlannedAction.PAGE_SHARED: "whose page other results need",
    PlannedAction.DELIVERED: "delivered",
    PlannedAction.WAITING: "waiting to be sent",
    PlannedAction.REJECTED: "already rejected",
    PlannedAction.REJECTED_BY_OPERATOR: "rejected by the operator (add --by-operator)",
}
_UNDELIVERED_MANY = {"retried": "not delivered yet", "deleted": "never delivered (add --unsynced to delete them)"}


def refusal_text(past: str, noun: str, task_id: str, planned: PlannedAction | None, holder: str | None) -> str:
    """`planned` is None if there is no such task or result."""
    if planned is None:
        return f"there is no {'task' if noun == 'task' else 'result for task'} {task_id!r}"
    text = _UNDELIVERED[past] if planned is PlannedAction.UNDELIVERED else _OF_ONE[planned]
    return text.format(id=task_id, holder=holder)


def skipped_text(kept: Mapping[PlannedAction, int], past: str, records: int) -> str:
    """`records`: how many were never delivered."""
    more = f"with {count(records, 'record')} " if records > kept.get(PlannedAction.UNDELIVERED, 0) else ""
    texts = _OF_MANY | {PlannedAction.UNDELIVERED: f"{more}{_UNDELIVERED_MANY.get(past, '')}"}
    return ", ".join(f"{number:,} {texts[planned]}" for planned, number in sorted(kept.items()))


ActionCounts = Mapping[PlannedAction, int]


class BulkAction(NamedTuple):
    """An operation on many tasks or results, and its texts."""

    operation: Operation
    noun: str
    """task or result"""
    past: str
    """retried, rejected or deleted; also the name in JSON"""
    change: Callable[[OperatorActions, Selection, Flags, Progress], Awaitable[Counter[PlannedAction]]]
    question: Callable[[ActionCounts], str]
    done: Callable[[ActionCounts], str]
    asks_for_one: bool = True


def run_bulk_action(
    action: BulkAction, which: Selection, flags: Flags, store: StoreContext, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Raises InvalidInput if it cannot be done to one of the task ids, and ParcelpostError if the answer is no."""
    plan = run_async(store, _plan(action, which, flags, store, lets_ask=not yes or dry_run))
    if dry_run:
        _print_outcome(action, plan.counts, plan, as_json=as_json, dry_run=True)
        return
    if not yes:
        if _acted_on(plan.counts) > (0 if action.asks_for_one else 1):
            confirm(_question(action, plan))
        if plan.records and not flags.force:
            confirm(f"{_loss(plan.records)} Delete {'it' if plan.records == 1 else 'them'} as well?")
            plan = run_async(store, _plan(action, plan.which, flags._replace(force=True), store, lets_ask=True))
    done = run_async(store, _change(action, plan, store)) if _acted_on(plan.counts) else Counter[PlannedAction]()
    _print_outcome(action, done, plan, as_json=as_json, dry_run=False)


class _Plan(NamedTuple):
    which: Selection
    """Limited to what was stored when it was counted: the operator was not asked about later rows."""
    flags: Flags
    counts: ActionCounts
    records: int
    """Number of records that were never delivered."""


def _question(action: BulkAction, plan: _Plan) -> str:
    lost = f" {_loss(plan.records)}" if plan.records and plan.flags.force else ""
    return f"{action.question(plan.counts)}{lost}"


def _loss(number: int) -> str:
    if number == 1:
        return "1 record was never delivered. There is no other copy of it."
    return f"{number:,} records were never delivered. There is no other copy of them."


async def _plan(action: BulkAction, which: Selection, flags: Flags, store: StoreContext, *, lets_ask: bool) -> _Plan:
    async with open_for_reading(store) as database, Meter(f"counting {action.noun}s"):
        if which.stored_until is None:
            which = replace(which, stored_until=await database.read(stored_until))
        if which.task_ids is not None:
            named = await database.read(operator_actions.planned_by_task, action.operation, which, flags)
            planned = {task_id: effect for task_id, (effect, _) in named.items()}
            reasons = [
                refusal_text(action.past, action.noun, task_id, *named.get(task_id, (None, None)))
                for task_id in which.task_ids
                if not _fits(action, planned.get(task_id), lets_ask=lets_ask)
            ]
            if reasons:
                show = command_line(f"{action.noun}s show TASK_ID", store)
                raise InvalidInput(printable("; ".join(reasons)), hint=f"nothing was changed; see '{show}'")
        counts = await database.read(operator_actions.counts, action.operation, which, flags)
        records = await database.read(operator_actions.records_lost, action.operation, which)
        return _Plan(which, flags, counts, records)


def _fits(action: BulkAction, planned: PlannedAction | None, *, lets_ask: bool) -> bool:
    may_be_asked = action.past == "deleted" and lets_ask and planned is PlannedAction.UNDELIVERED
    return planned in CHANGES or may_be_asked


async def _change(action: BulkAction, plan: _Plan, store: StoreContext) -> Counter[PlannedAction]:
    done, total = 0, _acted_on(plan.counts)

    def progress(number: int) -> None:
        nonlocal done
        done = number
        meter(done, total)

    try:
        async with open_for_writing(store) as lpm, Meter(f"{action.noun}s {action.past}") as meter:
            return await action.change(lpm.operator, plan.which, plan.flags, progress)
    except asyncio.CancelledError:
        print(f"interrupted: {done:,} of {count(total, action.noun)} {action.past}", file=sys.stderr)
        raise


def _acted_on(counts: ActionCounts) -> int:
    return sum(counts.get(planned, 0) for planned in CHANGES)


def _print_outcome(action: BulkAction, done: ActionCounts, plan: _Plan, *, as_json: bool, dry_run: bool) -> None:
    kept = {planned: number for planned, number in plan.counts.items() if planned not in CHANGES and number}
    if as_json:
        failed = (PlannedAction.FAIL_AND_REPORT, PlannedAction.FAIL_AND_KEEP)
        reported = {str(planned): done.get(planned, 0) for planned in failed}
        more = reported | {"undelivered_records": plan.records} if action.past == "deleted" else {}
        acted_on = done.get(PlannedAction.APPLY, 0) + done.get(PlannedAction.REFRESH, 0)
        print_json({action.past: acted_on, **more, "kept": kept, "dry_run": dry_run})
        return
    if dry_run:
        would_ask = f"Nothing was changed. The command would ask: {_question(action, plan)}"
        print(would_ask if _acted_on(done) else "Nothing would change.")
    else:
        print(printable(action.done(done)))
    if kept:
        print(f"Not {action.past}: {skipped_text(kept, action.past, plan.records)}.")


def total_text(counts: ActionCounts, noun: str) -> str:
    return count(_acted_on(counts), noun)


def retry_action(noun: str) -> BulkAction:
    if noun == "task":
        return BulkAction(
            operation=operator_actions.RETRY_TASKS,
            noun="task",
            past="retried",
            change=OperatorActions.retry_tasks,
            question=lambda counts: f"Retry {total_text(counts, 'task')}?",
            done=lambda counts: f"{total_text(counts, 'task')} pending again.",
            asks_for_one=False,
        )
    return BulkAction(
        operation=operator_actions.RETRY_RESULTS,
        noun="result",
        past="retried",
        change=OperatorActions.retry_results,
        question=lambda counts: f"Send {total_text(counts, 'rejected result')} again?",
        done=lambda counts: f"{total_text(counts, 'result')} will be sent again.",
        asks_for_one=False,
    )


def reject_action(noun: str, reason: str) -> BulkAction:
    if noun == "task":
        return BulkAction(
            operation=operator_actions.REJECT_TASKS,
            noun="task",
            past="rejected",
            change=lambda actions, selection, _, progress: actions.reject_tasks(selection, reason, progress),
            question=lambda counts: f"Mark {total_text(counts, 'pending task')} as failed?",
            done=lambda counts: f"{total_text(counts, 'task')} marked as failed: {reason}.",
        )
    return BulkAction(
        operation=operator_actions.REJECT_RESULTS,
        noun="result",
        past="rejected",
        change=lambda actions, selection, _, progress: actions.reject_results(selection, reason, progress),
        question=lambda counts: f"Reject {total_text(counts, 'result')} without sending {_pronoun(counts)}?",
        done=lambda counts: f"{total_text(counts, 'result')} rejected: {reason}.",
    )


def delete_action(noun: str) -> BulkAction:
    if noun == "task":
        return BulkAction(
            operation=operator_actions.DELETE_TASKS,
            noun="task",
            past="deleted",
            change=OperatorActions.delete_tasks,
            question=_delete_tasks_question,
            done=_delete_tasks_summary,
        )
    return BulkAction(
        operation=operator_actions.DELETE_RESULTS,
        noun="result",
        past="deleted",
        change=OperatorActions.delete_results,
        question=_delete_results_question,
        done=_delete_results_summary,
    )


def _pronoun(counts: ActionCounts) -> str:
    return "it" if _acted_on(counts) == 1 else "them"


def _delete_tasks_question(counts: ActionCounts) -> str:
    reported, retried = counts.get(PlannedAction.FAIL_AND_REPORT, 0), counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    upstream = (
        f" The upstream is waiting for {reported:,} of them and will be notified that they failed." if reported else ""
    )
    results = f" {retried:,} of them were due to run again: their earlier results are kept." if retried else ""
    return f"Delete {total_text(counts, 'task')} with results and pages?{upstream}{results}"


def _delete_tasks_summary(counts: ActionCounts) -> str:
    reported, retried = counts.get(PlannedAction.FAIL_AND_REPORT, 0), counts.get(PlannedAction.FAIL_AND_KEEP, 0)
    upstream = (
        f" {reported:,} marked as failed: they will be deleted once the upstream has been notified." if reported else ""
    )
    results = f" {retried:,} will not run again: their earlier results are kept." if retried else ""
    return f"{count(counts.get(PlannedAction.APPLY, 0), 'task')} deleted.{upstream}{results}"


def _delete_results_question(counts: ActionCounts) -> str:
    reported = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" For {reported:,} of them, the upstream will be notified that the task failed." if reported else ""
    return f"Delete {total_text(counts, 'result')} with pages?{upstream}"


def _delete_results_summary(counts: ActionCounts) -> str:
    reported = counts.get(PlannedAction.FAIL_AND_REPORT, 0)
    upstream = f" For {reported:,} of them, the upstream will be notified that the task failed." if reported else ""
    return f"{total_text(counts, 'result')} deleted.{upstream}"
