"""Calls of Firestore's API with our own time limit, without retries, with translated errors."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from msgspec import Struct

from parcelpost.errors import UpstreamError
from parcelpost.upstream.firestore.encoding import Message, Plain, decode, encode, moment
from parcelpost.upstream.firestore.errors import Conflict, translated_errors

T = TypeVar("T")
_Work = Callable[[bytes], Awaitable[tuple[T, Sequence[Message]]]]
"""Runs in a transaction; returns a result and the writes to commit."""

MAX_WRITES = 500
"""Writes in one commit."""
MAX_COMMIT_BYTES = 8 * 1024 * 1024
"""Firestore accepts 10 MiB; the rest is for the envelope of our documents."""

_MAX_TRIES = 4
_RETRY_SECONDS = 0.05
"""The mean wait before the second try; it doubles each time."""
_MAX_ROLLBACK_SECONDS = 5.0

_new_write: Any = types.Write.pb()
_new_commit: Any = types.CommitRequest.pb()
_Query = types.StructuredQuery
_OPERATORS = {
    "==": _Query.FieldFilter.Operator.EQUAL,
    "<=": _Query.FieldFilter.Operator.LESS_THAN_OR_EQUAL,
    "in": _Query.FieldFilter.Operator.IN,
}


class Document(Struct, frozen=True):
    path: str
    fields: Mapping[str, Plain]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Time(Protocol):
    """The part of a Clock that this package uses."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Calls:
    def __init__(
        self,
        api: FirestoreAsyncClient,
        database: str,
        timeout_seconds: float,
        time: Time,
        metadata: Sequence[tuple[str, str]] = (),
        place: str = "Firestore",
    ) -> None:
        self._api = api
        self._database = database
        self._time = time
        self._place = place
        """Its name in messages."""
        self._fixed: dict[str, Any] = {"retry": None, "timeout": timeout_seconds, "metadata": tuple(metadata)}
        self._learned: tuple[datetime, float] | None = None
        """Firestore's time in its last answer, and our monotonic time then."""

    def now(self) -> datetime:
        """Returns the time by Firestore's clock, the same for all workers. It is never ahead: no lease ends early."""
        if self._learned is None:
            return self._time.now()
        learned, at = self._learned
        return learned + timedelta(seconds=self._time.monotonic() - at)

    def here(self, moment: datetime) -> datetime:
        """Converts a time of Firestore's clock to ours."""
        return self._time.now() + (moment - self.now())

    async def learn_time(self, path: str) -> None:
        """Reads a document to learn Firestore's time, unless that is known already."""
        if self._learned is None:
            await self.get([path], ["last_seen_at"])

    async def get(
        self, paths: Sequence[str], fields: Sequence[str] = (), transaction: bytes = b""
    ) -> Mapping[str, Document]:
        """Returns the existing documents by path, with these fields or all."""
        request = types.BatchGetDocumentsRequest(database=self._database, documents=list(paths))
        if fields:
            request.mask = types.DocumentMask(field_paths=list(fields))
        if transaction:
            request.transaction = transaction
        documents: dict[str, Document] = {}
        with self._translating("reading documents"):
            async for answer in await self._api.batch_get_documents(request, **self._fixed):
                message = types.BatchGetDocumentsResponse.pb(answer)
                self._learn_time(message.read_time)
                if message.WhichOneof("result") == "found":
                    documents[message.found.name] = _document(message.found)
        return documents

    async def query(self, parent: str, query: types.StructuredQuery) -> list[Document]:
        """Runs outside of transactions, because in one it would block all readers of the same documents."""
        request = types.RunQueryRequest(parent=parent, structured_query=query)
        documents: list[Document] = []
        with self._translating(f"querying {query.from_[0].collection_id}", needs_index=True):
            async for answer in await self._api.run_query(request, **self._fixed):
                message = types.RunQueryResponse.pb(answer)
                self._learn_time(message.read_time)
                if message.HasField("document"):
                    documents.append(_document(message.document))
        return documents

    async def commit(self, writes: Sequence[Message], transaction: bytes = b"", *, may_refuse: bool = False) -> None:
        """Writes all of them or none."""
        request = _new_commit(database=self._database, writes=writes, transaction=transaction)
        with self._translating("writing", may_refuse=may_refuse):
            answer = await self._api.commit(types.CommitRequest.wrap(request), **self._fixed)
        self._learn_time(types.CommitResponse.pb(answer).commit_time)

    async def transact(self, work: _Work[T], *, may_refuse: bool = False) -> T:
        """Returns the result of `work` once its writes are committed. After a conflict `work` runs again.

        Raises Conflict (an Unavailable) after a few conflicts.
        """
        before, tries = b"", 1
        while True:
            transaction = await self._begin(before)
            try:
                return await self._try(work, transaction, may_refuse)
            except Conflict:
                if tries == _MAX_TRIES:
                    raise
            await self._time.sleep(random.uniform(0, _RETRY_SECONDS * 2**tries))  # noqa: S311 - no secret
            before, tries = transaction, tries + 1

    async def _try(self, work: _Work[T], transaction: bytes, may_refuse: bool) -> T:
        try:
            result, writes = await work(transaction)
            if writes:
                await self.commit(writes, transaction, may_refuse=may_refuse)
            else:
                await self._roll_back(transaction, self._fixed["timeout"])
        except BaseException:
            with suppress(UpstreamError):  # Firestore ends the transaction after a while
                await self._roll_back(transaction, min(self._fixed["timeout"], _MAX_ROLLBACK_SECONDS))
            raise
        return result

    async def _begin(self, before: bytes) -> bytes:
        """`before`: the transaction that this one retries, which gives it precedence."""
        kind = types.TransactionOptions.ReadWrite(retry_transaction=before)
        request = types.BeginTransactionRequest(
            database=self._database, options=types.TransactionOptions(read_write=kind)
        )
        with self._translating("beginning a transaction"):
            return (await self._api.begin_transaction(request, **self._fixed)).transaction

    async def _roll_back(self, transaction: bytes, seconds: float) -> None:
        """Ends a transaction without writes, so that others need not wait for its locks."""
        request = types.RollbackRequest(database=self._database, transaction=transaction)
        with self._translating("ending a transaction"):
            await self._api.rollback(request, **{**self._fixed, "timeout": seconds})

    def _translating(
        self, call: str, *, may_refuse: bool = False, needs_index: bool = False
    ) -> AbstractContextManager[None]:
        return translated_errors(f"{self._place}, {call}", may_refuse=may_refuse, needs_index=needs_index)

    def _learn_time(self, timestamp: Message) -> None:
        if timestamp.seconds:
            self._learned = moment(timestamp), self._time.monotonic()


