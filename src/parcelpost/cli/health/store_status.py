"""The health of a store: queue, space, backups, owners, and the problems found in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.cli.context import CLOCK, Opener, open_for_reading, openers, store_options
from parcelpost.cli.health.summary import RECENT_FAILURES, failures_command, failures_remedy, failures_text
from parcelpost.cli.options import (
    StoreContext,
    command_line,
    store_command,
)
from parcelpost.cli.output import age, count, size
from parcelpost.clock import iso
from parcelpost.model import QueueDepth
from parcelpost.storage import backup, claims, clock_changes, health, locks, outbox, queries, raw_files
from parcelpost.storage.clock_changes import CLOCK_STATE, ClockSetBackNote, Waiting
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.queries import Failures, WaitingSources
from parcelpost.storage.state import WorkerState

_CLI_WORKER = re.compile(r"cli-\d+-[0-9a-f]{8}")
_BACKUP_IS_OLD = timedelta(days=2)
_FIRST_BACKUP_IS_DUE = timedelta(hours=26)  # one is made every day at a certain hour


class Problem(Struct, frozen=True):
    what: str
    remedy: str
    """A command, or what else to do."""
    about: str = "work"
    """work, delivery, space, backups, or a part of the program that `parcelpost doctor` looks at."""
    command: str = ""
    """What mends it, to be pasted into a shell; '' where a person has to think first."""
    warning: bool = False
    """It may wait; else it must be mended."""


def by_severity(problems: Iterable[Problem]) -> list[Problem]:
    """What must be mended before what may wait, else in the order given."""
    return sorted(problems, key=lambda one: one.warning)


class Pause(Struct, frozen=True):
    until: str | None
    """None: until somebody resumes it."""
    reason: str


class StoreStatus(Struct, frozen=True, kw_only=True):
    well: bool
    problems: list[Problem]
    path: str
    schema_version: int
    last_change: str
    queue: QueueDepth
    platforms: dict[str, dict[str, int]]
    paused: dict[str, Pause]
    waiting: WaitingSources
    failures: Failures
    """Of the last 24 hours."""
    usage: Usage
    used_percent: float
    file_bytes: int
    cache_bytes: int
    artifact_bytes: int
    newest_backup: str | None
    newest_backup_age_seconds: float | None
    backups: list[str]
    open_in: list[Opener]
    left_by_dead: list[Opener]


async def gather_status(store: StoreContext) -> StoreStatus:
    """Only looks. Raises a StoreError for what cannot be looked at."""
    async with open_for_reading(store) as database:
        now = CLOCK.now()
        depth = await database.read(queries.depth, now)
        platforms = await database.read(queries.counts, iso(CLOCK.now()))
        paused = await database.read(claims.paused, iso(now))
        waiting = await database.read(queries.sources)
        failed = await database.read(queries.failures_since, now - RECENT_FAILURES)
        from_the_future = await database.read(clock_changes.waiting, now)
        set_back = await WorkerState(database, CLOCK).get(CLOCK_STATE, ClockSetBackNote)
        found = await health.health(database, locks.live_folder(store.path), store_options(store.settings), now)
        has_unsynced_pages = await database.read(outbox.has_unsynced_raw_files)
        held = await database.read(queries.claims_by_owner)
    alive, dead = await openers(store, with_silence=True)
    problems = by_severity(
        (
            *(_raw_folder_problems(store) if has_unsynced_pages else ()),
            *_space_problems(store, found.usage, alive),
            *_hang_problems(alive, held),
            *_crash_problems(store, dead, alive),
            *_outbox_problems(store, depth),
            *_clock_problems(from_the_future, set_back, now),
            *_backup_problems(store, found),
            *_failure_problems(store, failed),
        )
    )
    return StoreStatus(
        well=not problems,
        problems=problems,
        path=str(store.path),
        schema_version=found.schema_version,
        last_change=found.last_change,
        queue=depth,
        platforms=platforms,
        paused={name: Pause(until, reason) for name, (until, reason) in paused.items()},
        waiting=waiting,
        failures=failed,
        usage=found.usage,
        used_percent=round(100 * found.usage.total / found.usage.max_bytes, 1),
        file_bytes=found.file_bytes,
        cache_bytes=found.cache_bytes,
        artifact_bytes=found.artifact_bytes,
        newest_backup=found.newest_backup,
        newest_backup_age_seconds=found.newest_backup_age_seconds,
        backups=[str(path) for path in backup.list_backups(store.path)],
        open_in=alive,
        left_by_dead=dead,
    )


def _raw_folder_problems(store: StoreContext) -> list[Problem]:
    problem = raw_files.missing(raw_files.raw_folder(store.path))
    remedy = (
        "put the folder back or mount it, and delivery goes on; if the pages are lost for good, results whose page is "
        "missing can be rejected"
    )
    return [Problem(f"nothing is delivered: {problem}", remedy, "store")] if problem else []


def _space_problems(store: StoreContext, usage: Usage, alive: list[Opener]) -> list[Problem]:
    if usage.level is Level.FINE:
        return []
    may_wait = usage.level is Level.COLLECTOR_STOPS
    relieve = store_command("clean --relieve", store)
    if usage.lacks_inodes:
        files = count(usage.free_inodes, "more file")
        what = f"no free inodes: only {files} can be made on the disk, so the {usage.level}"
        remedy = f"remove files from that disk ('df -i'), or run '{relieve}', which removes what was delivered"
        return [Problem(what, remedy, "space", relieve, warning=may_wait)]
    if usage.lacks_disk:
        what = f"only {size(usage.disk_free)} are free on the disk, so the {usage.level}"
        then = "workers go on by themselves" if any(map(is_worker, alive)) else "then start a worker"
        return [Problem(what, f"free disk space; {then}", "space", warning=may_wait)]
    what = f"{size(usage.total)} of at most {size(usage.max_bytes)} are used, so the {usage.level}"
    return [Problem(what, f"run '{relieve}', which removes what was delivered", "space", relieve, warning=may_wait)]


def _outbox_problems(store: StoreContext, depth: QueueDepth) -> list[Problem]:
    refused = depth.rejected - depth.rejected_by_operator
    if not refused:
        return []
    what = f"the gateway refused {count(refused, 'result')}"
    see = command_line("results list --delivery rejected", store)
    again = command_line("results retry --all", store)
    return [Problem(what, f"see why with '{see}', send again with '{again}'", "delivery", f"{again} --yes")]


def is_worker(opener: Opener) -> bool:
    """Or another program that keeps the store open; no command of a person's."""
    return not _CLI_WORKER.fullmatch(opener.id)


