"""A small Firestore for the tests: a real gRPC server on the client library's own messages, with faults on demand.

async with FirestoreServer() as server:
    server.play("Commit", fails(Code.UNAVAILABLE), times=2)     # and `lost`: done, but the answer never comes
    ...                                                         # FIRESTORE_EMULATOR_HOST=server.host
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import grpc
from google.cloud.firestore_v1 import types
from google.protobuf import empty_pb2

from parcelpost.upstream.firestore.calls import put
from parcelpost.upstream.firestore.encoding import Plain, decode
from tests.firestore.documents import MOST_WRITES, Code, Documents, Problem

Message = Any
Context = Any

SERVICE = "google.firestore.v1.Firestore"


class Fault(NamedTuple):
    code: grpc.StatusCode | None
    """None: no answer at all."""
    message: str
    is_done: bool
    """What was asked for is done all the same."""
    details: tuple[tuple[str, bytes], ...] = ()
    """Trailing metadata."""


def fails(code: grpc.StatusCode, message: str = "as the test wants", **details: bytes) -> Fault:
    return Fault(code, message, False, tuple((name.replace("_", "-"), value) for name, value in details.items()))


def lost() -> Fault:
    return Fault(Code.UNAVAILABLE, "Socket closed", True)


def hangs() -> Fault:
    return Fault(None, "", False)


class _Staged(NamedTuple):
    method: str
    fault: Fault
    left: list[int]


class FirestoreServer:
    def __init__(self, credentials: Any = None) -> None:
        """`credentials`: of a gRPC server; None: anybody may come in."""
        self._secure = credentials
        self.documents = Documents()
        self.calls: Counter[str] = Counter()
        self.looked_at_bytes = 0
        """In the answers to queries."""
        self.credentials: list[str] = []
        """What came as `authorization`."""
        self._staged: list[_Staged] = []
        self._meanwhile: list[tuple[str, Callable[[], None]]] = []
        self._port = 0
        self._server: Any = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def is_up(self) -> bool:
        return self._server is not None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """On the port that it had before, if it had one."""
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        if self._secure is None:
            self._port = self._server.add_insecure_port(self.host)
        else:
            self._port = self._server.add_secure_port(self.host, self._secure)
        await self._server.start()

    async def stop(self) -> None:
        """Cuts off what is under way."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    def put(self, documents: Mapping[str, Mapping[str, Plain]]) -> None:
        """By path, without a call."""
        writes = [put(path, fields) for path, fields in documents.items()]
        for start in range(0, len(writes), MOST_WRITES):
            self.documents.commit(writes[start : start + MOST_WRITES], 0, b"")

    def all(self, collection: str) -> dict[str, dict[str, Any]]:
        """The documents of the collection at that path, by id."""
        found = {path.rpartition("/"): document for path, document in self.documents.all.items()}
        return {
            name: {field: decode(value) for field, value in document.fields.items()}
            for (parent, _, name), document in found.items()
            if parent == collection
        }

    def play(self, method: str, fault: Fault, times: int = 1) -> None:
        self._staged.append(_Staged(method, fault, [times]))

    def meanwhile(self, method: str, action: Callable[[], None]) -> None:
        """What somebody else does right after the next answer of that method."""
        self._meanwhile.append((method, action))

    def _handlers(self) -> dict[str, Any]:
        def one(request: Any, method: Callable[[Message], Message]) -> Any:
            async def answered(message: Message, context: Context) -> Message:
                return await self._answer(method.__name__, context, lambda: method(message))

            return grpc.unary_unary_rpc_method_handler(answered, request.pb().FromString, _bytes)

        def many(request: Any, method: Callable[[Message], list[Message]]) -> Any:
            async def answered(message: Message, context: Context) -> AsyncIterator[Message]:
                for answer in await self._answer(method.__name__, context, lambda: method(message)):
                    yield answer

            return grpc.unary_stream_rpc_method_handler(answered, request.pb().FromString, _bytes)

        return {
            "BeginTransaction": one(types.BeginTransactionRequest, self.BeginTransaction),
            "Rollback": one(types.RollbackRequest, self.Rollback),
            "Commit": one(types.CommitRequest, self.Commit),
            "BatchGetDocuments": many(types.BatchGetDocumentsRequest, self.BatchGetDocuments),
            "RunQuery": many(types.RunQueryRequest, self.RunQuery),
        }

    async def _answer(self, name: str, context: Context, work: Callable[[], Any]) -> Any:
        self.calls[name] += 1
        self.credentials += [value for key, value in context.invocation_metadata() if key == "authorization"]
        fault = self._fault(name)
        try:
            answer = work() if fault is None or fault.is_done else None
        except Problem as problem:
            await context.abort(problem.code, str(problem))
            raise
        for one in [one for one in self._meanwhile if one[0] == name]:
            self._meanwhile.remove(one)
            one[1]()
        if fault is None:
            return answer
        if fault.code is None:
            await asyncio.Event().wait()
        return await context.abort(fault.code, fault.message, fault.details)

    def _fault(self, method: str) -> Fault | None:
        for staged in self._staged:
            if staged.method == method and staged.left[0] > 0:
                staged.left[0] -= 1
                return staged.fault
        return None

    # Firestore's own methods

    def BeginTransaction(self, _: Message) -> Message:
        return types.BeginTransactionResponse.pb()(transaction=self.documents.begin())

    def Rollback(self, request: Message) -> Message:
        self.documents.rollback(request.transaction)
        return empty_pb2.Empty()

    def Commit(self, request: Message) -> Message:
        now = self.documents.commit(request.writes, request.ByteSize(), request.transaction)
        answer = types.CommitResponse.pb()()
        answer.commit_time.FromDatetime(now)
        for _ in request.writes:
            answer.write_results.add().update_time.FromDatetime(now)
        return answer

    def BatchGetDocuments(self, request: Message) -> list[Message]:
        now, answers = self.documents.now(), []
        for path in dict.fromkeys(request.documents):
            found = self.documents.get(path, request.transaction)
            answer = types.BatchGetDocumentsResponse.pb()()
            answer.read_time.FromDatetime(now)
            if found is None:
                answer.missing = path
            else:
                answer.found.CopyFrom(found)
                if request.HasField("mask"):
                    _leave(answer.found, request.mask.field_paths)
            answers.append(answer)
        return answers

    def RunQuery(self, request: Message) -> list[Message]:
        now = self.documents.now()
        found = self.documents.find(request.parent, request.structured_query, request.transaction)
        answers = [types.RunQueryResponse.pb()(document=document) for document in found]
        if request.structured_query.HasField("select"):
            seen = [field.field_path for field in request.structured_query.select.fields]
            for answer in answers:
                _leave(answer.document, seen)
        answers = answers or [types.RunQueryResponse.pb()()]
        for answer in answers:
            answer.read_time.FromDatetime(now)
        self.looked_at_bytes += sum(answer.ByteSize() for answer in answers)
        return answers


def _leave(document: Message, fields: Sequence[str]) -> None:
    """Of the document only these."""
    for name in set(document.fields) - set(fields):
        del document.fields[name]


def _bytes(message: Message) -> bytes:
    serialized: bytes = message.SerializeToString()
    return serialized
