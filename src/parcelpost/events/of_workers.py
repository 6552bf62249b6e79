"""What stores and workers report."""

from __future__ import annotations

from parcelpost.events.event import Event


class StoreOpened(Event, frozen=True):
    """The store is open; `migrated` lists the schema versions that were applied on the way."""

    path: str
    schema_version: int
    migrated: list[int]


class OwnerDied(Event, frozen=True):
    """A process that had the store open ended without closing it; what it held was brought back (I9).

    At `FULL` nothing it confirmed is lost. At `NORMAL`, if the machine lost power, what was confirmed after
    `last_change` may be, and `pages_without_result` counts kept pages whose result is gone.
    """

    owner: str
    synchronous: str
    tasks_recovered: int
    tasks_given_up: int
    raw_files_restored: int
    pages_without_result: int
    last_change: str


class BackupMade(Event, frozen=True):
    """A verified backup was written."""

    path: str
    bytes: int
    removed: int


class StoreCleaned(Event, frozen=True):
    """Old rows and files were removed."""

    tasks: int
    results: int
    cache: int
    signals: int
    metrics: int
    sync_log: int
    files: int
    evidence: int
    """Of how many tasks."""


class ReserveUsed(Event, frozen=True):
    """The disk is full: the reserve was given up so that delivered work can still be marked."""

    bytes: int


class WorkerStarted(Event, frozen=True):
    """A worker is at work."""

    mode: str
    worker_id: str
    store: str
    gateway: str
    slots: int
    platforms: list[str]


class WorkerDraining(Event, frozen=True):
    """No new task is started; those running get `seconds` to end."""

    reason: str
    seconds: float


class WorkerStopped(Event, frozen=True):
    """The worker has ended; `released` tasks that were running went back to the queue."""

    reason: str
    released: int


class WorkStands(Event, frozen=True):
    """How the work in the store stands: tasks by their state, and results that are not upstream."""

    pending: int
    running: int
    completed: int
    failed: int
    expired: int
    unsynced: int
    rejected: int


class TasksReceived(Event, frozen=True):
    """Tasks came from upstream and are stored; `known` were here already, `bad` could not be understood."""

    new: int
    known: int
    bad: int


class TaskSkipped(Event, frozen=True):
    """A task in an answer could not be understood or stored; those beside it were kept."""

    task_id: str
    problem: str


class AttemptEnded(Event, frozen=True):
    """An attempt at a task ended: done, not_found, retry, give_up or blocked (`outcome`)."""

    task_id: str
    platform: str
    outcome: str
    seconds: float
    reason: str


class TaskPutOff(Event, frozen=True):
    """A task's site had no turn free: it was given back, untried and at no cost, to be looked at in `seconds`."""

    task_id: str
    platform: str
    seconds: float
    reason: str


class PageFetched(Event, frozen=True):
    """A site answered, with whatever status; or the cache did (`cached`), and nobody was asked.

    The `method` of a page in a browser is RENDER.
    """

    method: str
    url: str
    status: int
    bytes: int
    seconds: float
    cached: bool


class PlatformPaused(Event, frozen=True):
    """A site blocked us: nobody claims from its platform for that long."""

    platform: str
    seconds: float
    reason: str


class AttemptAbandoned(Event, frozen=True):
    """Platform code did not stop when its time was up; its thread was left behind and the slot has a new one."""

    task_id: str
    platform: str
    left_behind: int


class StorageLevelChanged(Event, frozen=True):
    """How full the store is changed what may go on (I8)."""

    level: str
    bytes: int
    max_bytes: int
    free_bytes: int


class PressureChanged(Event, frozen=True):
    """How much memory is used changed what may go on; `meaning` says it in words."""

    pressure: str
    meaning: str
    memory_percent: float
    memory_limit_bytes: int


class ResourcesSampled(Event, frozen=True):
    """What the machine has left, or the control group that limits us. `browsers_safe`: how many it can bear."""

    cpu_percent: float
    memory_percent: float
    memory_limit_bytes: int
    pressure: str
    browsers_busy: int
    browsers_idle: int
    browsers_safe: int
    browser_pss_bytes: int


class ResultsSynced(Event, frozen=True):
    """The upstream has them."""

    results: int
    reports: int
    raw_files: int
    seconds: float


class MarksHeld(Event, frozen=True):
    """Results were delivered and the store cannot take that word; nothing more is sent until it can."""

    results: int
    error: str


class EntryRefused(Event, frozen=True):
    """The upstream will not take an entry; with `rejected` it is set aside, to be sent again only by hand."""

    task_id: str
    reason: str
    rejected: bool


class UpstreamAway(Event, frozen=True):
    """A call failed and is tried again later; scraping goes on (I7). `denied`: a person must look."""

    loop: str
    reason: str
    denied: bool
    retry_in_seconds: float
    remedy: str = ""
    """What that person can do."""


class UpstreamBack(Event, frozen=True):
    """The upstream answers again."""

    loop: str
    away_seconds: float


class CommandReceived(Event, frozen=True):
    """The upstream's order on a heartbeat; one that is not `known` is ignored."""

    command: str
    known: bool


class LoopFailed(Event, frozen=True):
    """A loop's turn failed; it goes on after a pause, or ends the worker when it fails too often."""

    loop: str
    error: str
    in_a_row: int
    next_in_seconds: float


class FieldBroken(Event, frozen=True):
    """A site no longer shows a field where it did. `failing`: the selectors; `example`: a task with such a page."""

    platform: str
    site: str
    """State and county, as `CT/hartford`."""
    field: str
    success_rate: float
    failing: list[str]
    example: str


class ExperienceTaken(Event, frozen=True):
    """The fleet's ranked selectors of a platform were taken over."""

    platform: str
    selectors: int


class FieldMended(Event, frozen=True):
    """A field that was broken is found again."""

    platform: str
    site: str
    """State and county, as `CT/hartford`."""
    field: str


class PagesServed(Event, frozen=True):
    """Health and metrics pages are up."""

    address: str


class BrowserStarted(Event, frozen=True):
    """A browser runs. `launches`: the how manieth in its place; `no_sandbox`: why it has no sandbox, or ''."""

    browser_id: int
    pid: int
    version: str
    launches: int
    seconds: float
    no_sandbox: str


class BrowserDied(Event, frozen=True):
    """A browser ended by itself, by somebody else's hand, or because it was of no use any more."""

    browser_id: int
    reason: str
    tasks: int
    """Done in it."""


class BrowserRetired(Event, frozen=True):
    """A browser was ended between two tasks: for its tasks, age or memory, or because nobody needed it."""

    browser_id: int
    reason: str
    tasks: int
    """Done in it."""


class BrowserOrphansRemoved(Event, frozen=True):
    """What a killed worker left of its browsers was cleaned up; `processes` were still running."""

    owner: str
    processes: int


class BrowsersUnavailable(Event, frozen=True):
    """No browser can be started; it is tried again. `hint`: what a person can do, or ''."""

    reason: str
    hint: str
    retry_in_seconds: float
