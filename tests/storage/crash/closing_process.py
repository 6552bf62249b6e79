"""Cancels the closing of a store at many moments. Prints for each how many threads are left that should have ended.

In a process of its own: a thread that is left would keep the one it is in from ending.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_result, a_task

_ENOUGH_SECONDS = 30.0


async def main(folder: Path, moments: list[int]) -> None:
    for turns in moments:
        before = set(threading.enumerate())
        await cancel_the_closing(folder / f"{turns}" / "parcelpost.db", turns)
        left = [thread for thread in threading.enumerate() if thread not in before]
        print(turns, sum(map(is_left, left)), flush=True)  # noqa: T201 - read by the test


async def cancel_the_closing(store: Path, turns: int) -> None:
    is_open = asyncio.Event()

    async def use() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_tasks([a_task("saved"), a_task("held")])
            saved, _held = await lpm.claim(2)
            await lpm.save_result(saved, a_result(body=b"<p>page</p>"))
            is_open.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await is_open.wait()
    task.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def is_left(thread: threading.Thread) -> bool:
    if thread.name.startswith("asyncio_"):
        return False  # the event loop's own pool, which asyncio ends itself
    thread.join(_ENOUGH_SECONDS)
    return thread.is_alive()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), [int(turns) for turns in sys.argv[2:]]))
    os._exit(0)
