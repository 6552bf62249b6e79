"""Everything the program reports. `log_lines.py` turns events into lines, `telemetry.py` into metrics."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened and may be worth reporting."""


Emit = Callable[[Event], None]


def ignore(_: Event) -> None:
    """An Emit that does nothing."""


class StoreOpened(Event, frozen=True):
    """The store is open."""

    path: str
    schema_version: int
    migrated: list[int]
    """Schema versions that were applied."""


class OwnerCrashed(Event, frozen=True):
    """A process ended without closing the store; its tasks and pages were recovered.

    With `FULL`, nothing that it confirmed is lost. With `NORMAL`, a power loss may lose results confirmed after
    `last_change`; `pages_without_result` counts pages whose result is lost.
    """

    owner: str
    synchronous: str
    tasks_recovered: int
    tasks_given_up: int
    raw_files_restored: int
    pages_without_result: int
    last_change: str


class StoreDamaged(Event, frozen=True):
    """A page of the database file is damaged. Readable results are still delivered; run `parcelpost store salvage`."""

    path: str


class ClockSetBack(Event, frozen=True):
    """The clock was set back: delays and pauses written in the future start again, with the same length."""

    seconds: float
    """How far ahead the clock was."""
    tasks: int
    """Delayed tasks that were corrected."""
    platforms: int
    """Pauses that were corrected."""


class BackupMade(Event, frozen=True):
    """A verified backup was written."""

    path: str
    bytes: int
    removed: int


class StoreCleaned(Event, frozen=True):
    """Expired rows and files were deleted."""

    tasks: int
    results: int
    cache: int
    signals: int
    metrics: int
    sync_log: int
    files: int
    artifacts: int
    """Tasks whose artifacts were deleted."""


class PeerHung(Event, frozen=True):
    """Another process that uses the store does not respond: its tasks and leader locks are taken over."""

    owner: str
    pid: int
    seconds: float


class PeerBack(Event, frozen=True):
    """A process that did not respond is responding again."""

    owner: str
    pid: int


class ReserveUsed(Event, frozen=True):
    """The disk is full: the reserve was released so that receipts can be recorded."""

    bytes: int


class WorkerStarted(Event, frozen=True):
    """A worker has started."""

    mode: str
    worker_id: str
    store: str
    gateway: str
    slots: int
    platforms: list[str]


class WorkerIdChanged(Event, frozen=True):
    """The store uses a new worker ID upstream, set by `worker.id`; nothing was leased under the old one."""

    old: str
    new: str


class WorkerDraining(Event, frozen=True):
    """No new tasks are started; running tasks have `seconds` to finish."""

    reason: str
    seconds: float


class WorkerStopped(Event, frozen=True):
    """The worker has stopped."""

    reason: str
    released: int
    """Tasks that were running and went back to the queue."""


class ProcessEnded(Event, frozen=True):
    """A process of `run --processes` was killed."""

    process: int
    signal: str
    restart_in_seconds: float


class WorkProgress(Event, frozen=True):
    """Progress of the work in the store: at the start, every minute while it changes, and at the end."""

    pending: int
    processing: int
    completed: int
    not_found: int
    failed: int
    expired: int
    """Tasks."""
    unsynced: int
    rejected: int
    """Results."""


class TasksReceived(Event, frozen=True):
    """Tasks were received from upstream and stored."""

    new: int
    known: int
    """Already in the store."""
    bad: int
    """Invalid."""


class TaskSkipped(Event, frozen=True):
    """A received task was invalid or could not be stored; the others were kept."""

    task_id: str
    problem: str


class AttemptEnded(Event, frozen=True):
    """An attempt at a task ended."""

    task_id: str
    platform: str
    outcome: str
    """One of done, not_found, retry, give_up, blocked."""
    seconds: float
    reason: str


class TaskDeferred(Event, frozen=True):
    """The rate limit of a task's site was reached: the task was released, and its retries are not affected."""

    task_id: str
    platform: str
    seconds: float
    """Time until it can be claimed again."""
    reason: str


class PageFetched(Event, frozen=True):
    """A page was fetched from a site, with any status, or read from the page cache.

    The `method` of a page loaded in a browser is RENDER.
    """

    method: str
    url: str
    status: int
    bytes: int
    seconds: float
    cached: bool


