"""Results: one document for each task, one for each parcel that says which is its newest, and the end of the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct

from parcelpost import wire
from parcelpost.client.firestore.calls import MOST_COMMIT_BYTES, MOST_WRITES, Calls, Found, change, put
from parcelpost.client.firestore.layout import Layout
from parcelpost.client.firestore.raw_files import RawFiles
from parcelpost.client.firestore.task_fields import DONE, Fields, ended, when
from parcelpost.client.firestore.values import MOST_DOCUMENT_BYTES, Message, Plain, Unfit, burden
from parcelpost.client.upstream import Receipt, Submitted
from parcelpost.errors import InvalidInput
from parcelpost.model import Json, OutboxEntry

_WRITES_A_RESULT = 3
_A_PARCEL_BYTES = 8 * 1024  # of the two documents beside the record's, at most
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_LOOKED_AT = ("status", "scraped_at", "received_at", "task_id", "idempotency_key")


class _Ready(Struct, frozen=True, kw_only=True):
    """A result that can be sent."""

    entry: OutboxEntry
    record: Fields
    """Its data, or where they are."""
    size: int


class Results:
    def __init__(self, calls: Calls, layout: Layout, raw_files: RawFiles) -> None:
        self._calls = calls
        self._layout = layout
        self._raw_files = raw_files

    async def submit(self, entries: Sequence[OutboxEntry]) -> Submitted:
        """All that an entry changes is one transaction. What was stored before changes nothing."""
        receipts: dict[str, Receipt] = {}
        ready: list[_Ready] = []
        for entry in entries:
            try:
                ready.append(await self._made_ready(entry))
            except InvalidInput as error:
                receipts[entry.task_id] = Receipt(stored=False, error=str(error))
        errors = [f"{task_id}: {receipt.error}" for task_id, receipt in receipts.items()]
        for group in _groups(ready):
            await self._calls.transact(partial(self._store, group), may_refuse=True)
            receipts |= {one.entry.task_id: Receipt(stored=True) for one in group}
        return Submitted(stored=len(ready), failed=len(errors), errors=errors, receipts=receipts)

    async def _made_ready(self, entry: OutboxEntry) -> _Ready:
        """Raises InvalidInput for what is no record."""
        data = entry.data or b""
        try:
            record: Json = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"its data cannot be read: {wire.one_line(str(error))[:200]}") from None
        if not isinstance(record, dict):
            raise InvalidInput("its data is not an object")
        try:
            size = burden(record)
        except (Unfit, RecursionError) as error:
            return await self._set_aside(entry, data, str(error))
        if size > MOST_DOCUMENT_BYTES:
            return await self._set_aside(entry, data, "it is too large for a document")
        return _Ready(entry=entry, record={"data": record}, size=size)

    async def _set_aside(self, entry: OutboxEntry, data: bytes, why: str) -> _Ready:
        """The whole record goes to the raw store, and a reference into the document."""
        reference = await self._raw_files.keep_record(data, why)
        return _Ready(entry=entry, record={"data_in_raw_store": reference}, size=0)

    async def _store(self, group: Sequence[_Ready], transaction: bytes) -> tuple[None, list[Message]]:
        layout = self._layout
        paths = [
            path
            for one in group
            for path in (
                layout.result(one.entry.task_id),
                layout.parcel(one.entry),
                layout.task(one.entry.task_id),
            )
        ]
        known = dict(await self._calls.get(list(dict.fromkeys(paths)), _LOOKED_AT, transaction))
        now = self._calls.now()
        writes: dict[str, Message] = {}
        for one in group:
            for path, fields in self._changes(one, known, now):
                is_task = path == layout.task(one.entry.task_id)
                writes[path] = (change if is_task else put)(path, fields)
                known[path] = Found(path, fields)
        return None, list(writes.values())

    def _changes(self, one: _Ready, known: Mapping[str, Found], now: datetime) -> Iterator[tuple[str, Fields]]:
        entry, layout = one.entry, self._layout
        result, parcel, task = layout.result(entry.task_id), layout.parcel(entry), layout.task(entry.task_id)
        is_news = _is_news(entry, now, known.get(result))
        if is_news:
            yield result, {**self._result(entry, now), **one.record}
        if is_news and _is_newest(entry, now, known.get(parcel)):
            yield (
                parcel,
                {**_place(entry), "task_id": entry.task_id, "scraped_at": entry.scraped_at, "received_at": now},
            )
        if task in known and known[task].fields.get("status") != DONE:
            yield task, ended(DONE, now)

    def _result(self, entry: OutboxEntry, now: datetime) -> dict[str, Plain]:
        late = entry.lease_expires_at is not None and self._calls.here(now) > entry.lease_expires_at
        return {
            "task_id": entry.task_id,
            **_place(entry),
            "scraped_at": entry.scraped_at,
            "received_at": now,
            "worker": self._layout.worker_id,
            "parse_duration_ms": entry.execution_time_ms,
            "idempotency_key": entry.idempotency_key,
            "late": late,
            "page": self._raw_files.page_reference(entry),
        }


def _place(entry: OutboxEntry) -> dict[str, Plain]:
    return {
        "platform": entry.platform,
        "state": entry.state,
        "county": entry.county,
        "parcel_id": entry.parcel_id,
    }


def _is_news(entry: OutboxEntry, now: datetime, known: Found | None) -> bool:
    """Not what is stored already, nor an older scrape of the same task.

    Of two at the same moment, the one with the greater key counts as the newer: sent again, neither ousts the other.
    """
    if known is None:
        return True
    before = known.fields.get("idempotency_key")
    is_later = (min(entry.scraped_at, now), entry.idempotency_key) > (_scraped(known), str(before))
    return is_later and before != entry.idempotency_key


def _is_newest(entry: OutboxEntry, now: datetime, known: Found | None) -> bool:
    """Of two tasks that scraped a parcel at the same moment, the one with the greater id counts as the newer."""
    if known is None:
        return True
    before = (_scraped(known), str(known.fields.get("task_id")))
    return (min(entry.scraped_at, now), entry.task_id) >= before


def _scraped(known: Found) -> datetime:
    """No later than it arrived: a worker whose clock is in the future hides nothing that comes after it.

    A document that names no moment, which no worker wrote, is older than any scrape.
    """
    return min(when(known, "scraped_at", _LONG_AGO), when(known, "received_at"))


def _groups(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """What fits into one commit."""
    group: list[_Ready] = []
    size = 0
    for one in ready:
        needs = one.size + _A_PARCEL_BYTES
        if group and (size + needs > MOST_COMMIT_BYTES or (len(group) + 1) * _WRITES_A_RESULT > MOST_WRITES):
            yield group
            group, size = [], 0
        group.append(one)
        size += needs
    if group:
        yield group
