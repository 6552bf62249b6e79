"""Stores a batch of results in SQLite with few statements.

Rows are prepared before the writer runs, so that other writes do not wait. Known sources and results are looked up with
one JSON text of keys, and returned as one. A new parcel with one source is written as that source shows it; any other
is merged by the database (`merged_parcels`, `merged_liens`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence, Set
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
from parcelpost.gateway.models import IngestedResult, ParcelKey, SourceKey, StoreOutcome
from parcelpost.search_fields import Lien

Values = tuple[Any, ...]
"""The values of a row, without the numbers of parcel and source, which only the writer knows."""


class PreparedResult(Struct, frozen=True, gc=False):
    """An entry with its row of `results`."""

    place: int
    source: SourceKey
    task_id: str
    idempotency_key: str
    scraped_at: str
    is_listed: bool
    result: Values

    @property
    def age(self) -> tuple[str, str]:
        return self.scraped_at, self.task_id


class PreparedSource(Struct, frozen=True, gc=False):
    """The newest entry of a source, with what is written if it is the newest of all."""

    newest: PreparedResult
    parcel: ParcelKey
    source: Values
    has_all_liens: bool


class PreparedBatch(Struct, frozen=True):
    results: int
    worker_id: str
    at: str
    entries: Sequence[PreparedResult]
    """At most one per task and source."""
    liens: Sequence[tuple[int, int, Lien]]
    """Place of its entry, position there, lien."""
    sources: dict[SourceKey, PreparedSource]
    parcels: dict[ParcelKey, Values]
    """Values from the newest entry of each parcel."""
    task_ids: Sequence[str]


def prepare_batch(results: Sequence[IngestedResult], worker_id: str, now: datetime) -> PreparedBatch:
    batch = dedupe(results)
    at = iso(now)
    made = {entry.place: _prepared_result(entry, worker_id, at) for entry in batch.entries}
    return PreparedBatch(
        results=len(results),
        worker_id=worker_id,
        at=at,
        entries=list(made.values()),
        liens=[(entry.place, position, lien) for entry, position, lien in batch.liens()],
        sources={key: _prepared_source(entry, made[entry.place], at) for key, entry in batch.newest.items()},
        parcels={key: _parcel_values(entry, made[entry.place], at) for key, entry in batch.leading.items()},
        task_ids=batch.task_ids,
    )


def _prepared_result(entry: BatchEntry, worker_id: str, at: str) -> PreparedResult:
    result, scraped_at = entry.result, iso(entry.scraped_at)
    return PreparedResult(
        entry.place,
        result.source,
        result.task_id,
        result.idempotency_key,
        scraped_at,
        result.search_fields.is_listed,
        (
            result.task_id,
            worker_id,
            scraped_at,
            at,
            int(result.late),  # the driver adapts a bool slowly
            result.parse_duration_ms,
            result.idempotency_key,
            result.raw_sha256,
            result.raw_file,
            result.data.decode(),
        ),
    )


def _prepared_source(entry: BatchEntry, made: PreparedResult, at: str) -> PreparedSource:
    key, shown = made.source, entry.result.search_fields
    parcel_id = entry.result.parcel_id
    search = search_text(parcel_id, shown.owner, shown.situs)
    names = (key.platform, parcel_id, int(shown.is_partial))
    values = (*names, made.task_id, made.scraped_at, at, at, *_summary(entry), entry.result.target, search)
    return PreparedSource(made, key.parcel, values, shown.has_all_liens)


def _parcel_values(entry: BatchEntry, made: PreparedResult, at: str) -> Values:
    key, lien_count = made.source, len(entry.result.search_fields.liens)
    names = (key.state, key.county, key.norm, entry.result.parcel_id)
    return (*names, *_summary(entry), lien_count, made.scraped_at, at, at)


def _summary(entry: BatchEntry) -> Values:
    shown = entry.result.search_fields
    delinquent = None if shown.delinquent is None else int(shown.delinquent)
    return shown.owner, shown.situs, delinquent, shown.tax_due_cents


_MOST_ROWS = 100


def write_rows(db: sqlite3.Connection, insert: str, rows: Sequence[Sequence[Any]], on_conflict: str = "") -> None:
    """Inserts the rows in chunks. `insert` is the statement up to VALUES."""
    for start in range(0, len(rows), _MOST_ROWS):
        part = rows[start : start + _MOST_ROWS]
        db.execute(_statement(insert, len(part), len(part[0]), on_conflict), list(chain.from_iterable(part)))


@cache
def _statement(insert: str, rows: int, columns: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{insert} VALUES {', '.join([row] * rows)} {on_conflict}"


_SOURCES = """
SELECT json_group_array(json_array(p.parcel_norm, s.platform, p.parcel_no, s.source_no, s.scraped_at,
                                   s.task_id))
