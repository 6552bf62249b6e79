"""One worker's parts, wired together, and when a run that should end by itself is over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import Struct, field

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, WorkerStarted
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.turns import Turns
from parcelpost.settings import Settings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.queries import Failures
from parcelpost.telemetry import Figures
from parcelpost.upstream.base import Upstream
from parcelpost.worker.backoff import Offline, share_state
from parcelpost.worker.collector import Collector
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.heartbeat import HeartbeatLoop
from parcelpost.worker.janitor import JanitorLoop, Progress, StorageWatch, figures
from parcelpost.worker.learning import Extras, FleetExperience, Learning, last_flush
from parcelpost.worker.loop import LONGEST_TURN_SECONDS, SYNC, Supervisor
from parcelpost.worker.resources import Browsers, Resources
from parcelpost.worker.status import Pressure, ShortageNotes
from parcelpost.worker.sync import SyncManager

_LOOK_SECONDS = 0.5


class UntilEmpty:
    def __init__(
        self,
        lpm: LocalPersistenceManager,
        control: Control,
        *,
        active: Callable[[], int],
        offers_nothing: Callable[[], bool],
        delivers: bool,
        away: Callable[[], Offline | None],
        give_up_seconds: float,
        clock: Clock,
        platforms: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        """`platforms`: whose tasks this worker takes, None for everybody's. It does not wait for those of others.

        `away`: why no tasks can be asked for. `give_up_seconds`: how long to wait for an upstream that is away, once
        nothing is left to do without it.
        """
        self._lpm = lpm
        self._control = control
        self._active = active
        self._offers_nothing = offers_nothing
        self._platforms = platforms
        self._delivers = delivers
        """Whether there is somebody to deliver to: otherwise results stay here."""
        self._away = away
        self._give_up_seconds = give_up_seconds
        self._clock = clock
        self._waits_since: float | None = None
        """By the monotonic clock: since when there is nothing to do but to wait for an upstream that is away."""
        self.gave_up: Offline | None = None
        """What the run ended on, if not on an empty store."""

    async def step(self) -> float:
        if self._active() or await self._lpm.is_any_open(self._platforms()):
            self._waits_since = None
            return _LOOK_SECONDS
        undelivered = self._delivers and bool(await self._lpm.get_unsynced_results(1))
        if self._offers_nothing() and not undelivered:
            self._control.leave("nothing is left to do")
            return _LOOK_SECONDS
        away = self._away() or await self._undelivered_why()
        if away is None:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self._clock.monotonic()
        elif self._clock.monotonic() - self._waits_since >= self._give_up_seconds:
            self.gave_up = away
            self._control.leave(f"the upstream was away for {self._give_up_seconds:g} s")
        return _LOOK_SECONDS

    async def _undelivered_why(self) -> Offline | None:
        """As the process that delivers has noted it; that may be a peer."""
        noted = await self._lpm.state.get(SYNC, Offline)
        return noted if noted and noted.failures else None


ONE_BY_ONE = "one by one"

_OBSERVE_SECONDS = 10.0
_LAST_ANSWER_SECONDS = 5.0
_LATELY = timedelta(days=1)
_LONGEST_CHORES_SECONDS = 43_200.0  # a backup or a VACUUM of a very large store


class Context(Struct, frozen=True, kw_only=True):
    """What a worker works with; made by whoever starts it."""

    lpm: LocalPersistenceManager
    upstream: Upstream
    delivers: bool
    """Whether the upstream takes results: standalone work may have nowhere to send them."""
    factory: ScraperFactory
    settings: Settings
    worker_id: str
    """Upstream: the same for every process on the store."""
    name: str
    """Of this process, among those."""
    version: str
    clock: Clock
    emit: Emit
    progress_seconds: float
    """How often it says how the work stands."""
    ranking: Ranking = field(default_factory=Ranking)
    """How the selectors do; the same that the factory's platforms use."""
    turns: Turns = field(default_factory=Turns)
    """Which have a turn free; those of the fetcher that the factory's platforms use."""
    browsers: Browsers | None = None
    """None: there is no pool."""
    most_browsers: int = 0
    """What the operator wants at most, however much memory there is."""
    emulator: str = ""
    """Where an imitation of Firestore is used in its place; '': nowhere."""
    observe: Callable[[Figures], None] | None = None
    """Told now and then how queue and store stand."""


