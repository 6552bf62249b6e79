"""Structured queries as Firestore answers them: types in their order, absent fields left out, indexes asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.cloud.firestore_v1 import types

from parcelpost.upstream import firestore

Message = Any

INDEXES = Path(firestore.__path__[0]) / "project" / "firestore.indexes.json"

_TYPES = ("null_value", "boolean_value", "number", "timestamp_value", "string_value", "bytes_value")
_Operator = types.StructuredQuery.FieldFilter.Operator
_MOST_ALTERNATIVES = 30


class QueryProblem(Exception):
    """INVALID_ARGUMENT, or FAILED_PRECONDITION where an index is missing."""

    def __init__(self, message: str, *, is_index: bool = False) -> None:
        super().__init__(message)
        self.is_index = is_index


def answer(query: Message, documents: Mapping[str, Message], parent: str) -> list[str]:
    """The paths found, in order."""
    (source,) = query.from_
    if source.all_descendants:
        raise QueryProblem("this server looks into one collection only")
    filters = _filters(query)
    orders = _orders(query, filters)
    _check_index(source.collection_id, filters, orders)
    prefix = f"{parent}/{source.collection_id}/"
    names = [path for path in documents if path.startswith(prefix) and "/" not in path.removeprefix(prefix)]
    found = [path for path in names if all(_holds(one, documents[path]) for one in filters)]
    found = [path for path in found if all(name in documents[path].fields for name, _ in orders)]
    found.sort()
    for name, is_descending in reversed(orders):
        found.sort(key=lambda path: rank(documents[path].fields[name]), reverse=is_descending)
    if query.HasField("start_at") or query.HasField("end_at"):
        raise QueryProblem("this server knows no cursors")
    found = found[query.offset :]
    return found[: query.limit.value] if query.HasField("limit") else found


def rank(value: Message) -> tuple[int, Any]:
    kind = value.WhichOneof("value_type")
    if kind in {"integer_value", "double_value"}:
        return _TYPES.index("number"), getattr(value, kind)
    if kind == "timestamp_value":
        return _TYPES.index(kind), (value.timestamp_value.seconds, value.timestamp_value.nanos)
    if kind == "string_value":
        return _TYPES.index(kind), value.string_value.encode()
    if kind in _TYPES:
        return _TYPES.index(kind), getattr(value, kind)
    raise QueryProblem(f"this server does not order by {kind}")


def _filters(query: Message) -> list[Message]:
    if not query.HasField("where"):
        return []
    where = query.where
    parts = where.composite_filter.filters if where.HasField("composite_filter") else [where]
    if not all(part.HasField("field_filter") for part in parts):
        raise QueryProblem("this server takes comparisons joined by 'and'")
    return [part.field_filter for part in parts]


def _orders(query: Message, filters: Sequence[Message]) -> list[tuple[str, bool]]:
    """Fields and whether they descend. What is compared as more or less comes first."""
    orders = [(order.field.field_path, order.direction == 2) for order in query.order_by]
    unequal = {one.field.field_path for one in filters if not _is_equality(one)}
    if unequal and not orders:
        return [(name, False) for name in sorted(unequal)]
    if unequal and orders[0][0] not in unequal:
        raise QueryProblem("inequality filter property and first sort order must be the same")
    return [order for order in orders if order[0] != "__name__"]


def _is_equality(one: Message) -> bool:
    return one.op in {_Operator.EQUAL, _Operator.IN}


def _check_index(collection: str, filters: Sequence[Message], orders: Sequence[tuple[str, bool]]) -> None:
    equal = {one.field.field_path for one in filters if _is_equality(one)}
    if not orders or (not equal and len(orders) == 1):  # what Firestore keeps by itself, unless it is told not to
        if _exempt(collection) & {*equal, *(name for name, _ in orders)}:
            raise QueryProblem("The query needs a field that is exempt from indexing", is_index=True)
        return
    wanted = [(name, "DESCENDING" if down else "ASCENDING") for name, down in orders]
    for index in _indexes():
        fields = [(field["fieldPath"], field["order"]) for field in index["fields"]]
        head, tail = fields[: len(equal)], fields[len(equal) :]
        if index["collectionGroup"] == collection and {name for name, _ in head} == equal and tail == wanted:
            return
    raise QueryProblem("The query requires an index. You can create it here: (address)", is_index=True)


@cache
def _shipped() -> Any:
    return json.loads(INDEXES.read_text())


def _indexes() -> list[dict[str, Any]]:
    indexes: list[dict[str, Any]] = _shipped()["indexes"]
    return indexes


def _exempt(collection: str) -> set[str]:
    overrides = _shipped()["fieldOverrides"]
    return {one["fieldPath"] for one in overrides if one["collectionGroup"] == collection and not one["indexes"]}


def _holds(one: Message, document: Message) -> bool:
    if one.field.field_path not in document.fields:
        return False
    value = rank(document.fields[one.field.field_path])
    if one.op == _Operator.IN:
        alternatives = one.value.array_value.values
        if not 0 < len(alternatives) <= _MOST_ALTERNATIVES:
            raise QueryProblem(f"'IN' supports up to {_MOST_ALTERNATIVES} comparison values")
        return value in [rank(alternative) for alternative in alternatives]
    asked = rank(one.value)
    if one.op == _Operator.EQUAL:
        return value == asked
    comparisons = {
        _Operator.LESS_THAN: value < asked,
        _Operator.LESS_THAN_OR_EQUAL: value <= asked,
        _Operator.GREATER_THAN: value > asked,
        _Operator.GREATER_THAN_OR_EQUAL: value >= asked,
    }
    if one.op not in comparisons:
        raise QueryProblem("this server does not know that comparison")
    return value[0] == asked[0] and comparisons[one.op]
