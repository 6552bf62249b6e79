"""The health of a worker: queue, outbox, sync, store, browsers and pauses, with everything that needs attention."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from parcelpost.cli.context import CLOCK, Opener, open_for_reading, openers
from parcelpost.cli.health import store_status
from parcelpost.cli.health.integrity import damage_problem
from parcelpost.cli.health.store_status import Pause, Problem, StoreStatus, by_severity, is_worker
from parcelpost.cli.options import (
    UPSTREAM_SOURCES,
    StoreContext,
    has_upstream,
    run_command,
    upstream_name,
)
from parcelpost.cli.output import age, count, printable
from parcelpost.clock import iso
from parcelpost.errors import Unauthorized
from parcelpost.model import Broken, BrowserState, QueueDepth, Source
from parcelpost.scrapers.fetch.errors import needs_operator
from parcelpost.storage import locks, outbox, queries
from parcelpost.storage.browsers import Browsers
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.health import Usage
from parcelpost.storage.history import LoggedRound, SyncLog
from parcelpost.storage.queries import Failures
from parcelpost.storage.raw_files import raw_folder
from parcelpost.storage.snapshot import DAMAGE_STATE, DamageNote
from parcelpost.storage.state import WorkerState
from parcelpost.worker.backoff import COLLECTOR, HEARTBEAT, SYNC, Offline
from parcelpost.worker.status import BrowserWait, SlowUpstream, WorkerStatus, is_current, read_statuses

_UNFINISHED = frozenset({"pending", "delayed", "processing"})
_OPEN_BROWSER = (
    "a person does it once, with 'parcelpost browser open --profile NAME URL'; name the profile in the county's entry, "
    "start the worker anew, and 'parcelpost platforms resume {}'"
)
_WAIT_HINT = "they go on by themselves; 'parcelpost platforms' says how each of them does"


def platform_pause_problems(status: StoreStatus) -> list[Problem]:
    """Of platforms that have tasks. What somebody has paused until they resume it is as they want it."""
    busy = {name for name, counts in status.platforms.items() if any(counts.get(state) for state in _UNFINISHED)}
    paused = {name: pause for name, pause in status.paused.items() if name in busy and pause.until}
    of_persons = {name: pause for name, pause in paused.items() if needs_operator(pause.reason)}
    if of_persons:
        return [Problem(_pause_text(of_persons), _OPEN_BROWSER.format(next(iter(of_persons))))]
    if paused and len(paused) == len(busy):
        return [Problem(f"nothing can be done now: {_pause_text(paused)}", _WAIT_HINT, warning=True)]
    return []


def _pause_text(paused: Mapping[str, Pause]) -> str:
    name, pause = next(iter(paused.items()))
    others = f" (and {count(len(paused) - 1, 'other platform')})" if len(paused) > 1 else ""
    return f"{name}{others} is paused until {pause.until}: {pause.reason}"


_WAITING_STATUSES = frozenset({"pending", "delayed", "processing"})


async def browser_waits(store: StoreContext) -> list[BrowserWait]:
    """Recent ones, of platforms that have tasks to do. While a worker runs, only what the running ones published."""
    now = CLOCK.now()
    workers = {one.id for one in (await openers(store))[0] if is_worker(one)}
    async with open_for_reading(store) as database:
        statuses = await read_statuses(WorkerState(database, CLOCK))
        counts = await database.read(queries.counts, iso(now)) if statuses else {}
    waits = [
        wait
        for status in statuses
        if not workers or status.owner in workers
        for wait in status.browser_waits
        if is_current(wait, now) and any(counts.get(wait.platform, {}).get(state) for state in _WAITING_STATUSES)
    ]
    newest = {wait.platform: wait for wait in sorted(waits, key=lambda wait: wait.at)}
    return list(newest.values())


def browser_wait_problems(waits: list[BrowserWait]) -> list[Problem]:
    told = "'parcelpost browser doctor' says what is missing"
    return [Problem(one.text, one.remedy or told, "browser") for one in waits]


class WorkerBrowser(Struct, frozen=True, kw_only=True):
    browser_id: int
    status: Literal["idle", "busy", "crashed", "restarting", "starting"]
    """starting: for the first time."""
    current_task_id: str | None
    tasks_completed: int
    launches: int
    memory_mb: int | None
    pid: int | None
    created_at: datetime
    restarted_at: datetime | None
    last_health_check: datetime
    owner: str
    owner_lives: bool


async def browsers_of(store: StoreContext) -> list[WorkerBrowser]:
    async with open_for_reading(store) as database:
        return await browsers_in(database, store)


async def browsers_in(database: LocalDatabase, store: StoreContext) -> list[WorkerBrowser]:
    live = locks.live_folder(store.path)
    states = await Browsers(database, live).all()
    return [_worker_browser(one, owner_lives=locks.is_alive(live, one.owner)) for one in states]


def _worker_browser(state: BrowserState, *, owner_lives: bool) -> WorkerBrowser:
    """Without what only those need who clean up."""
    is_first = state.status == "restarting" and state.launches <= 1 and state.pid is None
    known = {name: value for name, value in asdict(state).items() if name in WorkerBrowser.__struct_fields__}
    return WorkerBrowser(**{**known, "status": "starting" if is_first else state.status}, owner_lives=owner_lives)


_LOOK_BACK = (50, 10_000)
_BROKEN_COUNTS_FOR = timedelta(days=1)
_LONG_AWAY = timedelta(days=1)
_LONG_SILENT_SECONDS = 120.0


class SyncedRound(Struct, frozen=True):
    """A round that worked."""

    at: datetime
    record_type: str
    record_count: int


class SyncHealth(Struct, frozen=True, kw_only=True):
    upstream: str
    """What it is called: the gateway, or Firestore."""
    last_upload: SyncedRound | None
    last_download: SyncedRound | None
    away: Offline | None
    """Why the gateway cannot be used at the moment, and when it is tried again; of the sync, if it has tried."""
    denied: str
    """Why the gateway does not let us in, '' while it does."""
    remedy: str
    """What to do about that."""
    slow: SlowUpstream | None = None
    """Batches timed out, so fewer results are sent at once."""


class OutboxDepth(Struct, frozen=True, kw_only=True):
    unsynced: int
    oldest_unsynced_seconds: float
    rejected: int


class Backup(Struct, frozen=True, kw_only=True):
    path: str
    age_seconds: float


class BrokenField(Struct, frozen=True, kw_only=True):
    """A field that a county's site no longer shows where it did."""

    field: Broken
    page: str | None
    """A raw page to look at."""


