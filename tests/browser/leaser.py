"""A process that leases pages until it gets SIGTERM, or is killed. Prints its owner id once it has them."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

from parcelpost.clock import SystemClock
from parcelpost.events import ignore
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage import LocalPersistenceManager


async def main(store: str, pages: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with LocalPersistenceManager.open(store) as lpm, AsyncExitStack() as stack:
        options = BrowserSettings(most=pages)  # or another one may be starting when it has them
        opened = BrowserPool.open(options, lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=ignore)
        pool = await stack.enter_async_context(opened)
        for number in range(pages):
            await stack.enter_async_context(pool.lease(f"t{number}", timeout=60.0))
        print(lpm.owner_id, flush=True)  # noqa: T201 - the test reads it
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
