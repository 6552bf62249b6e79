"""The state of a store and its workers, with the findings of all quick checks: `status`, `store status` and `top`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from parcelpost.cli.context import CLOCK, Opener, open_for_reading, openers, store_options
from parcelpost.cli.health.clock import clock_findings
from parcelpost.cli.health.store_files import backup_findings, damage_finding
from parcelpost.cli.settings_options import (
    UPSTREAM_SOURCES,
    StoreContext,
    command_line,
    has_upstream,
    run_command,
    store_command,
)
from parcelpost.clock import iso
from parcelpost.health_checks import Finding, is_ok, sort_findings
from parcelpost.model import Broken, BrowserState, QueueDepth, Source
from parcelpost.scrapers.fetch.errors import needs_operator
from parcelpost.settings import Settings
from parcelpost.storage import backup, claims, clock_changes, health, locks, outbox, queries, raw_files, refresh
from parcelpost.storage.browsers import Browsers
from parcelpost.storage.claims import Pause
from parcelpost.storage.clock_changes import CLOCK_STATE, ClockSetBackNote
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.health import Usage
from parcelpost.storage.history import SyncLog
from parcelpost.storage.queries import Failures, WaitingSources
from parcelpost.storage.snapshot import DAMAGE_STATE, DamageNote
from parcelpost.storage.worker_state import WorkerState
from parcelpost.units import age, count
from parcelpost.worker.backoff import Offline
from parcelpost.worker.findings import (
    browser_wait_finding,
    failures_finding,
    field_finding,
    status_findings,
    usage_finding,
    worst_outage,
)
from parcelpost.worker.schedules import SCHEDULE_STATE, StoredSchedule, run_prefix, schedule_site
from parcelpost.worker.status import BrowserWait, WorkerStatus, is_current, last_run, read_statuses

_CLI_WORKER = re.compile(r"cli-\d+-[0-9a-f]{8}")
_UNFINISHED = frozenset({"pending", "delayed", "processing"})
_FRESH_SHARE = 0.9
_RECENT = timedelta(days=1)
_LONG_SILENT_SECONDS = 120.0
_ROUNDS_SEARCHED = (50, 10_000)


class SyncedRound(Struct, frozen=True):
    """A sync round that succeeded."""

    at: datetime
    record_type: str
    record_count: int


class SyncState(Struct, frozen=True, kw_only=True):
    last_upload: SyncedRound | None
    last_download: SyncedRound | None
    outage: Offline | None
    """Why the upstream cannot be used, and when the next attempt is."""


class Backup(Struct, frozen=True, kw_only=True):
    path: str
    age_seconds: float


class BrokenField(Struct, frozen=True, kw_only=True):
    """A field that a county's site no longer shows where it used to."""

    field: Broken
    page: str | None
    """A raw page on which it is missing."""


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


class StoreOverview(Struct, frozen=True, kw_only=True):
    ok: bool
    """Whether no finding is an error."""
    findings: list[Finding]
    store: str
    schema_version: int
    last_change: str
    queue: QueueDepth
    platforms: dict[str, dict[str, int]]
    """Tasks by platform and status."""
    paused: dict[str, Pause]
    """By platform, or platform and county: `vgsi CT/hartford`."""
    failures: Failures
    """Failures of the last 24 hours."""
    sync: SyncState
    storage: Usage
    used_percent: float
    cache_bytes: int
    artifact_bytes: int
    backup: Backup | None
    """The newest."""
    backups: list[str]
    workers: list[Opener]
    """Running ones."""
    commands: list[Opener]
    """Other commands that have the store open."""
    crashed: list[Opener]
    """Processes that crashed with the store open; a worker recovers what they held."""
    statuses: list[WorkerStatus]
    """Published by the running workers; if none runs, by all processes of the last run."""
    broken: list[BrokenField]
    browser_waits: list[BrowserWait]
    """Platforms whose tasks wait because no browser can be started."""
    schedules: list[CountyFreshness]
    """Of the settings file, for a standalone worker."""


