"""A batch of results as rows, made before the writer has its turn: while it works, others would wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from parcelpost.clock import iso
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.batch import Entry, sift
from parcelpost.gateway.sql.statements import search_text
from parcelpost.gateway.words import Arrival, ParcelKey

Values = tuple[Any, ...]
"""Of a row, but for the parcel's number, which only the writer knows."""


class Made(Struct, frozen=True, gc=False):
    """An entry with its row of `results`."""

    place: int
    parcel: ParcelKey
    task_id: str
    idempotency_key: str
    scraped_at: str
    result: Values

    @property
    def age(self) -> tuple[str, str]:
        return self.scraped_at, self.task_id


class MadeParcel(Struct, frozen=True, gc=False):
    """The newest entry of a parcel, with the rows of `parcels` and `liens` if it is the newest of all."""

    newest: Made
    parcel: Values
    liens: Sequence[Values]


class Batch(Struct, frozen=True):
    arrivals: int
    worker_id: str
    at: str
    entries: Sequence[Made]
    """One for a task and parcel."""
    parcels: dict[ParcelKey, MadeParcel]
    task_ids: Sequence[str]


def make(arrivals: Sequence[Arrival], worker_id: str, now: datetime) -> Batch:
    sifted = sift(arrivals)
    at = iso(now)
    made = {entry.place: _made(entry, worker_id, at) for entry in sifted.entries}
    return Batch(
        arrivals=len(arrivals),
        worker_id=worker_id,
        at=at,
        entries=list(made.values()),
        parcels={key: _parcel(entry, made[entry.place], at) for key, entry in sifted.newest.items()},
        task_ids=sifted.task_ids,
    )


def _made(entry: Entry, worker_id: str, at: str) -> Made:
    arrival, scraped_at = entry.arrival, iso(entry.scraped_at)
    return Made(
        entry.place,
        arrival.parcel,
        arrival.task_id,
        arrival.idempotency_key,
        scraped_at,
        (
            arrival.task_id,
            worker_id,
            scraped_at,
            at,
            int(arrival.late),  # a bool, the driver looks for a way to adapt
            arrival.parse_duration_ms,
            arrival.idempotency_key,
            arrival.raw_sha256,
            arrival.raw_file,
            arrival.data.decode(),
        ),
    )


def _parcel(entry: Entry, made: Made, at: str) -> MadeParcel:
    key, facts = made.parcel, entry.arrival.facts
    values = (
        key.platform,
        key.state,
        key.county,
        key.parcel_id,
        made.task_id,
        made.scraped_at,
        at,
        at,
        facts.owner,
        facts.situs,
        None if facts.delinquent is None else int(facts.delinquent),
        facts.tax_due_cents,
        len(facts.liens),
        search_text(key.parcel_id, facts.owner, facts.situs),
    )
    liens = [(position, *rows.lien_values(lien)) for position, lien in enumerate(facts.liens)]
    return MadeParcel(made, values, liens)
