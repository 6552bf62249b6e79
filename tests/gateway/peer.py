"""A gateway process of its own, for tests: `python -m tests.gateway.peer DATABASE DUTY NAME`.

It says a line when it has opened the ledger, begins at a line of its input, and says one for everything that the ledger
has answered.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from itertools import count

from parcelpost.clock import SystemClock
from parcelpost.errors import LedgerUnavailable
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from tests.gateway.factories import arrival

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


async def main(database: str, duty: str, name: str) -> None:
    async with open_ledger(database, 3, _clock) as ledger:
        say("open")
        await asyncio.to_thread(sys.stdin.readline)
        await {"grant": grant, "store": store}[duty](ledger, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
