"""Why a task or a result stays as it is, in words."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.cli.output import count
from parcelpost.storage.admin import Fate

_OF_ONE = {
    Fate.HELD: "{id!r} is being worked on by {holder}: wait for its end, or stop that worker",
    Fate.CHILD: "{id!r} is a further record of another task's page, and goes with that task",
    Fate.PENDING: "{id!r} is pending",
    Fate.ENDED: "{id!r} has ended already",
    Fate.COMPLETED: "{id!r} is completed (add --completed to scrape it once more)",
    Fate.REPORT_WAITS: "the upstream of {id!r} does not know yet how it ended (reject its result, if it never will)",
    Fate.PAGE_SHARED: "other results need the page of {id!r}: forget the task, with all that its page brought",
    Fate.DELIVERED: "the result of {id!r} was delivered",
    Fate.WAITING: "the result of {id!r} waits to be sent as it is",
    Fate.REJECTED: "the result of {id!r} is rejected already",
}
_UNDELIVERED = {
    "retried": "the result of {id!r} is not delivered yet",
    "forgotten": "the record of {id!r} was never delivered (add --unsynced to lose it for good)",
}
_OF_MANY = {
    Fate.HELD: "being worked on",
    Fate.CHILD: "further records of other tasks' pages",
    Fate.PENDING: "pending",
    Fate.ENDED: "ended already",
    Fate.COMPLETED: "completed (add --completed)",
    Fate.REPORT_WAITS: "whose upstream does not know yet how they ended",
    Fate.PAGE_SHARED: "whose page other results need",
    Fate.DELIVERED: "delivered",
    Fate.WAITING: "waiting to be sent",
    Fate.REJECTED: "rejected already",
    Fate.SET_ASIDE: "set aside by a person (add --set-aside)",
}
_UNDELIVERED_MANY = {"retried": "not delivered yet", "forgotten": "never delivered (add --unsynced to lose them)"}


def refusal(past: str, noun: str, task_id: str, fate: Fate | None, holder: str | None) -> str:
    """None: there is no such thing."""
    if fate is None:
        return f"there is no {'task' if noun == 'task' else 'result of a task'} {task_id!r}"
    text = _UNDELIVERED[past] if fate is Fate.UNDELIVERED else _OF_ONE[fate]
    return text.format(id=task_id, holder=holder)


def kept_text(kept: Mapping[Fate, int], past: str, records: int) -> str:
    """`records`: so many are never delivered."""
    more = f"with {count(records, 'record')} " if records > kept.get(Fate.UNDELIVERED, 0) else ""
    texts = _OF_MANY | {Fate.UNDELIVERED: f"{more}{_UNDELIVERED_MANY.get(past, '')}"}
    return ", ".join(f"{number:,} {texts[fate]}" for fate, number in sorted(kept.items()))
