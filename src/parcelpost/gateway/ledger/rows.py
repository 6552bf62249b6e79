"""Converts database rows to models and back. A row is a tuple, or unpacks like one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import Decoder, Encoder

from parcelpost.changes import Facts, FoundChange, KnownFacts, Scraped
from parcelpost.clock import from_iso
from parcelpost.errors import InvalidInput
from parcelpost.gateway.models import (
    ActivityRow,
    ChangeRow,
    FailureGroup,
    Grant,
    KnownTask,
    Lease,
    LeaseEnd,
    LienRow,
    LienSource,
    ParcelKey,
    ParcelRecord,
    ParcelRow,
    QueueRow,
    RecordVersion,
    RunOutcome,
    RunRow,
    Schedule,
    ScheduleRow,
    Scope,
    SourceKey,
    SourceRow,
    TaskRow,
    TaskState,
    WorkerHeartbeat,
    WorkerRow,
)
from parcelpost.model import Json, Priority, Target, Task
from parcelpost.protocol.payloads import MetricsSample, RankedSelector
from parcelpost.schedule import Timing
from parcelpost.search_fields import Lien

Row = Sequence[Any]

encode = Encoder().encode
encode_money = Encoder(decimal_format="number").encode
_read_facts = Decoder(Facts).decode
read_target = Decoder(Target).decode
_read_heartbeat = Decoder(WorkerHeartbeat).decode
_read_figures = Decoder(dict[str, Json]).decode
_read_raw_fields = Decoder(dict[str, Raw]).decode
_NO_VALUE = {b"null", b'""', b"[]"}


def timestamp(value: datetime | str) -> datetime:
    """PostgreSQL returns datetimes, SQLite returns text."""
    return from_iso(value) if isinstance(value, str) else value


def timestamp_or_none(value: datetime | str | None) -> datetime | None:
    return None if value is None else timestamp(value)


TASK_COLUMNS = "task_id, platform, type, priority, target, max_retries, attempts, created_at"


class QueuedTask(NamedTuple):
    """What is known of a task before it is queued. `site` tells whose turn it takes."""

    task_id: str
    platform: str
    type: str
    priority: int
    target: str
    max_retries: int
    site: str
    refresh_of: int | None = None
    run_no: int | None = None


def queued_task(task: Task, run_no: int | None = None) -> QueuedTask:
    target = task.target
    site = site_text(task.platform, target.state, target.county)
    try:
        text = encode(target).decode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the target of task {task.task_id!r} is not valid Unicode text") from error
    return QueuedTask(
        task.task_id, task.platform, task.type, int(task.priority), text, task.max_retries, site, run_no=run_no
    )


def site_text(platform: str, state: str, county: str) -> str:
    return f"{platform}/{state}/{county}".lower()


def grant(row: Row, attempt: int, until: datetime) -> Grant:
    """From TASK_COLUMNS."""
    return Grant(task=task(row, until), attempt=attempt, created_at=timestamp(row[7]))


def task(row: Row, lease_expires_at: datetime | None) -> Task:
    return Task(
        task_id=row[0],
        platform=row[1],
        type=row[2],
        priority=Priority(row[3]),
        target=read_target(row[4]),
        max_retries=row[5],
        lease_expires_at=lease_expires_at,
    )


def encode_target(target: Target) -> str:
    return encode(target).decode()


def known_task(row: Row) -> KnownTask:
    """From task_id, site, platform, target, and whether it was granted to the worker."""
    return KnownTask(row[1], row[2], row[3], bool(row[4]))


def task_row(row: Row, leases: Sequence[Lease] = ()) -> TaskRow:
    """From TASK_COLUMNS, state, max_attempts, ended_at, error, seq."""
    until = leases[-1].expires_at if leases and leases[-1].ended_at is None else None
    return TaskRow(
        task=task(row, until),
        attempts=row[6],
        created_at=timestamp(row[7]),
        state=TaskState(row[8]),
        max_attempts=row[9],
        ended_at=timestamp_or_none(row[10]),
        error=row[11],
        seq=row[12],
        leases=leases,
    )


def failure_group(row: Row) -> FailureGroup:
    """From state, reason, count and last end, and the last added task's platform, target, id and error."""
    outcome, reason, tasks, ended_at, platform, target, task_id, error = row
    place = read_target(target)
    return FailureGroup(
        outcome=TaskState(outcome),
        reason=reason or "",
        platform=platform,
        state=place.state,
        county=place.county,
        tasks=tasks,
        last_ended_at=timestamp(ended_at),
        example=task_id,
        example_error=error or "",
    )


def lease(row: Row) -> Lease:
    worker_id, granted_at, expires_at, ended_at, ended_as, error = row
    return Lease(
        worker_id=worker_id,
        granted_at=timestamp(granted_at),
        expires_at=timestamp(expires_at),
        ended_at=timestamp_or_none(ended_at),
        end=None if ended_as is None else LeaseEnd(ended_as),
        error=error,
    )


