"""Storing a batch of results in few statements. Keys go in, and what is known of them comes back, as one JSON text."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.json import Decoder

from parcelpost.gateway.ledger_sqlite.batches import Batch, Made, MadeParcel
from parcelpost.gateway.ledger_sqlite.bulk import write_rows
from parcelpost.gateway.sql import rows
from parcelpost.gateway.words import ParcelKey, Stored

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


class _Known(NamedTuple):
    """A parcel that was here before the batch."""

    parcel_id: str
    parcel_no: int
    scraped_at: str
    task_id: str
    lien_count: int


_read_parcels = Decoder(list[_Known]).decode
_read_results = Decoder(list[tuple[int, str, str, str]]).decode


def store(db: sqlite3.Connection, batch: Batch) -> list[Stored]:
    known, last = _known_parcels(db, batch)
    numbers = _numbers(batch, known, last)
    kept = _news(db, batch, known)
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
    return _answers(batch, kept, winners, known)


def _answers(
    batch: Batch, kept: Sequence[Made], winners: dict[ParcelKey, MadeParcel], known: dict[ParcelKey, _Known]
) -> list[Stored]:
    answers = [Stored.DUPLICATE] * batch.arrivals
    for made in kept:
        answers[made.place] = Stored.KEPT
    for key, won in winners.items():
        answers[won.newest.place] = Stored.UPDATED if key in known else Stored.INSERTED
    return answers


def _known_parcels(db: sqlite3.Connection, batch: Batch) -> tuple[dict[ParcelKey, _Known], int]:
    """Those of the batch, and the last number of all."""
    by_county: dict[tuple[str, str, str], list[str]] = {}
    for key in batch.parcels:
        by_county.setdefault((key.platform, key.state, key.county), []).append(key.parcel_id)
    found: dict[ParcelKey, _Known] = {}
    last = 0
    for county, parcel_ids in by_county.items():
        ((text, last),) = db.execute(_PARCELS, (*county, _json(parcel_ids)))
        found |= {ParcelKey(*county, one.parcel_id): one for one in _read_parcels(text)}
    return found, last


def _numbers(batch: Batch, known: dict[ParcelKey, _Known], last: int) -> dict[ParcelKey, int]:
    """Of new parcels too: nobody else writes now."""
    new = (key for key in batch.parcels if key not in known)
    numbers = {key: number for number, key in enumerate(new, last + 1)}
    return numbers | {key: parcel.parcel_no for key, parcel in known.items()}


def _news(db: sqlite3.Connection, batch: Batch, known: dict[ParcelKey, _Known]) -> Sequence[Made]:
    """Those whose task has brought no result of the parcel yet, an older one, or another of the same moment."""
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
        if not _takes_the_place(made := asked[parcel_no, task_id], scraped_at, key)
    }
    return [made for made in batch.entries if made.place not in stale]


def _json(keys: Sequence[object]) -> str:
    return rows.encode(keys).decode()


def _takes_the_place(made: Made, scraped_at: str, key: str) -> bool:
    return made.scraped_at > scraped_at or (made.scraped_at == scraped_at and made.idempotency_key != key)


def _wins(made: Made, known: _Known | None) -> bool:
    """Of those that are news. At the same age it is another result of the same task, and so the newer."""
    return known is None or made.age >= (known.scraped_at, known.task_id)


def _write_liens(
    db: sqlite3.Connection,
    winners: dict[ParcelKey, MadeParcel],
    known: dict[ParcelKey, _Known],
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