def _hang_problems(alive: list[Opener], held: dict[str, int]) -> list[Problem]:
    """A command of a person's may wait for an answer, and holds no task."""
    peers = [one for one in alive if is_worker(one) and not one.silent_seconds]
    others = "its peers take over what it holds" if peers else "no other worker runs that could take over"
    return [
        Problem(
            f"process {one.pid} ({one.id}) has given no sign of life for {age(one.silent_seconds)}, and holds"
            f" {count(held.get(one.id, 0), 'task')}; {others}",
            f"let it go on with 'kill -CONT {one.pid}' if somebody stopped it, or end it with 'kill -9 {one.pid}' and"
            " start it anew: nothing is lost either way",
        )
        for one in alive
        if one.silent_seconds and is_worker(one)
    ]


def _crash_problems(store: StoreContext, dead: list[Opener], alive: list[Opener]) -> list[Problem]:
    """A worker brings back by itself, within seconds, what a peer held that died."""
    if not dead or any(map(is_worker, alive)):
        return []
    what = f"{count(len(dead), 'process', 'processes')} crashed with the store open"
    clean = store_command("clean", store)
    return [Problem(what, f"start a worker, or run '{clean}': both bring back what was held", command=clean)]


def _clock_problems(waiting: Waiting, told: ClockSetBackNote | None, now: datetime) -> list[Problem]:
    if waiting.tasks or waiting.platforms:
        tasks, pauses = count(waiting.tasks, "task"), count(waiting.platforms, "paused platform")
        what = f"the clock was set back: {tasks} and {pauses} wait for a moment that it wrote when it was ahead"
        return [
            Problem(what, "see that the clock is right now; a running worker corrects them within a minute", "clock")
        ]
    if told is None or abs(now - told.at) > RECENT_FAILURES:
        return []
    what = f"the clock was set back by {age(told.seconds)} in the last 24 h"
    remedy = f"see that it is right now; delays of {count(told.tasks, 'task')} were corrected"
    return [Problem(what, remedy, "clock", warning=True)]


def _backup_problems(store: StoreContext, found: health.Health) -> list[Problem]:
    if found.newest_backup_age_seconds is None:
        is_due = found.last_change and found.age_seconds > _FIRST_BACKUP_IS_DUE.total_seconds()
        what = "there is no backup yet" if is_due else ""
    else:
        is_old = found.newest_backup_age_seconds > _BACKUP_IS_OLD.total_seconds()
        what = f"the newest backup is {age(found.newest_backup_age_seconds)} old" if is_old else ""
    command = store_command("backup", store)
    return [Problem(what, f"run '{command}'", "backups", command, warning=True)] if what else []


def _failure_problems(store: StoreContext, found: Failures) -> list[Problem]:
    if not found.are_many:
        return []
    again = f"{failures_command(store)} --yes"
    return [Problem(failures_text(found, "in the last 24 h"), failures_remedy(store), command=again, warning=True)]
