"""Wires a worker's parts together, runs them, and describes how the worker is doing."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from parcelpost import __version__
from parcelpost.errors import StoreError
from parcelpost.events import WorkerStarted
from parcelpost.health_checks import Finding, sort_findings
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.settings import Settings
from parcelpost.telemetry import Figures
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.collector import Collector
from parcelpost.worker.context import Context
from parcelpost.worker.control import Pressure
from parcelpost.worker.executor import Executor
from parcelpost.worker.findings import (
    browser_wait_finding,
    failures_finding,
    field_finding,
    status_findings,
    usage_finding,
)
from parcelpost.worker.heartbeat import HeartbeatLoop
from parcelpost.worker.janitor import Janitor
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import LONGEST_STEP_SECONDS, Supervisor
from parcelpost.worker.resources import PoolControl, Resources
from parcelpost.worker.schedules import ReadTargets
from parcelpost.worker.status import MemoryPressure, Publisher, WorkerStatus, publish
from parcelpost.worker.sync import SyncManager

ONE_BY_ONE = "one by one"

_LAST_ANSWER_SECONDS = 5.0
_LONGEST_CHORES_SECONDS = 43_200.0  # a backup or a VACUUM of a very large store


class Tools(Struct, frozen=True, kw_only=True):
    """What a worker needs in addition to its context."""

    progress_seconds: float
    """How often progress is reported."""
    ranking: Ranking
    """The selector ranking that the factory's platforms use."""
    availability: SiteAvailability
    """The fetcher's rate limits: which sites may be requested now."""
    browsers: PoolControl | None = None
    """The browser pool, if there is one."""
    most_browsers: int = 0
    """The operator's limit, regardless of memory."""
    emulator: str = ""
    """The address of a Firestore emulator; '' if none is used."""
    observe: Callable[[Figures], None] | None = None
    """Called with the store's figures, for the metrics page."""
    read_targets: ReadTargets | None = None
    """Reads the files of schedules."""


