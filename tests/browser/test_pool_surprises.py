"""What nobody thought of happens in the pool's own tasks: it is told, and the pool goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parcelpost import events
from parcelpost.clock import SystemClock
from parcelpost.events import Event
from parcelpost.scrapers.browser.base import BrowserOptions, BrowserStore
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.fetch.errors import BrowserUnavailable
from parcelpost.storage import LocalPersistenceManager
from tests.browser.pools import PATIENCE, needs_chromium

pytestmark = needs_chromium


class OddLedger:
    """As the store's, but for the one call that does what no ledger should."""

    def __init__(self, ledger: BrowserStore) -> None:
        self._ledger = ledger
        self.odd = ""

    def __getattr__(self, name: str) -> Any:
        if name == self.odd:
            raise RuntimeError("a bug of ours")
        return getattr(self._ledger, name)


async def test_the_pool_goes_on_after_a_surprise_and_who_waits_is_told(tmp_path: Path) -> None:
    told: list[Event] = []
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm, asyncio.timeout(2 * PATIENCE):
        ledger: Any = OddLedger(lpm.browsers)
        options = BrowserOptions(most=1, idle_seconds=0.4)
        async with BrowserPool.open(options, ledger, owner=lpm.owner_id, clock=SystemClock(), emit=told.append) as pool:
            ledger.odd = "add"
            with pytest.raises(BrowserUnavailable, match="RuntimeError: a bug of ours"):
                await use(pool)
            assert pool.figures.problem == "RuntimeError: a bug of ours"
            assert [type(one) for one in told] == [events.BrowsersUnavailable]
            ledger.odd = ""
            async with pool.lend("t1", patience=PATIENCE):
                ledger.odd = "put"
                while not any(isinstance(one, events.LoopFailed) for one in told):
                    await asyncio.sleep(0.01)
                ledger.odd = ""
                while (await lpm.browsers.all())[0].memory_mb is None:
                    await asyncio.sleep(0.01)
            await use(pool)


async def use(pool: BrowserPool) -> None:
    async with pool.lend("t1", patience=PATIENCE) as lent:
        assert await lent.alive(lent.page.evaluate("6 * 7")) == 42