RUN_COLUMNS = """run_no, due_at, started_at, ended_at, outcome, total, added, after_norm, all_added, last_added_at,
done, failed"""


def run(row: Row) -> RunRow:
    """From RUN_COLUMNS."""
    run_no, due_at, started_at, ended_at, outcome, total, added, after_norm, all_added, last_at, done, failed = row
    return RunRow(
        run_no=run_no,
        due_at=timestamp(due_at),
        started_at=timestamp(started_at),
        ended_at=timestamp_or_none(ended_at),
        outcome=RunOutcome(outcome),
        total=total,
        added=added,
        after_norm=after_norm,
        all_added=bool(all_added),
        last_added_at=timestamp(last_at),
        done=done,
        failed=failed,
    )


SCHEDULE_COLUMNS = """name, platform, state, county, scope, every_seconds, at_time, timezone, cron, window_seconds,
pace_seconds, created_at"""


def schedule_values(schedule: Schedule) -> tuple[Any, ...]:
    """In the order of SCHEDULE_COLUMNS."""
    timing = schedule.timing
    return (
        *(schedule.name, schedule.platform, schedule.state, schedule.county, str(schedule.scope)),
        *(timing.every_seconds, timing.at, timing.timezone, timing.cron),
        *(float(schedule.window_seconds), float(schedule.pace_seconds), schedule.created_at),
    )


def schedule(row: Row, running: RunRow | None, last: RunRow | None, skipped: RunRow | None) -> ScheduleRow:
    """From SCHEDULE_COLUMNS, schedule_no, paused_at, next_run_at, error, failing_since, number of targets, number of
    open tasks.
    """
    name, platform, state, county, scope, every, at, zone, cron, window, pace, created_at, *rest = row
    schedule_no, paused_at, next_run_at, error, failing_since, targets, open_tasks = rest
    return ScheduleRow(
        schedule_no=schedule_no,
        schedule=Schedule(
            name=name,
            platform=platform,
            state=state,
            county=county,
            timing=Timing(every_seconds=every, at=at, timezone=zone, cron=cron),
            scope=Scope(scope),
            window_seconds=window,
            pace_seconds=pace,
            created_at=timestamp(created_at),
        ),
        targets=targets,
        paused_at=timestamp_or_none(paused_at),
        next_run_at=timestamp(next_run_at),
        error=error,
        failing_since=timestamp_or_none(failing_since),
        run=running,
        open_tasks=open_tasks,
        last_run=last,
        last_skipped=skipped,
    )


def queue(row: Row) -> QueueRow:
    platform, priority, state, tasks, oldest_at = row
    return QueueRow(
        platform=platform,
        priority=priority,
        state=TaskState(state),
        tasks=tasks,
        oldest_at=timestamp_or_none(oldest_at),
    )


def parcel(row: Row, sources: Sequence[SourceRow]) -> ParcelRow:
    state, county, norm, parcel_id, owner, situs, delinquent, tax_due, liens, *times, parcel_no = row
    scraped_at, first_seen_at, received_at = map(timestamp, times)
    return ParcelRow(
        parcel=ParcelKey(state, county, norm),
        parcel_id=parcel_id,
        owner=owner,
        situs=situs,
        delinquent=None if delinquent is None else bool(delinquent),
        tax_due_cents=tax_due,
        lien_count=liens,
        scraped_at=scraped_at,
        first_seen_at=first_seen_at,
        received_at=received_at,
        parcel_no=parcel_no,
        sources=sources,
    )


def source(row: Row) -> SourceRow:
    *key, parcel_id, is_partial, task_id, scraped_at, first_seen_at, received_at, raw_sha256 = row
    return SourceRow(
        source=SourceKey(*key),
        parcel_id=parcel_id,
        is_partial=bool(is_partial),
        task_id=task_id,
        scraped_at=timestamp(scraped_at),
        first_seen_at=timestamp(first_seen_at),
        received_at=timestamp(received_at),
        raw_sha256=raw_sha256,
    )


SOURCE_VALUES = 11
"""Number of a source's columns."""


def record(row: Row) -> ParcelRecord:
    """A source's columns, its parcel's columns, then its data."""
    *columns, data = row
    return ParcelRecord(parcel(columns[SOURCE_VALUES:], [source(columns[:SOURCE_VALUES])]), data.encode())


def version(row: Row) -> RecordVersion:
    task_id, worker_id, scraped_at, received_at, late, duration_ms, sha256, raw_file, data = row
    return RecordVersion(
        task_id=task_id,
        worker_id=worker_id,
        scraped_at=timestamp(scraped_at),
        received_at=timestamp(received_at),
        late=bool(late),
        parse_duration_ms=duration_ms,
        raw_sha256=sha256,
        raw_file=raw_file,
        data=data.encode(),
    )


