"""Documents with Firestore's rules: conditions, sums, sizes, transactions that hold or are ABORTED. No network here."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from google.cloud.firestore_v1 import types

from tests.firestore import queries

Message = Any
Code = grpc.StatusCode

MOST_WRITES = 500
MOST_REQUEST_BYTES = 10 * 1024 * 1024
MOST_DOCUMENT_BYTES = 1024 * 1024
MOST_DEPTH = 20
MOST_NAME_BYTES = 1_500

_new_document: Any = types.Document.pb()


class Problem(Exception):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Transaction:
    """What it has looked at. It holds if all of that is still so when it is committed."""

    def __init__(self) -> None:
        self.read: dict[str, object] = {}
        self.asked: list[tuple[str, Message, list[tuple[str, object]]]] = []


class Documents:
    def __init__(self) -> None:
        self.all: dict[str, Message] = {}
        self.ahead = timedelta(0)
        """How much this server's clock is before the machine's."""
        self._last = datetime.min.replace(tzinfo=UTC)
        self._transactions: dict[bytes, _Transaction] = {}

    def now(self) -> datetime:
        """No two moments are the same."""
        self._last = max(datetime.now(UTC) + self.ahead, self._last + timedelta(microseconds=1))
        return self._last

    @property
    def open_transactions(self) -> int:
        return len(self._transactions)

    def begin(self) -> bytes:
        name = secrets.token_bytes(12)
        self._transactions[name] = _Transaction()
        return name

    def rollback(self, name: bytes) -> None:
        self._of(name)
        del self._transactions[name]

    def get(self, path: str, transaction: bytes) -> Message | None:
        found = self.all.get(path)
        if transaction:
            self._of(transaction).read.setdefault(path, _version(found))
        return found

    def find(self, parent: str, query: Message, transaction: bytes) -> list[Message]:
        try:
            paths = queries.answer(query, self.all, parent)
        except queries.QueryProblem as problem:
            code = Code.FAILED_PRECONDITION if problem.is_index else Code.INVALID_ARGUMENT
            raise Problem(code, str(problem)) from None
        if transaction:
            seen = [(path, _version(self.all[path])) for path in paths]
            self._of(transaction).asked.append((parent, query, seen))
        return [self.all[path] for path in paths]

    def commit(self, writes: Sequence[Message], size: int, transaction: bytes) -> datetime:
        """All of them or none."""
        if transaction:
            held = self._of(transaction)
            del self._transactions[transaction]
            if not self._holds(held):
                raise Problem(Code.ABORTED, "Too much contention on these documents. Please try again.")
        if sum(1 + len(write.update_transforms) for write in writes) > MOST_WRITES:
            raise Problem(Code.INVALID_ARGUMENT, f"maximum {MOST_WRITES} writes allowed per request")
        if size > MOST_REQUEST_BYTES:
            raise Problem(Code.INVALID_ARGUMENT, f"Request payload size exceeds the limit: {MOST_REQUEST_BYTES} bytes.")
        now, new = self.now(), dict(self.all)
        for write in writes:
            _apply(write, new, now)
        self.all = new
        return now

    def _of(self, name: bytes) -> _Transaction:
        if name not in self._transactions:
            raise Problem(Code.INVALID_ARGUMENT, "The referenced transaction has expired or is no longer valid.")
        return self._transactions[name]

    def _holds(self, held: _Transaction) -> bool:
        if any(_version(self.all.get(path)) != version for path, version in held.read.items()):
            return False
        for parent, query, seen in held.asked:
            paths = queries.answer(query, self.all, parent)
            if [(path, _version(self.all[path])) for path in paths] != seen:
                return False
        return True


def _version(document: Message | None) -> object:
    return None if document is None else (document.update_time.seconds, document.update_time.nanos)


def _apply(write: Message, documents: dict[str, Message], now: datetime) -> None:
    path = write.delete or write.update.name
    before = documents.get(path)
    _check_condition(write, path, before)
    if write.WhichOneof("operation") == "delete":
        documents.pop(path, None)
        return
    document = _new_document(name=path)
    if before is None:
        document.create_time.FromDatetime(now)
    else:
        document.create_time.CopyFrom(before.create_time)
    document.update_time.FromDatetime(now)
    if write.HasField("update_mask"):
        _merge(write, document, before)
    else:
        document.fields.MergeFrom(write.update.fields)
    for transform in write.update_transforms:
        _transform(document, transform, now)
    _check_document(document)
    documents[path] = document


def _check_condition(write: Message, path: str, before: Message | None) -> None:
    condition = write.current_document.WhichOneof("condition_type")
    if condition == "exists" and write.current_document.exists and before is None:
        raise Problem(Code.NOT_FOUND, f"No document to update: {path}")
    if condition == "exists" and not write.current_document.exists and before is not None:
        raise Problem(Code.ALREADY_EXISTS, f"Document already exists: {path}")
    if condition == "update_time" and (before is None or before.update_time != write.current_document.update_time):
        raise Problem(Code.FAILED_PRECONDITION, f"the stored version of {path} is another")


def _merge(write: Message, document: Message, before: Message | None) -> None:
    if before is not None:
        document.fields.MergeFrom(before.fields)
    for name in write.update_mask.field_paths:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise Problem(Code.UNIMPLEMENTED, "this server changes fields at the top only")
        if name in write.update.fields:
            document.fields[name].CopyFrom(write.update.fields[name])
        elif name in document.fields:
            del document.fields[name]


def _transform(document: Message, transform: Message, now: datetime) -> None:
    match transform.WhichOneof("transform_type"):
        case "increment":
            document.fields[transform.field_path].integer_value += transform.increment.integer_value
        case "set_to_server_value":
            document.fields[transform.field_path].timestamp_value.FromDatetime(now)
        case _:
            raise Problem(Code.UNIMPLEMENTED, "this server knows sums and its own time only")


# What a document may be, as Firestore's page on limits has it


def _check_document(document: Message) -> None:
    _, _, below = document.name.partition("/documents/")
    parts = below.split("/")
    if len(parts) % 2 or not all(map(_is_name, parts)):
        raise Problem(Code.INVALID_ARGUMENT, f"{below[:200]} is no document's name")
    size = sum(len(part.encode()) + 1 for part in parts) + 16 + 32 + _size_of_fields(document.fields, 1)
    if size > MOST_DOCUMENT_BYTES:
        message = f"Document '{below[:200]}' cannot be written because its size ({size:,} bytes) exceeds the maximum"
        raise Problem(Code.INVALID_ARGUMENT, f"{message} allowed size of {MOST_DOCUMENT_BYTES:,} bytes.")


def _is_name(part: str) -> bool:
    return 0 < len(part.encode()) <= MOST_NAME_BYTES and not re.fullmatch(r"\.|\.\.|__(?!id\d+__).*__", part, re.DOTALL)


def _size_of_fields(fields: Message, depth: int) -> int:
    if depth > MOST_DEPTH:
        raise Problem(Code.INVALID_ARGUMENT, "Property is nested too deeply.")
    for name in fields:
        if not _is_name(name) and name not in {".", ".."}:
            raise Problem(Code.INVALID_ARGUMENT, f"Property name {name[:60]!r} is reserved or empty.")
    return sum(len(name.encode()) + 1 + _size(value, depth) for name, value in fields.items())


def _size(value: Message, depth: int) -> int:
    kind = value.WhichOneof("value_type")
    sizes: dict[str, Callable[[], int]] = {
        "string_value": lambda: len(value.string_value.encode()) + 1,
        "bytes_value": lambda: len(value.bytes_value),
        "map_value": lambda: _size_of_fields(value.map_value.fields, depth + 1),
        "array_value": lambda: _size_of_array(value.array_value.values, depth + 1),
        "null_value": lambda: 1,
        "boolean_value": lambda: 1,
    }
    return sizes[kind]() if kind in sizes else 8


def _size_of_array(values: Sequence[Message], depth: int) -> int:
    if depth > MOST_DEPTH:
        raise Problem(Code.INVALID_ARGUMENT, "Property is nested too deeply.")
    if any(value.WhichOneof("value_type") == "array_value" for value in values):
        raise Problem(Code.INVALID_ARGUMENT, "Cannot convert an array value in an array value.")
    return sum(_size(value, depth) for value in values)
