"""Response bodies of the read API. Money is in dollars, exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from msgspec import UNSET, Raw, Struct, UnsetType

from parcelpost.gateway.counties import County
from parcelpost.gateway.history import History, ParcelChange, Scrape
from parcelpost.gateway.history import record as decode_record
from parcelpost.gateway.models import (
    Artifact,
    FailureGroup,
    Lease,
    LienRow,
    LienSource,
    ParcelRecord,
    ParcelRow,
    SourceRow,
    TaskRow,
)
from parcelpost.gateway.overview import QueueEntry, WorkerEntry
from parcelpost.gateway.parcel_paths import page_path, parcel_path, raw_path
from parcelpost.model import Json
from parcelpost.protocol.payloads import ArtifactKind
from parcelpost.protocol.server import BadNewTask
from parcelpost.search_fields import lien_keys


class ParcelSource(Struct, frozen=True, kw_only=True):
    """A parcel as one platform shows it."""

    platform: str
    parcel_id: str
    """The parcel number in the platform's own spelling."""
    partial: bool
    """Whether part of the page was missing or unreadable. Earlier values of that part are kept."""
    scraped_at: datetime
    first_seen_at: datetime
    received_at: datetime
    task_id: str
    raw_sha256: str | None
    raw: str | None
    """Path of the newest raw file; null if there is none."""
    page: str | None
    """Path of the same, to be shown in a browser without its scripts."""
    record: Raw | UnsetType = UNSET


class SourceDetail(ParcelSource, frozen=True, kw_only=True):
    lien_keys: Sequence[str]
    """One for each of the record's `liens`: the same key is the same lien, whatever the source. '': unknown."""
    history: Sequence[Scrape]
    more_history: bool


class Parcel(Struct, frozen=True, kw_only=True):
    """Each field comes from the newest source that has a value for it."""

    state: str
    county: str
    parcel_id: str
    owner: str
    situs: str
    delinquent: bool | None
    tax_due: Decimal | None
    lien_count: int
    scraped_at: datetime
    first_seen_at: datetime
    received_at: datetime
    address: str
    sources: Sequence[ParcelSource]
    """Newest first."""


class Parcels(Struct, frozen=True):
    parcels: Sequence[Parcel]
    next: str | None
    """Cursor of the next page; null on the last page."""


class ParcelDetail(Struct, frozen=True):
    parcel: Parcel
    sources: Sequence[SourceDetail]
    """Newest first, each with its record and history."""


class Lien(Struct, frozen=True, kw_only=True):
    """Each field comes from the newest source that has a value for it."""

    lien_no: int
    """ID assigned by the gateway."""
    state: str
    county: str
    parcel_id: str
    owner: str
    certificate_number: str | None
    certificate_year: int | None
    tax_year: int | None
    status: str | None
    holder_name: str | None
    amount: Decimal | None
    sale_date: str | None
    address: str
    sources: Sequence[LienSource]
    """Newest first."""
    lien: Raw | UnsetType = UNSET


class Liens(Struct, frozen=True):
    liens: Sequence[Lien]
    next: str | None


class MapLayersReply(Struct, frozen=True, kw_only=True):
    tiles: str | None
    """Address of the operator's tile server, with {z}, {x} and {y}; null if there is none."""
    outline: str | None
    """Path of the outline that the operator named; null if there is none."""


class Changes(Struct, frozen=True):
    changes: Sequence[ParcelChange]
    next: int
    """Value of `since` for the next request."""
    more: bool
    """Whether there may be more changes already."""


class LatestChanges(Struct, frozen=True):
    changes: Sequence[ParcelChange]
    next: int | None
    """Value of `before` for the next page; null on the last page. A page may have fewer changes than asked for."""


class Workers(Struct, frozen=True):
    workers: Sequence[WorkerEntry]


class Counties(Struct, frozen=True):
    counties: Sequence[County]
    """By platform, state and county."""


class Queue(Struct, frozen=True):
    queue: Sequence[QueueEntry]


class ListedTask(Struct, frozen=True, kw_only=True):
    task_id: str
    type: str
    platform: str
    target: Mapping[str, Json]
    priority: int
    state: str
    attempts: int
    max_attempts: int
    created_at: datetime
    ended_at: datetime | None
    error: str | None


class TaskArtifact(Struct, frozen=True, kw_only=True):
    kind: ArtifactKind
    path: str | None
    """Path of the image, or of the page to be shown in a browser without its scripts; null if not uploaded yet."""
    worker_id: str
    reported_at: datetime
    """When the worker reported the failure."""


class TaskDetail(ListedTask, frozen=True, kw_only=True):
    leases: Sequence[Lease]
    """Its attempts, oldest first."""
    parcel: str | None
    """Path of its parcel; null if the parcel is not known."""
    artifacts: Sequence[TaskArtifact]
    """What its last failed attempt saw."""


class Tasks(Struct, frozen=True):
    tasks: Sequence[ListedTask]
    next: str | None
    total: int


