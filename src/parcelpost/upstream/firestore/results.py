"""Results in Firestore and raw files in its raw store: written once per task, read back with `open_record`."""

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
    RawStoreDenied,
    RawStoreUnavailable,
    Refused,
    Unauthorized,
    Unavailable,
)
from parcelpost.model import Json, OutboxEntry
from parcelpost.object_store import RawStore, page_path
from parcelpost.protocol import payloads
from parcelpost.protocol.payloads import Receipt, Submitted
from parcelpost.upstream.firestore.calls import MAX_COMMIT_BYTES, MAX_WRITES, Calls, Document, change, put
from parcelpost.upstream.firestore.encoding import MAX_DOCUMENT_BYTES, Layout, Message, NotStorable, Plain, checked_size
from parcelpost.upstream.firestore.leases import DONE, Fields, ended, time_of

_ACCESS_HINT = "check firestore.raw and its permissions; everything is stored locally until then"
_WAIT_HINT = "check firestore.raw and its free space; everything is stored locally and retried"


class RawUploads:
    def __init__(self, store: RawStore) -> None:
        self._store = store

    async def upload(self, entry: OutboxEntry, path: Path) -> None:
        """Sends the file after checking its hash. Raises Refused if it is damaged or missing."""
        try:
            await asyncio.to_thread(_check_page, path, entry.raw_sha256 or "")
            with path.open("rb") as file, _translated_errors():
                name, metadata = payloads.raw_file_name(entry), payloads.raw_file_metadata(entry)
                await self._store.put(entry.raw_sha256 or "", file, name, metadata)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error

    async def put_record(self, data: bytes, reason: str) -> Plain:
        """Stores a record and returns the reference to it. `reason`: why it does not fit into a document."""
        sha256 = hashlib.sha256(data).hexdigest()
        packed = await asyncio.to_thread(gzip.compress, data, 6, mtime=0)
        with _translated_errors():
            key = await self._store.put_record(sha256, packed)
        return {"store": self._store.address, "key": key, "sha256": sha256, "bytes": len(data), "why": reason}

    def page_reference(self, entry: OutboxEntry) -> Plain:
        """Returns the reference to the entry's page; None if it has none."""
        if entry.raw_sha256 is None:
            return None
        key, name = page_path(entry.raw_sha256), payloads.raw_file_name(entry)
        return {"store": self._store.address, "key": key, "sha256": entry.raw_sha256, "name": name}


def _check_page(path: Path, sha256: str) -> None:
    """Checks the page's hash: a gateway would do that itself, a bucket does not."""
    try:
        with gzip.open(path) as page:
            digest = hashlib.file_digest(page, "sha256").hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Refused(f"the raw file {path} is damaged: {error}") from None
    if digest != sha256:
        raise Refused(f"the raw file {path} is not the page that the result names: its SHA-256 differs")


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except RawStoreDenied as error:
        raise Unauthorized(str(error), hint=_ACCESS_HINT) from None
    except RawStoreUnavailable as error:
        raise Unavailable(str(error), hint=_WAIT_HINT) from None


_WRITES_A_RESULT = 3
_A_PARCEL_BYTES = 8 * 1024  # upper bound of the two documents beside the record's
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_READ_FIELDS = ("status", "scraped_at", "received_at", "task_id", "idempotency_key")


class _Prepared(Struct, frozen=True, kw_only=True):
    """A result that is ready to be written."""

    entry: OutboxEntry
    record: Fields
    """Its data, or the reference to it."""
    size: int


