"""One call of Firestore at a time: with our own time limit, no retries, and its errors in our words."""

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
from parcelpost.upstream.firestore.errors import Conflict, in_our_words

T = TypeVar("T")
_Work = Callable[[bytes], Awaitable[tuple[T, Sequence[Message]]]]
"""In a transaction: what it answers, and what is to be written."""

MOST_WRITES = 500
"""In one commit."""
MOST_COMMIT_BYTES = 8 * 1024 * 1024
"""Firestore takes 10 MiB; the rest is for what stands around our documents."""

_MOST_TRIES = 4
_REST_SECONDS = 0.05
"""Between two tries, about, and twice as long each time: who met once would meet again."""
_LONGEST_FAREWELL_SECONDS = 5.0

_new_write: Any = types.Write.pb()
_new_commit: Any = types.CommitRequest.pb()
_Query = types.StructuredQuery
_OPERATORS = {
    "==": _Query.FieldFilter.Operator.EQUAL,
    "<=": _Query.FieldFilter.Operator.LESS_THAN_OR_EQUAL,
    "in": _Query.FieldFilter.Operator.IN,
}


class Found(Struct, frozen=True):
    """A document that is there."""

    path: str
    fields: Mapping[str, Plain]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Time(Protocol):
    """What is needed of a clock."""

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
        """As errors name it."""
        self._fixed: dict[str, Any] = {"retry": None, "timeout": timeout_seconds, "metadata": tuple(metadata)}
        self._learned: tuple[datetime, float] | None = None
        """Firestore's time as its last answer told it, and when that was by a clock that nobody sets."""

    def now(self) -> datetime:
        """By Firestore's clock, which is the same for all workers; a little late at most, so no lease ends early."""
        if self._learned is None:
            return self._time.now()
        told, at = self._learned
        return told + timedelta(seconds=self._time.monotonic() - at)

    def here(self, moment: datetime) -> datetime:
        """A moment of Firestore's clock by ours."""
        return self._time.now() + (moment - self.now())

    async def learn_time(self, path: str) -> None:
        """By looking for a document, unless an answer has told it already."""
        if self._learned is None:
            await self.get([path], ["last_seen_at"])

    async def get(
        self, paths: Sequence[str], fields: Sequence[str] = (), transaction: bytes = b""
    ) -> Mapping[str, Found]:
        """Those that are there, by path, with these fields or all."""
        request = types.BatchGetDocumentsRequest(database=self._database, documents=list(paths))
        if fields:
            request.mask = types.DocumentMask(field_paths=list(fields))
        if transaction:
            request.transaction = transaction
        found: dict[str, Found] = {}
        with self._asking("reading documents"):
            async for answer in await self._api.batch_get_documents(request, **self._fixed):
                told = types.BatchGetDocumentsResponse.pb(answer)
                self._learn_time(told.read_time)
                if told.WhichOneof("result") == "found":
                    found[told.found.name] = _found(told.found)
        return found

    async def query(self, parent: str, query: types.StructuredQuery) -> list[Found]:
        """Outside of transactions: in one, it would hold up everybody who looks at the same."""
        request = types.RunQueryRequest(parent=parent, structured_query=query)
        found: list[Found] = []
        with self._asking(f"looking for {query.from_[0].collection_id}", needs_index=True):
            async for answer in await self._api.run_query(request, **self._fixed):
                told = types.RunQueryResponse.pb(answer)
                self._learn_time(told.read_time)
                if told.HasField("document"):
                    found.append(_found(told.document))
        return found

    async def commit(self, writes: Sequence[Message], transaction: bytes = b"", *, may_refuse: bool = False) -> None:
        """All of them or none."""
        request = _new_commit(database=self._database, writes=writes, transaction=transaction)
        with self._asking("writing", may_refuse=may_refuse):
            answer = await self._api.commit(types.CommitRequest.wrap(request), **self._fixed)
        self._learn_time(types.CommitResponse.pb(answer).commit_time)

    async def transact(self, work: _Work[T], *, may_refuse: bool = False) -> T:
        """What `work` answers, once what it wants written is, together with what it has read. It may run again.

        After a few conflicts with others it is Unavailable.
        """
        before, tries = b"", 1
        while True:
            transaction = await self._begin(before)
            try:
                return await self._try(work, transaction, may_refuse)
            except Conflict:
                if tries == _MOST_TRIES:
                    raise
            await self._time.sleep(random.uniform(0, _REST_SECONDS * 2**tries))  # noqa: S311 - no secret
            before, tries = transaction, tries + 1

    async def _try(self, work: _Work[T], transaction: bytes, may_refuse: bool) -> T:
        try:
            answer, writes = await work(transaction)
            if writes:
                await self.commit(writes, transaction, may_refuse=may_refuse)
            else:
                await self._let_go(transaction, self._fixed["timeout"])
        except BaseException:
            await self._give_up(transaction)
            raise
        return answer

    async def _begin(self, before: bytes) -> bytes:
        """`before`: the transaction that this is another try of, which gives it precedence."""
        kind = types.TransactionOptions.ReadWrite(retry_transaction=before)
        request = types.BeginTransactionRequest(
            database=self._database, options=types.TransactionOptions(read_write=kind)
        )
        with self._asking("beginning a transaction"):
            return (await self._api.begin_transaction(request, **self._fixed)).transaction

    async def _let_go(self, transaction: bytes, seconds: float) -> None:
        """So that nobody waits for what was only looked at."""
        request = types.RollbackRequest(database=self._database, transaction=transaction)
        with self._asking("ending a transaction"):
            await self._api.rollback(request, **{**self._fixed, "timeout": seconds})

    async def _give_up(self, transaction: bytes) -> None:
        """As well as can be: Firestore lets go of it by itself some time later."""
        with suppress(UpstreamError):
            await self._let_go(transaction, min(self._fixed["timeout"], _LONGEST_FAREWELL_SECONDS))

    def _asking(
        self, call: str, *, may_refuse: bool = False, needs_index: bool = False
    ) -> AbstractContextManager[None]:
        return in_our_words(f"{self._place}, {call}", may_refuse=may_refuse, needs_index=needs_index)

    def _learn_time(self, timestamp: Message) -> None:
        if timestamp.seconds:
            self._learned = moment(timestamp), self._time.monotonic()