class Overview(Struct, frozen=True, kw_only=True):
    well: bool
    problems: list[Problem]
    store: str
    queue: QueueDepth
    platforms: dict[str, dict[str, int]]
    outbox: OutboxDepth
    sync: SyncHealth
    storage: Usage
    used_percent: float
    paused: dict[str, Pause]
    failures: Failures
    """Of the last 24 hours."""
    statuses: list[WorkerStatus]
    """What the running workers have published about themselves."""
    broken: list[BrokenField]
    browser_waits: list[BrowserWait]
    """Platforms whose tasks wait because there is no browser."""
    workers: list[Opener]
    left_by_dead: list[Opener]
    """A worker brings back what they held."""
    commands: list[Opener]
    """Other commands that have the store open."""
    backup: Backup | None


async def gather_overview(store: StoreContext) -> Overview:
    """Only looks. Raises a StoreError for what cannot be looked at."""
    status = await store_status.gather_status(store)
    workers = [one for one in status.open_in if store_status.is_worker(one)]
    commands = [one for one in status.open_in if one not in workers]
    async with open_for_reading(store) as database:
        every_status = await read_statuses(WorkerState(database, CLOCK))
    statuses = [one for one in every_status if one.owner in {worker.id for worker in workers}]
    sync = await _sync(store, statuses or every_status[:1])
    broken = await broken_fields(store)
    waits = await browser_waits(store)
    damage = await _damage_problems(store)
    room = [one for one in status.problems if one.about == "space"]
    problems = by_severity(
        (
            *damage,
            *room,
            *_not_writable(statuses),
            *denials(sync),
            *_denial_problems(sync),
            *_idle_problems(store, status, workers),
            *browser_wait_problems(waits),
            *platform_pause_problems(status),
            *_worker_pause_problems(statuses),
            *_memory_problems(statuses),
            *_offline_problems(sync, workers),
            *(one for one in status.problems if one not in room),
            *_broken_problems(broken),
        )
    )
    queue = status.queue
    return Overview(
        well=not problems,
        problems=problems,
        store=status.path,
        queue=queue,
        platforms=status.platforms,
        outbox=OutboxDepth(
            unsynced=queue.unsynced,
            oldest_unsynced_seconds=queue.oldest_unsynced_seconds,
            rejected=queue.rejected,
        ),
        sync=sync,
        storage=status.usage,
        used_percent=status.used_percent,
        paused=status.paused,
        failures=status.failures,
        statuses=statuses,
        broken=broken,
        browser_waits=waits,
        workers=workers,
        left_by_dead=status.left_by_dead,
        commands=commands,
        backup=_backup(status),
    )


