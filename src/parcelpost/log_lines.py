"""Turns events into log lines: sentences on a terminal, JSON lines elsewhere. Nothing else writes the log."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from parcelpost import events
from parcelpost.clock import Clock, SystemClock, iso
from parcelpost.events import Emit, Event
from parcelpost.units import age, count

_FEW_INODES = 10_000
_LONGEST_TEXT = 500
_LONGEST_LIST = 50
_RENAMED = {"level": "store_level"}
"""Fields that would clash with the line's own."""

Level = str | Callable[[Any], str]
Sentence = Callable[[Any], str]
Line = Callable[[Event, str], str]
"""Formats an event and its level."""

_LEVELS = ("debug", "info", "warning", "error")


def make_log(level: str, format: str, stream: TextIO, clock: Clock | None = None) -> Emit:  # noqa: A002 - the setting's name
    """Returns an Emit that writes one line for each event at `level` or above.

    `format` is human, json or auto (human on a terminal). It never raises: a line that cannot be written (a broken
    pipe, a full disk, a closed stream) is lost.
    """
    human = format == "human" or (format == "auto" and _is_terminal(stream))
    line = _for_people(stream, clock or SystemClock()) if human else _as_json(clock or SystemClock())
    shown = _LEVELS[_LEVELS.index(level) :]
    lock = threading.Lock()  # platform code reports from threads

    def emit(event: Event) -> None:
        event_level, _ = LINES[type(event)]
        name = event_level if isinstance(event_level, str) else event_level(event)
        if name not in shown:
            return
        try:
            text = f"{line(event, name)}\n"
            with lock:
                stream.write(text)
                stream.flush()
        except (OSError, ValueError):
            return  # a closed stream raises ValueError

    return emit


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _for_people(stream: TextIO, clock: Clock) -> Line:
    """Formats lines such as `12:03:04 info    3 results delivered (1 raw file) in 0.4 s`, in local time."""
    encoding = getattr(stream, "encoding", None) or "utf-8"

    def line(event: Event, level: str) -> str:
        sentence = printable(LINES[type(event)][1](event))
        text = f"{clock.now().astimezone():%H:%M:%S} {level:<7} {sentence}"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    return line


def _as_json(clock: Clock) -> Line:
    """Formats JSON lines in ASCII, which every stream can encode."""

    def line(event: Event, level: str) -> str:
        fields = {_RENAMED.get(name, name): _clean(getattr(event, name)) for name in event.__struct_fields__}
        return json.dumps({"time": iso(clock.now()), "level": level, "event": type(event).__name__, **fields})

    return line


def printable(text: str) -> str:
    """Returns a bounded text without characters that could move a cursor or end the line."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}..."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return [_clean(item) for item in value[:_LONGEST_LIST]]
    return value


def _time(seconds: float) -> str:
    """`0.4 s`, `45 s`, `5 min`, `3 h`."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _size(number: int) -> str:
    return f"{number / 1024**2:,.1f} MiB"


def _inodes(e: events.StorageLevelChanged) -> str:
    """Returns the number of free inodes if there are few."""
    return f", {count(e.free_inodes, 'inode')} left" if e.free_inodes < _FEW_INODES else ""


_LATE_SECONDS = 60


def _started(e: events.WorkerStarted) -> str:
    gateway = f"upstream {e.gateway}" if e.gateway else "no upstream"
    platforms = ", ".join(e.platforms[:_LONGEST_LIST]) or "none"
    slots = count(e.slots, "slot")
    return f"worker {e.worker_id} started: {e.mode}, {slots}, {gateway}, store {e.store}, platforms {platforms}"


def _progress(e: events.WorkProgress) -> str:
    not_found = f"{e.not_found:,} not found, " if e.not_found else ""
    ended = f"{e.completed:,} completed, {not_found}{e.failed:,} failed, {e.expired:,} expired"
    rejected = f", {e.rejected:,} rejected" if e.rejected else ""
    return f"{count(e.pending, 'task')} to do, {e.processing:,} running, {ended}; {e.unsynced:,} to deliver{rejected}"


def _trouble(event: events.UpstreamOffline) -> str:
    if event.denied:
        return "rejected our credentials"
    return "responds with an error" if event.responded else "is offline"


