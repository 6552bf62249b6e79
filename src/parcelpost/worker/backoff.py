"""When to try an upstream again, and its state: online, offline since when and why."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError, Unauthorized, Unavailable
from parcelpost.events import Emit, UpstreamAway, UpstreamBack
from parcelpost.settings.schema import SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager

SLOWNESS_STATE = "slowness"

_LONGEST_WISH_SECONDS = 3_600.0


class Offline(Struct, frozen=True, kw_only=True):
    """Since when and why an upstream cannot be used, and when it is tried next. Kept over restarts."""

    since: datetime
    until: datetime
    failures: int
    reason: str
    denied: bool = False
    """It does not want us: a person must look."""
    remedy: str = ""
    """What that person can do."""
    takes_nothing: bool = False
    """It answers, and stores nothing of what it is sent."""
    asked: bool = False
    """It asked not to be called before: nothing shortens that."""


class Slowness(Struct, frozen=True, kw_only=True):
    """Kept in the store, for a restart and for those who look."""

    since: datetime
    """When a batch first took longer than the gateway is waited for."""
    batch_size: int
    """How many results go at once since then; 0: it is over."""


class Backoff:
    """Doubles from `least` to `most` seconds, spread by chance between `least` and the doubled value.

    Never shorter than what the upstream asked for (up to an hour); always the longest where it denies us.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._seen_at = datetime.min.replace(tzinfo=UTC)
        self.away: Offline | None = None

    def failed(self, error: Unavailable | Unauthorized, now: datetime) -> Offline:
        self._seen_at = now
        failures = self.away.failures + 1 if self.away else 1
        wish = 0.0
        if isinstance(error, Unauthorized):
            seconds = self._most
        else:
            seconds = random.uniform(self._least, min(self._most, self._least * 2 ** min(failures, 30)))  # noqa: S311 - jitter
            wish = min(error.retry_after, _LONGEST_WISH_SECONDS)
        self.away = Offline(
            since=self.away.since if self.away else now,
            until=now + timedelta(seconds=max(seconds, wish)),
            failures=failures,
            reason=str(error),
            denied=isinstance(error, Unauthorized),
            remedy=error.hint if isinstance(error, Unauthorized) else "",
            takes_nothing=isinstance(error, Unavailable) and error.takes_nothing,
            asked=wish > 0,
        )
        return self.away

    def worked(self) -> Offline | None:
        """Starts over. Answers what has ended by this, if anything."""
        ended, self.away = self.away, None
        return ended

    def hasten(self, seconds: float, now: datetime) -> bool:
        """The next try comes in that time, if it would come later. False: it is not away, or asked for its wait."""
        remaining = self.remaining(now)
        if self.away is None or self.away.asked:
            return False
        self.away = replace(self.away, until=now + timedelta(seconds=min(seconds, remaining)))
        return True

    def remaining(self, now: datetime) -> float:
        """Seconds until the next try. They go by, and the next try comes, wherever the clock was set back to."""
        if self.away is None:
            return 0.0
        latest = now + timedelta(seconds=max(self._most, _LONGEST_WISH_SECONDS))
        set_back = max(self._seen_at - now, timedelta(0))
        self.away = replace(self.away, until=min(self.away.until - set_back, latest))
        self._seen_at = now
        return max(0.0, (self.away.until - now).total_seconds())


_SOON_SECONDS = (1.0, 5.0)  # spread: a fleet that hears of an upstream's return must not come all at once


class UpstreamState:
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
        self._others: Sequence[UpstreamState] = ()
        self._wake: Callable[[str], None] = lambda _: None
        self._hastened_by: UpstreamState | None = None
        """Whose success brought the next try forward. Once: should the try fail, that success says nothing about it."""
        self.is_hastened = False
        """The next try was brought forward and has not come yet."""

    @property
    def away(self) -> Offline | None:
        return self._backoff.away

    @property
    def remaining(self) -> float:
        """Seconds until the next try."""
        return self._backoff.remaining(self._clock.now())

    async def load(self) -> None:
        """Goes on where the last process was, unless that was denied: this one may have another token or address."""
        away = await self._lpm.state.get(self._loop, Offline)
        self._backoff.away = away if away and away.failures and not away.denied else None

    async def failed(self, error: Unavailable | Unauthorized) -> float:
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
            self._is_noted = not await self._remember(Offline(since=now, until=now, failures=0, reason=""))

    def _hasten(self, witness: UpstreamState) -> None:
        if self.away is None or self._hastened_by is not None:
            return
        if self._backoff.hasten(random.uniform(*_SOON_SECONDS), self._clock.now()):  # noqa: S311 - jitter
            self._hastened_by, self.is_hastened = witness, True
            self._wake(self._loop)

    async def _remember(self, away: Offline) -> bool:
        """Whether the store could take it."""
        with contextlib.suppress(StoreError):
            await self._lpm.state.put(self._loop, away)
            return True
        return False


def share_state(absences: Sequence[UpstreamState], wake: Callable[[str], None]) -> None:
    """Of one worker. `wake` is called with the name of a loop that now has less long to wait."""
    for absence in absences:
        absence._others = [other for other in absences if other is not absence]
        absence._wake = wake
