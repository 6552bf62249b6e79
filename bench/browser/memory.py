"""What browsers, driver and our own process take while many pages go through the pool."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from bench.browser.ways import CALLERS, PAST_THE_GUARD, opened_pool, read
from bench.report import progress
from parcelpost.scrapers.browsers import processes
from parcelpost.storage.lpm import LocalPersistenceManager

FIRST = 50
_EVERY = 10


@dataclass(frozen=True, slots=True)
class Growth:
    pages: int
    bytes_at: dict[int, int]
    """Pages had -> PSS of everything."""

    @property
    def first(self) -> int:
        return self.bytes_at[FIRST]

    @property
    def last(self) -> int:
        """The most of the last fifty pages: a browser that was retired just before the end would flatter."""
        return max(found for pages, found in self.bytes_at.items() if pages > self.pages - FIRST)

    @property
    def most(self) -> int:
        return max(self.bytes_at.values())


async def grow(folder: Path, site: str, pages: int) -> Growth:
    todo, bytes_at, had = iter(range(pages)), {}, 0
    async with opened_pool(folder) as (lpm, pool):

        async def work() -> None:
            nonlocal had
            for number in todo:
                async with pool.lend(f"t{number}", patience=120.0, proxy=PAST_THE_GUARD) as lent:
                    await lent.alive(read(lent.page, site, number))
                had += 1
                if had % _EVERY == 0:
                    bytes_at[had] = await _everything(lpm)
                if had % 100 == 0:
                    progress(f"memory: {had} pages, {bytes_at[had] / 1024**2:,.0f} MiB")

        await asyncio.gather(*(work() for _ in range(CALLERS)))
    return Growth(pages, bytes_at)


async def _everything(lpm: LocalPersistenceManager) -> int:
    """While pages are open, as it is in life."""
    rows = await lpm.browsers.all()
    browsers = [one for row in rows if row.pid for one in processes.group_of(row.pid, row.started, row.executable)]
    others = {pid for row in rows if (pid := row.driver_pid)} | {os.getpid()}
    return processes.memory([*browsers, *(one for pid in others if (one := processes.look(pid)))])