class Worker:
    def __init__(self, tools: Context, control: Control) -> None:
        self.tools = tools
        lpm, settings, clock, emit = tools.lpm, tools.settings, tools.clock, tools.emit
        self.control = control
        self.failures: Failures | None = None
        """Of the last day; looked at only where somebody asks for figures."""
        self.end: UntilEmpty | None = None
        """Of a run that ends by itself."""
        self.crew = crew = Supervisor(control, clock, emit)
        self.watch = StorageWatch(lpm, emit)
        self.resources = Resources(
            settings.resources, browsers=tools.browsers, most_browsers=tools.most_browsers, clock=clock, emit=emit
        )
        self.shortage = ShortageNotes(self.resources, lpm, tools.name, clock)
        self.progress = Progress(lpm, emit, tools.progress_seconds)
        self.sync = SyncManager(lpm, tools.upstream, settings.sync, clock, emit)
        self.learning = Learning(lpm, tools.ranking, tools.name, clock, emit)
        self.experience = FleetExperience(tools.upstream, tools.ranking, self.platforms, emit)
        self.extras = Extras(lpm, tools.upstream, settings.sync, clock)
        self.executor = Executor(
            lpm,
            tools.factory,
            settings.executor,
            control,
            platforms=self._chosen,
            level=self.watch.level,
            saved=lambda: crew.wake("sync"),
            ran_dry=lambda: crew.wake("collector"),
            clock=clock,
            emit=emit,
            pressure=lambda: self.resources.pressure,
            turns=tools.turns,
            learn=self.learning.take,
        )
        self.collector = Collector(
            lpm,
            tools.upstream,
            settings.collector,
            settings.sync,
            control,
            platforms=self.platforms,
            level=self.watch.level,
            arrived=self._wake_slots,
            clock=clock,
            emit=emit,
        )
        self.heartbeat = HeartbeatLoop(
            lpm,
            tools.upstream,
            settings.heartbeat,
            settings.sync,
            control,
            worker_id=tools.worker_id,
            name=tools.name,
            version=tools.version,
            platforms=self.platforms,
            known_platforms=tools.factory.names,
            active=lambda: self.executor.active + self.collector.unstored,
            disk_free=lambda: self.watch.usage.disk_free if self.watch.usage else 0,
            load=lambda: self.resources.load,
            broken=lambda: self.learning.broken,
            sync_now=self._sync_now,
            clock=clock,
            emit=emit,
        )
        self.janitor = JanitorLoop(
            lpm,
            settings.janitor,
            settings.executor,
            level=self.watch.fill_level,
            load=lambda: self.resources.load,
            clock=clock,
            emit=emit,
        )
        share_state([self.sync.absence, self.collector.absence, self.heartbeat.absence], crew.wake)

    def platforms(self) -> Sequence[str]:
        """Whose tasks this worker asks for, by the upstream's order, the settings, or what is installed."""
        known = self.tools.factory.names()
        chosen = self._chosen()
        return sorted(known if chosen is None else chosen & frozenset(known))

    def _chosen(self) -> frozenset[str] | None:
        """None: everybody's tasks are taken from the store, so that one of no platform that is known ends too (I1)."""
        return self.control.platforms or frozenset(self.tools.settings.worker.platforms) or None

    def problems(self) -> list[str]:
        """What keeps this worker from its work, for people and probes."""
        found = []
        if self.control.leaving.is_set():
            found.append(f"draining: {self.control.reason}")
        upstream = "Firestore" if self.tools.settings.worker.upstream == "firestore" else "the gateway"
        if self.control.paused:
            found.append(f"paused by {upstream}")
        if self.watch.missing:
            found.append(self.watch.missing)
        elif (level := self.watch.level()) != "fine":
            lacks_inodes = self.watch.usage is not None and self.watch.usage.lacks_inodes
            found.append(f"storage: {level}{' (no free inodes)' if lacks_inodes else ''}")
        if self.resources.pressure >= Pressure.NO_NEW_TASKS:
            found.append(self.resources.summary)
        if self.sync.problem:
            found.append(f"the store does not take the marks of what was delivered: {self.sync.problem}")
        aways = (self.sync.away, self.collector.away, self.heartbeat.away)
        denials = {away.reason for away in aways if away is not None and away.denied}
        found += [f"{upstream} does not let us in: {reason}" for reason in sorted(denials)]
        return found

    def stuck(self) -> list[str]:
        """Loops whose turn does not end: only a new start would help. One that waits for the store is none, be it that
        the janitor holds it for long or that it cannot be written.
        """
        overdue = self.crew.overdue()
        if "janitor" not in overdue and self.crew.is_in_a_turn("janitor"):
            return []
        of_slots = {name for slot in self.executor.slots for name in slot.loops} | {ONE_BY_ONE}
        return [name for name in overdue if not (self.executor.holds_unstored and name in of_slots)]

    def warnings(self) -> list[str]:
        """What makes this worker slower, or keeps some tasks waiting, though it does its work."""
        slow = [self.resources.summary] if self.resources.pressure is Pressure.SLOW else []
        hung = [f"process {one} on the same store gives no sign of life" for one in self.tools.lpm.hung_peers()]
        return slow + hung + [one.text for one in self.executor.browser_waits]

    def add_slots(self) -> None:
        for slot in self.executor.slots:
            for name, step in slot.loops.items():
                self.crew.add(name, step, self.longest_attempt_seconds)

    @property
    def longest_attempt_seconds(self) -> float:
        """Of one hand of a slot, which may have to wait for the other."""
        return 2 * self.tools.settings.executor.task_timeout_seconds + LONGEST_TURN_SECONDS

    def add_delivery(self) -> None:
        """Sync and heartbeat, where there is somebody to hear them."""
        if self.tools.delivers:
            self.crew.add("sync", self.sync.step)
            self.crew.add("heartbeat", self.heartbeat.step)
            self.crew.add("extras", self.extras.step)
            self.crew.add("experience", self.experience.step)

    def add_housekeeping(self) -> None:
        self.crew.add("storage", self.watch.step)
        self.crew.add("resources", self.resources.step)
        self.crew.add("shortage", self.shortage.step)
        self.crew.add("progress", self.progress.step)
        self.crew.add("janitor", self.janitor.step, _LONGEST_CHORES_SECONDS)
        self.crew.add("learning", self.learning.step)
        if self.tools.observe is not None:
            self.crew.add("figures", self._observe)

    def add_end(self, *, collects: bool) -> None:
        """The run ends when there is nothing left to do."""
        self.end = UntilEmpty(
            self.tools.lpm,
            self.control,
            active=lambda: self.executor.active,
            offers_nothing=lambda: not collects or (self.collector.offers_nothing and not self.collector.is_asking),
            platforms=self._chosen,
            delivers=self.tools.delivers,
            away=lambda: self.collector.away,
            give_up_seconds=self.tools.settings.worker.give_up_seconds,
            clock=self.tools.clock,
        )
        self.crew.add("end", self.end.step)

    async def run(self, mode: str) -> None:
        """Until told to leave; everything that runs is ended or given back when this returns."""
        tools = self.tools
        await self.watch.step()
        await self.resources.step()
        await self.learning.step()  # the first page is read by what was learned before
        tools.emit(
            WorkerStarted(
                mode=mode,
                worker_id=tools.worker_id,
                store=str(tools.lpm.path),
                gateway=_upstream_name(tools.settings, tools.emulator) if tools.delivers else "",
                slots=len(self.executor.slots),
                platforms=list(self.platforms()),
            )
        )
        last_sync, goodbye = (self.sync.step, self._goodbye) if tools.delivers else (None, None)
        try:
            await self.crew.run(self._drain, last_sync, tools.settings.worker.drain_seconds, goodbye)
            with contextlib.suppress(StoreError):
                await self.progress.tell()
        finally:
            await last_flush(self.learning)
            await self.executor.close()

    async def _goodbye(self) -> None:
        """What was learned last goes after it: nobody waits for that."""
        await self.heartbeat.goodbye()
        if not self.control.stopping.is_set():
            await last_flush(self.learning)
            await self.extras.last()

    async def _drain(self, seconds: float) -> int:
        released = await self.executor.drain(seconds)
        await self.collector.settled(min(seconds, _LAST_ANSWER_SECONDS))
        return released

    async def _observe(self) -> float:
        if self.tools.observe is not None:
            self.tools.observe(await figures(self.tools.lpm))
            self.failures = await self.tools.lpm.failures_since(self.tools.clock.now() - _LATELY)
        return _OBSERVE_SECONDS

    def _wake_slots(self) -> None:
        self.crew.wake(ONE_BY_ONE, *(name for slot in self.executor.slots for name in slot.loops))

    def _sync_now(self) -> None:
        self.sync.urge()
        self.crew.wake("sync")


def _upstream_name(settings: Settings, emulator: str) -> str:
    if settings.worker.upstream == "gateway":
        return settings.gateway.url
    parts = (settings.firestore.project, settings.firestore.database, settings.firestore.root)
    at = f" of the emulator at {emulator} (FIRESTORE_EMULATOR_HOST)" if emulator else ""
    return f"firestore {'/'.join(filter(None, parts))}{at}"
