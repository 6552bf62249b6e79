"""Operator actions on many tasks or results: count what would change, confirm, then do it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from parcelpost.cli.context import open_for_reading, open_for_writing, run_async
from parcelpost.cli.options import StoreContext
from parcelpost.cli.output import confirm, count, print_json, printable
from parcelpost.cli.progress import Meter
from parcelpost.errors import InvalidInput
from parcelpost.storage import admin
from parcelpost.storage.admin import CHANGES, Admin, Flags, Operation, PlannedAction, Progress, Selection, stored_until

_OF_ONE = {
    PlannedAction.PROCESSING: "{id!r} is being worked on by {holder}: wait for its end, or stop that worker",
    PlannedAction.CHILD: "{id!r} is a further record of another task's page, and goes with that task",
    PlannedAction.PENDING: "{id!r} is pending",
    PlannedAction.ENDED: "{id!r} has ended already",
    PlannedAction.COMPLETED: "{id!r} is completed (add --completed to scrape it once more)",
    PlannedAction.UNREPORTED: "the end of {id!r} is not reported upstream yet (reject its result, if it never will be)",
    PlannedAction.PAGE_SHARED: "other results need the page of {id!r}: delete the task with all its records",
    PlannedAction.DELIVERED: "the result of {id!r} was delivered",
    PlannedAction.WAITING: "the result of {id!r} waits to be sent as it is",
    PlannedAction.REJECTED: "the result of {id!r} is rejected already",
}
_UNDELIVERED = {
    "retried": "the result of {id!r} is not delivered yet",
    "deleted": "the record of {id!r} was never delivered (add --unsynced to lose it for good)",
}
_OF_MANY = {
    PlannedAction.PROCESSING: "being worked on",
    PlannedAction.CHILD: "further records of other tasks' pages",
    PlannedAction.PENDING: "pending",
    PlannedAction.ENDED: "ended already",
    PlannedAction.COMPLETED: "completed (add --completed)",
    PlannedAction.UNREPORTED: "whose end is not reported upstream yet",
    PlannedAction.PAGE_SHARED: "whose page other results need",
    PlannedAction.DELIVERED: "delivered",
    PlannedAction.WAITING: "waiting to be sent",
    PlannedAction.REJECTED: "rejected already",
    PlannedAction.REJECTED_BY_OPERATOR: "rejected by the operator (add --by-operator)",
}
_UNDELIVERED_MANY = {"retried": "not delivered yet", "deleted": "never delivered (add --unsynced to lose them)"}


def refusal_text(past: str, noun: str, task_id: str, action: PlannedAction | None, holder: str | None) -> str:
    """None: there is no such thing."""
    if action is None:
        return f"there is no {'task' if noun == 'task' else 'result of a task'} {task_id!r}"
    text = _UNDELIVERED[past] if action is PlannedAction.UNDELIVERED else _OF_ONE[action]
    return text.format(id=task_id, holder=holder)


def skipped_text(kept: Mapping[PlannedAction, int], past: str, records: int) -> str:
    """`records`: so many are never delivered."""
    more = f"with {count(records, 'record')} " if records > kept.get(PlannedAction.UNDELIVERED, 0) else ""
    texts = _OF_MANY | {PlannedAction.UNDELIVERED: f"{more}{_UNDELIVERED_MANY.get(past, '')}"}
    return ", ".join(f"{number:,} {texts[action]}" for action, number in sorted(kept.items()))


ActionCounts = Mapping[PlannedAction, int]


class BulkAction(NamedTuple):
    """What is to be done, and the words for it."""

    operation: Operation
    noun: str
    """task or result."""
    past: str
    """retried, rejected, deleted: also the name in JSON."""
    change: Callable[[Admin, Selection, Flags, Progress], Awaitable[Counter[PlannedAction]]]
    question: Callable[[ActionCounts], str]
    done: Callable[[ActionCounts], str]
    see: str
    """A command that shows one."""
    asks_for_one: bool = True


def run_bulk_action(
    asked: BulkAction, which: Selection, flags: Flags, store: StoreContext, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Raises InvalidInput where an id is named to which it cannot be done, and ParcelpostError for a no."""
    plan = run_async(store, _plan(asked, which, flags, store, lets_ask=not yes or dry_run))
    if dry_run:
        _print_outcome(asked, plan.counts, plan, as_json=as_json, dry_run=True)
        return
    if not yes:
        if _acted_on(plan.counts) > (0 if asked.asks_for_one else 1):
            confirm(_question(asked, plan))
        if plan.records and not flags.force:
            confirm(f"{_loss(plan.records)} Delete {'it' if plan.records == 1 else 'them'}, too?")
            plan = run_async(store, _plan(asked, plan.which, flags._replace(force=True), store, lets_ask=True))
    done = run_async(store, _change(asked, plan, store)) if _acted_on(plan.counts) else Counter[PlannedAction]()
    _print_outcome(asked, done, plan, as_json=as_json, dry_run=False)


