"""`parcelpost store requeue`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, Platform, StorePath, Yes, store_command
from parcelpost.cli.output import confirm, count, print_json
from parcelpost.errors import InvalidInput
from parcelpost.model import TaskStatus

if TYPE_CHECKING:
    from parcelpost.storage.db import LocalDatabase

EXAMPLES = """
Examples:

\b
  parcelpost store requeue 7f3a9c 81b2d0
  parcelpost store requeue --failed --platform vgsi
  parcelpost store requeue --failed --expired --yes
  parcelpost store requeue --completed 7f3a9c
"""


def requeue(
    task_ids: Annotated[list[str] | None, typer.Argument(help="These tasks.", metavar="TASK_ID")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed tasks.")] = False,
    expired: Annotated[bool, typer.Option("--expired", help="All expired tasks.")] = False,
    completed: Annotated[
        bool, typer.Option("--completed", help="All completed tasks whose result was delivered; or, with ids, those.")
    ] = False,
    platform: Platform = None,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Let ended tasks start anew, as if they had just come in. Asks first when more than one would change."""
    from parcelpost.cli import running

    flags = {TaskStatus.FAILED: failed, TaskStatus.EXPIRED: expired, TaskStatus.COMPLETED: completed}
    statuses = [status for status, is_wanted in flags.items() if is_wanted]
    if task_ids:
        if failed or expired or platform:
            raise InvalidInput(
                "task ids do not go together with --failed, --expired or --platform", hint="give one or the other"
            )
        ids = list(dict.fromkeys(task_ids))
        running.run(store, _refuse_unfit(store, ids, completed=completed))
        if len(ids) > 1 and not yes:
            confirm(f"Requeue {count(len(ids), 'task')}?")
        changed = running.run(store, _by_id(store, ids, completed=completed))
    elif statuses:
        at_most = running.run(store, _count(store, statuses, platform))
        if at_most > 1 and not yes:
            only = "; of the completed ones those that were delivered" if completed else ""
            confirm(f"Requeue {count(at_most, 'task')} ({', '.join(statuses)}{only})?")
        changed = running.run(store, _by_status(store, statuses, platform))
    else:
        raise InvalidInput("which tasks?", hint="name task ids, or add --failed, --expired or --completed")
    print_json({"requeued": changed}) if as_json else print(f"{count(changed, 'task')} pending again.")


async def _refuse_unfit(store: Path, task_ids: list[str], *, completed: bool) -> None:
    from parcelpost.cli.running import looking

    async with looking(store) as database:
        reasons = [why for task_id in task_ids if (why := await _why_not(database, task_id, completed=completed))]
    if reasons:
        see = store_command("tasks TASK_ID", store)
        raise InvalidInput("; ".join(reasons), hint=f"nothing was changed; see a task with '{see}'")


async def _why_not(database: LocalDatabase, task_id: str, *, completed: bool) -> str:
    """Why a task cannot be requeued; empty when it can."""
    from parcelpost.storage import outbox, tasks

    found = await database.read(tasks.get, task_id)
    if found is None:
        return f"there is no task {task_id!r}"
    if found.status in (TaskStatus.PENDING, TaskStatus.PROCESSING):
        return f"{task_id!r} is {found.status}"
    if found.status is not TaskStatus.COMPLETED:
        return ""
    if not completed:
        return f"{task_id!r} is completed (add --completed to scrape it once more)"
    result = await database.read(outbox.get, task_id)
    return f"the result of {task_id!r} is not delivered yet" if result and not result.synced_at else ""


async def _count(store: Path, statuses: list[TaskStatus], platform: str | None) -> int:
    """How many would change, at most."""
    from parcelpost.cli.running import CLOCK, looking
    from parcelpost.clock import iso
    from parcelpost.storage import queue_state

    async with looking(store) as database:
        platforms = await database.read(queue_state.counts, iso(CLOCK.now()))
    counts = [found for name, found in platforms.items() if platform in (None, name)]
    return sum(found.get(status, 0) for found in counts for status in statuses)


async def _by_id(store: Path, task_ids: list[str], *, completed: bool) -> int:
    from parcelpost.cli.running import changing

    async with changing(store) as lpm:
        return await lpm.requeue(task_ids, completed=completed)


async def _by_status(store: Path, statuses: list[TaskStatus], platform: str | None) -> int:
    from parcelpost.cli.running import changing

    async with changing(store) as lpm:
        return sum(
            [
                await lpm.requeue(status=status, platform=platform, completed=status is TaskStatus.COMPLETED)
                for status in statuses
            ]
        )
