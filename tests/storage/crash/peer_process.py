"""Another worker on the same store, that does what it is told on its standard input and answers each line with one.

    claim COUNT      the ids of the tasks it was given and now holds
    save             the ids of those of its tasks whose result was stored; it holds none after
    recover          how many tasks of dead processes it brought back
    duty NAME        "has" if the duty is its own now, else "has-not"
    still NAME       the same, of a duty that it has taken before: it takes none
    off-duty         gives up its duties; "off"
    work             claims and saves until no task is left unfinished in the store; the ids of those it did

At the end of its input it closes the store and ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from parcelpost.model import Claim
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import a_result

_CALLERS = 4


async def main(store: Path, hung_after: float = 60.0) -> None:
    options = StoreOptions(busy_timeout_seconds=60, hung_after_seconds=hung_after)
    async with LocalPersistenceManager.open(store, options=options, worker="peer") as lpm:
        held: list[Claim] = []
        say("opened")
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split():
                case ["claim", count]:
                    claims = await lpm.claim(int(count))
                    held += claims
                    say(*ids(claims))
                case ["save"]:
                    saved = [claim for claim in held if await lpm.save_result(claim, a_result())]
                    held.clear()
                    say(*ids(saved))
                case ["recover"]:
                    say(str(await lpm.recover_abandoned()))
                case ["duty", name]:
                    say("has" if lpm.leader_locks.take(name) else "has-not")
                case ["still", name]:
                    say("has" if lpm.leader_locks.has(name) else "has-not")
                case ["off-duty"]:
                    lpm.leader_locks.release()
                    say("off")
                case ["work"]:
                    parts = await asyncio.gather(*(work(lpm) for _ in range(_CALLERS)))
                    say(*(task_id for part in parts for task_id in part))


async def work(lpm: LocalPersistenceManager) -> list[str]:
    done: list[str] = []
    while True:
        claims = await lpm.claim(random.randrange(1, 6))
        for claim in claims:
            assert await lpm.save_result(claim, a_result({"by": os.getpid()})) is not None
        done += ids(claims)
        if not claims:
            depth = await lpm.queue_depth()
            if depth.pending + depth.processing == 0:
                return done


def ids(claims: list[Claim]) -> list[str]:
    return [claim.task.task_id for claim in claims]


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(float, sys.argv[2:])))
