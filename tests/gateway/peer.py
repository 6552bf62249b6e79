"""A gateway process of its own, for tests: `python -m tests.gateway.peer DATABASE DUTY NAME`.

It says a line when it has opened the ledger, begins at a line of its input, and says one for everything that the ledger
has answered.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path

from parcelpost.clock import ManualClock, SystemClock, from_iso
from parcelpost.errors import LedgerUnavailable
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.maintenance import Maintenance
from tests.gateway.factories import arrival
from tests.gateway.stage import some_context

_clock = SystemClock()


def say(*words: object) -> None:
    sys.stdout.write("".join(f"{word}\n" for word in words))
    sys.stdout.flush()


async def grant(ledger: Ledger, name: str) -> None:
    """Takes tasks until there are none."""
    while True:
        now = _clock.now()
        try:
            grants = await ledger.grant(name, ["echo", "other"], 7, now, now + timedelta(hours=1))
        except LedgerUnavailable:
            continue
        say(*(one.task.task_id for one in grants))
        if not grants:
            return


async def store(ledger: Ledger, name: str) -> None:
    """Stores batches until it is killed: each is known by its number."""
    for number in count():
        batch = [arrival(f"{name}-{number}-{n}", batch=number, pad="x" * 500) for n in range(10)]
        await ledger.store(batch, name, _clock.now())
        say(number)


async def maintain(database: str, folder: str) -> None:
    """Does what a gateway does beside its requests, at each moment that it is told."""
    clock = ManualClock()
    async with some_context(Path(folder), clock=clock, database=database) as context:
        maintenance = Maintenance(context)
        say("open")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            clock.advance((from_iso(line) - clock.now()).total_seconds())
            await maintenance.step()
            await maintenance.step()
            say("done")


async def main(database: str, duty: str, name: str) -> None:
    if duty == "maintain":
        await maintain(database, name)
        return
    async with open_ledger(database, 3, _clock) as ledger:
        say("open")
        await asyncio.to_thread(sys.stdin.readline)
        await {"grant": grant, "store": store}[duty](ledger, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
