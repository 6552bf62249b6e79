"""Firestore's values and document names <-> ours."""

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
"""A protobuf message. The library's wrappers of them are many times slower."""
Plain = Json | datetime | bytes

new_value: Any = types.Value.pb()

MOST_DOCUMENT_BYTES = 1024 * 1024 - 16 * 1024
"""What `burden` may say of a record, or `size` of a task. The rest is for the document's name and our own fields."""

_MOST_DEPTH = 18  # Firestore's 20, less the document itself
_MOST_NAME_BYTES = 1_500
_A_VALUE = 16  # tags and lengths around it; Firestore itself counts less
_RESERVED = re.compile(r"__.*__", re.DOTALL)


class Unfit(ValueError):
    """Firestore cannot hold this as it is."""


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
            for name, one in plain.items():
                encode(one, fields[name])
        case _:
            value.array_value.SetInParent()
            for one in plain:
                encode(one, value.array_value.values.add())
    return value


def decode(value: Message) -> Plain:
    match kind := value.WhichOneof("value_type"):
        case "map_value":
            return {name: decode(one) for name, one in value.map_value.fields.items()}
        case "array_value":
            return [decode(one) for one in value.array_value.values]
        case "timestamp_value":
            return moment(value.timestamp_value)
        case "geo_point_value":
            return {"latitude": value.geo_point_value.latitude, "longitude": value.geo_point_value.longitude}
        case None | "null_value":
            return None
        case _:
            return getattr(value, kind)


def moment(timestamp: Message) -> datetime:
    found: datetime = timestamp.ToDatetime(tzinfo=UTC)
    return found


def burden(plain: Json, depth: int = 0) -> int:
    """No fewer bytes than it has in a document and on the wire. Raises Unfit for what no document can hold."""
    if depth > _MOST_DEPTH:
        raise Unfit(f"it is nested more than {_MOST_DEPTH} deep")
    match plain:
        case None | bool() | float():
            return _A_VALUE
        case int():
            if not -(2**63) <= plain < 2**63:
                raise Unfit("a number has more than 64 bits")
            return _A_VALUE
        case str():
            return _A_VALUE + len(plain.encode())
        case Mapping():
            return _A_VALUE + sum(_name(name) + burden(one, depth + 1) for name, one in plain.items())
        case _:
            return _A_VALUE + _list(plain, depth)


def _name(name: str) -> int:
    size = len(name.encode())
    if not 0 < size <= _MOST_NAME_BYTES or _RESERVED.fullmatch(name):
        raise Unfit(f"Firestore does not take {name[:60]!a} as a field's name")
    return size


def _list(plain: Sequence[Json], depth: int) -> int:
    if any(isinstance(one, list | tuple) for one in plain):
        raise Unfit("a list stands directly in a list")
    return sum(burden(one, depth + 1) for one in plain)


def size(plain: Plain) -> int:
    """As Firestore counts it in a document that is there."""
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
            return sum(len(name.encode()) + 1 + size(one) for name, one in plain.items())
        case _:
            return sum(size(one) for one in plain)


TASKS, RESULTS, PARCELS, WORKERS = "tasks", "results", "parcels", "workers"
SELECTORS, SIGNAL_BATCHES = "selectors", "signal_batches"
COMMANDS, METRICS = "commands", "metrics"
"""Below a worker."""

_MOST_ID_BYTES = 1_500
_KEPT_CHARS = 200
_NUMBER = re.compile(r"__id-?\d+__", re.ASCII)
"""How Firestore shows the id of a document that was made with a number for a name."""
_UNUSABLE = re.compile(r"[/\x00-\x1f\x7f]|^\.{1,2}$|^__.*__$", re.DOTALL)


class Layout(Struct, frozen=True):
    database: str
    """projects/P/databases/D"""
    root: str
    """A document's path below which all collections are; '': the database's own."""
    worker_id: str

    @property
    def parent(self) -> str:
        return "/".join(part for part in (self.database, "documents", self.root) if part)

    @property
    def worker(self) -> str:
        return self._path(WORKERS, self.worker_id)

    def task(self, task_id: str) -> str:
        """Under the very name that its maker gave it."""
        return f"{self.parent}/{TASKS}/{task_id}" if _NUMBER.fullmatch(task_id) else self._path(TASKS, task_id)

    def result(self, task_id: str) -> str:
        """A task has one result, and a further record of its page has a task id of its own."""
        return self._path(RESULTS, task_id)

    def parcel(self, entry: OutboxEntry) -> str:
        return self._path(PARCELS, *(entry.platform, entry.state, entry.county, entry.parcel_id))

    def selector(self, *parts: str) -> str:
        return self._path(SELECTORS, *parts)

    def signal_batch(self, first_id: str) -> str:
        """A hash: ids that rise with time, as a signal's do, would all be written at one place."""
        return self._path(SIGNAL_BATCHES, hashlib.sha256(first_id.encode()).hexdigest()[:32])

    def sample(self, timestamp: str) -> str:
        return f"{self.worker}/{METRICS}/{document_id([timestamp])}"

    def _path(self, collection: str, *parts: str) -> str:
        return f"{self.parent}/{collection}/{document_id(parts)}"


def document_id(parts: Sequence[str]) -> str:
    """The parts joined with `~`. What Firestore would not take, or could be read in two ways, gets a hash as well."""
    name = "~".join(parts)
    is_plain = len(parts) == 1 or not any("~" in part for part in parts)
    try:
        if is_plain and name and len(name.encode()) <= _MOST_ID_BYTES and not _UNUSABLE.search(name):
            return name
    except UnicodeEncodeError:
        pass
    digest = hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()
    kept = _UNUSABLE.sub("-", name[:_KEPT_CHARS].encode(errors="replace").decode())
    return f"{kept}~{digest[:32]}"
