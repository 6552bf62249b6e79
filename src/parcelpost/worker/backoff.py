"""Whether the upstream can be reached, and when each loop tries again after a failure."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.events import Emit, UpstreamOffline, UpstreamOnline
from parcelpost.settings.schema import SyncSettings
from parcelpost.worker.control import Control

COLLECTOR = "collector"
SYNC = "sync"
HEARTBEAT = "heartbeat"

_LONGEST_REQUEST_SECONDS = 3_600.0


class Offline(Struct, frozen=True, kw_only=True):
    """Why and since when a loop cannot use the upstream, and when it tries again. Survives restarts."""

    since: datetime
    until: datetime
    failures: int
    reason: str
    denied: bool = False
    """The upstream rejected this worker's credentials: an operator must act."""
    remedy: str = ""
    """What the operator can do."""
    responded: bool = False
    """It can be reached, but responds with an error."""
    takes_nothing: bool = False
    """It responds, but stores nothing."""
    requested: bool = False
    """The upstream requested this pause, so nothing shortens it."""


class Backoff:
    """Doubles from `least` to `most` seconds, with jitter between `least` and the doubled value.

    Never shorter than the upstream requests (up to an hour); always `most` after a rejection of our credentials.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._seen_at = datetime.min.replace(tzinfo=UTC)
        self.offline: Offline | None = None
        self.brought_forward_by = ""
        """The loop whose success brought the next try forward. Only once: if that try fails, the paths differ."""
        self.retries_early = False
        """Whether the next try was brought forward and has not been made yet."""

    def failed(self, error: Unavailable | Unauthorized, now: datetime) -> Offline:
        self._seen_at = now
        self.retries_early = False
        failures = self.offline.failures + 1 if self.offline else 1
        requested = 0.0
        if isinstance(error, Unauthorized):
            seconds = self._most
        else:
            seconds = random.uniform(self._least, min(self._most, self._least * 2 ** min(failures, 30)))  # noqa: S311 - jitter
            requested = min(error.retry_after, _LONGEST_REQUEST_SECONDS)
        self.offline = Offline(
            since=self.offline.since if self.offline else now,
            until=now + timedelta(seconds=max(seconds, requested)),
            failures=failures,
            reason=str(error),
            denied=isinstance(error, Unauthorized),
            remedy=error.hint if isinstance(error, Unauthorized) else "",
            responded=isinstance(error, Unavailable) and error.responded,
            takes_nothing=isinstance(error, Unavailable) and error.takes_nothing,
            requested=requested > 0,
        )
        return self.offline

    def worked(self) -> Offline | None:
        """Resets the backoff. Returns the outage that this ends, if there was one."""
        ended, self.offline = self.offline, None
        self.brought_forward_by, self.retries_early = "", False
        return ended

    def retry_within(self, seconds: float, now: datetime) -> bool:
        """Brings the next try forward. Returns False if the upstream is online or requested the pause."""
        remaining = self.remaining(now)
        if self.offline is None or self.offline.requested:
            return False
        self.offline = replace(self.offline, until=now + timedelta(seconds=min(seconds, remaining)))
        return True

    def remaining(self, now: datetime) -> float:
        """Returns the seconds until the next try. A clock that is set back does not delay it."""
        if self.offline is None:
            return 0.0
        latest = now + timedelta(seconds=max(self._most, _LONGEST_REQUEST_SECONDS))
        set_back = max(self._seen_at - now, timedelta(0))
        self.offline = replace(self.offline, until=min(self.offline.until - set_back, latest))
        self._seen_at = now
        return max(0.0, (self.offline.until - now).total_seconds())


_EARLY_SECONDS = (1.0, 5.0)  # random, so that a fleet does not return to a recovered upstream all at once


class UpstreamState:
    """The state of the upstream, shared by all loops of a worker.

    Each loop has its own backoff, because one endpoint of a gateway can fail alone. A loop that reaches the upstream
    brings the next try of the others forward, once.
    """

    def __init__(self, settings: SyncSettings, control: Control, clock: Clock, emit: Emit) -> None:
        self._control = control
        self._clock = clock
        self._emit = emit
        self._loops = {
            loop: Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
            for loop in (SYNC, COLLECTOR, HEARTBEAT)
        }

    @property
    def outages(self) -> dict[str, Offline]:
        """Returns outages by loop; empty while the upstream is online."""
        return {loop: backoff.offline for loop, backoff in self._loops.items() if backoff.offline}

    def offline(self, loop: str) -> Offline | None:
        return self._loops[loop].offline

    def remaining(self, loop: str) -> float:
        """Returns the seconds until the loop's next try."""
        return self._loops[loop].remaining(self._clock.now())

    def retries_early(self, loop: str) -> bool:
        """Whether its next try was brought forward and has not been made yet."""
        return self._loops[loop].retries_early

    def restore(self, loop: str, outage: Offline | None) -> None:
        """Continues the backoff of another process, unless its credentials were rejected: ours may be new."""
        if outage is not None and not outage.denied:
            self._loops[loop].offline = outage

    def clear(self, loop: str) -> None:
        """Clears the loop's state: it has reached the upstream, or from now on a peer process makes its calls."""
        if ended := self._loops[loop].worked():
            seconds = (self._clock.now() - ended.since).total_seconds()
            self._emit(UpstreamOnline(loop=loop, offline_seconds=max(0.0, seconds)))

    def failed(self, loop: str, error: Unavailable | Unauthorized) -> float:
        """Returns the seconds until the next try."""
        backoff = self._loops[loop]
        before = backoff.offline
        for other in self._loops.values():
            if other.brought_forward_by == loop:
                other.brought_forward_by = ""  # both are offline now
        offline = backoff.failed(error, self._clock.now())
        remaining = self.remaining(loop)
        if before is None or before.reason != offline.reason:
            self._emit(
                UpstreamOffline(
                    loop=loop,
                    reason=offline.reason,
                    denied=offline.denied,
                    responded=offline.responded,
                    retry_in_seconds=remaining,
                    remedy=offline.remedy,
                )
            )
        return remaining

    def worked(self, loop: str) -> None:
        self.clear(loop)
        for name, other in self._loops.items():
            early = random.uniform(*_EARLY_SECONDS)  # noqa: S311 - jitter
            if name != loop and not other.brought_forward_by and other.retry_within(early, self._clock.now()):
                other.brought_forward_by, other.retries_early = loop, True
                self._control.wake(name)