def query(
    collection: str,
    *conditions: tuple[str, str, Plain],
    order: Sequence[str] = (),
    fields: Sequence[str] = (),
    most: int,
) -> types.StructuredQuery:
    """For documents with these `fields`, or all."""
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
    every = _Query.CompositeFilter(op=_Query.CompositeFilter.Operator.AND, filters=filters)
    seen = [_Query.FieldReference(field_path=name) for name in fields]
    return _Query(
        select=_Query.Projection(fields=seen) if seen else None,
        from_=[_Query.CollectionSelector(collection_id=collection)],
        where=_Query.Filter(composite_filter=every) if filters else None,
        order_by=[
            _Query.Order(field=_Query.FieldReference(field_path=name), direction=_Query.Direction.ASCENDING)
            for name in order
        ],
        limit=most,
    )


def put(path: str, fields: Mapping[str, Plain]) -> Message:
    """The document has these fields and no others."""
    write = _new_write()
    write.update.name = path
    for name, plain in fields.items():
        encode(plain, write.update.fields[name])
    return write


def change(path: str, fields: Mapping[str, Plain]) -> Message:
    """These fields of a document that is there; its others stay."""
    write = put(path, fields)
    write.update_mask.field_paths.extend(fields)
    write.current_document.exists = True
    return write


def count(path: str, fields: Mapping[str, Plain], added: Mapping[str, int]) -> Message:
    """These fields, and numbers added to others, of a document that may be new."""
    write = put(path, fields)
    write.update_mask.field_paths.extend(fields)
    for name, number in added.items():
        encode(number, write.update_transforms.add(field_path=name).increment)
    return write


def remove(path: str) -> Message:
    write = _new_write()
    write.delete = path
    return write


def _found(document: Message) -> Found:
    return Found(document.name, {name: decode(value) for name, value in document.fields.items()})
