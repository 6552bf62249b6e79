"""A person's operation on many tasks or results: what it would do is counted first, then asked, then done."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from parcelpost.cli.mending.reasons import kept_text, refusal
from parcelpost.cli.output import confirm, count, print_json, printable
from parcelpost.cli.progress import Meter
from parcelpost.cli.running import changing, looking, run
from parcelpost.errors import InvalidInput
from parcelpost.storage import admin
from parcelpost.storage.admin import CHANGES, Admin, Flags, Operation, PlannedAction, Progress, Selection, stored_until

Counts = Mapping[PlannedAction, int]


class Asked(NamedTuple):
    """What is to be done, and the words for it."""

    operation: Operation
    noun: str
    """task or result."""
    past: str
    """retried, rejected, deleted: also the name in JSON."""
    change: Callable[[Admin, Selection, Flags, Progress], Awaitable[Counter[PlannedAction]]]
    question: Callable[[Counts], str]
    done: Callable[[Counts], str]
    see: str
    """A command that shows one."""
    asks_for_one: bool = True


def do(asked: Asked, which: Selection, flags: Flags, store: Path, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Raises InvalidInput where an id is named to which it cannot be done, and ParcelpostError for a no."""
    plan = run(store, _plan(asked, which, flags, store, lets_ask=not yes or dry_run))
    if dry_run:
        _tell(asked, plan.counts, plan, as_json=as_json, dry_run=True)
        return
    if not yes:
        if _acted_on(plan.counts) > (0 if asked.asks_for_one else 1):
            confirm(_question(asked, plan))
        if plan.records and not flags.force:
            confirm(f"{_loss(plan.records)} Delete {'it' if plan.records == 1 else 'them'}, too?")
            plan = run(store, _plan(asked, plan.which, flags._replace(force=True), store, lets_ask=True))
    done = run(store, _change(asked, plan, store)) if _acted_on(plan.counts) else Counter[PlannedAction]()
    _tell(asked, done, plan, as_json=as_json, dry_run=False)


class _Plan(NamedTuple):
    which: Selection
    """What was in the store when it was counted, and no more: nobody was asked about the rest."""
    flags: Flags
    counts: Counts
    records: int
    """That were never delivered: lost, or kept for want of flags."""


def _question(asked: Asked, plan: _Plan) -> str:
    lost = f" {_loss(plan.records)}" if plan.records and plan.flags.force else ""
    return f"{asked.question(plan.counts)}{lost}"


def _loss(number: int) -> str:
    if number == 1:
        return "1 record was never delivered. It is nowhere else, and lost for good."
    return f"{number:,} records were never delivered. They are nowhere else, and lost for good."


async def _plan(asked: Asked, which: Selection, flags: Flags, store: Path, *, lets_ask: bool) -> _Plan:
    async with looking(store) as database, Meter(f"counting {asked.noun}s"):
        if which.stored_until is None:
            which = replace(which, stored_until=await database.read(stored_until))
        if which.task_ids is not None:
            named = await database.read(admin.planned_by_task, asked.operation, which, flags)
            found = {task_id: action for task_id, (action, _) in named.items()}
            reasons = [
                refusal(asked.past, asked.noun, task_id, *named.get(task_id, (None, None)))
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


def _fits(asked: Asked, action: PlannedAction | None, *, lets_ask: bool) -> bool:
    may_be_asked = asked.past == "deleted" and lets_ask and action is PlannedAction.UNDELIVERED
    return action in CHANGES or may_be_asked


async def _change(asked: Asked, plan: _Plan, store: Path) -> Counter[PlannedAction]:
    done, total = 0, _acted_on(plan.counts)

    def progress(number: int) -> None:
        nonlocal done
        done = number
        meter(done, total)

    try:
        async with changing(store) as lpm, Meter(f"{asked.noun}s {asked.past}") as meter:
            return await asked.change(lpm.admin, plan.which, plan.flags, progress)
    except asyncio.CancelledError:
        print(f"interrupted: {done:,} of {count(total, asked.noun)} {asked.past}, the rest not", file=sys.stderr)
        raise


def _acted_on(counts: Counts) -> int:
    return sum(counts.get(action, 0) for action in CHANGES)


def _tell(asked: Asked, done: Counts, plan: _Plan, *, as_json: bool, dry_run: bool) -> None:
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
        print(f"Not {asked.past}: {kept_text(kept, asked.past, plan.records)}.")


def number_of(counts: Counts, noun: str) -> str:
    return count(_acted_on(counts), noun)
