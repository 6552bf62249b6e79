"""Storing a batch of results in few statements. Keys go in, and what is known of them comes back, as one JSON text."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.json import Decoder

from parcelpost.clock import iso
from parcelpost.gateway.ledger_sqlite.bulk import write_rows
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.batch import Entry, Sifted, sift
from parcelpost.gateway.sql.statements import search_text
from parcelpost.gateway.words import Arrival, ParcelKey, Stored

_PARCELS = """
SELECT json_group_array(json_array(parcel_id, parcel_no, scraped_at, task_id, lien_count)),
       (SELECT coalesce(max(parcel_no), 0) FROM parcels)
FROM parcels
WHERE platform = ? AND state = ? AND county = ? AND parcel_id IN (SELECT value FROM json_each(?))
"""
_RESULTS = """
SELECT json_group_array(json_array(r.parcel_no, r.task_id, r.scraped_at))
FROM json_each(?) asked CROSS JOIN results r
    ON r.parcel_no = json_extract(asked.value, '$[0]') AND r.task_id = json_extract(asked.value, '$[1]')
"""

_WRITE_PARCELS = """
INSERT INTO parcels (task_id, scraped_at, received_at, owner, situs, delinquent, tax_due_cents, lien_count, search,
                     parcel_no, platform, state, county, parcel_id, first_seen_at)
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
_read_results = Decoder(list[tuple[int, str, str]]).decode


def store(db: sqlite3.Connection, arrivals: Sequence[Arrival], worker_id: str, now: datetime) -> list[Stored]:
    batch = sift(arrivals)
    at = iso(now)
    known, last = _known_parcels(db, batch)
    numbers = _numbers(batch, known, last)
    kept = _news(db, batch, known)
    winners = {parcel: entry for parcel, entry in batch.newest.items() if _wins(entry, known.get(parcel))}
    parcels = [_parcel_values(entry, numbers[parcel], at) for parcel, entry in winners.items()]
    write_rows(db, _WRITE_PARCELS, parcels, _NEWER_PARCEL)
    results = [_result_values(entry, numbers[entry.arrival.parcel], worker_id, at) for entry in kept]
    write_rows(db, _WRITE_RESULTS, results, _NEWER_RESULT)
    _write_liens(db, winners, known, numbers)
    task_ids = _json(batch.task_ids)
    db.execute(_END_LEASES, (at, worker_id, task_ids))
    db.execute(_DONE, (at, task_ids))
    answers = [Stored.DUPLICATE] * len(arrivals)
    for entry in kept:
        wins = winners.get(entry.arrival.parcel) is entry
        answers[entry.place] = _answer(wins, entry.arrival.parcel in known)
    return answers


def _answer(wins: bool, is_known: bool) -> Stored:
    if not wins:
        return Stored.KEPT
    return Stored.UPDATED if is_known else Stored.INSERTED


def _known_parcels(db: sqlite3.Connection, batch: Sifted) -> tuple[dict[ParcelKey, _Known], int]:
    """Those of the batch, and the last number of all."""
    by_county: dict[tuple[str, str, str], list[str]] = {}
    for key in batch.newest:
        by_county.setdefault((key.platform, key.state, key.county), []).append(key.parcel_id)
    found: dict[ParcelKey, _Known] = {}
    last = 0
    for county, parcel_ids in by_county.items():
        ((text, last),) = db.execute(_PARCELS, (*county, _json(parcel_ids)))
        found |= {ParcelKey(*county, parcel.parcel_id): parcel for parcel in _read_parcels(text)}
    return found, last


def _numbers(batch: Sifted, known: dict[ParcelKey, _Known], last: int) -> dict[ParcelKey, int]:
    """Of new parcels too: nobody else writes now."""
    new = (key for key in batch.newest if key not in known)
    numbers = {key: number for number, key in enumerate(new, last + 1)}
    return numbers | {key: parcel.parcel_no for key, parcel in known.items()}


def _news(db: sqlite3.Connection, batch: Sifted, known: dict[ParcelKey, _Known]) -> list[Entry]:
    """Those whose task has brought no result of the parcel yet, or an older one."""
    asked = {
        (parcel.parcel_no, entry.arrival.task_id): entry
        for entry in batch.entries
        if (parcel := known.get(entry.arrival.parcel)) is not None
    }
    if not asked:
        return batch.entries
    ((text,),) = db.execute(_RESULTS, (_json(list(asked)),))
    stale = {
        entry.place
        for parcel_no, task_id, scraped_at in _read_results(text)
        if iso((entry := asked[parcel_no, task_id]).scraped_at) <= scraped_at
    }
    return [entry for entry in batch.entries if entry.place not in stale]


def _wins(entry: Entry, known: _Known | None) -> bool:
    return known is None or (iso(entry.scraped_at), entry.arrival.task_id) > (known.scraped_at, known.task_id)


def _json(keys: Sequence[object]) -> str:
    return rows.encode(keys).decode()


def _parcel_values(entry: Entry, number: int, at: str) -> tuple[Any, ...]:
    arrival, key, facts = entry.arrival, entry.arrival.parcel, entry.arrival.facts
    return (
        arrival.task_id,
        iso(entry.scraped_at),
        at,
        facts.owner,
        facts.situs,
        None if facts.delinquent is None else int(facts.delinquent),
        facts.tax_due_cents,
        len(facts.liens),
        search_text(key.parcel_id, facts.owner, facts.situs),
        number,
        key.platform,
        key.state,
        key.county,
        key.parcel_id,
        at,
    )


def _result_values(entry: Entry, number: int, worker_id: str, at: str) -> tuple[Any, ...]:
    arrival = entry.arrival
    return (
        number,
        arrival.task_id,
        worker_id,
        iso(entry.scraped_at),
        at,
        int(arrival.late),  # a bool, the driver looks for a way to adapt
        arrival.parse_duration_ms,
        arrival.idempotency_key,
        arrival.raw_sha256,
        arrival.raw_file,
        arrival.data.decode(),
    )


def _write_liens(
    db: sqlite3.Connection,
    winners: dict[ParcelKey, Entry],
    known: dict[ParcelKey, _Known],
    numbers: dict[ParcelKey, int],
) -> None:
    values, fewer = [], []
    for key, entry in winners.items():
        liens = entry.arrival.facts.liens
        values += [(numbers[key], position, *rows.lien_values(lien)) for position, lien in enumerate(liens)]
        if key in known and known[key].lien_count > len(liens):
            fewer.append((numbers[key], len(liens)))
    write_rows(db, _WRITE_LIENS, values, _NEWER_LIEN)
    db.executemany(_DROP_LIENS, fewer)