def to_compare(waiting: Iterable[Row]) -> list[Scraped]:
    return [
        Scraped(parcel_no, source_no, task_id, timestamp(scraped_at), data.encode(), raw_sha256)
        for _, parcel_no, source_no, task_id, scraped_at, data, raw_sha256 in waiting
        if data is not None
    ]


def unchanged(known: Iterable[KnownFacts]) -> list[tuple[int, str, datetime]]:
    """Source, task and time of the scrapes that tell nothing more."""
    return [(facts.source_no, *scrape) for facts in known for scrape in facts.unchanged]


def known_facts(row: Row) -> KnownFacts:
    parcel_no, source_no, task_id, scraped_at, facts, raw_sha256 = row
    return KnownFacts(parcel_no, source_no, task_id, timestamp(scraped_at), _read_facts(facts), raw_sha256)


def facts_values(known: KnownFacts) -> tuple[Any, ...]:
    return known.source_no, known.task_id, known.scraped_at, encode(known.facts).decode()


def change_values(found: FoundChange, number: int, now: datetime) -> tuple[Any, ...]:
    scrape, change = found.scrape, found.change
    shown_by = (scrape.parcel_no, scrape.source_no, scrape.task_id, scrape.scraped_at)
    values = (encode_money(change.before).decode(), encode_money(change.after).decode())
    return number, now, change.kind, *shown_by, change.subject, *values


def change(row: Row) -> ChangeRow:
    number, found_at, kind, state, county, norm, parcel_id, platform, task_id, scraped_at, subject, before, after = row
    return ChangeRow(
        change_no=number,
        found_at=timestamp(found_at),
        kind=kind,
        parcel=ParcelKey(state, county, norm),
        parcel_id=parcel_id,
        platform=platform,
        task_id=task_id,
        scraped_at=timestamp(scraped_at),
        subject=subject,
        before=before.encode(),
        after=after.encode(),
    )


def lien(row: Row, shown: Sequence[tuple[LienSource, bytes]]) -> LienRow:
    """From a lien's columns, and each of its sources, the newest first, with the lien's JSON there."""
    state, county, norm, parcel_id, owner, received_at, parcel_no, lien_no, key, *fields = row
    number, certificate_year, tax_year, status, holder, amount, sale_date = fields
    return LienRow(
        parcel=ParcelKey(state, county, norm),
        parcel_id=parcel_id,
        owner=owner,
        received_at=timestamp(received_at),
        parcel_no=parcel_no,
        lien_no=lien_no,
        lien=Lien(
            certificate_number=number,
            certificate_year=certificate_year,
            tax_year=tax_year,
            status=status,
            holder_name=holder,
            amount_cents=amount,
            sale_date=sale_date,
            json=_merged_json([json for _, json in shown]),
            key=key,
        ),
        sources=[source for source, _ in shown],
    )


def _merged_json(newest_first: Sequence[bytes]) -> bytes:
    """Each field as the first that has a value for it was sent."""
    if len(newest_first) == 1:
        return newest_first[0]
    merged: dict[str, Raw] = {}
    for json in newest_first:
        for name, value in _read_raw_fields(json).items():
            if name not in merged or bytes(merged[name]) in _NO_VALUE:
                merged[name] = value
    return encode(merged)


def lien_source(row: Row) -> tuple[LienSource, bytes]:
    platform, parcel_id, position, is_partial, scraped_at, json = row
    source = LienSource(
        platform=platform,
        parcel_id=parcel_id,
        position=position,
        partial=bool(is_partial),
        scraped_at=timestamp(scraped_at),
    )
    return source, json.encode()


def unshared_lien_key(source_no: int, position: int) -> str:
    """Of a lien that has no number: no other source can show it."""
    return f"={source_no}:{position:03}"


def lien_values(lien: Lien) -> tuple[Any, ...]:
    return (
        lien.certificate_number,
        lien.certificate_year,
        lien.tax_year,
        lien.status,
        lien.holder_name,
        lien.amount_cents,
        lien.sale_date,
        lien.json.decode(),
    )


def worker(row: Row, commands: Iterable[str]) -> WorkerRow:
    _, heartbeat, first_seen_at, last_seen_at, leases = row
    return WorkerRow(
        heartbeat=_read_heartbeat(heartbeat),
        first_seen_at=timestamp(first_seen_at),
        last_seen_at=timestamp(last_seen_at),
        leases=leases,
        pending_commands=tuple(commands),
    )


def activity(row: Row) -> ActivityRow:
    minute, platform, outcome, count = row
    return ActivityRow(minute=timestamp(minute), platform=platform, outcome=outcome, count=count)


def selector(row: Row) -> RankedSelector:
    platform, field, name, kind, successes, samples = row
    return RankedSelector(
        platform=platform,
        field=field,
        selector=name,
        selector_type=kind,
        success_rate=int(successes) / int(samples),
        samples=int(samples),
    )


def sample(row: Row) -> MetricsSample:
    at, figures = row
    return MetricsSample(at=timestamp(at), values=_read_figures(figures))