class CountyFreshness(Struct, frozen=True, kw_only=True):
    """How fresh a county of the settings' schedules is."""

    schedule: str
    site: str
    is_list: bool
    timing: str
    parcels: int
    """Known to the store; of a list, the list itself."""
    fresh: int
    """Of these, scraped within `max_age_seconds`."""
    not_found: int
    """Further parcels that the site no longer has."""
    max_age_seconds: float
    oldest_at: datetime | None
    next_run_at: datetime | None
    """None: no worker has seen the schedule yet."""
    error: str
    """Why its last run could not be started; else ''."""
    is_paused: bool
    is_stale: bool
    """Fewer than nine in ten parcels are fresh, a whole interval after a worker first saw the schedule."""


async def _freshness(database: LocalDatabase, state: WorkerState, settings: Settings) -> list[CountyFreshness]:
    now, found = CLOCK.now(), []
    for name, schedule in settings.schedules.items():
        site, since = schedule_site(schedule), schedule.fresh_since(now)
        if schedule.file or schedule.list:
            counted = await database.read(refresh.freshness_of_runs, run_prefix(name), since)
        else:
            count_known = partial(refresh.freshness, delinquent_only=schedule.delinquent_only)
            counted = await database.read(count_known, site, since)
        kept = await state.get(f"{SCHEDULE_STATE}{name}", StoredSchedule)
        found.append(
            CountyFreshness(
                schedule=name,
                site=f"{site.platform} {site.state}/{site.county}",
                is_list=schedule.list,
                timing=schedule.timing.text,
                parcels=counted.parcels,
                fresh=counted.fresh,
                not_found=counted.not_found,
                max_age_seconds=(now - since).total_seconds(),
                oldest_at=counted.oldest_at,
                next_run_at=kept.next_run_at if kept else None,
                error=kept.error if kept else "",
                is_paused=schedule.paused,
                is_stale=not schedule.paused
                and kept is not None
                and kept.anchor < since
                and counted.fresh < _FRESH_SHARE * counted.parcels,
            )
        )
    return found


def _freshness_findings(schedules: Sequence[CountyFreshness]) -> Iterator[Finding]:
    for schedule in schedules:
        if schedule.error:
            message = f"schedule {schedule.schedule} cannot run: {schedule.error}"
            yield Finding.of("schedule.failing", message, "correct its file; the worker tries again every 5 minutes")
        if schedule.is_stale:
            old, parcels = schedule.parcels - schedule.fresh, count(schedule.parcels, "parcel")
            behind = "its list was" if schedule.is_list else f"{old:,} of {parcels} at {schedule.site} were"
            message = f"schedule {schedule.schedule} is behind: {behind} not scraped "
            message += f"in the last {age(schedule.max_age_seconds)}"
            fix = "keep a standalone worker running, without --until-empty, or use a longer interval"
            yield Finding.of("schedule.stale", message, fix)