class Worker:
    def __init__(self, context: Context, tools: Tools) -> None:
        self.context = context
        self.control = context.control
        self.delivers = not isinstance(context.upstream, NullUpstream)
        """False for a standalone worker without an upstream."""
        self._emulator = tools.emulator
        self.read_targets = tools.read_targets
        self._mode = ""
        self._started_at = context.clock.now()
        self.supervisor = Supervisor(context.control, context.clock, context.emit)
        self.resources = Resources(context, browsers=tools.browsers, most_browsers=tools.most_browsers)
        self.learning = Learning(context, tools.ranking)
        self.executor = Executor(context, self.learning, tools.availability)
        self.collector = Collector(context)
        self.sync = SyncManager(context)
        self.heartbeat = HeartbeatLoop(context, self.executor, self.collector, self.sync, self.resources, self.learning)
        self.janitor = Janitor(
            context,
            self.resources,
            self.learning,
            Publisher(context, self.status),
            progress_seconds=tools.progress_seconds,
            observe=tools.observe,
        )

    def status(self) -> WorkerStatus:
        """Returns what this worker publishes about itself."""
        context, settings, resources = self.context, self.context.settings, self.resources
        memory = None
        if resources.short_since is not None:
            memory = MemoryPressure(
                since=resources.short_since,
                starts_tasks=self.control.pressure < Pressure.NO_NEW_TASKS,
                summary=resources.summary_then,
            )
        return WorkerStatus(
            name=context.name,
            worker_id=context.worker_id,
            owner=context.lpm.owner_id,
            store=str(context.lpm.path.resolve()),
            published_at=context.clock.now(),
            started_at=self._started_at,
            mode=self._mode,
            upstream=upstream_host(settings) if self.delivers else "",
            gateway_url=settings.gateway.url if self.delivers else "",
            slots=len(self.executor.slots),
            version=__version__,
            paused_since=self.heartbeat.commands.paused_since,
            platforms=tuple(sorted(self.control.platforms or ())),
            outages=context.upstream_state.outages,
            slow=self.sync.batch_size.slow,
            memory=memory,
            browser_waits=tuple(self.executor.browser_waits),
            broken=tuple(self.learning.broken),
            cleaning_since=self.janitor.cleaning_since,
        )

    def findings(self) -> list[Finding]:
        """Returns what stops this worker, slows it down, or needs an operator."""
        context, control, lpm = self.context, self.control, self.context.lpm
        option = f" --store {shlex.quote(str(lpm.path))}"
        findings = list(status_findings(self.status(), context.clock.now()))
        if control.leaving.is_set():
            findings.append(Finding.of("worker.draining", f"draining: {control.reason}", "no action needed"))
        if control.missing:
            check = "store.raw_folder_missing" if lpm.path.exists() else "store.moved"
            findings.append(Finding.of(check, control.missing, "put the files back or mount their volume"))
        elif control.usage and (full := usage_finding(control.usage, option)):
            findings.append(full)
        if reason := lpm.backpressure.problem:
            fix = "free disk space, or check the owner and the permissions of the store's files"
            findings.append(Finding.of("store.not_writable", f"the store is not writable: {reason}", fix))
        for peer in lpm.hung_peers():
            message = f"process {peer} on the same store does not respond"
            fix = f"resume it with 'kill -CONT {peer}' if it was suspended, or end it with 'kill -9 {peer}'"
            findings.append(Finding.of("worker.hung", message, fix))
        findings += map(browser_wait_finding, self.executor.browser_waits)
        if self.janitor.failures and (failing := failures_finding(self.janitor.failures, option)):
            findings.append(failing)
        return sort_findings([*findings, *map(field_finding, self.learning.broken)])

    def stuck(self) -> list[str]:
        """Returns the names of stuck loops. A loop that waits for the store is not stuck."""
        if self.janitor.chores_seconds > _LONGEST_CHORES_SECONDS:
            return ["janitor"]
        is_store_held = self.janitor.chores_seconds > 0 or self.context.lpm.backpressure.waiting > 0
        return [] if is_store_held else self.supervisor.overdue()

    def add_slots(self) -> None:
        for slot in self.executor.slots:
            for name, step in slot.loops.items():
                self.supervisor.add(name, step, self.longest_attempt_seconds, group="slots")

    @property
    def longest_attempt_seconds(self) -> float:
        """The time limit of a slot's step: one of its loops may have to wait for the other."""
        return 2 * self.context.settings.executor.task_timeout_seconds + LONGEST_STEP_SECONDS

    async def run(self, mode: str) -> None:
        """Runs until a drain is requested. When this returns, every task has ended or was released."""
        context, settings = self.context, self.context.settings
        self._mode = mode
        if self.delivers:
            self.supervisor.add("sync", self.sync.step)
            self.supervisor.add("heartbeat", self.heartbeat.step)
        self.supervisor.add("janitor", self.janitor.step)
        await self.janitor.start()
        context.emit(
            WorkerStarted(
                mode=mode,
                worker_id=context.worker_id,
                store=str(context.lpm.path),
                gateway=upstream_name(settings, self._emulator) if self.delivers else "",
                slots=len(self.executor.slots),
                platforms=list(context.platforms),
            )
        )
        last_sync, goodbye = (self.sync.last_step, self._goodbye) if self.delivers else (None, None)
        try:
            await self.supervisor.run(self._drain, last_sync, settings.worker.drain_seconds, goodbye)
        finally:
            await self.sync.close()
            await self.janitor.close()
            await self.executor.close()
        with contextlib.suppress(StoreError):
            await publish(context.lpm.state, replace(self.status(), stopped_at=context.clock.now()))

    async def _goodbye(self) -> None:
        """Sends the last heartbeat and, if there is time, the last learning signals."""
        await self.heartbeat.goodbye()
        if not self.control.stopping.is_set():
            await self.janitor.flush()
            await self.sync.goodbye()

    async def _drain(self, seconds: float) -> int:
        self.context.lpm.backpressure.stop_claims()
        released = await self.executor.drain(seconds)
        await self.collector.settle(min(seconds, _LAST_ANSWER_SECONDS))
        self.context.lpm.backpressure.stop_waiting()
        return released


def upstream_name(settings: Settings, emulator: str) -> str:
    if settings.worker.upstream == "gateway":
        return settings.gateway.url
    parts = (settings.firestore.project, settings.firestore.database, settings.firestore.root)
    at = f" of the emulator at {emulator} (FIRESTORE_EMULATOR_HOST)" if emulator else ""
    return f"firestore {'/'.join(filter(None, parts))}{at}"


def upstream_host(settings: Settings) -> str:
    """Returns the gateway's host and port for display, without the rest of its address."""
    if settings.worker.upstream == "firestore":
        return "Firestore"
    address = urlsplit(settings.gateway.url)
    return f"{address.hostname or ''}{f':{address.port}' if address.port else ''}"
