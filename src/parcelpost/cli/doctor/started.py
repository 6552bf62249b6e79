"""What the workers of the store were started as: a command line may have told them what no settings file says."""

from __future__ import annotations

from parcelpost.cli.doctor.report import Case
from parcelpost.cli.running import CLOCK, looking, openers
from parcelpost.errors import StoreError
from parcelpost.storage.state import WorkerState
from parcelpost.worker.status import WorkerStatus, read_statuses


async def workers(case: Case) -> tuple[list[WorkerStatus], list[WorkerStatus]]:
    """Those that live, and those that are gone. None, where the store cannot be read: another check says so."""
    try:
        async with looking(case.store) as database:
            statuses = await read_statuses(WorkerState(database, CLOCK))
        alive = {one.id for one in (await openers(case.store))[0]}
    except (StoreError, OSError):
        return [], []
    return [one for one in statuses if one.owner in alive], [one for one in statuses if one.owner not in alive]