async def gather_store_overview(store: StoreContext) -> StoreOverview:
    """Read-only. Raises a StoreError if the store cannot be read."""
    now = CLOCK.now()
    alive, crashed = await openers(store, with_silence=True)
    workers = [opener for opener in alive if is_worker(opener)]
    async with open_for_reading(store) as database:
        state = WorkerState(database, CLOCK)
        all_statuses = await read_statuses(state)
        statuses = [status for status in all_statuses if status.owner in {worker.id for worker in workers}]
        statuses = statuses if workers else last_run(all_statuses)
        queue = await database.read(queries.depth, now)
        platforms = await database.read(queries.counts, iso(now))
        waiting = await database.read(queries.sources)
        pauses = await database.read(claims.pauses, iso(now))
        paused = {
            f"{site.platform} {site.state}/{site.county}".removesuffix(" /"): pause for site, pause in pauses.items()
        }
        failures = await database.read(queries.failures_since, now - _RECENT)
        state_of_store = await health.health(
            database, locks.live_folder(store.path), store_options(store.settings), now
        )
        broken = await broken_fields(database, all_statuses, now)
        waits = _browser_waits(statuses, platforms, now)
        schedules = await _freshness(database, state, store.settings)
        option = command_line("", store).removeprefix("parcelpost ")
        findings = sort_findings(
            (
                *_moved_findings(store, all_statuses, {opener.id for opener in alive}),
                *await _damage_findings(store, state),
                *filter(None, (usage_finding(state_of_store.usage, option),)),
                *_silent_findings(statuses if workers else (), now),
                *await _raw_folder_findings(store, database),
                *_worker_findings(statuses, now, is_running=bool(workers)),
                *_work_findings(store, queue, waiting, workers, statuses, now),
                *map(browser_wait_finding, waits),
                *_pause_findings(platforms, paused),
                *_hung_findings(workers, await database.read(queries.claims_by_owner)),
                *_crash_findings(store, crashed, workers),
                *_outbox_findings(store, queue),
                *clock_findings(
                    await database.read(clock_changes.waiting, now),
                    await state.get(CLOCK_STATE, ClockSetBackNote),
                    now,
                ),
                *backup_findings(store, state_of_store),
                *filter(None, (failures_finding(failures, option),)),
                *(field_finding(lost.field, lost.page or "") for lost in broken),
                *_freshness_findings(schedules),
            )
        )
        sync = await _sync_state(database, statuses)
    newest, newest_age = state_of_store.newest_backup, state_of_store.newest_backup_age_seconds
    return StoreOverview(
        ok=is_ok(findings),
        findings=findings,
        store=str(store.path),
        schema_version=state_of_store.schema_version,
        last_change=state_of_store.last_change,
        queue=queue,
        platforms=platforms,
        paused=paused,
        failures=failures,
        sync=sync,
        storage=state_of_store.usage,
        used_percent=round(100 * state_of_store.usage.total / state_of_store.usage.max_bytes, 1),
        cache_bytes=state_of_store.cache_bytes,
        artifact_bytes=state_of_store.artifact_bytes,
        backup=Backup(path=newest, age_seconds=newest_age) if newest and newest_age is not None else None,
        backups=[str(path) for path in backup.list_backups(store.path)],
        workers=workers,
        commands=[opener for opener in alive if opener not in workers],
        crashed=crashed,
        statuses=statuses,
        broken=broken,
        browser_waits=waits,
        schedules=schedules,
    )


def is_worker(opener: Opener) -> bool:
    """Whether it is a worker or another long-running program, rather than an operator's command."""
    return not _CLI_WORKER.fullmatch(opener.id)


async def broken_fields(database: LocalDatabase, statuses: list[WorkerStatus], now: datetime) -> list[BrokenField]:
    """As published by workers in the last day, newest first."""
    fields = {
        (field.platform, field.state, field.county, field.field): field
        for status in reversed(statuses)  # the last field published counts
        if status.published_at > now - _RECENT
        for field in status.broken
    }
    pages = [await database.read(outbox.get, field.example) for field in fields.values()]
    folder = raw_files.raw_folder(database.path)
    return [
        BrokenField(field=field, page=str(folder / page.html_path) if page and page.html_path else None)
        for field, page in zip(fields.values(), pages, strict=True)
    ]


def _browser_waits(
    statuses: list[WorkerStatus], platforms: Mapping[str, Mapping[str, int]], now: datetime
) -> list[BrowserWait]:
    """The newest wait of each platform that has unfinished tasks."""
    waits = [wait for status in statuses for wait in status.browser_waits if is_current(wait, now)]
    newest = {wait.platform: wait for wait in sorted(waits, key=lambda wait: wait.at)}
    return [wait for wait in newest.values() if wait.platform in _busy_platforms(platforms)]


def _busy_platforms(platforms: Mapping[str, Mapping[str, int]]) -> set[str]:
    return {name for name, counts in platforms.items() if any(counts.get(status) for status in _UNFINISHED)}


async def worker_browsers(database: LocalDatabase) -> list[WorkerBrowser]:
    live = locks.live_folder(database.path)
    states = await Browsers(database, live).all()
    return [_worker_browser(state, owner_lives=locks.is_alive(live, state.owner)) for state in states]


def _worker_browser(state: BrowserState, *, owner_lives: bool) -> WorkerBrowser:
    is_first = state.status == "restarting" and state.launches <= 1 and state.pid is None
    known = {name: value for name, value in asdict(state).items() if name in WorkerBrowser.__struct_fields__}
    return WorkerBrowser(**{**known, "status": "starting" if is_first else state.status}, owner_lives=owner_lives)


