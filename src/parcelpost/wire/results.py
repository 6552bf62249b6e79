"""POST /results: a batch of records, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, NotNow
from parcelpost.model import Json, OutboxEntry
from parcelpost.wire.raw_files import raw_file_name
from parcelpost.wire.reading import Piece, elements, member, members, one_line, value

_MOST_ERRORS = 100
_MOST_ERROR_CHARS = 300
_STORED = {"stored": True, "duplicate": True, "rejected": False}

_encode = msgspec.json.Encoder().encode


class _ParcelResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    task_id: str
    parcel_id: str
    platform: str
    state: str
    county: str
    data: Raw
    scraped_at: str
    parse_duration_ms: int
    raw_html_hash: str | UnsetType = UNSET
    idempotency_key: str
    raw_file: str | UnsetType = UNSET
    late: bool = False
    listed: bool  # always sent: without it a gateway cannot tell a wrong parcel from a list's


class EntryReceipt(Struct, frozen=True):
    stored: bool
    error: str


class BatchAnswer(Struct, frozen=True, kw_only=True):
    stored: int
    failed: int
    errors: Sequence[str]
    receipts: Mapping[str, EntryReceipt]
    """By task id, for entries of the batch only."""


def results_body(entries: Sequence[OutboxEntry], now: datetime) -> bytes:
    """A bare array in the order given. Raises InvalidInput for an entry without a record."""
    return _encode([_result(entry, now) for entry in entries])


def _result(entry: OutboxEntry, now: datetime) -> _ParcelResult:
    if entry.data is None:
        raise InvalidInput(f"the entry of task {entry.task_id} has no record to send")
    return _ParcelResult(
        task_id=entry.task_id,
        parcel_id=entry.parcel_id,
        platform=entry.platform,
        state=entry.state,
        county=entry.county,
        data=Raw(entry.data),
        scraped_at=iso(entry.scraped_at),
        parse_duration_ms=entry.execution_time_ms,
        raw_html_hash=entry.raw_sha256 or UNSET,
        idempotency_key=entry.idempotency_key,
        raw_file=raw_file_name(entry) if entry.html_path and entry.raw_sha256 else UNSET,
        late=entry.lease_expires_at is not None and now > entry.lease_expires_at,
        listed=entry.listed,
    )


def read_results(body: bytes, task_ids: Collection[str]) -> BatchAnswer:
    """What became of the batch of these tasks. Counts that do not fit the batch are an answer that says nothing."""
    found = members(body)
    inserted, updated, failed = (_count(found, name) for name in ("inserted", "updated", "failed"))
    if inserted + updated + failed > len(task_ids):
        raise NotNow(f"it counts {inserted + updated + failed:,} entries; {len(task_ids):,} were sent")
    errors = member(found, "errors")
    words = [_words(error) for error in errors[:_MOST_ERRORS]] if isinstance(errors, list) else []
    return BatchAnswer(
        stored=inserted + updated, failed=failed, errors=words, receipts=_receipts(found, frozenset(task_ids))
    )


def _count(found: Mapping[str, Piece], name: str) -> int:
    given = member(found, name)
    if type(given) is not int or given < 0:
        raise NotNow(f"it does not say how many were {name}")
    return given


def _receipts(found: Mapping[str, Piece], task_ids: frozenset[str]) -> Mapping[str, EntryReceipt]:
    """Those that can be understood; where two contradict each other, neither counts."""
    receipts: dict[str, EntryReceipt] = {}
    doubtful: set[str] = set()
    pieces = elements(found["receipts"]) if "receipts" in found else ()
    for piece in (pieces or ())[: 2 * len(task_ids)]:
        given = value(piece)
        task_id = given.get("task_id") if isinstance(given, dict) else None
        status = given.get("status") if isinstance(given, dict) else None
        if not isinstance(task_id, str) or task_id not in task_ids or not isinstance(status, str):
            continue
        if (stored := _STORED.get(status)) is None:
            continue
        if task_id in receipts and receipts[task_id].stored is not stored:
            doubtful.add(task_id)
        receipts[task_id] = EntryReceipt(stored, _words(given.get("error") or ""))
    return {task_id: receipt for task_id, receipt in receipts.items() if task_id not in doubtful}


def _words(given: Json) -> str:
    text = given if isinstance(given, str) else _encode(given).decode()
    return one_line(text)[:_MOST_ERROR_CHARS]
