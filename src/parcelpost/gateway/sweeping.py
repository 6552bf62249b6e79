"""What the gateway does by itself: leases that are over, old rows, counts on their way to the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from parcelpost.errors import LedgerError
from parcelpost.events import LeasesEnded, LedgerFound, LedgerLost, LedgerPruned
from parcelpost.gateway.parts import Parts

_TURN_SECONDS = 2.0
_PRUNE_SECONDS = 60.0
_A_TIME = 1_000
_MOST_ROUNDS = 20


class Sweeper:
    """One turn every few seconds until told to stop. A ledger that is away is waited for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._away_since: float | None = None
        self._prune_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        while not await self._parts.clock.wait(stop, await self.step()):
            pass
        await self.step()  # what was counted last

    async def step(self) -> float:
        """Answers the seconds until the next turn."""
        try:
            await self._bring_back()
            await self._flush()
            await self._prune()
        except LedgerError as error:
            self._lost(error)
        else:
            self._found()
        return _TURN_SECONDS

    async def _bring_back(self) -> None:
        queued, dead = Counter[str](), Counter[str]()
        for _ in range(_MOST_ROUNDS):
            ended = await self._parts.ledger.bring_back(self._parts.clock.now(), _A_TIME)
            queued.update(ended.queued)
            dead.update(ended.dead)
            if len(ended.queued) + len(ended.dead) < _A_TIME:
                break
        for outcome, platforms in (("expired", queued), ("dead", dead)):
            for platform, number in platforms.items():
                self._parts.tally.count(platform, outcome, number)
        if queued or dead:
            self._parts.emit(LeasesEnded(queued=queued.total(), dead=dead.total()))

    async def _flush(self) -> None:
        taken = dict(self._parts.tally.take())
        try:
            for minute in list(taken):
                await self._parts.ledger.add_activity(taken[minute], minute)
                del taken[minute]
        finally:
            for minute, counts in taken.items():
                self._parts.tally.put_back(minute, counts)

    async def _prune(self) -> None:
        """A little at a time, so that nobody waits long for the ledger."""
        if self._parts.clock.monotonic() < self._prune_at:
            return
        before = self._parts.clock.now() - timedelta(days=self._parts.settings.keep_days)
        removed = await self._parts.ledger.prune(before, _A_TIME)
        if removed:
            self._parts.emit(LedgerPruned(removed=removed))
        else:
            self._prune_at = self._parts.clock.monotonic() + _PRUNE_SECONDS

    def _lost(self, error: LedgerError) -> None:
        if self._away_since is None:
            self._away_since = self._parts.clock.monotonic()
            self._parts.emit(LedgerLost(reason=str(error)))

    def _found(self) -> None:
        if self._away_since is not None:
            self._parts.emit(LedgerFound(away_seconds=self._parts.clock.monotonic() - self._away_since))
            self._away_since = None