def _delivered(e: events.ResultsSynced) -> str:
    delivered = count(e.results, "result") + (f" and {count(e.reports, 'report')}" if e.reports else "")
    files = f" ({count(e.raw_files, 'raw file')})" if e.raw_files else ""
    return f"{delivered} delivered{files} in {_time(e.seconds)}"


def _crashed(e: events.OwnerCrashed) -> str:
    recovered = f"{count(e.tasks_recovered, 'task')} recovered, {e.tasks_given_up:,} given up"
    files = f"{count(e.raw_files_restored, 'raw file')} restored"
    lost = f", {count(e.pages_without_result, 'page')} without a result" if e.pages_without_result else ""
    return f"{e.owner} crashed with the store open: {recovered}, {files}{lost}"


def _refused(e: events.EntryRefused) -> str:
    if e.rejected:
        return f"the result of task {e.task_id} was rejected: {e.reason}"
    return f"the result of task {e.task_id} was refused and will be sent again: {e.reason}"


def _attempt_level(e: events.AttemptEnded) -> str:
    return "debug" if e.outcome in ("done", "not_found") else "info"


def _received_level(e: events.TasksReceived) -> str:
    if e.bad:
        return "warning"
    return "info" if e.new else "debug"


def _overdue(e: events.RunStarted) -> str:
    return f", {_time(e.late_seconds)} late" if e.late_seconds >= _LATE_SECONDS else ""