class Failures(Struct, frozen=True):
    groups: Sequence[FailureGroup]
    total: int
    """Number of tasks, including those of groups beyond the limit."""


class CommandReply(Struct, frozen=True):
    workers: int
    """Number of workers that will receive the command."""


class AddedTasks(Struct, frozen=True, kw_only=True):
    new: int
    known: int
    bad: Sequence[BadNewTask]


class ReleaseReply(Struct, frozen=True):
    worker_id: str
    token: str
    """Name of the token that owned the ID; empty if the token has no name."""


class RefreshReply(Struct, frozen=True):
    queued: int


class RequeueReply(Struct, frozen=True):
    requeued: int


class DeleteReply(Struct, frozen=True):
    deleted: int


def parcel_response(row: ParcelRow) -> Parcel:
    return _parcel_response(row, [ParcelSource(**_source_fields(row, source)) for source in row.sources])


def record_responses(records: Sequence[ParcelRecord]) -> list[Parcel]:
    """One for each parcel, with the records of these sources."""
    by_parcel = groupby(records, key=lambda record: record.row.parcel)
    return [_with_records(list(of_parcel)) for _, of_parcel in by_parcel]


def _with_records(records: Sequence[ParcelRecord]) -> Parcel:
    sources = [ParcelSource(**_source_fields(r.row, r.source), record=Raw(r.data)) for r in records]
    return _parcel_response(records[0].row, sources)


def source_detail(record: ParcelRecord, history: History) -> SourceDetail:
    return SourceDetail(
        **_source_fields(record.row, record.source),
        lien_keys=lien_keys(decode_record(record.data), record.data),
        record=Raw(record.data),
        history=history.scrapes,
        more_history=not history.is_whole,
    )


def _parcel_response(row: ParcelRow, sources: Sequence[ParcelSource]) -> Parcel:
    return Parcel(
        state=row.parcel.state,
        county=row.parcel.county,
        parcel_id=row.parcel_id,
        owner=row.owner,
        situs=row.situs,
        delinquent=row.delinquent,
        tax_due=_dollars(row.tax_due_cents),
        lien_count=row.lien_count,
        scraped_at=row.scraped_at,
        first_seen_at=row.first_seen_at,
        received_at=row.received_at,
        address=parcel_path(row.parcel, row.parcel_id),
        sources=sources,
    )


def _source_fields(row: ParcelRow, source: SourceRow) -> dict[str, Any]:
    sha256, path = source.raw_sha256, parcel_path(row.parcel, row.parcel_id)
    return {
        "platform": source.source.platform,
        "parcel_id": source.parcel_id,
        "partial": source.is_partial,
        "scraped_at": source.scraped_at,
        "first_seen_at": source.first_seen_at,
        "received_at": source.received_at,
        "task_id": source.task_id,
        "raw_sha256": sha256,
        "raw": raw_path(path, sha256) if sha256 else None,
        "page": page_path(path, sha256) if sha256 else None,
    }


def lien_response(row: LienRow, *, record: bool = False) -> Lien:
    lien = row.lien
    return Lien(
        lien_no=row.lien_no,
        state=row.parcel.state,
        county=row.parcel.county,
        parcel_id=row.parcel_id,
        owner=row.owner,
        certificate_number=lien.certificate_number,
        certificate_year=lien.certificate_year,
        tax_year=lien.tax_year,
        status=lien.status,
        holder_name=lien.holder_name,
        amount=_dollars(lien.amount_cents),
        sale_date=lien.sale_date,
        address=parcel_path(row.parcel, row.parcel_id),
        sources=row.sources,
        lien=Raw(lien.json) if record else UNSET,
    )


def listed_task(row: TaskRow) -> ListedTask:
    return ListedTask(**_task_fields(row))


def task_detail(row: TaskRow, parcel: ParcelRow | None, artifacts: Sequence[Artifact]) -> TaskDetail:
    path = parcel_path(parcel.parcel, parcel.parcel_id) if parcel else None
    query = urlencode({"task_id": row.task.task_id})
    seen = [
        TaskArtifact(
            kind=artifact.kind,
            path=f"/v1/artifacts/{artifact.kind}?{query}" if artifact.stored_at else None,
            worker_id=artifact.worker_id,
            reported_at=artifact.named_at,
        )
        for artifact in artifacts
    ]
    return TaskDetail(**_task_fields(row), leases=row.leases, parcel=path, artifacts=seen)


def _dollars(cents: int | None) -> Decimal | None:
    return None if cents is None else Decimal(cents).scaleb(-2)


def _task_fields(row: TaskRow) -> dict[str, Any]:
    target = row.task.target
    named = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, "url": target.url}
    return {
        "task_id": row.task.task_id,
        "type": row.task.type,
        "platform": row.task.platform,
        "target": {**target.extra, **named},
        "priority": row.task.priority,
        "state": row.state,
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "error": row.error,
    }