FROM parcels p JOIN sources s ON s.parcel_no = p.parcel_no
WHERE p.state = ? AND p.county = ? AND p.parcel_norm IN (SELECT value FROM json_each(?))
"""
_RESULTS = """
SELECT json_group_array(json_array(r.source_no, r.task_id, r.scraped_at, r.idempotency_key))
FROM json_each(?) asked CROSS JOIN results r
    ON r.source_no = json_extract(asked.value, '$[0]') AND r.task_id = json_extract(asked.value, '$[1]')
"""
_LIENS = "SELECT parcel_no, lien_key, lien_no FROM liens WHERE parcel_no IN (SELECT value FROM json_each(?))"
_LAST_NUMBERS = """
SELECT (SELECT coalesce(max(parcel_no), 0) FROM parcels),
       (SELECT coalesce(max(source_no), 0) FROM sources),
       (SELECT coalesce(max(lien_no), 0) FROM liens)
"""

_WRITE_PARCELS = """
INSERT INTO parcels (parcel_no, state, county, parcel_norm, parcel_id, owner, situs, delinquent, tax_due_cents,
                     lien_count, scraped_at, received_at, first_seen_at)
"""
_WRITE_SOURCES = """
INSERT INTO sources (source_no, parcel_no, platform, parcel_id, is_partial, task_id, scraped_at,
                     received_at, first_seen_at, owner, situs, delinquent, tax_due_cents, target, search)
"""
_NEWER_SOURCE = """
ON CONFLICT (source_no) DO UPDATE
SET parcel_id = excluded.parcel_id, is_partial = excluded.is_partial, task_id = excluded.task_id,
    scraped_at = excluded.scraped_at, received_at = excluded.received_at,
    owner = iif(excluded.is_partial AND excluded.owner = '', owner, excluded.owner),
    situs = iif(excluded.is_partial AND excluded.situs = '', situs, excluded.situs),
    delinquent = iif(excluded.is_partial AND excluded.delinquent IS NULL, delinquent, excluded.delinquent),
    tax_due_cents = iif(excluded.is_partial AND excluded.tax_due_cents IS NULL, tax_due_cents, excluded.tax_due_cents),
    target = iif(excluded.target = '', target, excluded.target),
    search = iif(excluded.is_partial AND '' IN (excluded.owner, excluded.situs), search, excluded.search)
"""
_WRITE_RESULTS = """
INSERT INTO results (source_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms,
                     idempotency_key, raw_sha256, raw_file, data)
"""
_NEWER_RESULT = """
ON CONFLICT (source_no, task_id) DO UPDATE
SET worker_id = excluded.worker_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
    late = excluded.late, parse_duration_ms = excluded.parse_duration_ms,
    idempotency_key = excluded.idempotency_key, raw_sha256 = excluded.raw_sha256, raw_file = excluded.raw_file,
    data = excluded.data
"""
_WRITE_TO_COMPARE = "INSERT INTO results_to_compare (source_no, task_id) "
_WRITE_LIENS = """
INSERT INTO liens (lien_no, parcel_no, lien_key, certificate_number, certificate_year, tax_year, status,
                   holder_name, amount_cents, sale_date)
"""
_WRITE_LIEN_SOURCES = """
INSERT INTO lien_sources (lien_no, source_no, position, task_id, scraped_at, certificate_number, certificate_year,
                          tax_year, status, holder_name, amount_cents, sale_date, json)
"""
_NEWER_LIEN_SOURCE = """
ON CONFLICT (lien_no, source_no) DO UPDATE
SET position = excluded.position, task_id = excluded.task_id, scraped_at = excluded.scraped_at,
    certificate_number = excluded.certificate_number,
    certificate_year = excluded.certificate_year, tax_year = excluded.tax_year, status = excluded.status,
    holder_name = excluded.holder_name, amount_cents = excluded.amount_cents, sale_date = excluded.sale_date,
    json = excluded.json
WHERE (excluded.scraped_at, excluded.task_id) >= (scraped_at, task_id)
"""
_DROP_LIEN_SOURCES = """
DELETE FROM lien_sources
WHERE lien_no IN (SELECT lien_no FROM liens WHERE parcel_no IN (SELECT value FROM json_each(?)))
  AND source_no IN (SELECT value FROM json_each(?))
