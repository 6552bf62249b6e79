"""Turns events into Prometheus metrics, which docs/events.md lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from parcelpost import events
from parcelpost.events import Event
from parcelpost.model import QueueDepth

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LOOPS_UPSTREAM = ("collector", "sync", "heartbeat")
_SAMPLE_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LEVELS = ("fine", "collector must stop", "executor must stop")
_PRESSURES = ("fine", "slow", "no new tasks", "stop browsers")
_MOST_LABELS = 100
_LONGEST_LABEL = 64
_ATTEMPT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SYNC_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Figures(Struct, frozen=True, kw_only=True):
    """The current state of the queue and the store."""

    depth: QueueDepth
    store_bytes: int = 0
    store_max_bytes: int = 0
    disk_free_bytes: int = 0
    disk_free_inodes: int = 0
    without_backup_seconds: float = 0.0
    """Age of the newest backup, or of the store if there is none."""
    paused: Collection[str] = ()
    """Paused platforms."""


class _Names:
    """Bounds the values of a label: the first hundred by name, all further ones as `other`."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, text: str) -> str:
        name = text[:_LONGEST_LABEL].encode("utf-8", "backslashreplace").decode()
        if name not in self._known:
            if len(self._known) >= _MOST_LABELS:
                return "other"
            self._known.add(name)
        return name


def merged_pages(pages: Mapping[str, bytes]) -> bytes:
    """Merges the pages of several processes of a worker, by name of the process, which becomes a label."""
    families: dict[str, list[str]] = {}
    for process, page in pages.items():
        family: list[str] = []
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                family = families.setdefault(line, [])
            elif not line.startswith("#"):
                family.append(_with_process(line, process))
            elif line not in family:
                family.append(line)
    return "".join(f"{line}\n" for head, family in families.items() for line in (head, *family)).encode()


def _with_process(sample: str, process: str) -> str:
    """The text between a name and its labels or value begins with `{` or a space."""
    name = _SAMPLE_NAME.match(sample)
    end = name.end() if name else 0
    if sample[end : end + 1] == "{":
        return f'{sample[:end]}{{process="{process}",{sample[end + 1 :]}'
    return f'{sample[:end]}{{process="{process}"}}{sample[end:]}'


