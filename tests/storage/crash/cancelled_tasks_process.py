"""Saves pages after every other task of its event loop was cancelled, and leaves a copy as a crash would leave it.

asyncio.run cancels all tasks at its end, the store's own too, while the store's user may still be saving. In a process
of its own: a thread that is left would keep the one it is in from ending.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from parcelpost.storage import LocalPersistenceManager
from tests.storage.crash.agreement import copy_as_a_crash_leaves_it
from tests.storage.factories import a_result, a_task

_PAGES = 300


async def main(store: Path, left: Path) -> None:
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_tasks(a_task(f"t{number}", parcel_id=f"{number}") for number in range(_PAGES))
        first, *claims = await lpm.claim(_PAGES)
        await lpm.save_result(first, a_result(body=b"<p>first</p>"))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        saves = (lpm.save_result(claim, a_result(body=os.urandom(3_000))) for claim in claims)
        assert all(await asyncio.gather(*saves))
        # A stale one has to remove its page again.
        assert await lpm.save_result(first, a_result(body=b"<p>stale</p>")) is None
        copy_as_a_crash_leaves_it(store, left)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
    os._exit(0)