async def _sync_state(database: LocalDatabase, statuses: list[WorkerStatus]) -> SyncState:
    log = SyncLog(database, CLOCK)
    outages = [outage for status in statuses if (outage := worst_outage(status))]
    return SyncState(
        last_upload=await _last_success(log, "upload", "results"),
        last_download=await _last_success(log, "download", "tasks"),
        outage=next((outage for outage in outages if outage.denied), outages[0] if outages else None),
    )


async def _last_success(log: SyncLog, direction: str, kind: str) -> SyncedRound | None:
    """An outage of days has thousands of failed rounds; usually a few rounds are enough."""
    for limit in _ROUNDS_SEARCHED:
        rounds = await log.recent(limit, direction=direction)
        for logged in rounds:
            if logged.success and logged.record_type == kind:
                return SyncedRound(logged.created_at, logged.record_type, logged.record_count)
        if len(rounds) < limit:
            break
    return None


# The checks


def _moved_findings(store: StoreContext, statuses: list[WorkerStatus], alive: Collection[str]) -> Iterator[Finding]:
    """Workers that opened this store under another path, or another store under this path, and still have it open."""
    here = store.path.resolve()
    moved = []
    for status in statuses:
        opened = Path(status.store or here)
        if opened != here and status.owner not in alive and locks.is_alive(locks.live_folder(opened), status.owner):
            moved.append((f"worker {status.name}", str(opened)))
    for owner_id in alive:  # a store that was moved together with its locks
        info = locks.owner_info(locks.live_folder(here), owner_id)
        if info is not None and info.moved_from:
            moved.append((f"process {info.pid}", info.moved_from))
    for who, path in moved:
        message = f"{who} has this store open as {path}: it was moved while that process ran"
        yield Finding.of("store.moved", message, f"move it back to {path}, or stop that process")
    for owner in locks.owners_of_moved(here):
        yield Finding.of(
            "store.moved",
            f"process {owner.pid} has a different store open, which used to be at this path",
            "move that store back in place of this one, or stop that process",
        )


async def _damage_findings(store: StoreContext, state: WorkerState) -> list[Finding]:
    if await state.get(DAMAGE_STATE, DamageNote) is None:
        return []
    message = "a page of the database file is damaged: the results on it cannot be delivered"
    return [damage_finding(store, message, is_over=lambda: True)]  # backups are checked by `doctor`


def _silent_findings(statuses: Collection[WorkerStatus], now: datetime) -> Iterator[Finding]:
    """A worker publishes its status every 30 s if it can write to the store."""
    for status in statuses:
        seconds = (now - status.published_at).total_seconds()
        if seconds > _LONG_SILENT_SECONDS and status.cleaning_since is None:
            yield Finding.of(
                "store.not_writable",
                f"worker {status.name} has not been able to write to the store for {age(seconds)}",
                "check its log and the other problems listed here; it keeps unsaved results in memory",
            )


async def _raw_folder_findings(store: StoreContext, database: LocalDatabase) -> list[Finding]:
    problem = raw_files.missing(raw_files.raw_folder(store.path))
    if not problem or not await database.read(outbox.has_unsynced_raw_files):
        return []
    fix = "put the folder back or mount it; if the pages are lost, reject the results whose page is missing"
    return [Finding.of("store.raw_folder_missing", f"nothing can be delivered: {problem}", fix)]


def _worker_findings(statuses: list[WorkerStatus], now: datetime, *, is_running: bool) -> list[Finding]:
    """If several processes have the same problem, only the first is reported."""
    findings: dict[str, Finding] = {}
    for status in statuses:
        for finding in status_findings(status, now, is_running=is_running):
            findings.setdefault(finding.id if finding.id.startswith("upstream.") else finding.message, finding)
    return list(findings.values())