"""
_DROP_LIENS = """
DELETE FROM liens
WHERE parcel_no IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM lien_sources ls WHERE ls.lien_no = liens.lien_no)
"""
_MERGE_LIENS = """
UPDATE liens
SET certificate_number = m.certificate_number, certificate_year = m.certificate_year, tax_year = m.tax_year,
    status = m.status, holder_name = m.holder_name, amount_cents = m.amount_cents, sale_date = m.sale_date
FROM merged_liens m
WHERE m.lien_no = liens.lien_no AND liens.parcel_no IN (SELECT value FROM json_each(?))
"""
_MERGE_PARCELS = """
UPDATE parcels
SET parcel_id = m.parcel_id, owner = m.owner, situs = m.situs, delinquent = m.delinquent,
    tax_due_cents = m.tax_due_cents, lien_count = m.lien_count, scraped_at = m.scraped_at, received_at = m.received_at
FROM merged_parcels m
WHERE m.parcel_no = parcels.parcel_no AND parcels.parcel_no IN (SELECT value FROM json_each(?))
"""

_DONE = """
UPDATE tasks SET state = 'done', ended_at = ?, error = NULL
WHERE task_id IN (SELECT value FROM json_each(?)) AND state <> 'done'
"""
_END_LEASES = """
UPDATE leases SET ended_at = ?, ended_as = CASE WHEN worker_id = ? THEN 'done' ELSE 'superseded' END
WHERE task_id IN (SELECT value FROM json_each(?)) AND ended_at IS NULL
"""


class _KnownSource(NamedTuple):
    """A source that existed before the batch."""

    norm: str
    platform: str
    parcel_no: int
    source_no: int
    scraped_at: str
    task_id: str


_read_sources = Decoder(list[_KnownSource]).decode
_read_results = Decoder(list[tuple[int, str, str, str]]).decode

_Known = dict[SourceKey, _KnownSource]
_Winners = dict[SourceKey, PreparedSource]


class _Numbers(NamedTuple):
    """Of all parcels and sources of the batch, also of new ones: nobody else is writing."""

    parcels: dict[ParcelKey, int]
    sources: dict[SourceKey, int]
    last_lien: int


class _Written(NamedTuple):
    kept: Sequence[PreparedResult]
    with_liens: dict[int, PreparedResult]
    """Entries whose liens are written, by index."""
    known_parcels: Set[ParcelKey]


def store_results(db: sqlite3.Connection, batch: PreparedBatch) -> list[StoreOutcome]:
    known = _known_sources(db, batch)
    numbers = _number(db, batch, known)
    kept = _changed_results(db, batch, known)
    places = {made.place for made in kept}
    winners = {
        key: source
        for key, source in batch.sources.items()
        if source.newest.place in places and _wins(source.newest, known.get(key))
    }
    known_parcels = {key.parcel for key in known}
    new = [(numbers.parcels[key], *values) for key, values in batch.parcels.items() if key not in known_parcels]
    write_rows(db, _WRITE_PARCELS, new)
    sources = [(numbers.sources[key], numbers.parcels[won.parcel], *won.source) for key, won in winners.items()]
    write_rows(db, _WRITE_SOURCES, sources, _NEWER_SOURCE)
    write_rows(db, _WRITE_RESULTS, [(numbers.sources[made.source], *made.result) for made in kept], _NEWER_RESULT)
    write_rows(db, _WRITE_TO_COMPARE, [(numbers.sources[made.source], made.task_id) for made in kept])
    won = {source.newest.place for source in winners.values()}
    written = _Written(kept, {r.place: r for r in kept if r.place in won or r.is_listed}, known_parcels)
    _write_liens(db, batch, written, winners, numbers)
    _merge(db, written, numbers)
    task_ids = _json(batch.task_ids)
    db.execute(_END_LEASES, (batch.at, batch.worker_id, task_ids))
    db.execute(_DONE, (batch.at, task_ids))
    return _outcomes(batch, kept, winners, known)


def _outcomes(
    batch: PreparedBatch, kept: Sequence[PreparedResult], winners: _Winners, known: _Known
) -> list[StoreOutcome]:
    outcomes = [StoreOutcome.DUPLICATE] * batch.results
    for made in kept:
        outcomes[made.place] = StoreOutcome.KEPT
    for key, won in winners.items():
        outcomes[won.newest.place] = StoreOutcome.UPDATED if key in known else StoreOutcome.INSERTED
    return outcomes


def _known_sources(db: sqlite3.Connection, batch: PreparedBatch) -> _Known:
    """Returns all known sources of the batch's parcels."""
    by_county: dict[tuple[str, str], list[str]] = {}
    for key in batch.parcels:
        by_county.setdefault((key.state, key.county), []).append(key.norm)
    known: _Known = {}
    for county, norms in by_county.items():
        ((text,),) = db.execute(_SOURCES, (*county, _json(norms)))
        known |= {SourceKey(*county, *source[:2]): source for source in _read_sources(text)}
    return known


