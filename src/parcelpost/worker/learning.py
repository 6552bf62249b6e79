"""Selector signals: collected from attempts, stored, sent upstream; and what the fleet has learned."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from parcelpost.clock import Clock, iso
from parcelpost.errors import (
    InvalidInput,
    NotOffered,
    Refused,
    StoreError,
    TooLarge,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from parcelpost.events import Emit, ExperienceTaken, FieldBroken, FieldMended
from parcelpost.model import Broken, Signal
from parcelpost.scrapers.learned import remember
from parcelpost.scrapers.learning import Ranking
from parcelpost.settings.schema import SyncSettings
from parcelpost.storage.history import SyncRound
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import MetricsSample, Upstream
from parcelpost.worker.backoff import Backoff
from parcelpost.worker.status import BROKEN_STATE, BrokenFields

_FLUSH_SECONDS = 2.0
_AFTER_FAILURE_SECONDS = 30.0
_MOST_WAITING = 20_000
_A_WRITE = 2_000
_REMEMBERED = 20_000
_RECALLED = timedelta(days=30)
"""What broke before that shows in new pages again, or its selector is no longer in use."""
_TELL_AGAIN_SECONDS = 300.0
_ASK_AGAIN_SECONDS = 3_600.0
_AFTER_REFUSAL_SECONDS = 300.0
_ENOUGH_SAMPLES = 20


class Learning:
    """Off the critical path: what cannot be stored waits here, and beyond a bound the oldest goes."""

    def __init__(
        self, lpm: LocalPersistenceManager, ranking: Ranking, worker_id: str, clock: Clock, emit: Emit
    ) -> None:
        self._lpm = lpm
        self._ranking = ranking
        self._state = BROKEN_STATE + worker_id
        self._clock = clock
        self._emit = emit
        self._waiting: deque[Signal] = deque(maxlen=_MOST_WAITING)
        self._is_loaded = False
        self._told: dict[tuple[str, ...], Broken] | None = None
        self._names: set[tuple[tuple[str, ...], bool]] = set()
        self._tell_at = 0.0
        self.broken: list[Broken] = []

    def take(self, signals: Iterable[Signal]) -> None:
        self._waiting.extend(signals)

    async def step(self) -> float:
        try:
            await self.load()
            await self.flush()
            await self.tell_broken()
        except StoreError:
            return _AFTER_FAILURE_SECONDS  # a full disk is told by those who cannot do without it
        return _FLUSH_SECONDS

    async def load(self) -> None:
        """What was learned before this start, once."""
        if not self._is_loaded:
            before = await self._lpm.signals.recent(_REMEMBERED)
            remember(self._ranking, [(one.signal, one.created_at) for one in before])
            told = await self._lpm.state.get(self._state, BrokenFields)
            oldest = self._clock.now() - _RECALLED
            fields = told.fields if told is not None else ()
            self._ranking.recall(one for one in fields if one.since is not None and one.since > oldest)
            self._is_loaded = True

    async def flush(self) -> None:
        """Raises a StoreError; what was not stored stays, except for what never can be."""
        most = _A_WRITE
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            try:
                await self._lpm.signals.append(batch)
            except InvalidInput:
                most = max(1, len(batch) // 2)
                if len(batch) > 1:  # one of them is at fault: fewer at a time, until it stands alone
                    self._waiting.extendleft(reversed(batch))
            except StoreError:
                self._waiting.extendleft(reversed(batch))
                raise
            else:
                most = min(2 * most, _A_WRITE)

    async def tell_broken(self) -> None:
        """Raises a StoreError."""
        found = list(self._ranking.broken())
        now = {_name(one): one for one in found if not one.found_otherwise}
        names = {(_name(one), one.found_otherwise) for one in found}
        before = self._told or {}
        is_news = self._told is None or names != self._names
        if not is_news and self._clock.monotonic() < self._tell_at:
            return
        for name in now.keys() - before.keys():
            self._emit(_broken_event(now[name]))
        for platform, state, county, field in before.keys() - now.keys():
            self._emit(FieldMended(platform=platform, site=f"{state}/{county}", field=field))
        self._told, self._names, self.broken = now, names, found
        self._tell_at = self._clock.monotonic() + _TELL_AGAIN_SECONDS
        await self._lpm.state.put(self._state, BrokenFields(at=self._clock.now(), fields=tuple(found)))


class FleetExperience:
    """Asks the upstream now and then how selectors do elsewhere. A loop of its own, so that nothing waits for it."""

    def __init__(
        self, upstream: Upstream, ranking: Ranking, platforms: Callable[[], Sequence[str]], emit: Emit
    ) -> None:
        self._upstream = upstream
        self._ranking = ranking
        self._platforms = platforms
        self._emit = emit
        self._is_offered = True

    async def step(self) -> float:
        for platform in self._platforms() if self._is_offered else ():
            try:
                found = await self._upstream.get_selectors(platform)
            except NotOffered:
                self._is_offered = False
                break
            except (Refused, TooLarge):
                continue
            except Unavailable as error:
                return max(_AFTER_REFUSAL_SECONDS, error.retry_after)
            except Unauthorized:
                return _AFTER_REFUSAL_SECONDS
            known = [one for one in found if one.platform == platform and one.samples >= _ENOUGH_SAMPLES]
            self._ranking.take_fleet(
                platform, [(one.field, one.selector_type, one.selector, one.success_rate) for one in known]
            )
            self._emit(ExperienceTaken(platform=platform, selectors=len(known)))
        return _ASK_AGAIN_SECONDS


async def last_flush(learning: Learning) -> None:
    with contextlib.suppress(StoreError):
        await learning.flush()
        await learning.tell_broken()


def _name(one: Broken) -> tuple[str, ...]:
    return one.platform, one.state, one.county, one.field


def _broken_event(one: Broken) -> FieldBroken:
    return FieldBroken(
        platform=one.platform,
        site=f"{one.state}/{one.county}",
        field=one.field,
        success_rate=round(one.success_rate, 2),
        failing=list(one.failing),
        example=one.example,
    )


_EXTRAS_SECONDS = 30.0
_SIGNALS_A_CALL = 500
_SAMPLES_A_CALL = 200
_AFTER_SETTING_BACK = timedelta(hours=1)
_STATE = "metrics_sent"


class _Sent(msgspec.Struct, frozen=True):
    until: datetime


class Extras:
    """A loop of its own, so that nothing waits for it. What an upstream does not offer is not asked for again until the
    next start; what it refuses is no reason to stop anything.
    """

    def __init__(self, lpm: LocalPersistenceManager, upstream: Upstream, settings: SyncSettings, clock: Clock) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._clock = clock
        self._backoff = Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
        self._takes_signals = True
        self._takes_metrics = True

    async def step(self) -> float:
        if not (self._takes_signals or self._takes_metrics) or not self._lpm.leader_locks.take("sync"):
            return _EXTRAS_SECONDS
        try:
            await self._send()
        except (Unavailable, Unauthorized) as error:
            now = self._clock.now()
            self._backoff.failed(error, now)
            return max(_EXTRAS_SECONDS, self._backoff.remaining(now))
        self._backoff.worked()
        return _EXTRAS_SECONDS

    async def last(self) -> None:
        """What is left at the end of a run, unless the upstream is away."""
        if self._backoff.remaining(self._clock.now()) <= 0:
            await self.step()

    async def _send(self) -> None:
        if self._takes_signals:
            try:
                await self._send_signals()
            except (NotOffered, Refused, TooLarge):
                self._takes_signals = False
        if self._takes_metrics:
            try:
                await self._send_metrics()
            except (NotOffered, Refused, TooLarge):
                self._takes_metrics = False

    async def _send_signals(self) -> None:
        while stored := await self._lpm.signals.unsynced(_SIGNALS_A_CALL):
            async with self._logged("learning_signals", len(stored)):
                await self._upstream.submit_signals([one.signal for one in stored], stored[0].signal_id)
            await self._lpm.signals.mark_synced([one.signal_id for one in stored])

    async def _send_metrics(self) -> None:
        now = self._clock.now()
        since = await self._sent_until(now)
        found = await self._lpm.metrics.since(since, _SAMPLES_A_CALL)
        new = [timed for timed in found if since < timed.timestamp <= now]
        if not new:
            return
        samples = [
            MetricsSample(timestamp=iso(timed.timestamp), values=msgspec.to_builtins(timed.sample)) for timed in new
        ]
        async with self._logged("agent_metrics", len(samples)):
            await self._upstream.submit_metrics(samples)
        await self._lpm.state.put(_STATE, _Sent(new[-1].timestamp))

    @asynccontextmanager
    async def _logged(self, record_type: str, count: int) -> AsyncIterator[None]:
        """A line in the sync log, whether the round worked or not. What is not offered is no round."""
        started = self._clock.monotonic()
        try:
            yield
        except NotOffered:
            raise
        except UpstreamError as error:
            await self._log(record_type, 0, started, str(error))
            raise
        await self._log(record_type, count, started, None)

    async def _log(self, record_type: str, count: int, started: float, error: str | None) -> None:
        line = SyncRound(
            direction="upload",
            record_type=record_type,
            record_count=count,
            success=error is None,
            error=error,
            duration_ms=int((self._clock.monotonic() - started) * 1000),
        )
        with contextlib.suppress(StoreError):
            await self._lpm.sync_log.record(line)

    async def _sent_until(self, now: datetime) -> datetime:
        sent = await self._lpm.state.get(_STATE, _Sent)
        if sent is None:
            return datetime.fromtimestamp(0, now.tzinfo)
        return sent.until if sent.until <= now else now - _AFTER_SETTING_BACK  # the clock was set back