class _Plan(NamedTuple):
    which: Selection
    """What was in the store when it was counted, and no more: nobody was asked about the rest."""
    flags: Flags
    counts: ActionCounts
    records: int
    """That were never delivered: lost, or kept for want of flags."""


def _question(asked: BulkAction, plan: _Plan) -> str:
    lost = f" {_loss(plan.records)}" if plan.records and plan.flags.force else ""
    return f"{asked.question(plan.counts)}{lost}"


def _loss(number: int) -> str:
    if number == 1:
        return "1 record was never delivered. It is nowhere else, and lost for good."
    return f"{number:,} records were never delivered. They are nowhere else, and lost for good."


async def _plan(asked: BulkAction, which: Selection, flags: Flags, store: StoreContext, *, lets_ask: bool) -> _Plan:
    async with open_for_reading(store) as database, Meter(f"counting {asked.noun}s"):
        if which.stored_until is None:
            which = replace(which, stored_until=await database.read(stored_until))
        if which.task_ids is not None:
            named = await database.read(admin.planned_by_task, asked.operation, which, flags)
            found = {task_id: action for task_id, (action, _) in named.items()}
            reasons = [
                refusal_text(asked.past, asked.noun, task_id, *named.get(task_id, (None, None)))
                for task_id in which.task_ids
                if not _fits(asked, found.get(task_id), lets_ask=lets_ask)
            ]
            if reasons:
                raise InvalidInput(
                    printable("; ".join(reasons)), hint=f"nothing was changed; see one with '{asked.see}'"
                )
        counts = await database.read(admin.counts, asked.operation, which, flags)
        records = await database.read(admin.records_lost, asked.operation, which)
        return _Plan(which, flags, counts, records)


def _fits(asked: BulkAction, action: PlannedAction | None, *, lets_ask: bool) -> bool:
    may_be_asked = asked.past == "deleted" and lets_ask and action is PlannedAction.UNDELIVERED
    return action in CHANGES or may_be_asked


async def _change(asked: BulkAction, plan: _Plan, store: StoreContext) -> Counter[PlannedAction]:
    done, total = 0, _acted_on(plan.counts)

    def progress(number: int) -> None:
        nonlocal done
        done = number
        meter(done, total)

    try:
        async with open_for_writing(store) as lpm, Meter(f"{asked.noun}s {asked.past}") as meter:
            return await asked.change(lpm.admin, plan.which, plan.flags, progress)
    except asyncio.CancelledError:
        print(f"interrupted: {done:,} of {count(total, asked.noun)} {asked.past}, the rest not", file=sys.stderr)
        raise


def _acted_on(counts: ActionCounts) -> int:
    return sum(counts.get(action, 0) for action in CHANGES)


def _print_outcome(asked: BulkAction, done: ActionCounts, plan: _Plan, *, as_json: bool, dry_run: bool) -> None:
    kept = {action: number for action, number in plan.counts.items() if action not in CHANGES and number}
    if as_json:
        told = {
            str(action): done.get(action, 0) for action in (PlannedAction.FAIL_AND_REPORT, PlannedAction.FAIL_AND_KEEP)
        }
        more = told | {"undelivered_records": plan.records} if asked.past == "deleted" else {}
        print_json({asked.past: done.get(PlannedAction.APPLY, 0), **more, "kept": kept, "dry_run": dry_run})
        return
    if dry_run:
        would_ask = f"Nothing was changed. It would ask: {_question(asked, plan)}"
        print(would_ask if _acted_on(done) else "Nothing would change.")
    else:
        print(printable(asked.done(done)))
    if kept:
        print(f"Not {asked.past}: {skipped_text(kept, asked.past, plan.records)}.")


def total_text(counts: ActionCounts, noun: str) -> str:
    return count(_acted_on(counts), noun)
