"""Firestore's values and document names: encoding, decoding, sizes, and paths of documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.cloud.firestore_v1 import types
from msgspec import Struct

from parcelpost.model import Json, OutboxEntry

Message = Any
"""A plain protobuf message, because the library's wrappers are many times slower."""
Plain = Json | datetime | bytes

new_value: Any = types.Value.pb()

MAX_DOCUMENT_BYTES = 1024 * 1024 - 16 * 1024
"""Limit of `checked_size` for a record and of `size` for a task; the rest is for the document's name and our fields."""

_MAX_DEPTH = 18  # Firestore's 20, less the document itself
_MAX_NAME_BYTES = 1_500
_A_VALUE = 16  # tags and lengths around it; Firestore itself counts less
_RESERVED = re.compile(r"__.*__", re.DOTALL)


class NotStorable(ValueError):
    """Firestore cannot store this value."""


def encode(plain: Plain, into: Message | None = None) -> Message:
    value = new_value() if into is None else into
    match plain:
        case None:
            value.null_value = 0
        case bool():
            value.boolean_value = plain
        case int():
            value.integer_value = plain
        case float():
            value.double_value = plain
        case str():
            value.string_value = plain
        case datetime():
            value.timestamp_value.FromDatetime(plain)
        case Mapping():
            value.map_value.SetInParent()
            fields = value.map_value.fields
            for name, item in plain.items():
                encode(item, fields[name])
        case _:
            value.array_value.SetInParent()
            for item in plain:
                encode(item, value.array_value.values.add())
    return value


def decode(value: Message) -> Plain:
    match kind := value.WhichOneof("value_type"):
        case "map_value":
            return {name: decode(item) for name, item in value.map_value.fields.items()}
        case "array_value":
            return [decode(item) for item in value.array_value.values]
        case "timestamp_value":
            return moment(value.timestamp_value)
        case "geo_point_value":
            return {"latitude": value.geo_point_value.latitude, "longitude": value.geo_point_value.longitude}
        case None | "null_value":
            return None
        case _:
            return getattr(value, kind)


def moment(timestamp: Message) -> datetime:
    utc: datetime = timestamp.ToDatetime(tzinfo=UTC)
    return utc


def checked_size(plain: Json, depth: int = 0) -> int:
    """Returns an upper bound of its bytes, stored or sent. Raises NotStorable if no document can contain it."""
    if depth > _MAX_DEPTH:
        raise NotStorable(f"it is nested more than {_MAX_DEPTH} deep")
    match plain:
        case None | bool() | float():
            return _A_VALUE
        case int():
            if not -(2**63) <= plain < 2**63:
                raise NotStorable("a number has more than 64 bits")
            return _A_VALUE
        case str():
            return _A_VALUE + len(plain.encode())
        case Mapping():
            return _A_VALUE + sum(_name_size(name) + checked_size(item, depth + 1) for name, item in plain.items())
        case _:
            return _A_VALUE + _list_size(plain, depth)


def _name_size(name: str) -> int:
    size = len(name.encode())
    if not 0 < size <= _MAX_NAME_BYTES or _RESERVED.fullmatch(name):
        raise NotStorable(f"Firestore does not accept {name[:60]!a} as a field name")
    return size


def _list_size(plain: Sequence[Json], depth: int) -> int:
    if any(isinstance(item, list | tuple) for item in plain):
        raise NotStorable("a list contains another list")
    return sum(checked_size(item, depth + 1) for item in plain)


def size(plain: Plain) -> int:
    """Returns its size in a document, as Firestore counts it."""
    match plain:
        case None | bool():
            return 1
        case int() | float() | datetime():
            return 8
        case str():
            return len(plain.encode()) + 1
        case bytes():
            return len(plain)
        case Mapping():
            return sum(len(name.encode()) + 1 + size(item) for name, item in plain.items())
        case _:
            return sum(size(item) for item in plain)


TASKS, RESULTS, PARCELS, WORKERS = "tasks", "results", "parcels", "workers"
SELECTORS, SIGNAL_BATCHES = "selectors", "signal_batches"
COMMANDS, METRICS = "commands", "metrics"
"""Collections below a worker."""

_MAX_ID_BYTES = 1_500
_KEPT_CHARS = 200
_NUMBER = re.compile(r"__id-?\d+__", re.ASCII)
"""How Firestore shows a document id that was created as a number."""
_UNUSABLE = re.compile(r"[/\x00-\x1f\x7f]|^\.{1,2}$|^__.*__$", re.DOTALL)


class Layout(Struct, frozen=True):
    database: str
    """projects/P/databases/D"""
    root: str
    """The path of the document that contains all collections; '' for the database itself."""
    worker_id: str

    @property
    def parent(self) -> str:
        return "/".join(part for part in (self.database, "documents", self.root) if part)

    @property
    def worker(self) -> str:
        return self._path(WORKERS, self.worker_id)

    def task(self, task_id: str) -> str:
        """Does not change a numeric id."""
        return f"{self.parent}/{TASKS}/{task_id}" if _NUMBER.fullmatch(task_id) else self._path(TASKS, task_id)

    def result(self, task_id: str) -> str:
        """A task has one result; further records of its page have their own task ids."""
        return self._path(RESULTS, task_id)

    def parcel(self, entry: OutboxEntry) -> str:
        return self._path(PARCELS, *(entry.platform, entry.state, entry.county, entry.parcel_id))

    def selector(self, *parts: str) -> str:
        return self._path(SELECTORS, *parts)

    def signal_batch(self, first_id: str) -> str:
        """Hashed, because ascending ids would all be written to the same server."""
        return self._path(SIGNAL_BATCHES, hashlib.sha256(first_id.encode()).hexdigest()[:32])

    def sample(self, timestamp: str) -> str:
        return f"{self.worker}/{METRICS}/{document_id([timestamp])}"

    def _path(self, collection: str, *parts: str) -> str:
        return f"{self.parent}/{collection}/{document_id(parts)}"


def document_id(parts: Sequence[str]) -> str:
    """Joins the parts with `~`. Adds a hash if Firestore would refuse the id or if it is ambiguous."""
    name = "~".join(parts)
    is_plain = len(parts) == 1 or not any("~" in part for part in parts)
    try:
        if is_plain and name and len(name.encode()) <= _MAX_ID_BYTES and not _UNUSABLE.search(name):
            return name
    except UnicodeEncodeError:
        pass
    digest = hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()
    kept = _UNUSABLE.sub("-", name[:_KEPT_CHARS].encode(errors="replace").decode())
    return f"{kept}~{digest[:32]}"