class PlatformPaused(Event, frozen=True):
    """A site blocked us: no task of its host, or of its platform if the host is not known, is claimed for `seconds`."""

    platform: str
    sites: int
    """How many known counties are on the host; 0: the whole platform is paused."""
    seconds: float
    reason: str


class AttemptAbandoned(Event, frozen=True):
    """Platform code did not stop at its time limit; its thread was abandoned."""

    task_id: str
    platform: str
    left_behind: int
    """Total so far."""


class StorageLevelChanged(Event, frozen=True):
    """The storage level changed, and with it which loops may run."""

    level: str
    bytes: int
    max_bytes: int
    free_bytes: int
    free_inodes: int = 1 << 62


class StoreLost(Event, frozen=True):
    """The store's files are no longer where they were; nothing is saved until they are back."""

    reason: str


class StoreFound(Event, frozen=True):
    """The store's files are back, and work continues."""

    path: str


class StoreNotWritable(Event, frozen=True):
    """The store is full or locked. Results and receipts are kept in memory until they can be written."""

    error: str
    hint: str


class StoreWritable(Event, frozen=True):
    """The store is writable again."""

    seconds: float


class PressureChanged(Event, frozen=True):
    """Memory use changed, and with it how many tasks and browsers may run."""

    pressure: str
    """One of fine, slow, no new tasks, stop browsers."""
    meaning: str
    memory_percent: float
    memory_limit_bytes: int


class ResourcesSampled(Event, frozen=True):
    """Memory and CPU use, sampled every `resources.sample_seconds`."""

    cpu_percent: float
    memory_percent: float
    memory_limit_bytes: int
    pressure: str
    browsers_busy: int
    browsers_idle: int
    browsers_safe: int
    browser_pss_bytes: int


class ResultsSynced(Event, frozen=True):
    """Results were delivered: the upstream has acknowledged them."""

    results: int
    reports: int
    raw_files: int
    seconds: float


class EntryRefused(Event, frozen=True):
    """The upstream refused an entry."""

    task_id: str
    reason: str
    rejected: bool
    """Whether it is kept until an operator sends it again."""


class ArtifactNotUploaded(Event, frozen=True):
    """A screenshot or page that the upstream asked for was not uploaded. It stays with the worker."""

    task_id: str
    kind: str
    reason: str


class UpstreamOffline(Event, frozen=True):
    """A call to the upstream failed and will be retried; scraping continues."""

    loop: str
    reason: str
    denied: bool
    """Whether an operator must act."""
    retry_in_seconds: float
    remedy: str = ""
    """What the operator can do."""
    responded: bool = False
    """Whether it can be reached, but responds with an error."""


class UpstreamOnline(Event, frozen=True):
    """The upstream is reachable again."""

    loop: str
    offline_seconds: float


class CommandReceived(Event, frozen=True):
    """A command arrived with a heartbeat reply."""

    command: str
    known: bool
    """Unknown commands are ignored."""


class LoopFailed(Event, frozen=True):
    """A step of a loop failed. `maintenance` and `webhooks` are the gateway's loops, `browsers` is the pool's."""

    loop: str
    error: str
    in_a_row: int
    next_in_seconds: float


class ResultNotCompared(Event, frozen=True):
    """The gateway could not look for changes in a stored result and left it out."""

    platform: str
    task_id: str
    error: str


class FieldBroken(Event, frozen=True):
    """A field is no longer found where a site used to show it."""

    platform: str
    site: str
    """State and county."""
    field: str
    success_rate: float
    failing: list[str]
    example: str


class FleetSelectorsReceived(Event, frozen=True):
    """The fleet's selector statistics of a platform were received."""

    platform: str
    selectors: int


class FieldFixed(Event, frozen=True):
    """A field that was broken is found again."""

    platform: str
    site: str
    """State and county."""
    field: str


class PagesServed(Event, frozen=True):
    """Health and metrics pages are being served."""

    address: str


class BrowserStarted(Event, frozen=True):
    """A browser was started."""

    browser_id: int
    pid: int
    version: str
    launches: int
    """Launch number of its slot."""
    seconds: float
    no_sandbox: str
    """Why it runs without a sandbox; empty if it has one."""


