"""Ingests a batch of results: decodes them, matches them to their tasks, stores them, and gives each a receipt."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.gateway.context import Context
from parcelpost.gateway.ledger.rows import encode_target, read_target, site_text
from parcelpost.gateway.models import IngestedResult, KnownTask, SourceKey, StoreOutcome
from parcelpost.gateway.uploads import parse_body
from parcelpost.model import Json, Target, is_child_id
from parcelpost.places import county_name, county_slug, parcel_norm, state_code, state_or_text
from parcelpost.protocol import payloads, server
from parcelpost.search_fields import letters_and_digits, search_fields

_MAX_ERRORS = 100

_CASE_NUMBERS = ("case_number", "certificate_number")

_Entries = Sequence[IngestedResult | server.BadEntry]


async def ingest_results(context: Context, body: bytes, worker_id: str) -> payloads.ResultsReply:
    """Stores a batch. Raises InvalidInput if the body is not a batch, LedgerUnavailable if nothing was stored."""
    now = context.clock.now()
    read = await parse_body(_read_entries, body)
    task_ids = sorted({entry.task_id for entry in read if isinstance(entry, IngestedResult)})
    known = await context.ledger.known_tasks(task_ids, worker_id)
    matched = [_matched_to_task(entry, known.get(entry.task_id)) for entry in read]
    read = await _without_future_times(context, matched, now)
    results = [entry for entry in read if isinstance(entry, IngestedResult)]
    stored = await context.ledger.store(results, worker_id, now) if results else ()
    _count_entries(context, read, stored)
    return _reply(read, stored)


def _read_entries(body: bytes) -> _Entries:
    return [entry if isinstance(entry, server.BadEntry) else _ingested(entry) for entry in server.read_batch(body)]


def _ingested(result: server.ReadResult) -> IngestedResult | server.BadEntry:
    sent = result.sent
    data = bytes(sent.data)
    try:
        state, county = state_code(sent.state), county_name(sent.county)
    except InvalidInput as error:
        return _rejected(sent.task_id, sent.parcel_id, sent.platform, str(error))
    return IngestedResult(
        task_id=sent.task_id,
        source=SourceKey(state, county, _norm(sent, result.record), sent.platform),
        parcel_id=sent.parcel_id,
        data=data,
        search_fields=search_fields(result.record, data),
        scraped_at=_in_utc(sent.scraped_at),
        parse_duration_ms=sent.parse_duration_ms,
        idempotency_key=sent.idempotency_key or f"{sent.task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=sent.raw_html_hash.lower() if sent.raw_html_hash else None,
        raw_file=sent.raw_file or None,
        late=sent.late is True,
        multi_record=sent.multi_record,
    )


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except OverflowError:  # it would be in the year 10000
        return datetime.max.replace(tzinfo=UTC)


def _norm(sent: payloads.ParcelResult, record: Mapping[str, Json]) -> str:
    """Parcels without a number, or without a county, get a key that no other source shares."""
    number = parcel_norm(sent.parcel_id) if sent.state and sent.county else ""
    has_number = record.get("parcel_id") or sent.parcel_id not in (record.get(name) for name in _CASE_NUMBERS)
    return number if number and has_number else f"={sent.platform}:{sent.parcel_id}"


def _rejected(task_id: str, parcel_id: str, platform: str, problem: str) -> server.BadEntry:
    return server.BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform, problem=problem)


def _matched_to_task(
    entry: IngestedResult | server.BadEntry, task: KnownTask | None
) -> IngestedResult | server.BadEntry:
    """Adds the target for scraping it again. Rejects a result for another parcel than its task's: it would complete a
    task that was not done. Results of unknown tasks are accepted.

    The records of a multi-record page have parcel numbers of their own. They are accepted from a worker that was
    granted the task, unless it says that the record is not one of these: `multi_record` is optional, and workers that
    do not know the field must be able to deliver such pages, too.
    """
    if isinstance(entry, server.BadEntry):
        return entry
    key = entry.source
    if task is None:
        return _with_target(entry, encode_target(Target(parcel_id=entry.parcel_id, state=key.state, county=key.county)))
    names_its_parcel = entry.multi_record is False or not task.was_granted
    if names_its_parcel or task.site != site_text(key.platform, key.state, key.county):
        wrong = _differences(entry, task, names_its_parcel=names_its_parcel)
        if wrong:
            problem = f"the result's {' and '.join(wrong)} does not match its task"
            return _rejected(entry.task_id, entry.parcel_id, key.platform, problem)
    return _with_target(entry, task.target)


def _differences(entry: IngestedResult, task: KnownTask, *, names_its_parcel: bool) -> list[str]:
    key, target = entry.source, read_target(task.target)
    pairs = {
        "platform": (key.platform, task.platform),
        "state": (key.state, state_or_text(target.state) or key.state),
        "county": (key.county, county_slug(target.county) or key.county),
    }
    if names_its_parcel:
        number = letters_and_digits(entry.parcel_id) or entry.parcel_id
        pairs["parcel"] = (number, letters_and_digits(target.parcel_id) or target.parcel_id or number)
    return [name for name, (sent, wanted) in pairs.items() if sent != wanted]


def _with_target(entry: IngestedResult, target: str) -> IngestedResult:
    is_of_list = entry.multi_record or entry.search_fields.is_listed
    return entry if is_of_list else structs.replace(entry, target=target)


async def _without_future_times(context: Context, read: _Entries, now: datetime) -> _Entries:
    """A scrape in the future, from a worker whose clock is ahead, counts as scraped when it first arrived."""
    ahead = [entry for entry in read if isinstance(entry, IngestedResult) and entry.scraped_at > now]
    if not ahead:
        return read
    known = await context.ledger.known_scrapes(ahead)
    return [
        structs.replace(entry, scraped_at=min(now, known.get(entry.idempotency_key, now)))
        if isinstance(entry, IngestedResult) and entry.scraped_at > now
        else entry
        for entry in read
    ]


def _reply(read: _Entries, stored: Sequence[StoreOutcome]) -> payloads.ResultsReply:
    receipts: list[payloads.Receipt] = []
    errors: list[str] = []
    outcomes = iter(stored)
    for entry in read:
        if isinstance(entry, server.BadEntry):
            receipts.append(payloads.Receipt(entry.task_id, "rejected", entry.problem))
            errors.append(f"{entry.parcel_id or entry.task_id or 'an entry'}: {entry.problem}")
        else:
            duplicate = next(outcomes) is StoreOutcome.DUPLICATE
            receipts.append(payloads.Receipt(entry.task_id, "duplicate" if duplicate else "stored"))
    inserted = stored.count(StoreOutcome.INSERTED)
    return payloads.ResultsReply(
        inserted=inserted,
        updated=len(stored) - inserted,
        failed=len(errors),
        errors=errors[:_MAX_ERRORS] or None,
        receipts=receipts,
    )


def _count_entries(context: Context, read: _Entries, stored: Sequence[StoreOutcome]) -> None:
    """Counts records, and the tasks they complete: further records of a page complete none."""
    counted = Counter[tuple[str, str]]()
    outcomes = iter(stored)
    for entry in read:
        if isinstance(entry, server.BadEntry):
            counted[entry.platform, "rejected"] += 1
        elif next(outcomes) is StoreOutcome.DUPLICATE:
            counted[entry.source.platform, "duplicate"] += 1
        else:
            counted[entry.source.platform, "stored"] += 1
            counted[entry.source.platform, "done"] += not is_child_id(entry.task_id)
    for (platform, outcome), number in counted.items():
        context.counters.count(platform, outcome, number)
