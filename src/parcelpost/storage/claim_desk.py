"""Hands out claims: a few at a time from the store when callers come fast, one by one when they do not.

Claims taken ahead are invisible: they go back when something more urgent may have come, when anybody looks at the
queue, and 50 ms after the last of them were taken. A crash gives them back like all others (I9).
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count

from parcelpost.clock import Clock, iso
from parcelpost.model import Claim
from parcelpost.storage import tasks
from parcelpost.storage.db import LocalDatabase

_MAX_AHEAD = 1_024
_HOLD_SECONDS = 0.05
_NEVER = "9999"


class ClaimDesk:
    def __init__(self, database: LocalDatabase, owner_id: str, clock: Clock) -> None:
        self._db = database
        self._owner_id = owner_id
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tokens = count(1)
        self._ahead: deque[Claim] = deque()
        self._wish = tasks.Wish()
        """Whose tasks were taken ahead."""
        self._valid_until = _NEVER
        """When the store's order may change by the mere passing of time."""
        self._stale = False
        self._extra = 0
        self._handed_out = 0
        self._fetched_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._fetching: asyncio.Future[tasks.Claimed] | None = None
        self._refilling = asyncio.Lock()
        self._waiting = 0
        self._refills = 0
        self._came_short: tuple[tasks.Wish, int] = (tasks.Wish(), -1)
        """For whom, and in which refill, there was less than asked for."""

    async def take(self, limit: int, wish: tasks.Wish) -> list[Claim]:
        found = self._from_ahead(limit, wish)
        if found is not None:
            return found
        arrived = self._refills
        self._waiting += limit
        try:
            async with self._refilling:
                found = self._from_ahead(limit, wish)
                if found is not None:
                    return found
                wished, refill = self._came_short
                if wished == wish and refill > arrived and self._is_valid():
                    # A refill that began after this caller came found nothing more than this.
                    return self._from_ahead(min(limit, len(self._ahead)), wish) or []
                return await self._refill(limit, wish)
        finally:
            self._waiting -= limit

    def invalidate(self) -> None:
        """Something changed that may put another task before those taken ahead."""
        self._stale = True

    def arrived(self, priority: int) -> None:
        """A task came. One that is no more urgent than those taken ahead goes behind them anyway."""
        if self._is_fetching() or (self._ahead and priority < self._ahead[-1].task.priority):
            self._stale = True

    def due_at(self, moment: str) -> None:
        """A task will be due then."""
        self._valid_until = min(moment, self._valid_until)
        self._stale = self._stale or self._is_fetching()

    async def put_back(self) -> None:
        """Nothing is held ahead when this returns, unless the store cannot be written at the moment."""
        async with self._refilling:
            await self._settled()
            claims = self._empty()
            if claims:
                await asyncio.wait([self._give_back(claims)])

    def _from_ahead(self, limit: int, wish: tasks.Wish) -> list[Claim] | None:
        ahead = self._ahead
        if len(ahead) < limit or self._wish != wish or not self._is_valid():
            return None
        found = [ahead.popleft() for _ in range(limit)]
        self._handed_out += limit
        if len(ahead) < self._extra // 2 and self._fetching is None:
            # More are asked for before the last one is gone, so that fast callers do not wait.
            self._fetch(self._pace() - len(ahead), [])
        return found

    async def _refill(self, limit: int, wish: tasks.Wish) -> list[Claim]:
        await self._settled()
        self._refills += 1
        number = self._refills
        wanted = self._waiting + self._pace()
        give_back = self._empty()
        self._wish = wish
        fetching = self._fetch(wanted, give_back)
        await asyncio.wait([fetching])
        if len(fetching.result().claims) < wanted:
            self._came_short = (wish, number)
        elif not self._ahead:
            return await self._refill(limit, wish)  # quicker callers took them all before this one's turn came
        self._handed_out += limit
        return [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]

    def _fetch(self, limit: int, give_back: list[Claim]) -> asyncio.Future[tasks.Claimed]:
        """What comes is kept ahead, whatever becomes of the caller that asked."""
        token = f"{self._owner_id}:{next(self._tokens)}"
        request = tasks.ClaimRequest(
            self._owner_id,
            token,
            self._now(),
            limit,
            self._wish,
            [(claim.seq, claim.token) for claim in give_back],
        )

        def fetched(future: asyncio.Future[tasks.Claimed]) -> None:
            self._fetching = None
            if future.exception() is None:
                found = future.result()
                self._keep(found.claims, found.valid_until)
            else:
                self._keep(give_back, "")

        self._handed_out = 0
        self._fetched_at = self._loop.time()
        self._fetching = self._db.start_together(tasks.claim_each, request, durable=False)
        self._fetching.add_done_callback(fetched)
        return self._fetching

    async def _settled(self) -> None:
        while self._fetching is not None:
            await asyncio.wait([self._fetching])

    def _keep(self, claims: list[Claim], valid_until: str) -> None:
        self._ahead.extend(claims)
        self._valid_until = min(self._valid_until, valid_until)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_HOLD_SECONDS, self._time_is_up)

    def _pace(self) -> int:
        """How many to take ahead: twice as many as last time, up to twice what goes in the time they may be held.

        Twice, because the next are asked for when half are gone: while those are on their way, as many callers as go
        in one round through the store find the other half.
        """
        if self._timer is None:
            self._extra = 0
        else:
            seconds = max(self._loop.time() - self._fetched_at, 1e-6)
            goes = 2 * int(self._handed_out / seconds * _HOLD_SECONDS)
            self._extra = max(1, min(max(self._extra, self._waiting) * 2, goes, _MAX_AHEAD))
        return self._extra

    def _time_is_up(self) -> None:
        self._timer = None
        self._extra = 0
        claims = self._empty()
        if claims and not self._db.is_closed:
            self._give_back(claims)

    def _give_back(self, claims: list[Claim]) -> asyncio.Future[int]:
        def given_back(future: asyncio.Future[int]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._keep(claims, "")  # not now: tried again when their time is up once more

        keys = [(claim.seq, claim.token) for claim in claims]
        giving = self._db.start(tasks.release, keys, self._now(), None)
        giving.add_done_callback(given_back)
        return giving

    def _empty(self) -> list[Claim]:
        claims = list(self._ahead)
        self._ahead.clear()
        self._stale = False
        self._valid_until = _NEVER
        return claims

    def _is_valid(self) -> bool:
        return not self._stale and (self._valid_until == _NEVER or self._now() < self._valid_until)

    def _is_fetching(self) -> bool:
        return self._fetching is not None or self._refilling.locked()

    def _now(self) -> str:
        return iso(self._clock.now())
