"""Storing a batch of results in few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from parcelpost.clock import iso
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.batch import Entry, Sifted, sift
from parcelpost.gateway.sql.statements import search_text
from parcelpost.gateway.words import Arrival, ParcelKey, Stored

_PARCEL = """
SELECT parcel_no, scraped_at, task_id, lien_count FROM parcels
WHERE platform = ? AND state = ? AND county = ? AND parcel_id = ?
"""
_LAST_PARCEL = "SELECT coalesce(max(parcel_no), 0) FROM parcels"
_RESULT = "SELECT scraped_at FROM results WHERE parcel_no = ? AND task_id = ?"

_NEW_PARCEL = """
INSERT INTO parcels (task_id, scraped_at, received_at, owner, situs, delinquent, tax_due_cents, lien_count, search,
                     parcel_no, platform, state, county, parcel_id, first_seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_NEWER_PARCEL = """
UPDATE parcels SET task_id = ?, scraped_at = ?, received_at = ?, owner = ?, situs = ?, delinquent = ?,
                   tax_due_cents = ?, lien_count = ?, search = ?
WHERE parcel_no = ?
"""
_ADD_RESULT = """
INSERT INTO results (parcel_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms,
                     idempotency_key, raw_sha256, raw_file, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (parcel_no, task_id) DO UPDATE
SET worker_id = excluded.worker_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
    late = excluded.late, parse_duration_ms = excluded.parse_duration_ms,
    idempotency_key = excluded.idempotency_key, raw_sha256 = excluded.raw_sha256, raw_file = excluded.raw_file,
    data = excluded.data
"""
_ADD_LIEN = """
INSERT INTO liens (parcel_no, position, certificate_number, certificate_year, tax_year, status, holder_name,
                   amount_cents, sale_date, json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (parcel_no, position) DO UPDATE
SET certificate_number = excluded.certificate_number, certificate_year = excluded.certificate_year,
    tax_year = excluded.tax_year, status = excluded.status, holder_name = excluded.holder_name,
    amount_cents = excluded.amount_cents, sale_date = excluded.sale_date, json = excluded.json
"""
_DROP_LIENS = "DELETE FROM liens WHERE parcel_no = ? AND position >= ?"

_DONE = "UPDATE tasks SET state = 'done', ended_at = ?, error = NULL WHERE task_id = ? AND state <> 'done'"
_END_LEASE = """
UPDATE leases SET ended_at = ?, ended_as = CASE WHEN worker_id = ? THEN 'done' ELSE 'superseded' END
WHERE task_id = ? AND ended_at IS NULL
"""


class _Known(NamedTuple):
    """A parcel that was here before the batch."""

    parcel_no: int
    scraped_at: str
    task_id: str
    lien_count: int


def store(db: sqlite3.Connection, arrivals: Sequence[Arrival], worker_id: str, now: datetime) -> list[Stored]:
    batch = sift(arrivals)
    at = iso(now)
    known = _known_parcels(db, batch)
    numbers = _numbers(db, batch, known)
    kept = [entry for entry in batch.entries if _is_news(db, entry, known)]
    winners = {parcel: entry for parcel, entry in batch.newest.items() if _wins(entry, known.get(parcel))}
    _write_parcels(db, winners, known, numbers, at)
    db.executemany(_ADD_RESULT, [_result_values(entry, numbers, worker_id, at) for entry in kept])
    _write_liens(db, winners, known, numbers)
    db.executemany(_END_LEASE, [(at, worker_id, task_id) for task_id in batch.task_ids])
    db.executemany(_DONE, [(at, task_id) for task_id in batch.task_ids])
    answers = [Stored.DUPLICATE] * len(arrivals)
    for entry in kept:
        wins = winners.get(entry.arrival.parcel) is entry
        answers[entry.place] = _answer(wins, entry.arrival.parcel in known)
    return answers


def _answer(wins: bool, is_known: bool) -> Stored:
    if not wins:
        return Stored.KEPT
    return Stored.UPDATED if is_known else Stored.INSERTED


def _known_parcels(db: sqlite3.Connection, batch: Sifted) -> dict[ParcelKey, _Known]:
    found = {}
    for key in batch.newest:
        row = db.execute(_PARCEL, (key.platform, key.state, key.county, key.parcel_id)).fetchone()
        if row is not None:
            found[key] = _Known(*row)
    return found


def _numbers(db: sqlite3.Connection, batch: Sifted, known: dict[ParcelKey, _Known]) -> dict[ParcelKey, int]:
    """Of new parcels too: nobody else writes now."""
    numbers = {key: parcel.parcel_no for key, parcel in known.items()}
    if len(numbers) < len(batch.newest):
        (last,) = db.execute(_LAST_PARCEL).fetchone()
        new = (key for key in batch.newest if key not in known)
        numbers |= {key: number for number, key in enumerate(new, last + 1)}
    return numbers


def _is_news(db: sqlite3.Connection, entry: Entry, known: dict[ParcelKey, _Known]) -> bool:
    parcel = known.get(entry.arrival.parcel)
    if parcel is None:
        return True
    row = db.execute(_RESULT, (parcel.parcel_no, entry.arrival.task_id)).fetchone()
    return row is None or iso(entry.scraped_at) > row[0]


def _wins(entry: Entry, known: _Known | None) -> bool:
    return known is None or (iso(entry.scraped_at), entry.arrival.task_id) > (known.scraped_at, known.task_id)


def _write_parcels(
    db: sqlite3.Connection,
    winners: dict[ParcelKey, Entry],
    known: dict[ParcelKey, _Known],
    numbers: dict[ParcelKey, int],
    at: str,
) -> None:
    new, newer = [], []
    for key, entry in winners.items():
        values = (*_parcel_values(entry, at), numbers[key])
        if key in known:
            newer.append(values)
        else:
            new.append((*values, key.platform, key.state, key.county, key.parcel_id, at))
    db.executemany(_NEW_PARCEL, new)
    db.executemany(_NEWER_PARCEL, newer)


def _parcel_values(entry: Entry, at: str) -> tuple[Any, ...]:
    arrival, facts = entry.arrival, entry.arrival.facts
    return (
        arrival.task_id,
        iso(entry.scraped_at),
        at,
        facts.owner,
        facts.situs,
        facts.delinquent,
        facts.tax_due_cents,
        len(facts.liens),
        search_text(arrival.parcel.parcel_id, facts.owner, facts.situs),
    )


def _result_values(entry: Entry, numbers: dict[ParcelKey, int], worker_id: str, at: str) -> tuple[Any, ...]:
    arrival = entry.arrival
    return (
        numbers[arrival.parcel],
        arrival.task_id,
        worker_id,
        iso(entry.scraped_at),
        at,
        arrival.late,
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
    db.executemany(_ADD_LIEN, values)
    db.executemany(_DROP_LIENS, fewer)
