"""Ingests a batch of results: read, matched to their tasks, stored at once, answered entry by entry.

A record comes from outside: any field may hold anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.gateway.context import Context
from parcelpost.gateway.models import IngestedResult, KnownTask, Lien, ParcelKey, SearchFields, StoreOutcome
from parcelpost.gateway.uploads import parse_body
from parcelpost.model import Json, is_child_id
from parcelpost.places import county_name, county_slug, state_code, state_or_text
from parcelpost.protocol import payloads, server

_MAX_LIENS = 200
_MAX_TEXT = 500
_MAX_LIEN_BYTES = 16_384
_MAX_DOLLARS = 10**13
_MAX_MONEY_TEXT = 40


class _Liens(msgspec.Struct, frozen=True, gc=False):
    liens: list[msgspec.Raw]


_read_liens = msgspec.json.Decoder(_Liens).decode


def search_fields(record: Mapping[str, Json], data: bytes) -> SearchFields:
    """Of a record and the JSON that it was read from.

    Never raises: what is not as it should be is not said. At most 200 liens are told apart.
    """
    get = record.get
    liens, delinquent = get("liens"), get("delinquent")
    return SearchFields(
        owner="; ".join(_names(get("owner_names")))[:_MAX_TEXT],
        situs=", ".join(filter(None, map(_text, (get("situs_address"), get("situs_city"), get("situs_zip"))))),
        delinquent=delinquent if isinstance(delinquent, bool) else None,
        tax_due_cents=_cents(get("tax_due")),
        liens=_liens(liens, data) if isinstance(liens, list) and liens else (),
    )


def _names(value: Json) -> list[str]:
    names = value[:_MAX_TEXT] if isinstance(value, list) else [value]
    return [name for name in map(_text, names) if name]


def _liens(liens: Sequence[Json], data: bytes) -> tuple[Lien, ...]:
    """Each with the JSON that it was sent as."""
    found = zip(liens[:_MAX_LIENS], _read_liens(data).liens, strict=False)
    return tuple(_lien(lien, bytes(whole)) for lien, whole in found if isinstance(lien, dict))


def _lien(fields: dict[str, Any], whole: bytes) -> Lien:
    amount = _cents(fields.get("face_amount"))
    return Lien(
        certificate_number=_text_or_number(fields.get("certificate_number")),
        certificate_year=_year(fields.get("certificate_year")),
        tax_year=_year(fields.get("tax_year")),
        status=_or_none(_text(fields.get("status")).lower()),
        holder_name=_or_none(_text(fields.get("holder_name"))),
        amount_cents=_cents(fields.get("opening_bid")) if amount is None else amount,
        sale_date=_or_none(_text(fields.get("sale_date"))),
        json=whole if len(whole) <= _MAX_LIEN_BYTES else b"{}",
    )


def _text(value: Json) -> str:
    """One trimmed line; '' for what is no text."""
    return " ".join(value.replace("\0", " ").split())[:_MAX_TEXT].strip() if isinstance(value, str) else ""


def _or_none(text: str) -> str | None:
    return text or None


def _text_or_number(value: Json) -> str | None:
    """Ids are strings; a page's parser may have made a number of one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    return _or_none(_text(value))


