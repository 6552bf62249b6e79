"""Why a task or a result stays as it is, in words."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.cli.output import count
from parcelpost.storage.admin import PlannedAction

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


def refusal(past: str, noun: str, task_id: str, action: PlannedAction | None, holder: str | None) -> str:
    """None: there is no such thing."""
    if action is None:
        return f"there is no {'task' if noun == 'task' else 'result of a task'} {task_id!r}"
    text = _UNDELIVERED[past] if action is PlannedAction.UNDELIVERED else _OF_ONE[action]
    return text.format(id=task_id, holder=holder)


def kept_text(kept: Mapping[PlannedAction, int], past: str, records: int) -> str:
    """`records`: so many are never delivered."""
    more = f"with {count(records, 'record')} " if records > kept.get(PlannedAction.UNDELIVERED, 0) else ""
    texts = _OF_MANY | {PlannedAction.UNDELIVERED: f"{more}{_UNDELIVERED_MANY.get(past, '')}"}
    return ", ".join(f"{number:,} {texts[action]}" for action, number in sorted(kept.items()))