class Telemetry:
    """The metrics of one worker, in their own registry. `emit` is an Emit."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.series: dict[str, tuple[str, ...]] = {}
        """Every metric on the page, with its labels."""
        self._platforms = _Names()
        self._outcomes = _Names()
        self._loops = _Names()
        self._make_work()
        self._make_delivery()
        self._make_store()
        self._make_depth()
        self._make_resources()
        self._make_browsers()
        self._listeners: dict[type[Event], Callable[[Any], None]] = {
            events.WorkerStarted: self._started,
            events.WorkerDraining: lambda _: self._draining.set(1),
            events.TasksReceived: self._received,
            events.AttemptEnded: self._attempt_ended,
            events.TaskDeferred: lambda e: self._deferred.labels(self._platforms.of(e.platform)).inc(),
            events.AttemptAbandoned: lambda e: self._left_behind.set(e.left_behind),
            events.PlatformPaused: lambda e: self._pauses.labels(self._platforms.of(e.platform)).inc(),
            events.FieldBroken: lambda e: self._broken.labels(self._platforms.of(e.platform)).inc(),
            events.FieldFixed: lambda e: self._broken.labels(self._platforms.of(e.platform)).dec(),
            events.ResultsSynced: self._delivered,
            events.EntryRefused: lambda e: (self._rejected if e.rejected else self._refused).inc(),
            events.UpstreamOffline: lambda e: self._upstream(e.loop, up=False, denied=e.denied),
            events.UpstreamOnline: lambda e: self._upstream(e.loop, up=True, denied=False),
            events.LoopFailed: lambda e: self._loop_failures.labels(self._loops.of(e.loop)).inc(),
            events.CommandReceived: lambda e: self._commands.labels("yes" if e.known else "no").inc(),
            events.StorageLevelChanged: lambda e: self._level.set(_LEVELS.index(e.level) if e.level in _LEVELS else 2),
            events.StoreLost: lambda _: self._level.set(_LEVELS.index("executor must stop")),
            events.StoreFound: lambda _: self._level.set(0),
            events.ResourcesSampled: self._sampled,
            events.BackupMade: lambda _: self._backups.inc(),
            events.OwnerCrashed: self._died,
            events.BrowserStarted: lambda _: self._browser_starts.inc(),
            events.BrowserDied: lambda _: self._browser_deaths.inc(),
            events.ReserveUsed: lambda _: self._reserve.inc(),
        }

    def emit(self, event: Event) -> None:
        if listener := self._listeners.get(type(event)):
            listener(event)

    def observe(self, figures: Figures) -> None:
        depth = figures.depth
        for status in ("pending", "processing", "completed", "not_found", "failed", "expired"):
            self._tasks.labels(status).set(getattr(depth, status))
        self._delayed.set(depth.delayed)
        self._outbox.labels("unsynced").set(depth.unsynced)
        self._outbox.labels("rejected").set(depth.rejected - depth.rejected_by_operator)
        self._outbox.labels("rejected_by_operator").set(depth.rejected_by_operator)
        self._oldest.labels("pending_task").set(depth.oldest_pending_seconds)
        self._oldest.labels("unsynced_result").set(depth.oldest_unsynced_seconds)
        self._store_bytes.set(figures.store_bytes)
        self._store_max_bytes.set(figures.store_max_bytes)
        self._disk_free.set(figures.disk_free_bytes)
        self._free_inodes.set(figures.disk_free_inodes)
        self._without_backup.set(figures.without_backup_seconds)
        self._paused.clear()
        for platform in figures.paused:
            self._paused.labels(self._platforms.of(platform)).set(1)

    def page(self) -> bytes:
        """Returns all metrics in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.series[f"parcelpost_{name}_total"] = self.series[f"parcelpost_{name}_created"] = labels
        return Counter(f"parcelpost_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self.series[f"parcelpost_{name}"] = labels
        return Gauge(f"parcelpost_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self.series[f"parcelpost_{name}_bucket"] = (*labels, "le")
        for end in ("sum", "count", "created"):
            self.series[f"parcelpost_{name}_{end}"] = labels
        return Histogram(f"parcelpost_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _make_work(self) -> None:
        self._received_tasks = self._counter(
            "tasks_received",
            ("Tasks received from the gateway. `kind`: new (stored), known (already stored), bad (invalid)."),
            "kind",
        )
        self._attempts = self._counter(
            "attempts",
            "Attempts that ended. `platform`; `outcome`: done, not_found, retry, give_up, blocked.",
            "platform",
            "outcome",
        )
        self._attempt_seconds = self._histogram(
            "attempt_seconds", "Duration of an attempt. `platform`.", _ATTEMPT_BUCKETS, "platform"
        )
        self._deferred = self._counter(
            "tasks_deferred", "Tasks released because the rate limit of their site was reached. `platform`.", "platform"
        )
        self._pauses = self._counter("platform_pauses", "Pauses because a site blocked us. `platform`.", "platform")
        self._paused = self._gauge(
            "platform_paused",
            "1: an operator paused the platform, or a site blocked us, so that all or some of its counties are paused. "
            "`platform`.",
            "platform",
        )
        self._broken = self._gauge(
            "broken_fields", "Fields that are no longer found on a county's site. `platform`.", "platform"
        )
        self._left_behind = self._gauge(
            "threads_left_behind", "Threads of platform code that did not stop at their time limit."
        )
        self._loop_failures = self._counter("loop_failures", "Steps of a loop that failed. `loop`.", "loop")
        self._draining = self._gauge("worker_draining", "1: no new task is started.")

    def _make_delivery(self) -> None:
        self._synced = self._counter("results_synced", "Results and reports delivered. `kind`: result, report.", "kind")
        self._raw_files = self._counter("raw_files_synced", "Raw files delivered.")
        self._sync_seconds = self._histogram("sync_seconds", "Duration of a delivery round.", _SYNC_BUCKETS)
        self._refused = self._counter(
            "entries_refused", "Entries that the gateway refused and that will be sent again."
        )
        self._rejected = self._counter(
            "entries_rejected", "Entries that the gateway rejected: kept until an operator sends them again."
        )
        self._up = self._gauge(
            "upstream_up", "1: the gateway is reachable. `loop`: collector, sync, heartbeat.", "loop"
        )
        self._denied = self._gauge(
            "upstream_denied", "1: the gateway does not accept the token: an operator must act. `loop`.", "loop"
        )
        self._commands = self._counter("commands", "Commands received from the gateway. `known`: yes, no.", "known")

    def _make_store(self) -> None:
        self._level = self._gauge("store_level", "0: fine, 1: the collector must stop, 2: the executor must stop.")
        self._store_bytes = self._gauge("store_bytes", "Disk space used by the store: database, raw files, journals.")
        self._store_max_bytes = self._gauge("store_max_bytes", "Size limit of the store, `storage.max_bytes`.")
        self._disk_free = self._gauge("disk_free_bytes", "Free space on the store's disk.")
        self._free_inodes = self._gauge("disk_free_inodes", "Free inodes on the store's disk.")
        self._without_backup = self._gauge(
            "without_backup_seconds", "Age of the newest backup, or of the store if there is none."
        )
        self._backups = self._counter("backups", "Verified backups made.")
        self._deaths = self._counter("owners_crashed", "Processes that ended without closing the store.")
        self._recovered = self._counter("tasks_recovered", "Tasks recovered from crashed processes.")
        self._reserve = self._counter("reserve_used", "Times the disk was so full that the reserve was released.")

    def _make_depth(self) -> None:
        self._tasks = self._gauge(
            "tasks",
            "Tasks in the store. `status`: pending, processing, completed, not_found, failed, expired.",
            "status",
        )
        self._delayed = self._gauge("tasks_delayed", "Pending tasks that are not yet due.")
        self._outbox = self._gauge(
            "outbox",
            "Results not delivered. `state`: unsynced, rejected (by the gateway), rejected_by_operator.",
            "state",
        )
        self._oldest = self._gauge(
            "oldest_seconds", "Age of the oldest waiting item. `what`: pending_task, unsynced_result.", "what"
        )

    def _make_resources(self) -> None:
        self._cpu = self._gauge(
            "cpu_percent",
            ("CPU use, in percent of the processors available to the worker (the machine's or its control group's)."),
        )
        self._memory = self._gauge(
            "memory_percent",
            ("Memory use, in percent of the memory available to the worker (the machine's or its control group's)."),
        )
        self._memory_limit = self._gauge("memory_limit_bytes", "Memory available to the worker.")
        self._pressure = self._gauge(
            "memory_pressure", "0: fine, 1: half of the slots run, 2: no task is started, 3: browsers are stopped too."
        )
        self._browsers = self._gauge("browsers", "Running browsers. `status`: busy, idle.", "status")
        self._browsers_safe = self._gauge("browsers_safe", "How many browsers fit into memory.")
        self._browser_pss = self._gauge(
            "browser_pss_bytes", "Memory used by all browsers; shared memory is counted once."
        )

    def _make_browsers(self) -> None:
        self._browser_starts = self._counter("browser_starts", "Browsers started.")
        self._browser_deaths = self._counter("browser_deaths", "Browsers that crashed or had to be stopped.")

    def _started(self, event: events.WorkerStarted) -> None:
        self._draining.set(0)
        if event.gateway:
            for loop in _LOOPS_UPSTREAM:
                self._upstream(loop, up=True, denied=False)

    def _received(self, event: events.TasksReceived) -> None:
        for kind in ("new", "known", "bad"):
            self._received_tasks.labels(kind).inc(getattr(event, kind))

    def _attempt_ended(self, event: events.AttemptEnded) -> None:
        platform = self._platforms.of(event.platform)
        self._attempts.labels(platform, self._outcomes.of(event.outcome)).inc()
        self._attempt_seconds.labels(platform).observe(event.seconds)

    def _delivered(self, event: events.ResultsSynced) -> None:
        self._synced.labels("result").inc(event.results)
        self._synced.labels("report").inc(event.reports)
        self._raw_files.inc(event.raw_files)
        self._sync_seconds.observe(event.seconds)

    def _sampled(self, event: events.ResourcesSampled) -> None:
        self._cpu.set(event.cpu_percent)
        self._memory.set(event.memory_percent)
        self._memory_limit.set(event.memory_limit_bytes)
        self._pressure.set(_PRESSURES.index(event.pressure) if event.pressure in _PRESSURES else 0)
        self._browsers.labels("busy").set(event.browsers_busy)
        self._browsers.labels("idle").set(event.browsers_idle)
        self._browsers_safe.set(event.browsers_safe)
        self._browser_pss.set(event.browser_pss_bytes)

    def _upstream(self, loop: str, *, up: bool, denied: bool) -> None:
        name = self._loops.of(loop)
        self._up.labels(name).set(up)
        self._denied.labels(name).set(denied)

    def _died(self, event: events.OwnerCrashed) -> None:
        self._deaths.inc()
        self._recovered.inc(event.tasks_recovered)
