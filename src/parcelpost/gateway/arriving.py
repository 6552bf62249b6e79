"""A batch of results: read, stored in one go, and answered entry by entry."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from parcelpost import wire
from parcelpost.gateway.facts import facts_of
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.words import Arrival, ParcelKey, Stored
from parcelpost.model import is_child_id

_INLINE_BYTES = 512 * 1024
_MOST_ERRORS = 100

_Read = Sequence[Arrival | wire.BadEntry]


async def take_results(parts: Parts, body: bytes, worker_id: str) -> wire.ResultsWords:
    """Raises InvalidInput for a body that is no batch, LedgerAway when nothing could be stored."""
    now = parts.clock.now()
    read = _read(body, now) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(_read, body, now)
    arrivals = [one for one in read if isinstance(one, Arrival)]
    stored = await parts.ledger.store(arrivals, worker_id, now) if arrivals else ()
    _count(parts, read, stored)
    return _words(read, stored)


def _read(body: bytes, now: datetime) -> _Read:
    return [one if isinstance(one, wire.BadEntry) else _arrival(one) for one in wire.read_batch(body, now)]


def _arrival(found: wire.ReadResult) -> Arrival:
    sent = found.sent
    data, scraped_at = bytes(sent.data), sent.scraped_at
    return Arrival(
        task_id=sent.task_id,
        parcel=ParcelKey(sent.platform, sent.state, sent.county, sent.parcel_id),
        data=data,
        facts=facts_of(found.record, data),
        scraped_at=scraped_at if scraped_at.tzinfo is UTC else scraped_at.astimezone(UTC),
        parse_duration_ms=sent.parse_duration_ms,
        idempotency_key=sent.idempotency_key or f"{sent.task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=sent.raw_html_hash.lower() if sent.raw_html_hash else None,
        raw_file=sent.raw_file or None,
        late=sent.late is True,
    )


def _words(read: _Read, stored: Sequence[Stored]) -> wire.ResultsWords:
    receipts: list[wire.ReceiptWords] = []
    errors: list[str] = []
    fates = iter(stored)
    for one in read:
        if isinstance(one, wire.BadEntry):
            receipts.append(wire.ReceiptWords(one.task_id, "rejected", one.problem))
            errors.append(f"{one.parcel_id or one.task_id or 'an entry'}: {one.problem}")
        else:
            duplicate = next(fates) is Stored.DUPLICATE
            receipts.append(wire.ReceiptWords(one.task_id, "duplicate" if duplicate else "stored"))
    inserted = sum(fate is Stored.INSERTED for fate in stored)
    return wire.ResultsWords(
        inserted=inserted,
        updated=len(stored) - inserted,
        failed=len(errors),
        errors=errors[:_MOST_ERRORS] or None,
        receipts=receipts,
    )


def _count(parts: Parts, read: _Read, stored: Sequence[Stored]) -> None:
    """Records, and the tasks that they complete: the further records of a page complete none."""
    counted = Counter[tuple[str, str]]()
    outcomes = iter(stored)
    for entry in read:
        if isinstance(entry, wire.BadEntry):
            counted[entry.platform, "rejected"] += 1
        elif next(outcomes) is Stored.DUPLICATE:
            counted[entry.parcel.platform, "duplicate"] += 1
        else:
            counted[entry.parcel.platform, "stored"] += 1
            counted[entry.parcel.platform, "done"] += not is_child_id(entry.task_id)
    for (platform, outcome), number in counted.items():
        parts.tally.count(platform, outcome, number)
