"""A batch of results: read, stored in one go, and answered entry by entry."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.gateway.bodies import parse
from parcelpost.gateway.facts import facts_of
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.words import Arrival, Ordered, ParcelKey, Stored
from parcelpost.model import is_child_id
from parcelpost.places import county_name, county_slug, state_code, state_or_text
from parcelpost.protocol import payloads, server

_MOST_ERRORS = 100

_Read = Sequence[Arrival | server.BadEntry]


async def take_results(parts: Parts, body: bytes, worker_id: str) -> payloads.ResultsReply:
    """Raises InvalidInput for a body that is no batch, LedgerUnavailable when nothing could be stored."""
    now = parts.clock.now()
    read = await parse(_read, body, now)
    task_ids = sorted({one.task_id for one in read if isinstance(one, Arrival)})
    ordered = await parts.ledger.orders(task_ids, worker_id)
    read = await _by_now(parts, [_of_its_task(one, ordered.get(one.task_id)) for one in read], now)
    arrivals = [one for one in read if isinstance(one, Arrival)]
    stored = await parts.ledger.store(arrivals, worker_id, now) if arrivals else ()
    _count(parts, read, stored)
    return _words(read, stored)


def _read(body: bytes, now: datetime) -> _Read:
    return [one if isinstance(one, server.BadEntry) else _arrival(one) for one in server.read_batch(body, now)]


def _arrival(found: server.ReadResult) -> Arrival | server.BadEntry:
    sent = found.sent
    data, scraped_at = bytes(sent.data), sent.scraped_at
    try:
        state, county = state_code(sent.state), county_name(sent.county)
    except InvalidInput as error:
        return _bad(sent.task_id, sent.parcel_id, sent.platform, str(error))
    return Arrival(
        task_id=sent.task_id,
        parcel=ParcelKey(sent.platform, state, county, sent.parcel_id),
        data=data,
        facts=facts_of(found.record, data),
        scraped_at=scraped_at if scraped_at.tzinfo is UTC else scraped_at.astimezone(UTC),
        parse_duration_ms=sent.parse_duration_ms,
        idempotency_key=sent.idempotency_key or f"{sent.task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=sent.raw_html_hash.lower() if sent.raw_html_hash else None,
        raw_file=sent.raw_file or None,
        late=sent.late is True,
        listed=sent.listed,
    )


def _bad(task_id: str, parcel_id: str, platform: str, problem: str) -> server.BadEntry:
    return server.BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform, problem=problem)


def _of_its_task(one: Arrival | server.BadEntry, ordered: Ordered | None) -> Arrival | server.BadEntry:
    """A result of another parcel would end a task that nobody has done. Of a task that is not known here, any is taken.

    A page that lists many parcels is ordered by some name, so its records have parcel numbers of their own. They are
    taken from a worker that was given the task, unless it says that the record is not one of a list: `listed` is
    optional, and a worker that does not know the field must be able to deliver a list, too.
    """
    if isinstance(one, server.BadEntry) or ordered is None:
        return one
    key, target = one.parcel, ordered.target
    pairs = {
        "platform": (key.platform, ordered.platform),
        "state": (key.state, state_or_text(target.state) or key.state),
        "county": (key.county, county_slug(target.county) or key.county),
    }
    if one.listed is False or not ordered.was_given:
        pairs["parcel"] = (_plain(key.parcel_id), _plain(target.parcel_id) or _plain(key.parcel_id))
    wrong = [name for name, (sent, wanted) in pairs.items() if sent != wanted]
    if not wrong:
        return one
    problem = f"the result is of another {' and '.join(wrong)} than its task orders"
    return _bad(one.task_id, key.parcel_id, key.platform, problem)


def _plain(parcel_id: str) -> str:
    """However it is punctuated."""
    return "".join(filter(str.isalnum, parcel_id)).upper() or parcel_id


async def _by_now(parts: Parts, read: _Read, now: datetime) -> _Read:
    """What was scraped later than now, by a clock that is ahead, was scraped when it came here first."""
    ahead = [one for one in read if isinstance(one, Arrival) and one.scraped_at > now]
    if not ahead:
        return read
    known = await parts.ledger.known_scrapes(ahead)
    return [
        structs.replace(one, scraped_at=min(now, known.get(one.idempotency_key, now)))
        if isinstance(one, Arrival) and one.scraped_at > now
        else one
        for one in read
    ]


def _words(read: _Read, stored: Sequence[Stored]) -> payloads.ResultsReply:
    receipts: list[payloads.EntryReceipt] = []
    errors: list[str] = []
    fates = iter(stored)
    for one in read:
        if isinstance(one, server.BadEntry):
            receipts.append(payloads.EntryReceipt(one.task_id, "rejected", one.problem))
            errors.append(f"{one.parcel_id or one.task_id or 'an entry'}: {one.problem}")
        else:
            duplicate = next(fates) is Stored.DUPLICATE
            receipts.append(payloads.EntryReceipt(one.task_id, "duplicate" if duplicate else "stored"))
    inserted = sum(fate is Stored.INSERTED for fate in stored)
    return payloads.ResultsReply(
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
        if isinstance(entry, server.BadEntry):
            counted[entry.platform, "rejected"] += 1
        elif next(outcomes) is Stored.DUPLICATE:
            counted[entry.parcel.platform, "duplicate"] += 1
        else:
            counted[entry.parcel.platform, "stored"] += 1
            counted[entry.parcel.platform, "done"] += not is_child_id(entry.task_id)
    for (platform, outcome), number in counted.items():
        parts.tally.count(platform, outcome, number)
