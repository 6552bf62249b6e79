"""A worker that says on its standard output what the store has confirmed, one line each, until somebody kills it.

    starting                                              before the store is opened
    opened
    added TASK_ID
    saved TASK_ID RESULT_ID HTML_PATH SHA256 SECONDS      of the page as fetched; when save_result had returned
    delivered RESULT_ID

A line is written with one call after the store's answer: who has read it may hold the store to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
import time
from pathlib import Path
from typing import Literal, cast

from msgspec import structs

from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.results import child_id, page_records
from tests.storage.factories import a_result, a_task

_CALLERS = 16
_PARCELS = 40


async def main(store: Path, synchronous: Literal["FULL", "NORMAL"], page_bytes: int, seed: str) -> None:
    say("starting")
    async with LocalPersistenceManager.open(store, options=StoreOptions(synchronous=synchronous)) as lpm:
        say("opened")
        pick = random.Random(seed)
        async with asyncio.TaskGroup() as group:
            for caller in range(_CALLERS):
                group.create_task(work(lpm, f"{seed}-{caller}", pick, page_bytes))
            group.create_task(deliver(lpm))


async def work(lpm: LocalPersistenceManager, name: str, pick: random.Random, page_bytes: int) -> None:
    number = 0
    while True:
        number += 1
        task = a_task(f"{name}-{number}", parcel_id=f"parcel-{pick.randrange(_PARCELS)}")
        assert await lpm.add_task(task)
        say(f"added {task.task_id}")
        for claim in await lpm.claim(pick.randrange(1, 3)):
            body = pick.randbytes(pick.randrange(page_bytes))
            more = page_records([{"parcel_id": f"listed-{number}"} for number in range(pick.choice((0, 0, 0, 9)))])
            result = a_result({"task": claim.task.task_id}, body=body)
            result_id = await lpm.save_result(claim, structs.replace(result, additional_records=tuple(more)))
            confirmed_at = time.time()
            assert result_id is not None
            digest = hashlib.sha256(body).hexdigest()
            for task_id in (claim.task.task_id, *(child_id(claim.task.task_id, one.key) for one in more)):
                entry = await lpm.get_result(task_id)
                assert entry is not None
                say(f"saved {task_id} {entry.result_id} {entry.html_path} {digest} {confirmed_at}")


async def deliver(lpm: LocalPersistenceManager) -> None:
    while True:
        result_ids = [entry.result_id for entry in await lpm.get_unsynced_results(limit=3)]
        await lpm.mark_raw_synced(result_ids)
        assert await lpm.mark_synced(result_ids) == len(result_ids)
        for result_id in result_ids:
            say(f"delivered {result_id}")
        await lpm.recover_abandoned()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    path, synchronous, page_bytes, seed = sys.argv[1:]
    asyncio.run(main(Path(path), cast(Literal["FULL", "NORMAL"], synchronous), int(page_bytes), seed))