def _year(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 4:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1000 <= value <= 9999:
        return value
    return None


def _cents(value: Json) -> int | None:
    """Exact: 0.1 is ten cents and '1234.50' is 123450. What has a fraction of a cent is rounded to the even one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = repr(value) if isinstance(value, float) else value  # as it was written, up to 15 digits
    if isinstance(text, str) and len(text) > _MAX_MONEY_TEXT:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    if not amount.is_finite() or not -_MAX_DOLLARS <= amount <= _MAX_DOLLARS:  # abs() of 1e999999999 overflows
        return None
    return int((amount * 100).to_integral_value())


_MOST_ERRORS = 100

_Entries = Sequence[IngestedResult | server.BadEntry]


async def ingest_results(context: Context, body: bytes, worker_id: str) -> payloads.ResultsReply:
    """Raises InvalidInput for a body that is no batch, LedgerUnavailable when nothing could be stored."""
    now = context.clock.now()
    read = await parse_body(_read_entries, body, now)
    task_ids = sorted({one.task_id for one in read if isinstance(one, IngestedResult)})
    ordered = await context.ledger.known_tasks(task_ids, worker_id)
    read = await _without_future_times(context, [_matched_to_task(one, ordered.get(one.task_id)) for one in read], now)
    results = [one for one in read if isinstance(one, IngestedResult)]
    stored = await context.ledger.store(results, worker_id, now) if results else ()
    _count_entries(context, read, stored)
    return _reply(read, stored)


def _read_entries(body: bytes, now: datetime) -> _Entries:
    return [one if isinstance(one, server.BadEntry) else _ingested(one) for one in server.read_batch(body, now)]


def _ingested(found: server.ReadResult) -> IngestedResult | server.BadEntry:
    sent = found.sent
    data, scraped_at = bytes(sent.data), sent.scraped_at
    try:
        state, county = state_code(sent.state), county_name(sent.county)
    except InvalidInput as error:
        return _rejected(sent.task_id, sent.parcel_id, sent.platform, str(error))
    return IngestedResult(
        task_id=sent.task_id,
        parcel=ParcelKey(sent.platform, state, county, sent.parcel_id),
        data=data,
        search_fields=search_fields(found.record, data),
        scraped_at=scraped_at if scraped_at.tzinfo is UTC else scraped_at.astimezone(UTC),
        parse_duration_ms=sent.parse_duration_ms,
        idempotency_key=sent.idempotency_key or f"{sent.task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=sent.raw_html_hash.lower() if sent.raw_html_hash else None,
        raw_file=sent.raw_file or None,
        late=sent.late is True,
        listed=sent.listed,
    )


def _rejected(task_id: str, parcel_id: str, platform: str, problem: str) -> server.BadEntry:
    return server.BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform, problem=problem)


def _matched_to_task(
    one: IngestedResult | server.BadEntry, ordered: KnownTask | None
) -> IngestedResult | server.BadEntry:
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
        pairs["parcel"] = (
            _alphanumeric(key.parcel_id),
            _alphanumeric(target.parcel_id) or _alphanumeric(key.parcel_id),
        )
    wrong = [name for name, (sent, wanted) in pairs.items() if sent != wanted]
    if not wrong:
        return one
    problem = f"the result is of another {' and '.join(wrong)} than its task orders"
    return _rejected(one.task_id, key.parcel_id, key.platform, problem)


def _alphanumeric(parcel_id: str) -> str:
    """However it is punctuated."""
    return "".join(filter(str.isalnum, parcel_id)).upper() or parcel_id


async def _without_future_times(context: Context, read: _Entries, now: datetime) -> _Entries:
    """What was scraped later than now, by a clock that is ahead, was scraped when it came here first."""
    ahead = [one for one in read if isinstance(one, IngestedResult) and one.scraped_at > now]
    if not ahead:
        return read
    known = await context.ledger.known_scrapes(ahead)
    return [
        structs.replace(one, scraped_at=min(now, known.get(one.idempotency_key, now)))
        if isinstance(one, IngestedResult) and one.scraped_at > now
        else one
        for one in read
    ]


def _reply(read: _Entries, stored: Sequence[StoreOutcome]) -> payloads.ResultsReply:
    receipts: list[payloads.EntryReceipt] = []
    errors: list[str] = []
    fates = iter(stored)
    for one in read:
        if isinstance(one, server.BadEntry):
            receipts.append(payloads.EntryReceipt(one.task_id, "rejected", one.problem))
            errors.append(f"{one.parcel_id or one.task_id or 'an entry'}: {one.problem}")
        else:
            duplicate = next(fates) is StoreOutcome.DUPLICATE
            receipts.append(payloads.EntryReceipt(one.task_id, "duplicate" if duplicate else "stored"))
    inserted = sum(fate is StoreOutcome.INSERTED for fate in stored)
    return payloads.ResultsReply(
        inserted=inserted,
        updated=len(stored) - inserted,
        failed=len(errors),
        errors=errors[:_MOST_ERRORS] or None,
        receipts=receipts,
    )


def _count_entries(context: Context, read: _Entries, stored: Sequence[StoreOutcome]) -> None:
    """Records, and the tasks that they complete: the further records of a page complete none."""
    counted = Counter[tuple[str, str]]()
    outcomes = iter(stored)
    for entry in read:
        if isinstance(entry, server.BadEntry):
            counted[entry.platform, "rejected"] += 1
        elif next(outcomes) is StoreOutcome.DUPLICATE:
            counted[entry.parcel.platform, "duplicate"] += 1
        else:
            counted[entry.parcel.platform, "stored"] += 1
            counted[entry.parcel.platform, "done"] += not is_child_id(entry.task_id)
    for (platform, outcome), number in counted.items():
        context.counters.count(platform, outcome, number)