def query(
    collection: str,
    *conditions: tuple[str, str, Plain],
    order: Sequence[str] = (),
    fields: Sequence[str] = (),
    limit: int,
) -> types.StructuredQuery:
    """Returns a query for documents with these `fields`, or all."""
    filters = [
        _Query.Filter(
            field_filter=_Query.FieldFilter(
                field=_Query.FieldReference(field_path=name),
                op=_OPERATORS[operator],
                value=types.Value.wrap(encode(value)),
            )
        )
        for name, operator, value in conditions
    ]
    conjunction = _Query.CompositeFilter(op=_Query.CompositeFilter.Operator.AND, filters=filters)
    selected = [_Query.FieldReference(field_path=name) for name in fields]
    return _Query(
        select=_Query.Projection(fields=selected) if selected else None,
        from_=[_Query.CollectionSelector(collection_id=collection)],
        where=_Query.Filter(composite_filter=conjunction) if filters else None,
        order_by=[
            _Query.Order(field=_Query.FieldReference(field_path=name), direction=_Query.Direction.ASCENDING)
            for name in order
        ],
        limit=limit,
    )


def put(path: str, fields: Mapping[str, Plain]) -> Message:
    """Replaces or creates a document."""
    write = _new_write()
    write.update.name = path
    for name, plain in fields.items():
        encode(plain, write.update.fields[name])
    return write


def change(path: str, fields: Mapping[str, Plain]) -> Message:
    """Sets these fields of an existing document and keeps the others."""
    write = put(path, fields)
    write.update_mask.field_paths.extend(fields)
    write.current_document.exists = True
    return write


def increment(path: str, fields: Mapping[str, Plain], added: Mapping[str, int]) -> Message:
    """Sets some fields and increments others of a document, which may be new."""
    write = put(path, fields)
    write.update_mask.field_paths.extend(fields)
    for name, number in added.items():
        encode(number, write.update_transforms.add(field_path=name).increment)
    return write


def remove(path: str) -> Message:
    write = _new_write()
    write.delete = path
    return write


def _document(message: Message) -> Document:
    return Document(message.name, {name: decode(value) for name, value in message.fields.items()})