def _number(db: sqlite3.Connection, batch: PreparedBatch, known: _Known) -> _Numbers:
    ((last_parcel, last_source, last_lien),) = db.execute(_LAST_NUMBERS)
    parcels = {key.parcel: source.parcel_no for key, source in known.items()}
    new_parcels = (key for key in batch.parcels if key not in parcels)
    parcels |= {key: number for number, key in enumerate(list(new_parcels), last_parcel + 1)}
    sources = {key: source.source_no for key, source in known.items()}
    new_sources = (key for key in batch.sources if key not in known)
    sources |= {key: number for number, key in enumerate(new_sources, last_source + 1)}
    return _Numbers(parcels, sources, last_lien)


def _changed_results(db: sqlite3.Connection, batch: PreparedBatch, known: _Known) -> Sequence[PreparedResult]:
    """Returns the entries that are new, newer than their task's stored result, or another one of the same time."""
    asked = {
        (source.source_no, made.task_id): made
        for made in batch.entries
        if (source := known.get(made.source)) is not None
    }
    if not asked:
        return batch.entries
    ((text,),) = db.execute(_RESULTS, (_json(list(asked)),))
    stale = {
        made.place
        for source_no, task_id, scraped_at, key in _read_results(text)
        if not _replaces(made := asked[source_no, task_id], scraped_at, key)
    }
    return [made for made in batch.entries if made.place not in stale]


def _json(keys: Sequence[object]) -> str:
    return rows.encode(keys).decode()


def _replaces(made: PreparedResult, scraped_at: str, key: str) -> bool:
    return made.scraped_at > scraped_at or (made.scraped_at == scraped_at and made.idempotency_key != key)


def _wins(made: PreparedResult, known: _KnownSource | None) -> bool:
    """Whether a changed result is the newest of its source. One of the same age is a newer result of the same task."""
    return known is None or made.age >= (known.scraped_at, known.task_id)


def _write_liens(
    db: sqlite3.Connection, batch: PreparedBatch, written: _Written, winners: _Winners, numbers: _Numbers
) -> None:
    """Liens that a source no longer shows go, unless only part of it could be read, or it is a list."""
    known, dropped = _json([numbers.parcels[key] for key in written.known_parcels]), 0
    lien_numbers: dict[tuple[int, str], int] = {}
    if written.known_parcels:
        lien_numbers = {(parcel_no, key): lien_no for parcel_no, key, lien_no in db.execute(_LIENS, (known,))}
        if lien_numbers:
            sources = _json([numbers.sources[key] for key, won in winners.items() if won.has_all_liens])
            dropped = db.execute(_DROP_LIEN_SOURCES, (known, sources)).rowcount
    liens: list[Values] = []
    lien_sources: list[Values] = []
    for place, position, lien in batch.liens:
        if (made := written.with_liens.get(place)) is None:
            continue
        parcel_no, source_no = numbers.parcels[made.source.parcel], numbers.sources[made.source]
        lien_key = lien.key or rows.unshared_lien_key(source_no, position)
        *fields, json = rows.lien_values(lien)
        lien_no = lien_numbers.get((parcel_no, lien_key))
        if lien_no is None:
            lien_no = lien_numbers[parcel_no, lien_key] = numbers.last_lien + len(liens) + 1
            liens.append((lien_no, parcel_no, lien_key, *fields))
        lien_sources.append((lien_no, source_no, position, *reversed(made.age), *fields, json))
    write_rows(db, _WRITE_LIENS, liens)
    write_rows(db, _WRITE_LIEN_SOURCES, lien_sources, _NEWER_LIEN_SOURCE)
    if dropped:
        db.execute(_DROP_LIENS, (known,))


def _merge(db: sqlite3.Connection, written: _Written, numbers: _Numbers) -> None:
    """A new parcel with one entry has been written as that entry shows it."""
    entries = Counter(made.source.parcel for made in written.kept)
    merged = [numbers.parcels[key] for key, count in entries.items() if count > 1 or key in written.known_parcels]
    if merged:
        parcel_numbers = _json(merged)
        db.execute(_MERGE_LIENS, (parcel_numbers,))
        db.execute(_MERGE_PARCELS, (parcel_numbers,))