class Results:
    def __init__(self, calls: Calls, layout: Layout, raw_files: RawUploads) -> None:
        self._calls = calls
        self._layout = layout
        self._raw_files = raw_files

    async def submit(self, entries: Sequence[OutboxEntry]) -> Submitted:
        """Writes all changes of an entry in one transaction. Submitting an entry again changes nothing (I5)."""
        receipts: dict[str, Receipt] = {}
        prepared: list[_Prepared] = []
        for entry in entries:
            try:
                prepared.append(await self._prepare(entry))
            except InvalidInput as error:
                receipts[entry.task_id] = Receipt(entry.task_id, "rejected", str(error))
        errors = [f"{task_id}: {receipt.error}" for task_id, receipt in receipts.items()]
        for group in _commits(prepared):
            await self._calls.transact(partial(self._store, group), may_refuse=True)
            receipts |= {result.entry.task_id: Receipt(result.entry.task_id, "stored") for result in group}
        return Submitted(stored=len(prepared), failed=len(errors), errors=errors, receipts=receipts)

    async def _prepare(self, entry: OutboxEntry) -> _Prepared:
        """Raises InvalidInput for data that is not a record."""
        data = entry.data or b""
        try:
            record: Json = msgspec.json.decode(data, type=dict[str, Json])
        except (ValueError, RecursionError):
            raise InvalidInput("its data is not a JSON object") from None
        try:
            size = checked_size(record)
        except (NotStorable, RecursionError) as error:
            return await self._prepare_reference(entry, data, str(error))
        if size > MAX_DOCUMENT_BYTES:
            return await self._prepare_reference(entry, data, "it is too large for a document")
        return _Prepared(entry=entry, record={"data": record}, size=size)

    async def _prepare_reference(self, entry: OutboxEntry, data: bytes, reason: str) -> _Prepared:
        """Puts the whole record into the raw store, and a reference into the document."""
        reference = await self._raw_files.put_record(data, reason)
        return _Prepared(entry=entry, record={"data_in_raw_store": reference}, size=0)

    async def _store(self, group: Sequence[_Prepared], transaction: bytes) -> tuple[None, list[Message]]:
        paths = [path for result in group for path in self._paths(result.entry)]
        known = dict(await self._calls.get(list(dict.fromkeys(paths)), _READ_FIELDS, transaction))
        now = self._calls.now()
        writes: dict[str, Message] = {}
        for result in group:
            for path, fields in self._changes(result, known, now):
                is_task = path == self._layout.task(result.entry.task_id)
                writes[path] = (change if is_task else put)(path, fields)
                known[path] = Document(path, fields)
        return None, list(writes.values())

    def _paths(self, entry: OutboxEntry) -> tuple[str, str, str]:
        return self._layout.result(entry.task_id), self._layout.parcel(entry), self._layout.task(entry.task_id)

    def _changes(
        self, prepared: _Prepared, known: Mapping[str, Document], now: datetime
    ) -> Iterator[tuple[str, Fields]]:
        entry = prepared.entry
        result, parcel, task = self._paths(entry)
        is_new = _is_new(entry, now, known.get(result))
        if is_new:
            yield result, {**self._result(entry, now), **prepared.record}
        if is_new and _is_newest(entry, now, known.get(parcel)):
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


def _is_new(entry: OutboxEntry, now: datetime, known: Document | None) -> bool:
    """Whether it is neither stored already nor an older scrape of the same task.

    Of two with the same time, the one with the greater key counts as newer, so that resending changes nothing.
    """
    if known is None:
        return True
    before = known.fields.get("idempotency_key")
    is_later = (min(entry.scraped_at, now), entry.idempotency_key) > (_scraped(known), str(before))
    return is_later and before != entry.idempotency_key


def _is_newest(entry: OutboxEntry, now: datetime, known: Document | None) -> bool:
    """Whether it is the parcel's newest result. Of two with the same time, the greater task id counts as newer."""
    if known is None:
        return True
    before = (_scraped(known), str(known.fields.get("task_id")))
    return (min(entry.scraped_at, now), entry.task_id) >= before


def _scraped(known: Document) -> datetime:
    """Returns when it was scraped or, if that is earlier, received: a wrong clock must not hide later results.

    A document without a time, which no worker wrote, is older than any scrape.
    """
    return min(time_of(known, "scraped_at", _LONG_AGO), time_of(known, "received_at"))


def _commits(results: Sequence[_Prepared]) -> Iterator[list[_Prepared]]:
    """Groups results that fit into one commit."""
    group: list[_Prepared] = []
    size = 0
    for result in results:
        needs = result.size + _A_PARCEL_BYTES
        if group and (size + needs > MAX_COMMIT_BYTES or (len(group) + 1) * _WRITES_A_RESULT > MAX_WRITES):
            yield group
            group, size = [], 0
        group.append(result)
        size += needs
    if group:
        yield group


class _Reference(Struct, frozen=True):
    """The field `data_in_raw_store`."""

    store: str
    sha256: str
    bytes: Annotated[int, Meta(ge=0)]


async def open_record(result: Mapping[str, object], store: RawStore) -> dict[str, Json]:
    """Returns the record of a document in `results`; from `store` if the document only refers to it.

    Checks hash and size of a record from the store. Raises InvalidInput for a document that is not a result or refers
    to another store, RawFileDamaged for a record that is missing or damaged.
    """
    try:
        if "data" in result:
            return msgspec.convert(result["data"], dict[str, Json])
        reference = msgspec.convert(result.get("data_in_raw_store"), _Reference)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"the document is not a result: {error}", hint="'parcelpost firestore show layout' describes a result"
        ) from None
    if reference.store != store.address:
        other = f"the record is in another store: {reference.store[:200]!a}"
        raise InvalidInput(other, hint="open that one, if you trust it")
    data = await store.open_record(reference.sha256, reference.bytes)
    if data is None:
        raise RawFileDamaged(f"there is no record {reference.sha256[:64]!a} in {store.address}")
    return msgspec.json.decode(data, type=dict[str, Json])
