"""Stores a batch of results in SQLite with few statements.

Rows are prepared before the writer runs, so that other writes do not wait for it. Keys go in, and what is known of them
comes back, as one JSON text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from parcelpost.clock import iso
from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.base import BatchEntry, dedupe
from parcelpost.gateway.ledger.queries import search_text
from parcelpost.gateway.models import IngestedResult, ParcelKey, StoreOutcome

Values = tuple[Any, ...]
"""The values of a row, without the parcel number, which only the writer knows."""


class PreparedResult(Struct, frozen=True, gc=False):
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


class PreparedParcel(Struct, frozen=True, gc=False):
    """The newest entry of a parcel, with the rows of `parcels` and `liens` if it is the newest of all."""

    newest: PreparedResult
    parcel: Values
    liens: Sequence[Values]


class PreparedBatch(Struct, frozen=True):
    results: int
    worker_id: str
    at: str
    entries: Sequence[PreparedResult]
    """One for a task and parcel."""
    parcels: dict[ParcelKey, PreparedParcel]
    task_ids: Sequence[str]


def prepare_batch(results: Sequence[IngestedResult], worker_id: str, now: datetime) -> PreparedBatch:
    sifted = dedupe(results)
    at = iso(now)
    made = {entry.place: _prepared_result(entry, worker_id, at) for entry in sifted.entries}
    return PreparedBatch(
        results=len(results),
        worker_id=worker_id,
        at=at,
        entries=list(made.values()),
        parcels={key: _prepared_parcel(entry, made[entry.place], at) for key, entry in sifted.newest.items()},
        task_ids=sifted.task_ids,
    )


def _prepared_result(entry: BatchEntry, worker_id: str, at: str) -> PreparedResult:
    result, scraped_at = entry.result, iso(entry.scraped_at)
    return PreparedResult(
        entry.place,
        result.parcel,
        result.task_id,
        result.idempotency_key,
        scraped_at,
        (
            result.task_id,
            worker_id,
            scraped_at,
            at,
            int(result.late),  # a bool, the driver looks for a way to adapt
            result.parse_duration_ms,
            result.idempotency_key,
            result.raw_sha256,
            result.raw_file,
            result.data.decode(),
        ),
    )


def _prepared_parcel(entry: BatchEntry, made: PreparedResult, at: str) -> PreparedParcel:
    key, search_fields = made.parcel, entry.result.search_fields
    values = (
        key.platform,
        key.state,
        key.county,
        key.parcel_id,
        made.task_id,
        made.scraped_at,
        at,
        at,
        search_fields.owner,
        search_fields.situs,
        None if search_fields.delinquent is None else int(search_fields.delinquent),
        search_fields.tax_due_cents,
        len(search_fields.liens),
        search_text(key.parcel_id, search_fields.owner, search_fields.situs),
    )
    liens = [(position, *rows.lien_values(lien)) for position, lien in enumerate(search_fields.liens)]
    return PreparedParcel(made, values, liens)


_MOST_ROWS = 100


def write_rows(db: sqlite3.Connection, insert: str, rows: Sequence[Sequence[Any]], on_conflict: str = "") -> None:
    """`insert` is all that stands before VALUES."""
    for start in range(0, len(rows), _MOST_ROWS):
        part = rows[start : start + _MOST_ROWS]
        db.execute(_statement(insert, len(part), len(part[0]), on_conflict), list(chain.from_iterable(part)))


@cache
def _statement(insert: str, rows: int, columns: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{insert} VALUES {', '.join([row] * rows)} {on_conflict}"


_PARCELS = """
SELECT json_group_array(json_array(parcel_id, parcel_no, scraped_at, task_id, lien_count)),
       (SELECT coalesce(max(parcel_no), 0) FROM parcels)
FROM parcels
WHERE platform = ? AND state = ? AND county = ? AND parcel_id IN (SELECT value FROM json_each(?))
"""
_RESULTS = """
SELECT json_group_array(json_array(r.parcel_no, r.task_id, r.scraped_at, r.idempotency_key))
FROM json_each(?) asked CROSS JOIN results r
    ON r.parcel_no = json_extract(asked.value, '$[0]') AND r.task_id = json_extract(asked.value, '$[1]')
"""

_WRITE_PARCELS = """
INSERT INTO parcels (parcel_no, platform, state, county, parcel_id, task_id, scraped_at, received_at, first_seen_at,
                     owner, situs, delinquent, tax_due_cents, lien_count, search)
"""
_NEWER_PARCEL = """
ON CONFLICT (parcel_no) DO UPDATE
SET task_id = excluded.task_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
    owner = excluded.owner, situs = excluded.situs, delinquent = excluded.delinquent,
    tax_due_cents = excluded.tax_due_cents, lien_count = excluded.lien_count, search = excluded.search
"""
_WRITE_RESULTS = """
INSERT INTO results (parcel_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms,
                     idempotency_key, raw_sha256, raw_file, data)
"""
_NEWER_RESULT = """
ON CONFLICT (parcel_no, task_id) DO UPDATE
SET worker_id = excluded.worker_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
    late = excluded.late, parse_duration_ms = excluded.parse_duration_ms,
    idempotency_key = excluded.idempotency_key, raw_sha256 = excluded.raw_sha256, raw_file = excluded.raw_file,
    data = excluded.data
"""
_WRITE_LIENS = """
INSERT INTO liens (parcel_no, position, certificate_number, certificate_year, tax_year, status, holder_name,
                   amount_cents, sale_date, json)
