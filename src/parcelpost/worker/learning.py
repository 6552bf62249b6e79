"""What pages teach: signals go to the store in bulk, broken fields are told, the fleet is asked for its experience."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from parcelpost.client.upstream import Upstream
from parcelpost.clock import Clock
from parcelpost.errors import InvalidInput, NotAllowed, NotNow, NotOffered, Refused, StoreError, TooLarge
from parcelpost.events import Emit, ExperienceTaken, FieldBroken, FieldMended
from parcelpost.model import Broken, Signal
from parcelpost.scrapers.learned import remember
from parcelpost.scrapers.learning import Ranking
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.broken import BROKEN_STATE, BrokenFields

_TURN_SECONDS = 2.0
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
        return _TURN_SECONDS

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
            except NotNow as error:
                return max(_AFTER_REFUSAL_SECONDS, error.retry_after)
            except NotAllowed:
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
