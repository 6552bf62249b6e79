"""The process that `parcelpost demo` starts and kills: it stores tasks, works through them, and says what is safe.

Run as `python -m parcelpost.cli.demo_worker STORE COUNT`. One JSON document a line on stdout.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import signal
import sys
from pathlib import Path

import msgspec

from parcelpost.clock import SystemClock
from parcelpost.events import Event, OwnerDied
from parcelpost.model import Claim, Page, Result, Source, Target, Task
from parcelpost.storage import LocalPersistenceManager

_SLOTS = 16
_PLATFORMS = ("vgsi", "beacon", "devnet")
_CLOCK = SystemClock()


class Stored(msgspec.Struct, frozen=True, tag=True):
    """All tasks are in the store; `new` of them were not there before."""

    new: int


class BroughtBack(msgspec.Struct, frozen=True, tag=True):
    """Tasks that a dead process held are pending again."""

    tasks: int


class Saved(msgspec.Struct, frozen=True, tag=True):
    """`save_result` has returned: from here on this result may not be lost (I2)."""

    task_id: str
    result_id: str
    sha256: str


Report = Stored | BroughtBack | Saved


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when nobody listens any more, it ends at once
    store, count = sys.argv[1:]
    asyncio.run(_work(Path(store), int(count)))


async def _work(store: Path, count: int) -> None:
    async with LocalPersistenceManager.open(store, worker="demo", emit=_listen) as lpm:
        added = await lpm.add_tasks(map(_task, range(count)))
        _report(Stored(added.new))
        async with asyncio.TaskGroup() as slots:
            for _ in range(_SLOTS):
                slots.create_task(_slot(lpm))


async def _slot(lpm: LocalPersistenceManager) -> None:
    while claims := await lpm.claim():
        for claim in claims:
            page = _invented_page(claim)
            data = {"parcel_id": claim.task.target.parcel_id, "owner": "Doe, Jane", "amount_due": "1204.55"}
            result_id = await lpm.save_result(claim, Result(data=data, scraped_at=_CLOCK.now(), page=Page(body=page)))
            if result_id is not None:
                _report(Saved(claim.task.task_id, result_id, hashlib.sha256(page).hexdigest()))


def _task(number: int) -> Task:
    target = Target(parcel_id=f"{number // 100:03}-{number % 100:02}", state="CT", county="hartford")
    platform = _PLATFORMS[number % len(_PLATFORMS)]
    return Task(task_id=f"demo-{number:05}", platform=platform, target=target, source=Source.CLI)


def _invented_page(claim: Claim) -> bytes:
    """Never twice the same, so that its hash tells one attempt at a task from another."""
    rows = "".join(f"<tr><td>Lot {row}</td><td>{secrets.token_hex(8)}</td></tr>" for row in range(12))
    return f"<html><h1>{claim.task.target.parcel_id}</h1><table>{rows}</table></html>".encode()


def _listen(event: Event) -> None:
    if isinstance(event, OwnerDied):
        _report(BroughtBack(event.tasks_recovered))


def _report(report: Report) -> None:
    # Straight into the pipe and in one piece: what is confirmed here is neither held back nor torn by a kill.
    os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    main()
