"""What the read API answers. Money is in dollars, exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.responses import Response

from parcelpost.gateway.history import Scrape
from parcelpost.gateway.read_api.addresses import address_of, raw_address_of
from parcelpost.gateway.words import LienRow, ParcelRecord, ParcelRow, QueueRow, TaskRow
from parcelpost.model import Json

_encode = msgspec.json.Encoder(decimal_format="number").encode


def json_answer(answer: Struct) -> Response:
    return Response(_encode(answer), media_type="application/json")


class Parcel(Struct, frozen=True, kw_only=True):
    platform: str
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
    task_id: str
    address: str
    raw: str | None
    """Where its page is, if it was kept."""
    record: Raw | UnsetType = UNSET


class Parcels(Struct, frozen=True):
    parcels: Sequence[Parcel]
    next: str | None
    """The cursor of the next page; null after the last."""


class OneParcel(Struct, frozen=True):
    parcel: Parcel
    history: Sequence[Scrape]
    more_history: bool


class Lien(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    parcel_id: str
    position: int
    owner: str
    certificate_number: str | None
    certificate_year: int | None
    tax_year: int | None
    status: str | None
    holder_name: str | None
    amount: Decimal | None
    sale_date: str | None
    scraped_at: datetime
    address: str
    lien: Raw | UnsetType = UNSET


class Liens(Struct, frozen=True):
    liens: Sequence[Lien]
    next: str | None


class Queued(Struct, frozen=True, kw_only=True):
    platform: str
    priority: int
    state: str
    tasks: int
    oldest_seconds: float | None


class Queue(Struct, frozen=True):
    queue: Sequence[Queued]


class Lease(Struct, frozen=True, kw_only=True):
    worker_id: str
    granted_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    end: str | None


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


class OneTask(ListedTask, frozen=True, kw_only=True):
    leases: Sequence[Lease]


class Tasks(Struct, frozen=True):
    tasks: Sequence[ListedTask]
    next: str | None


class Ordered(Struct, frozen=True):
    workers: int
    """For how many workers the command waits."""


class BadTask(Struct, frozen=True, kw_only=True):
    position: int
    """1 for the first."""
    task_id: str
    problem: str


class AddedTasks(Struct, frozen=True, kw_only=True):
    new: int
    known: int
    bad: Sequence[BadTask]


class Released(Struct, frozen=True):
    worker_id: str
    token: str
    """The name of the token that it belonged to; '' for those without a name."""


class Requeued(Struct, frozen=True):
    requeued: int


def parcel_answer(row: ParcelRow, record: Raw | UnsetType = UNSET) -> Parcel:
    key = row.parcel
    return Parcel(
        platform=key.platform,
        state=key.state,
        county=key.county,
        parcel_id=key.parcel_id,
        owner=row.owner,
        situs=row.situs,
        delinquent=row.delinquent,
        tax_due=_dollars(row.tax_due_cents),
        lien_count=row.lien_count,
        scraped_at=row.scraped_at,
        first_seen_at=row.first_seen_at,
        received_at=row.received_at,
        task_id=row.task_id,
        address=address_of(key),
        raw=raw_address_of(key) if row.raw_sha256 else None,
        record=record,
    )


def record_answer(found: ParcelRecord) -> Parcel:
    return parcel_answer(found.row, Raw(found.data))


def lien_answer(row: LienRow, *, record: bool = False) -> Lien:
    key, lien = row.parcel, row.lien
    return Lien(
        platform=key.platform,
        state=key.state,
        county=key.county,
        parcel_id=key.parcel_id,
        position=row.position,
        owner=row.owner,
        certificate_number=lien.certificate_number,
        certificate_year=lien.certificate_year,
        tax_year=lien.tax_year,
        status=lien.status,
        holder_name=lien.holder_name,
        amount=_dollars(lien.amount_cents),
        sale_date=lien.sale_date,
        scraped_at=row.scraped_at,
        address=address_of(key),
        lien=Raw(lien.json) if record else UNSET,
    )


def queue_answer(row: QueueRow, now: datetime) -> Queued:
    return Queued(
        platform=row.platform,
        priority=row.priority,
        state=row.state,
        tasks=row.tasks,
        oldest_seconds=None if row.oldest_at is None else max(0.0, (now - row.oldest_at).total_seconds()),
    )


def listed_task(row: TaskRow) -> ListedTask:
    return ListedTask(**_of_task(row))


def task_answer(row: TaskRow) -> OneTask:
    return OneTask(
        **_of_task(row),
        leases=[
            Lease(
                worker_id=lease.worker_id,
                granted_at=lease.granted_at,
                expires_at=lease.expires_at,
                ended_at=lease.ended_at,
                end=lease.end,
            )
            for lease in row.leases
        ],
    )


def _dollars(cents: int | None) -> Decimal | None:
    return None if cents is None else Decimal(cents).scaleb(-2)


def _of_task(row: TaskRow) -> dict[str, Any]:
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
