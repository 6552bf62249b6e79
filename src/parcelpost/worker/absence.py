"""An upstream that is away, as one loop sees it: how long to wait, said once, and kept in the store.

Loops that are acquainted help each other: when the upstream answers one of them, the others try soon, too.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

from parcelpost.clock import Clock
from parcelpost.errors import NotAllowed, NotNow, StoreError
from parcelpost.events import Emit, UpstreamAway, UpstreamBack
from parcelpost.settings.keys import SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.backoff import Away, Backoff

_SOON_SECONDS = (1.0, 5.0)  # spread: a fleet that hears of an upstream's return must not come all at once


class Absence:
    """`loop` is also the name under which the store keeps it, for a restart and for those who look."""

    def __init__(
        self, loop: str, lpm: LocalPersistenceManager, settings: SyncSettings, clock: Clock, emit: Emit
    ) -> None:
        self._loop = loop
        self._lpm = lpm
        self._clock = clock
        self._emit = emit
        self._backoff = Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
        self._is_noted = True
        """The store may say that it is away: the last process may have left that word."""
        self._others: Sequence[Absence] = ()
        self._wake: Callable[[str], None] = lambda _: None
        self._hastened_by: Absence | None = None
        """Whose success brought the next try forward. Once: should the try fail, that success says nothing about it."""
        self.is_hastened = False
        """The next try was brought forward and has not come yet."""

    @property
    def away(self) -> Away | None:
        return self._backoff.away

    @property
    def remaining(self) -> float:
        """Seconds until the next try."""
        return self._backoff.remaining(self._clock.now())

    async def load(self) -> None:
        """Goes on where the last process was, unless that was denied: this one may have another token or address."""
        away = await self._lpm.state.get(self._loop, Away)
        self._backoff.away = away if away and away.failures and not away.denied else None

    async def failed(self, error: NotNow | NotAllowed) -> float:
        """Seconds until the next try."""
        is_news = self.away is None or self.away.reason != str(error)
        self.is_hastened = False
        for other in self._others:
            if other._hastened_by is self:
                other._hastened_by = None  # by now it is away for both
        away = self._backoff.failed(error, self._clock.now())
        remaining = self.remaining
        if is_news:
            self._emit(
                UpstreamAway(
                    loop=self._loop,
                    reason=away.reason,
                    denied=away.denied,
                    retry_in_seconds=remaining,
                    remedy=away.remedy,
                )
            )
        self._is_noted = True
        await self._remember(away)
        return remaining

    async def worked(self) -> None:
        now = self._clock.now()
        ended = self._backoff.worked()
        self._hastened_by, self.is_hastened = None, False
        for other in self._others:
            other._hasten(self)
        if ended is not None:
            self._emit(UpstreamBack(loop=self._loop, away_seconds=max(0.0, (now - ended.since).total_seconds())))
        if self._is_noted:
            self._is_noted = not await self._remember(Away(since=now, until=now, failures=0, reason=""))

    def _hasten(self, witness: Absence) -> None:
        if self.away is None or self._hastened_by is not None:
            return
        if self._backoff.hasten(random.uniform(*_SOON_SECONDS), self._clock.now()):  # noqa: S311 - jitter
            self._hastened_by, self.is_hastened = witness, True
            self._wake(self._loop)

    async def _remember(self, away: Away) -> bool:
        """Whether the store could take it."""
        with contextlib.suppress(StoreError):
            await self._lpm.state.put(self._loop, away)
            return True
        return False


def acquaint(absences: Sequence[Absence], wake: Callable[[str], None]) -> None:
    """Of one worker. `wake` is called with the name of a loop that now has less long to wait."""
    for absence in absences:
        absence._others = [other for other in absences if other is not absence]
        absence._wake = wake
