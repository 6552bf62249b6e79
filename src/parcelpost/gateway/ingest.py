"""Ingests a batch of results: decodes them, matches them to their tasks, stores them, and gives each a receipt.

Records are foreign data: any field may hold anything.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeGuard

import msgspec
from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.gateway.context import Context
from parcelpost.gateway.models import IngestedResult, KnownTask, Lien, SearchFields, SourceKey, StoreOutcome
from parcelpost.gateway.uploads import parse_body
from parcelpost.model import Json, is_child_id
from parcelpost.places import county_name, county_slug, parcel_norm, state_code, state_or_text
from parcelpost.protocol import payloads, server

_MAX_LIENS = 200
_MAX_KEY = 200
_MAX_TEXT = 500
_MAX_LIEN_BYTES = 16_384
_MAX_DOLLARS = 10**13
_MAX_MONEY_TEXT = 40
_YEAR_AND_PADDED = 8
_PARTS = re.compile(r"[^\W_]+")


class _Liens(msgspec.Struct, frozen=True, gc=False):
    liens: list[msgspec.Raw]


_read_liens = msgspec.json.Decoder(_Liens).decode


def search_fields(record: Mapping[str, Json], data: bytes) -> SearchFields:
    """Extracts the fields that can be searched from a record and its JSON.

    Never raises: invalid values are left out. At most 200 liens are extracted.
    """
    get = record.get
    liens, delinquent = get("liens"), get("delinquent")
    completeness, unreadable = get("completeness"), get("unreadable")
    return SearchFields(
        owner="; ".join(_names(get("owner_names")))[:_MAX_TEXT],
        situs=", ".join(filter(None, map(_text, (get("situs_address"), get("situs_city"), get("situs_zip"))))),
        delinquent=delinquent if isinstance(delinquent, bool) else None,
        tax_due_cents=_cents(get("tax_due")),
        liens=_liens(liens, data) if isinstance(liens, list) and liens else (),
        is_partial=completeness not in (None, "complete") or bool(unreadable),
    )


def _names(value: Json) -> list[str]:
    names = value[:_MAX_TEXT] if isinstance(value, list) else [value]
    return [name for name in map(_text, names) if name]


def _liens(liens: Sequence[Json], data: bytes) -> tuple[Lien, ...]:
    """Each lien with its JSON as sent. Liens that the record lists twice are numbered. A later tax on a
    certificate is not a lien of its own.
    """
    pairs = zip(liens[:_MAX_LIENS], _read_liens(data).liens, strict=False)
    times = Counter[str]()
    extracted = []
    for lien in (_lien(lien, bytes(sent)) for lien, sent in pairs if _is_lien(lien)):
        times[lien.key] += 1
        repeated = lien.key and times[lien.key] > 1
        extracted.append(structs.replace(lien, key=f"{lien.key} ({times[lien.key]})") if repeated else lien)
    return tuple(extracted)


def _is_lien(lien: Json) -> TypeGuard[dict[str, Any]]:
    return isinstance(lien, dict) and lien.get("subsequent_tax") is not True


def _lien(fields: dict[str, Any], whole: bytes) -> Lien:
    amount = _cents(fields.get("face_amount"))
    certificate = _text_or_number(fields.get("certificate_number"))
    certificate_year, tax_year = _year(fields.get("certificate_year")), _year(fields.get("tax_year"))
    return Lien(
        certificate_number=certificate,
        certificate_year=certificate_year,
        tax_year=tax_year,
        status=_or_none(_text(fields.get("status")).lower()),
        holder_name=_or_none(_text(fields.get("holder_name"))),
        amount_cents=_cents(fields.get("opening_bid")) if amount is None else amount,
        sale_date=_or_none(_text(fields.get("sale_date"))),
        json=whole if len(whole) <= _MAX_LIEN_BYTES else b"{}",
        key=_lien_key(certificate, certificate_year or tax_year, _text_or_number(fields.get("case_number"))),
    )


def _lien_key(certificate: str | None, year: int | None, case: str | None) -> str:
    """Numbers of certificates start again every year, or in some counties do not; cases have numbers of their own.

    `2023-000055`, `2023000055`, and `55` of 2023, are one certificate.
    """
    parts = _PARTS.findall((certificate or "").upper())
    if len(parts) == 1 and len(parts[0]) >= _YEAR_AND_PADDED and parts[0].startswith(str(year)):
        parts = [parts[0][:4], parts[0][4:]]
    first = _year(parts[0]) if len(parts) > 1 else None
    if first is not None and year in (None, first):
        year, parts = first, parts[1:]
    if parts:
        key = f"{year or ''}/{'-'.join(part.lstrip('0') or '0' for part in parts)}"
    else:
        number = _letters_and_digits(case or "")
        key = f"case {number}" if number else ""
    return key if len(key) <= _MAX_KEY else ""


def _text(value: Json) -> str:
    """Returns one trimmed line, '' for what is not text."""
    return " ".join(value.replace("\0", " ").split())[:_MAX_TEXT].strip() if isinstance(value, str) else ""


def _or_none(text: str) -> str | None:
    return text or None


def _text_or_number(value: Json) -> str | None:
    """Ids are strings; a parser may have turned one into a number."""
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
    """Exact: 0.1 is ten cents and '1234.50' is 123450. Fractions of a cent are rounded half to even."""
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


_MAX_ERRORS = 100

_CASE_NUMBERS = ("case_number", "certificate_number")

_Entries = Sequence[IngestedResult | server.BadEntry]


async def ingest_results(context: Context, body: bytes, worker_id: str) -> payloads.ResultsReply:
    """Stores a batch. Raises InvalidInput if the body is not a batch, LedgerUnavailable if nothing was stored."""
    now = context.clock.now()
    read = await parse_body(_read_entries, body, now)
    task_ids = sorted({entry.task_id for entry in read if isinstance(entry, IngestedResult)})
    known = await context.ledger.known_tasks(task_ids, worker_id)
    read = await _without_future_times(
        context, [_matched_to_task(entry, known.get(entry.task_id)) for entry in read], now
    )
    results = [entry for entry in read if isinstance(entry, IngestedResult)]
    stored = await context.ledger.store(results, worker_id, now) if results else ()
    _count_entries(context, read, stored)
    return _reply(read, stored)


def _read_entries(body: bytes, now: datetime) -> _Entries:
    return [entry if isinstance(entry, server.BadEntry) else _ingested(entry) for entry in server.read_batch(body, now)]


def _ingested(result: server.ReadResult) -> IngestedResult | server.BadEntry:
    sent = result.sent
    data, scraped_at = bytes(sent.data), sent.scraped_at
    try:
        state, county = state_code(sent.state), county_name(sent.county)
    except InvalidInput as error:
        return _rejected(sent.task_id, sent.parcel_id, sent.platform, str(error))
    fields = search_fields(result.record, data)
    return IngestedResult(
        task_id=sent.task_id,
        source=SourceKey(
            state, county, _norm(sent, result.record), sent.platform, _record_key(result.record, fields.liens)
        ),
        parcel_id=sent.parcel_id,
        data=data,
        search_fields=fields,
        scraped_at=scraped_at if scraped_at.tzinfo is UTC else scraped_at.astimezone(UTC),
        parse_duration_ms=sent.parse_duration_ms,
        idempotency_key=sent.idempotency_key or f"{sent.task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=sent.raw_html_hash.lower() if sent.raw_html_hash else None,
        raw_file=sent.raw_file or None,
        late=sent.late is True,
        listed=sent.listed,
    )


def _norm(sent: payloads.ParcelResult, record: Mapping[str, Json]) -> str:
    """A list that has only case or certificate numbers shows no parcel that another source could show, too. Without a
    county, the same number may be another parcel.
    """
    number = parcel_norm(sent.parcel_id) if sent.state and sent.county else ""
    has_number = record.get("parcel_id") or sent.parcel_id not in (record.get(name) for name in _CASE_NUMBERS)
    return number if number and has_number else f"={sent.platform}:{sent.parcel_id}"


def _record_key(record: Mapping[str, Json], liens: Sequence[Lien]) -> str:
    return liens[0].key if record.get("record_kind") == "lien" and liens else ""


def _rejected(task_id: str, parcel_id: str, platform: str, problem: str) -> server.BadEntry:
    return server.BadEntry(task_id=task_id, parcel_id=parcel_id, platform=platform, problem=problem)


def _letters_and_digits(number: str) -> str:
    return "".join(filter(str.isalnum, number)).upper()


def _matched_to_task(
    entry: IngestedResult | server.BadEntry, task: KnownTask | None
) -> IngestedResult | server.BadEntry:
    """Rejects a result for another parcel than its task's: it would complete a task that was not done. Results
    of unknown tasks are accepted.

    The records of a multi-record page have parcel numbers of their own. They are accepted from a worker that was
    granted the task, unless it says that the record is not one of a list: `listed` is optional, and workers that do not
    know the field must be able to deliver lists, too.
    """
    if isinstance(entry, server.BadEntry) or task is None:
        return entry
    key, target = entry.source, task.target
    pairs = {
        "platform": (key.platform, task.platform),
        "state": (key.state, state_or_text(target.state) or key.state),
        "county": (key.county, county_slug(target.county) or key.county),
    }
    if entry.listed is False or not task.was_granted:
        number = _letters_and_digits(entry.parcel_id) or entry.parcel_id
        pairs["parcel"] = (number, _letters_and_digits(target.parcel_id) or target.parcel_id or number)
    wrong = [name for name, (sent, wanted) in pairs.items() if sent != wanted]
    if not wrong:
        return entry
    problem = f"the result's {' and '.join(wrong)} does not match its task"
    return _rejected(entry.task_id, entry.parcel_id, key.platform, problem)


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
    receipts: list[payloads.EntryReceipt] = []
    errors: list[str] = []
    outcomes = iter(stored)
    for entry in read:
        if isinstance(entry, server.BadEntry):
            receipts.append(payloads.EntryReceipt(entry.task_id, "rejected", entry.problem))
            errors.append(f"{entry.parcel_id or entry.task_id or 'an entry'}: {entry.problem}")
        else:
            duplicate = next(outcomes) is StoreOutcome.DUPLICATE
            receipts.append(payloads.EntryReceipt(entry.task_id, "duplicate" if duplicate else "stored"))
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
