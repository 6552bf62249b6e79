"""When to try an upstream again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import NotAllowed, NotNow

SLOWNESS_STATE = "slowness"

_LONGEST_WISH_SECONDS = 3_600.0


class Away(Struct, frozen=True, kw_only=True):
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
        self.away: Away | None = None

    def failed(self, error: NotNow | NotAllowed, now: datetime) -> Away:
        self._seen_at = now
        failures = self.away.failures + 1 if self.away else 1
        wish = 0.0
        if isinstance(error, NotAllowed):
            seconds = self._most
        else:
            seconds = random.uniform(self._least, min(self._most, self._least * 2 ** min(failures, 30)))  # noqa: S311 - jitter
            wish = min(error.retry_after, _LONGEST_WISH_SECONDS)
        self.away = Away(
            since=self.away.since if self.away else now,
            until=now + timedelta(seconds=max(seconds, wish)),
            failures=failures,
            reason=str(error),
            denied=isinstance(error, NotAllowed),
            remedy=error.hint if isinstance(error, NotAllowed) else "",
            takes_nothing=isinstance(error, NotNow) and error.takes_nothing,
            asked=wish > 0,
        )
        return self.away

    def worked(self) -> Away | None:
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
