"""Results and raw files in Firestore: written once per task, read back with `open_record`."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from parcelpost.errors import (
    InvalidInput,
    RawFileDamaged,
    RawStoreAway,
    RawStoreDenied,
    Refused,
    Unauthorized,
    Unavailable,
)
from parcelpost.model import Json, OutboxEntry
from parcelpost.protocol import payloads
from parcelpost.raw_store import RawStore, page_path
from parcelpost.upstream.base import Receipt, Submitted
from parcelpost.upstream.firestore.calls import MOST_COMMIT_BYTES, MOST_WRITES, Calls, Found, change, put
from parcelpost.upstream.firestore.encoding import MOST_DOCUMENT_BYTES, Layout, Message, Plain, Unfit, burden
from parcelpost.upstream.firestore.task_fields import DONE, Fields, ended, when

_LOOK = "check firestore.raw and who may write there; everything is kept here meanwhile"
_REST = "check firestore.raw and the room there; everything is kept here, and tried again"


class RawFiles:
    def __init__(self, store: RawStore) -> None:
        self._store = store

    async def upload(self, entry: OutboxEntry, path: Path) -> None:
        """The file's own bytes, once they are what the entry says. Raises Refused for one that is not, or is gone."""
        try:
            await asyncio.to_thread(_check, path, entry.raw_sha256 or "")
            with path.open("rb") as file, _in_our_words():
                name, metadata = payloads.raw_file_name(entry), payloads.raw_file_metadata(entry)
                await self._store.put(entry.raw_sha256 or "", file, name, metadata)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error

    async def keep_record(self, data: bytes, why: str) -> Plain:
        """How a result names it. `why` it stands in no document."""
        sha256 = hashlib.sha256(data).hexdigest()
        packed = await asyncio.to_thread(gzip.compress, data, 6, mtime=0)
        with _in_our_words():
            key = await self._store.put_record(sha256, packed)
        return {"store": self._store.address, "key": key, "sha256": sha256, "bytes": len(data), "why": why}

    def page_reference(self, entry: OutboxEntry) -> Plain:
        """How a result names its page; None if it has none."""
        if not entry.html_path or not entry.raw_sha256:
            return None
        key, name = page_path(entry.raw_sha256), payloads.raw_file_name(entry)
        return {"store": self._store.address, "key": key, "sha256": entry.raw_sha256, "name": name}


def _check(path: Path, sha256: str) -> None:
    """The gateway would look, too: a page that is damaged here must not be taken for the real one there."""
    try:
        with gzip.open(path) as page:
            found = hashlib.file_digest(page, "sha256").hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Refused(f"the raw file {path} is damaged: {error}") from None
    if found != sha256:
        raise Refused(f"the raw file {path} is not the page that the result names: its SHA-256 differs")


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except RawStoreDenied as error:
        raise Unauthorized(str(error), hint=_LOOK) from None
    except RawStoreAway as error:
        raise Unavailable(str(error), hint=_REST) from None


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
            raise InvalidInput(f"its data cannot be read: {payloads.one_line(str(error))[:200]}") from None
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


class _Reference(Struct, frozen=True):
    """What `data_in_raw_store` says."""

    store: str
    sha256: str
    bytes: Annotated[int, Meta(ge=0)]


async def open_record(result: Mapping[str, object], store: RawStore) -> dict[str, Json]:
    """Of a document in `results`; from `store`, which the reader has opened, where the document only names the record.

    What comes from the store has the hash and the size that the document says. Raises InvalidInput for a document that
    is no result, or names another store; RawFileDamaged for a record that is not there or not the one named.
    """
    try:
        if "data" in result:
            return msgspec.convert(result["data"], dict[str, Json])
        reference = msgspec.convert(result.get("data_in_raw_store"), _Reference)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"the document is no result: {error}", hint="'parcelpost firestore show layout' says what a result holds"
        ) from None
    if reference.store != store.address:
        other = f"the record is in another store: {reference.store[:200]!a}"
        raise InvalidInput(other, hint="open that one, if you trust it")
    data = await store.open_record(reference.sha256, reference.bytes)
    if data is None:
        raise RawFileDamaged(f"there is no record {reference.sha256[:64]!a} in {store.address}")
    return msgspec.json.decode(data, type=dict[str, Json])
