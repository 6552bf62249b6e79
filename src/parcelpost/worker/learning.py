"""Learning signals: collects from attempts how each selector did, stores it, and reports broken fields."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import timedelta

from parcelpost.errors import InvalidInput, StoreError
from parcelpost.events import FieldBroken, FieldFixed
from parcelpost.model import Broken, Signal
from parcelpost.scrapers.learning.ranking import Ranking, replay_signals
from parcelpost.scrapers.learning.sections import Sections, SiteHistory
from parcelpost.storage.learning_signals import REMEMBERED
from parcelpost.storage.worker_state import WorkerState
from parcelpost.worker.context import Context
from parcelpost.worker.status import read_statuses

_MOST_WAITING = 20_000
_A_WRITE = 2_000
_RECALLED = timedelta(days=30)
"""Older broken fields are not restored: new pages will show whether they still are."""
_REFRESH_SECONDS = 300.0
_SITES = "site/"
"""Prefix of the names of stored site histories."""


class Learning:
    """No task waits for it. Signals that cannot be stored wait in memory; beyond a limit the oldest are dropped."""

    def __init__(self, context: Context, ranking: Ranking) -> None:
        self._lpm = context.lpm
        self._clock = context.clock
        self._emit = context.emit
        self._name = context.name
        self.ranking = ranking
        self._waiting: deque[Signal] = deque(maxlen=_MOST_WAITING)
        self._is_loaded = False
        self._reported: dict[tuple[str, ...], Broken] | None = None
        self._keys: set[tuple[tuple[str, ...], bool]] = set()
        self._refresh_at = 0.0
        self.broken: list[Broken] = []

    def take(self, signals: Iterable[Signal]) -> None:
        self._waiting.extend(signals)

    async def load(self) -> None:
        """Loads what earlier runs have learned, once. Raises a StoreError."""
        if self._is_loaded:
            return
        before = await self._lpm.signals.recent(REMEMBERED)
        replay_signals(self.ranking, [(stored.signal, stored.created_at) for stored in before])
        statuses = await read_statuses(self._lpm.state)
        fields = next((status.broken for status in statuses if status.name == self._name), ())
        oldest = self._clock.now() - _RECALLED
        self.ranking.restore(field for field in fields if field.since is not None and field.since > oldest)
        await load_sections(self._lpm.state, self.ranking.sections)
        self._is_loaded = True

    async def flush(self) -> None:
        """Stores waiting signals. Raises a StoreError; the rest keeps waiting. Drops invalid signals."""
        most = _A_WRITE
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            try:
                await self._lpm.signals.append(batch)
            except InvalidInput:
                most = max(1, len(batch) // 2)
                if len(batch) > 1:  # one of them is invalid: use smaller batches until it is alone
                    self._waiting.extendleft(reversed(batch))
            except StoreError:
                self._waiting.extendleft(reversed(batch))
                raise
            else:
                most = min(2 * most, _A_WRITE)
        if not self._is_loaded:
            return  # do not overwrite what earlier runs have stored
        for history in self.ranking.sections.take_changed():
            await self._lpm.state.put(_SITES + "/".join(history.site), history)

    def find_broken(self) -> None:
        """Updates `broken` and reports changes."""
        broken = list(self.ranking.broken())
        now = {_key(field): field for field in broken if not field.found_otherwise}
        keys = {(_key(field), field.found_otherwise) for field in broken}
        before = self._reported or {}
        if self._reported is not None and keys == self._keys and self._clock.monotonic() < self._refresh_at:
            return
        for key in now.keys() - before.keys():
            self._emit(_broken_event(now[key]))
        for platform, state, county, field in before.keys() - now.keys():
            self._emit(FieldFixed(platform=platform, site=f"{state}/{county}", field=field))
        self._reported, self._keys, self.broken = now, keys, broken
        self._refresh_at = self._clock.monotonic() + _REFRESH_SECONDS


async def load_sections(state: WorkerState, sections: Sections) -> None:
    """Restores what the pages of each site have shown so far. Raises a StoreError."""
    sections.restore(await state.list(_SITES, SiteHistory))


def _key(field: Broken) -> tuple[str, ...]:
    return field.platform, field.state, field.county, field.field


def _broken_event(broken: Broken) -> FieldBroken:
    return FieldBroken(
        platform=broken.platform,
        site=f"{broken.state}/{broken.county}",
        field=broken.field,
        success_rate=round(broken.success_rate, 2),
        failing=list(broken.failing),
        example=broken.example,
    )