"""
_NEWER_LIEN = """
ON CONFLICT (parcel_no, position) DO UPDATE
SET certificate_number = excluded.certificate_number, certificate_year = excluded.certificate_year,
    tax_year = excluded.tax_year, status = excluded.status, holder_name = excluded.holder_name,
    amount_cents = excluded.amount_cents, sale_date = excluded.sale_date, json = excluded.json
"""
_DROP_LIENS = "DELETE FROM liens WHERE parcel_no = ? AND position >= ?"

_DONE = """
UPDATE tasks SET state = 'done', ended_at = ?, error = NULL
WHERE task_id IN (SELECT value FROM json_each(?)) AND state <> 'done'
"""
_END_LEASES = """
UPDATE leases SET ended_at = ?, ended_as = CASE WHEN worker_id = ? THEN 'done' ELSE 'superseded' END
WHERE task_id IN (SELECT value FROM json_each(?)) AND ended_at IS NULL
"""


class _KnownParcel(NamedTuple):
    """A parcel that existed before the batch."""

    parcel_id: str
    parcel_no: int
    scraped_at: str
    task_id: str
    lien_count: int


_read_parcels = Decoder(list[_KnownParcel]).decode
_read_results = Decoder(list[tuple[int, str, str, str]]).decode


def store_results(db: sqlite3.Connection, batch: PreparedBatch) -> list[StoreOutcome]:
    known, last = _known_parcels(db, batch)
    numbers = _parcel_numbers(batch, known, last)
    kept = _changed_results(db, batch, known)
    places = {made.place for made in kept}
    winners = {
        key: parcel
        for key, parcel in batch.parcels.items()
        if parcel.newest.place in places and _wins(parcel.newest, known.get(key))
    }
    write_rows(db, _WRITE_PARCELS, [(numbers[key], *won.parcel) for key, won in winners.items()], _NEWER_PARCEL)
    write_rows(db, _WRITE_RESULTS, [(numbers[made.parcel], *made.result) for made in kept], _NEWER_RESULT)
    _write_liens(db, winners, known, numbers)
    task_ids = _json(batch.task_ids)
    db.execute(_END_LEASES, (batch.at, batch.worker_id, task_ids))
    db.execute(_DONE, (batch.at, task_ids))
    return _outcomes(batch, kept, winners, known)


def _outcomes(
    batch: PreparedBatch,
    kept: Sequence[PreparedResult],
    winners: dict[ParcelKey, PreparedParcel],
    known: dict[ParcelKey, _KnownParcel],
) -> list[StoreOutcome]:
    answers = [StoreOutcome.DUPLICATE] * batch.results
    for made in kept:
        answers[made.place] = StoreOutcome.KEPT
    for key, won in winners.items():
        answers[won.newest.place] = StoreOutcome.UPDATED if key in known else StoreOutcome.INSERTED
    return answers


def _known_parcels(db: sqlite3.Connection, batch: PreparedBatch) -> tuple[dict[ParcelKey, _KnownParcel], int]:
    """Those of the batch, and the last number of all."""
    by_county: dict[tuple[str, str, str], list[str]] = {}
    for key in batch.parcels:
        by_county.setdefault((key.platform, key.state, key.county), []).append(key.parcel_id)
    found: dict[ParcelKey, _KnownParcel] = {}
    last = 0
    for county, parcel_ids in by_county.items():
        ((text, last),) = db.execute(_PARCELS, (*county, _json(parcel_ids)))
        found |= {ParcelKey(*county, one.parcel_id): one for one in _read_parcels(text)}
    return found, last


def _parcel_numbers(batch: PreparedBatch, known: dict[ParcelKey, _KnownParcel], last: int) -> dict[ParcelKey, int]:
    """Of new parcels too: nobody else writes now."""
    new = (key for key in batch.parcels if key not in known)
    numbers = {key: number for number, key in enumerate(new, last + 1)}
    return numbers | {key: parcel.parcel_no for key, parcel in known.items()}


def _changed_results(
    db: sqlite3.Connection, batch: PreparedBatch, known: dict[ParcelKey, _KnownParcel]
) -> Sequence[PreparedResult]:
    """Returns the entries that are new, newer than their task's stored result, or another one of the same time."""
    asked = {
        (parcel.parcel_no, made.task_id): made
        for made in batch.entries
        if (parcel := known.get(made.parcel)) is not None
    }
    if not asked:
        return batch.entries
    ((text,),) = db.execute(_RESULTS, (_json(list(asked)),))
    stale = {
        made.place
        for parcel_no, task_id, scraped_at, key in _read_results(text)
        if not _replaces(made := asked[parcel_no, task_id], scraped_at, key)
    }
    return [made for made in batch.entries if made.place not in stale]


def _json(keys: Sequence[object]) -> str:
    return rows.encode(keys).decode()


def _replaces(made: PreparedResult, scraped_at: str, key: str) -> bool:
    return made.scraped_at > scraped_at or (made.scraped_at == scraped_at and made.idempotency_key != key)


def _wins(made: PreparedResult, known: _KnownParcel | None) -> bool:
    """Of those that are news. At the same age it is another result of the same task, and so the newer."""
    return known is None or made.age >= (known.scraped_at, known.task_id)


def _write_liens(
    db: sqlite3.Connection,
    winners: dict[ParcelKey, PreparedParcel],
    known: dict[ParcelKey, _KnownParcel],
    numbers: dict[ParcelKey, int],
) -> None:
    values = [(numbers[key], *lien) for key, won in winners.items() for lien in won.liens]
    write_rows(db, _WRITE_LIENS, values, _NEWER_LIEN)
    fewer = [
        (numbers[key], len(won.liens))
        for key, won in winners.items()
        if key in known and known[key].lien_count > len(won.liens)
    ]
    db.executemany(_DROP_LIENS, fewer)