LINES: Mapping[type[Event], tuple[Level, Sentence]] = {
    events.StoreOpened: (
        "info",
        lambda e: f"store {e.path} is open, schema version {e.schema_version}" + (" (migrated)" if e.migrated else ""),
    ),
    events.OwnerCrashed: ("warning", _crashed),
    events.StoreDamaged: (
        "error",
        lambda e: (
            f"{e.path} is damaged: readable results are still delivered; stop the worker and run "
            "'parcelpost store salvage --replace'"
        ),
    ),
    events.ClockSetBack: (
        "warning",
        lambda e: (
            f"the clock was set back by {_time(e.seconds)}: the delays of {count(e.tasks, 'task')} and the pauses of "
            f"{count(e.platforms, 'platform')} start again"
        ),
    ),
    events.BackupMade: ("info", lambda e: f"backup created: {e.path} ({_size(e.bytes)})"),
    events.StoreCleaned: (
        "info",
        lambda e: (
            f"deleted expired rows and files: {count(e.tasks, 'task')}, {count(e.results, 'result')}, "
            f"{count(e.files, 'file')}, artifacts of {count(e.artifacts, 'task')}, "
            f"{count(e.cache + e.signals + e.metrics + e.sync_log, 'other row')}"
        ),
    ),
    events.PeerHung: (
        "error",
        lambda e: f"process {e.pid} ({e.owner}) has not responded for {_time(e.seconds)}: its tasks are taken over",
    ),
    events.PeerBack: ("info", lambda e: f"process {e.pid} ({e.owner}) is responding again"),
    events.ReserveUsed: ("error", lambda e: f"the disk is full: the reserve of {_size(e.bytes)} was released"),
    events.WorkerStarted: ("info", _started),
    events.WorkerIdChanged: (
        "warning",
        lambda e: f"the worker ID of this store changed from {e.old} to {e.new}",
    ),
    events.WorkerDraining: (
        "info",
        lambda e: f"draining ({e.reason}): no new tasks; running tasks have {_time(e.seconds)} to finish",
    ),
    events.WorkerStopped: (
        "info",
        lambda e: f"stopped ({e.reason}); {count(e.released, 'running task')} went back to the queue",
    ),
    events.ProcessEnded: (
        "error",
        lambda e: f"process {e.process} ended by {e.signal}; starting it again in {_time(e.restart_in_seconds)}",
    ),
    events.WorkProgress: ("info", _progress),
    events.TasksReceived: (
        _received_level,
        lambda e: f"{count(e.new, 'task')} received; {e.known:,} already known, {e.bad:,} invalid",
    ),
    events.TaskSkipped: ("warning", lambda e: f"task {e.task_id} was skipped: {e.problem}"),
    events.AttemptEnded: (
        _attempt_level,
        lambda e: (
            f"{e.outcome}: task {e.task_id} on {e.platform} after {_time(e.seconds)}"
            + (f": {e.reason}" if e.reason else "")
        ),
    ),
    events.TaskDeferred: (
        "debug",
        lambda e: f"task {e.task_id} on {e.platform} was deferred for {_time(e.seconds)}: {e.reason}",
    ),
    events.FieldBroken: (
        "warning",
        lambda e: f"{e.platform} {e.site}: {e.field} is no longer found by {', '.join(e.failing) or 'any selector'}",
    ),
    events.FleetSelectorsReceived: (
        "debug",
        lambda e: f"{e.platform}: received the fleet's ranking of {count(e.selectors, 'selector')}",
    ),
    events.FieldFixed: ("info", lambda e: f"{e.platform} {e.site}: {e.field} is found again"),
    events.PlatformPaused: ("warning", lambda e: f"{e.platform} is paused for {_time(e.seconds)}: {e.reason}"),
    events.PageFetched: (
        "debug",
        lambda e: f"{e.method} {e.url}: {'cached' if e.cached else e.status}, {e.bytes:,} bytes in {_time(e.seconds)}",
    ),
    events.AttemptAbandoned: (
        "error",
        lambda e: (
            f"code of platform {e.platform} did not stop in time (task {e.task_id}); {count(e.left_behind, 'thread')} "
            "abandoned so far"
        ),
    ),
    events.StorageLevelChanged: (
        lambda e: "info" if e.level == "fine" else "warning",
        lambda e: (
            f"storage: {e.level}; {_size(e.bytes)} of {_size(e.max_bytes)} used, {_size(e.free_bytes)} free{_inodes(e)}"
        ),
    ),
    events.StoreLost: ("error", lambda e: f"nothing can be saved: {e.reason}; put it back, or stop this worker"),
    events.StoreFound: ("info", lambda e: f"the store {e.path} is back, and work continues"),
    events.StoreNotWritable: (
        "error",
        lambda e: (
            f"cannot write to the store: {e.error}; results are kept in memory" + (f"; {e.hint}" if e.hint else "")
        ),
    ),
    events.StoreWritable: ("info", lambda e: f"the store is writable again after {_time(e.seconds)}"),
    events.PressureChanged: (
        lambda e: "info" if e.pressure == "fine" else "warning",
        lambda e: f"{e.memory_percent:.0f}% of the memory ({_size(e.memory_limit_bytes)}) is used: {e.meaning}",
    ),
    events.ResourcesSampled: (
        "debug",
        lambda e: (
            f"CPU {e.cpu_percent:.0f}%, memory {e.memory_percent:.0f}% of {_size(e.memory_limit_bytes)} "
            f"({e.pressure}), {count(e.browsers_busy + e.browsers_idle, 'browser')} of {e.browsers_safe:,} at most"
        ),
    ),
    events.ResultsSynced: ("info", _delivered),
    events.EntryRefused: (lambda e: "error" if e.rejected else "warning", _refused),
    events.ArtifactNotUploaded: (
        "warning",
        lambda e: f"the {e.kind} of failed task {e.task_id} was not uploaded: {e.reason}",
    ),
    events.UpstreamOffline: (
        lambda e: "error" if e.denied else "warning",
        lambda e: (
            f"{e.loop}: the upstream {_trouble(e)} ({e.reason}); "
            f"next attempt in {_time(e.retry_in_seconds)}" + (f"; {e.remedy}" if e.remedy else "")
        ),
    ),
    events.UpstreamOnline: ("info", lambda e: f"{e.loop}: the upstream is back after {_time(e.offline_seconds)}"),
    events.CommandReceived: (
        lambda e: "info" if e.known else "warning",
        lambda e: f"command from the upstream: {e.command}" + ("" if e.known else " (unknown, ignored)"),
    ),
    events.LoopFailed: (
        "error",
        lambda e: f"{e.loop} failed ({e.in_a_row} in a row): {e.error}; next attempt in {_time(e.next_in_seconds)}",
    ),
    events.ResultNotCompared: (
        "error",
        lambda e: f"task {e.task_id} ({e.platform}): its result was not checked for changes: {e.error}",
    ),
    events.BrowserStarted: (
        "info",
        lambda e: (
            f"browser {e.browser_id} started: Chromium {e.version}, in {_time(e.seconds)}"
            + (f", without a sandbox ({e.no_sandbox})" if e.no_sandbox else "")
        ),
    ),
    events.BrowserDied: ("warning", lambda e: f"browser {e.browser_id} crashed or was stopped: {e.reason}"),
    events.BrowserRetired: (
        "info",
        lambda e: f"browser {e.browser_id} was retired after {count(e.tasks, 'task')}: {e.reason}",
    ),
    events.BrowserOrphansRemoved: (
        lambda e: "warning" if e.processes else "info",
        lambda e: f"{e.owner or 'a worker'} left browsers behind: {count(e.processes, 'process')} stopped",
    ),
    events.BrowsersUnavailable: (
        "error",
        lambda e: (
            f"no browser can be started: {e.reason}"
            + (f"; {e.hint}" if e.hint else "")
            + f"; next attempt in {_time(e.retry_in_seconds)}"
        ),
    ),
    events.PagesServed: ("info", lambda e: f"serving health and metrics at {e.address}"),
    events.GatewayStarted: (
        "info",
        lambda e: f"the gateway is listening on {e.address}; ledger {e.database}, raw files {e.raw}",
    ),
    events.GatewayStopped: ("info", lambda _: "the gateway has stopped"),
    events.ConnectionsRefused: (
        "error",
        lambda e: (
            f"refusing connections: {e.connections:,} are open, the most that the limit of {e.max_files:,} open files "
            "allows; raise the limit ('ulimit -n', LimitNOFILE= of a systemd unit, --ulimit nofile= of a container), "
            "and put a gateway that other machines can reach behind a reverse proxy that closes idle connections"
        ),
    ),
    events.TokensRead: (
        lambda e: "warning" if e.open_to_all else "info",
        lambda e: (
            f"{count(len(e.names), f'{e.kind} token')} read from {e.file}: {', '.join(e.names[:_LONGEST_LIST])}"
            + (" (every user of this machine can read the file: run 'chmod 600' on it)" if e.open_to_all else "")
        ),
    ),
    events.TokensNotRead: (
        "error",
        lambda e: f"the {e.kind} tokens in {e.file} can no longer be read; the previous ones remain valid: {e.problem}",
    ),
    events.WorkerJoined: (
        "info",
        lambda e: f"worker {e.worker_id} connected ({f'token {e.token}' if e.token else 'no token'})",
    ),
    events.AccessDenied: (
        "warning",
        lambda e: f"denied {e.client} access to {e.path}: {e.reason}" + (f" (and {e.more:,} more)" if e.more else ""),
    ),
    events.LeasesEnded: (
        lambda e: "warning" if e.dead else "info",
        lambda e: f"{count(e.queued + e.dead, 'lease')} expired; {count(e.dead, 'task')} given up",
    ),
    events.WebhookFailing: ("warning", lambda e: f"webhook {e.webhook} is failing: {e.error}"),
    events.WebhookRecovered: ("info", lambda e: f"webhook {e.webhook} works again after {age(e.seconds)}"),
    events.WebhookGaveUp: (
        "error",
        lambda e: f"webhook {e.webhook}: gave up on change {e.change}: {e.error}",
    ),
    events.RunStarted: ("info", lambda e: f"schedule {e.schedule}: refreshing {count(e.tasks, 'parcel')}{_overdue(e)}"),
    events.RunSkipped: (
        "warning",
        lambda e: f"schedule {e.schedule}: skipped a run because the previous one is still in progress",
    ),
    events.ScheduleFailed: ("error", lambda e: f"schedule {e.schedule} failed: {e.error}"),
    events.LedgerPruned: ("info", lambda e: f"{count(e.removed, 'old row')} removed from the ledger"),
    events.LedgerLost: ("error", lambda e: f"the ledger is unreachable: {e.reason}"),
    events.LedgerFound: ("info", lambda e: f"the ledger is back after {_time(e.offline_seconds)}"),
    events.RequestDeferred: (
        "warning",
        lambda e: f"{e.path} returned 503: {e.reason}" + (f" (and {e.more:,} more)" if e.more else ""),
    ),
    events.DownloadCut: ("warning", lambda e: f"{e.path} was cut off: {e.reason}"),
    events.RequestFailed: ("error", lambda e: f"{e.path} returned 500: {e.error}"),
}
"""The level and the sentence of every event."""
