"""A batch of results as the arrays that `store_results` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.batch import Entry, Sifted
from parcelpost.gateway.sql.statements import search_text

_ENTRY_ARRAYS = 19
_LIEN_ARRAYS = 10

STORE = f"SELECT answer FROM store_results({', '.join(f'${n}' for n in range(1, 3 + _ENTRY_ARRAYS + _LIEN_ARRAYS))})"


def arrays(batch: Sifted) -> list[Sequence[Any]]:
    """By column: all entries, then the liens of those that are their parcel's newest."""
    entries = [_entry_values(entry, _is_newest(batch, entry)) for entry in batch.entries]
    liens = [
        (place, position, *rows.lien_values(lien))
        for place, entry in enumerate(batch.entries, 1)
        if _is_newest(batch, entry)
        for position, lien in enumerate(entry.arrival.facts.liens)
    ]
    return [*zip(*entries, strict=True), *(zip(*liens, strict=True) if liens else [()] * _LIEN_ARRAYS)]


def _is_newest(batch: Sifted, entry: Entry) -> bool:
    return batch.newest[entry.arrival.parcel] is entry


def _entry_values(entry: Entry, is_newest: bool) -> tuple[Any, ...]:
    arrival, key, facts = entry.arrival, entry.arrival.parcel, entry.arrival.facts
    return (
        key.platform,
        key.state,
        key.county,
        key.parcel_id,
        arrival.task_id,
        is_newest,
        entry.scraped_at,
        arrival.late,
        arrival.parse_duration_ms,
        arrival.idempotency_key,
        arrival.raw_sha256,
        arrival.raw_file,
        arrival.data.decode(),
        facts.owner,
        facts.situs,
        facts.delinquent,
        facts.tax_due_cents,
        len(facts.liens),
        search_text(key.parcel_id, facts.owner, facts.situs),
    )