class BrowserDied(Event, frozen=True):
    """A browser crashed, was killed, or was stopped because it did not respond or memory ran out."""

    browser_id: int
    reason: str
    tasks: int
    """Number of tasks it ran."""


class BrowserRetired(Event, frozen=True):
    """A browser was stopped between two tasks: it had run enough tasks, or was too old, too large or idle."""

    browser_id: int
    reason: str
    tasks: int
    """Number of tasks it ran."""


class BrowserOrphansRemoved(Event, frozen=True):
    """Browser processes left behind by a killed worker were removed."""

    owner: str
    processes: int
    """Processes that were still running."""


class BrowsersUnavailable(Event, frozen=True):
    """No browser can be started; the worker keeps trying."""

    reason: str
    hint: str
    """What an operator can do; may be empty."""
    retry_in_seconds: float


class GatewayStarted(Event, frozen=True):
    """The gateway accepts requests."""

    address: str
    database: str
    raw: str


class GatewayStopped(Event, frozen=True):
    """The gateway finished the requests in progress and stopped."""


class ConnectionsRefused(Event, frozen=True):
    """The gateway has as many open connections as its limit of open files allows, and refuses more. Reported once until
    half of them are closed.
    """

    connections: int
    max_files: int


class TokensRead(Event, frozen=True):
    """A token file was read, at the start or because it changed."""

    kind: str
    """One of worker, read, admin."""
    file: str
    names: list[str]
    open_to_all: bool
    """Whether every user of the machine can read it."""


class TokensNotRead(Event, frozen=True):
    """A token file changed and cannot be read or is invalid; the previous tokens remain valid."""

    kind: str
    file: str
    problem: str


class WorkerJoined(Event, frozen=True):
    """A worker made its first request to this process."""

    worker_id: str
    token: str
    """Name of the token."""


class AccessDenied(Event, frozen=True):
    """A request was denied. Reported at most once a second."""

    client: str
    path: str
    reason: str
    more: int
    """Further requests denied since the last event."""


class LeasesEnded(Event, frozen=True):
    """Leases expired: their workers sent neither a result nor a failure."""

    queued: int
    """Tasks that went back to the queue."""
    dead: int
    """Tasks given up after their last attempt."""


class WebhookFailing(Event, frozen=True):
    """A webhook's receiver does not accept changes. Delivery is retried with growing delays."""

    webhook: str
    error: str


class WebhookRecovered(Event, frozen=True):
    """A webhook's receiver accepts changes again."""

    webhook: str
    seconds: float
    """Since the first failure."""


class WebhookGaveUp(Event, frozen=True):
    """A change was not accepted for a day and was given up: only a replay delivers it."""

    webhook: str
    change: int
    """Its number."""
    error: str


class RunStarted(Event, frozen=True):
    """A schedule is due: its parcels are being refreshed."""

    schedule: str
    tasks: int
    late_seconds: float
    """Since it was due."""


class RunSkipped(Event, frozen=True):
    """A schedule is due, but its previous run is still in progress: this run is skipped."""

    schedule: str
    late_seconds: float
    """Since it was due."""


class ScheduleFailed(Event, frozen=True):
    """A schedule's step failed; the other schedules go on. Reported again only with another error."""

    schedule: str
    error: str


class LedgerPruned(Event, frozen=True):
    """Rows past their retention were removed from the ledger."""

    removed: int
    """Rows."""


class LedgerLost(Event, frozen=True):
    """The ledger's database is unreachable; requests that need it get a 503."""

    reason: str


class LedgerFound(Event, frozen=True):
    """The ledger's database is reachable again."""

    offline_seconds: float


class RequestDeferred(Event, frozen=True):
    """A request got a 503 because the ledger or the raw store is unavailable. Reported at most every ten seconds."""

    path: str
    reason: str
    more: int
    """Further requests since the last event."""


class DownloadCut(Event, frozen=True):
    """A download was cut off because the ledger or the raw store became unavailable."""

    path: str
    reason: str


class RequestFailed(Event, frozen=True):
    """A request failed with an internal error and got a 500."""

    path: str
    error: str