async def _damage_problems(store: StoreContext) -> list[Problem]:
    async with open_for_reading(store) as database:
        note = await WorkerState(database, CLOCK).get(DAMAGE_STATE, DamageNote)
    if note is None:
        return []
    return [damage_problem(store, "a page of the database file is damaged: results on it are not delivered")]


async def _sync(store: StoreContext, statuses: list[WorkerStatus]) -> SyncHealth:
    outages = [one.outages[loop] for loop in (SYNC, COLLECTOR, HEARTBEAT) for one in statuses if loop in one.outages]
    denied = next((one for one in outages if one.denied), None)
    async with open_for_reading(store) as database:
        log = SyncLog(database, CLOCK)
        return SyncHealth(
            upstream=upstream_name(store.settings),
            denied=denied.reason if denied else "",
            remedy=(denied.remedy or Unauthorized.hint) if denied else "",
            last_upload=await _last(log, "upload", "results"),
            last_download=await _last(log, "download", "tasks"),
            away=outages[0] if outages else None,
            slow=next((one.slow for one in statuses if one.slow), None),
        )


def overview_remark(found: Overview, now: datetime) -> str:
    """What a person should know though nothing is wrong: why nothing is delivered, or done."""
    away, kept = found.sync.away, "everything is kept here until it is back"
    if found.workers and found.sync.slow is not None:
        failed = f"; the last try failed ({away.reason}), and {kept}" if away else ""
        return f"; {slow_text(found.sync.upstream, found.sync.slow, now)}{failed}"
    if found.workers and away is not None:
        since = age((now - away.since).total_seconds())
        return f"; {found.sync.upstream} has been away for {since} ({away.reason}), and {kept}"
    busy = {name for name, counts in found.platforms.items() if counts.get("pending") or counts.get("delayed")}
    if busy and busy <= found.paused.keys():
        resume = f"parcelpost platforms resume {shlex.quote(min(busy))}"
        return f"; what is to do is paused, and goes on after '{resume}'"
    return ""


def slow_text(upstream: str, slow: SlowUpstream, now: datetime) -> str:
    since = age((now - slow.since).total_seconds())
    return f"{upstream} is slow: for {since} results have gone in smaller batches, of {slow.batch_size:,} or so"


async def _last(log: SyncLog, direction: str, kind: str) -> SyncedRound | None:
    """The newest round that worked. An outage of days is thousands of rounds long; usually a few are enough."""
    for most in _LOOK_BACK:
        rounds = await log.recent(most, direction=direction)
        for one in rounds:
            if one.round.success and one.round.record_type == kind:
                return _synced_round(one)
        if len(rounds) < most:
            break
    return None


def _synced_round(one: LoggedRound) -> SyncedRound:
    return SyncedRound(one.created_at, one.round.record_type, one.round.record_count)


def _not_writable(statuses: list[WorkerStatus]) -> list[Problem]:
    """A worker publishes its status every 30 s, if the store can be written."""
    silent = [one for one in statuses if one.cleaning_since is None]
    ages = {one.name: (CLOCK.now() - one.published_at).total_seconds() for one in silent}
    remedy = "see its log and the other problems here; what it has scraped and delivered meanwhile is in its memory"
    return [
        Problem(f"worker {name} could not write to the store for {age(seconds)}", remedy, "space")
        for name, seconds in ages.items()
        if seconds > _LONG_SILENT_SECONDS
    ]


def _worker_pause_problems(statuses: list[WorkerStatus]) -> list[Problem]:
    return [
        Problem(
            f"the gateway has paused worker {one.worker_id}, {age((CLOCK.now() - since).total_seconds())} ago: it"
            " starts no task, and delivers what there is",
            f"where the gateway runs, 'parcelpost gateway command resume --worker {shlex.quote(one.worker_id)}' or its"
            " dashboard; a worker that is started anew is not paused",
            command=f"parcelpost gateway command resume --worker {shlex.quote(one.worker_id)}",
            warning=True,
        )
        # its processes are one worker there
        for one in {one.worker_id: one for one in statuses if one.paused_since}.values()
        if (since := one.paused_since)
    ]