def _work_findings(
    store: StoreContext,
    queue: QueueDepth,
    waiting: WaitingSources,
    workers: list[Opener],
    statuses: list[WorkerStatus],
    now: datetime,
) -> list[Finding]:
    """Work that waits for a worker. Results of local tasks may stay where they are if no upstream is set."""
    if workers:
        return []
    sources = waiting.pending if queue.pending else frozenset[Source]()
    work = [f"{count(queue.pending, 'task')} to do"] if queue.pending else []
    if queue.unsynced and (waiting.unsent & UPSTREAM_SOURCES or has_upstream(store.settings)):
        work.append(f"{count(queue.unsynced, 'result')} to deliver")
        sources |= waiting.unsent
    if not work:
        return []
    start = run_command(store, sources)
    fix, command = f"start one with '{start}'", "" if " URL" in start else start
    stops = [status.stopped_at for status in statuses]
    if stops and all(stops):
        since = age((now - max(filter(None, stops))).total_seconds())
        message = f"the worker was stopped {since} ago, with {' and '.join(work)}"
        return [Finding.of("worker.stopped", message, fix, command)]
    return [Finding.of("worker.not_running", f"{' and '.join(work)}, but no worker is running", fix, command)]


def _pause_findings(platforms: Mapping[str, Mapping[str, int]], paused: Mapping[str, Pause]) -> list[Finding]:
    """Reports pauses of platforms that have tasks."""
    busy = _busy_platforms(platforms)
    pauses = {name: pause for name, pause in paused.items() if name in busy}
    timed = {name: pause for name, pause in pauses.items() if pause.until}
    resume = f"parcelpost platforms resume {shlex.quote(min(pauses, default=''))}"
    waiting = {name: pause for name, pause in paused.items() if name.partition(" ")[0] in busy and pause.until}
    if blocked := {name: pause for name, pause in waiting.items() if needs_operator(pause.reason)}:
        name = next(iter(blocked)).partition(" ")[0]
        fix = (
            "open the site once with 'parcelpost browser open --profile NAME URL', set the profile in the county's "
            f"entry, restart the worker and run 'parcelpost platforms resume {name}'"
        )
        return [Finding.of("platform.needs_operator", _pause_text(blocked), fix)]
    if busy and timed.keys() == busy:
        fix = "no action needed: they resume on their own; 'parcelpost platforms' shows the state of each"
        return [Finding.of("platform.all_paused", f"all work is paused: {_pause_text(timed)}", fix)]
    if busy and pauses.keys() == busy:
        message = "all platforms with tasks are paused by an operator"
        return [Finding.of("platform.paused", message, f"resume with '{resume}'", resume)]
    return []


def _pause_text(paused: Mapping[str, Pause]) -> str:
    name, pause = next(iter(paused.items()))
    others = f" (and {count(len(paused) - 1, 'other platform')})" if len(paused) > 1 else ""
    return f"{name}{others} is paused until {pause.until}: {pause.reason}"


def _hung_findings(workers: list[Opener], held: Mapping[str, int]) -> Iterator[Finding]:
    has_peers = any(not worker.silent_seconds for worker in workers)
    others = "its peers take over what it holds" if has_peers else "no other worker is running to take over"
    for worker in workers:
        if worker.silent_seconds:
            tasks = count(held.get(worker.id, 0), "task")
            yield Finding.of(
                "worker.hung",
                f"process {worker.pid} ({worker.id}) has not responded for {age(worker.silent_seconds)} and holds"
                f" {tasks}; {others}",
                f"resume it with 'kill -CONT {worker.pid}' if it was suspended, or end it with 'kill -9 {worker.pid}'"
                " and start it again: nothing is lost either way",
            )


def _crash_findings(store: StoreContext, crashed: list[Opener], workers: list[Opener]) -> list[Finding]:
    """A running worker recovers within seconds what a crashed process held."""
    if not crashed or workers:
        return []
    message = f"{count(len(crashed), 'process', 'processes')} crashed with the store open"
    clean = store_command("clean", store)
    return [
        Finding.of("worker.crashed", message, f"start a worker, or run '{clean}'; either one recovers its tasks", clean)
    ]


def _outbox_findings(store: StoreContext, queue: QueueDepth) -> list[Finding]:
    rejected = queue.rejected - queue.rejected_by_operator
    if not rejected:
        return []
    see = command_line("results list --delivery rejected", store)
    retry = command_line("results retry --all", store)
    message = f"the upstream rejected {count(rejected, 'result')}"
    return [Finding.of("outbox.rejected", message, f"see why with '{see}', retry with '{retry}'", f"{retry} --yes")]
