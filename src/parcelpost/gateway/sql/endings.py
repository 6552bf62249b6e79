"""How a worker's word ends a lease and its task."""

from __future__ import annotations

from typing import NamedTuple

from parcelpost.gateway.words import LeaseEnd, TaskState

NEVER_ANSWERED = "its leases ended without a report"


class Ending(NamedTuple):
    lease: LeaseEnd
    task: TaskState
    last_task: TaskState
    """What becomes of a task that may not be tried again."""


def ending(error: str | None, again: bool, not_found: bool) -> Ending:
    if not_found:
        return Ending(LeaseEnd.DONE, TaskState.NOT_FOUND, TaskState.NOT_FOUND)
    if error is None:
        return Ending(LeaseEnd.DONE, TaskState.DONE, TaskState.DONE)
    if again:
        return Ending(LeaseEnd.GIVEN_BACK, TaskState.QUEUED, TaskState.DEAD)
    return Ending(LeaseEnd.FAILED, TaskState.FAILED, TaskState.FAILED)