def _memory_problems(statuses: list[WorkerStatus]) -> list[Problem]:
    """A worker that is only slower does its work."""
    remedy = "end other programs or give it more memory; it goes on by itself. See also the settings under 'resources'"
    return [
        Problem(
            f"worker {one.name}: {memory.summary} ({age((CLOCK.now() - memory.since).total_seconds())} ago)",
            remedy,
            warning=True,
        )
        for one in statuses
        if (memory := one.memory) and not memory.starts_tasks
    ]


async def broken_fields(store: StoreContext) -> list[BrokenField]:
    """As the workers said it, not long ago."""
    async with open_for_reading(store) as database:
        statuses = await read_statuses(WorkerState(database, CLOCK))
        oldest = CLOCK.now() - _BROKEN_COUNTS_FOR
        fields = {
            (one.platform, one.state, one.county, one.field): one
            for status in reversed(statuses)  # what was published last counts
            if status.published_at > oldest
            for one in status.broken
        }
        pages = [await database.read(outbox.get, one.example) for one in fields.values()]
    folder = raw_folder(store.path)
    return [
        BrokenField(field=one, page=str(folder / page.html_path) if page and page.html_path else None)
        for one, page in zip(fields.values(), pages, strict=True)
    ]


def _broken_problems(broken: list[BrokenField]) -> list[Problem]:
    lost = [one for one in broken if not one.field.found_otherwise]
    remedy = "once the parser is mended, 'parcelpost reparse'"
    return [
        Problem(
            broken_text(one.field), f"look at {_page_name(one)}; {remedy}", command="parcelpost reparse", warning=True
        )
        for one in lost
    ]


def _page_name(one: BrokenField) -> str:
    return printable(one.page or f"the page of task {one.field.example}")


def broken_text(field: Broken) -> str:
    since = f" since {field.since:%Y-%m-%d %H:%M} UTC" if field.since else ""
    how = f"on {field.success_rate:.0%} of pages{since}, before on {field.used_to:.0%}"
    if field.found_otherwise:
        how = f"another way{since}"
    failing = ", ".join(field.failing) or "every way"
    return printable(f"{field.platform} {field.state}/{field.county}: {field.field} is found {how}; failing: {failing}")


def denials(sync: SyncHealth) -> list[Problem]:
    if not sync.denied:
        return []
    return [Problem(f"{sync.upstream} does not let us in: {sync.denied}", sync.remedy, "delivery")]


def _denial_problems(sync: SyncHealth) -> list[Problem]:
    away = sync.away
    if away is None or not away.takes_nothing:
        return []
    since = age((CLOCK.now() - away.since).total_seconds())
    remedy = (
        "see the gateway's own log; everything is kept here and sent when it takes results again. Should a result be at"
        " fault, that shows as soon as another one is stored"
    )
    return [Problem(f"{sync.upstream} answers and stores nothing, for {since}: {away.reason}", remedy, "delivery")]


def _offline_problems(sync: SyncHealth, workers: list[Opener]) -> list[Problem]:
    """To be offline is no fault. For longer than a day, somebody may want to know."""
    away = sync.away
    if away is None or away.takes_nothing or sync.denied or not workers or CLOCK.now() - away.since < _LONG_AWAY:
        return []
    since = age((CLOCK.now() - away.since).total_seconds())
    remedy = "'parcelpost doctor' says what is wrong; everything is kept here and sent when it is back"
    what = f"{sync.upstream} has not been there for {since}: {away.reason}"
    return [Problem(what, remedy, "delivery", warning=True)]


def _idle_problems(store: StoreContext, status: StoreStatus, workers: list[Opener]) -> list[Problem]:
    """Results of local tasks may stay here for good, where no gateway is set."""
    if workers:
        return []
    tasks, results = status.queue.pending, status.queue.unsynced
    sources = status.waiting.pending if tasks else frozenset[Source]()
    waiting = [f"{count(tasks, 'task')} to do"] if tasks else []
    if results and (status.waiting.unsent & UPSTREAM_SOURCES or has_upstream(store.settings)):
        waiting.append(f"{count(results, 'result')} to deliver")
        sources |= status.waiting.unsent
    if not waiting:
        return []
    start = run_command(store, sources)
    what = f"{' and '.join(waiting)} and no worker is running"
    return [Problem(what, f"start one with '{start}'", command="" if " URL" in start else start)]


def _backup(status: StoreStatus) -> Backup | None:
    if status.newest_backup is None or status.newest_backup_age_seconds is None:
        return None
    return Backup(path=status.newest_backup, age_seconds=status.newest_backup_age_seconds)
