"""What a record becomes in Firestore, and back; and what no document can hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcelpost.upstream.firestore.calls import put
from parcelpost.upstream.firestore.encoding import (
    MAX_DOCUMENT_BYTES,
    Layout,
    NotStorable,
    checked_size,
    decode,
    document_id,
    encode,
    new_value,
)
from tests.firestore.documents import Documents, Problem

PATH = "projects/p/databases/d/documents/results/t1"
_TEXT = st.text(max_size=20)
_SINGLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
RECORDS = st.dictionaries(
    _TEXT | st.sampled_from(["__x__", "", "a.b"]),
    st.recursive(_SINGLE, lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner), max_leaves=30),
)


@settings(max_examples=40)
@given(RECORDS)
def test_what_is_found_fit_is_taken_and_comes_back_the_same(record: dict[str, Any]) -> None:
    documents = Documents()
    try:
        size = checked_size(record)
    except NotStorable:
        return
    write = put(PATH, {"data": record})
    documents.commit([write], 0, b"")
    stored: Any = decode(documents.all[PATH].fields["data"])
    assert stored == record
    assert all(type(stored[name]) is type(value) for name, value in record.items())
    assert size + 200 >= write.ByteSize()


LARGE: list[Any] = [
    {"text": "x" * (MAX_DOCUMENT_BYTES - 100)},
    {"text": "é" * (MAX_DOCUMENT_BYTES // 2 - 100)},
    {"list": [0] * (MAX_DOCUMENT_BYTES // 16 - 20)},
    {f"{number:06}": {} for number in range(MAX_DOCUMENT_BYTES // 22 - 20)},
]


@pytest.mark.parametrize("record", LARGE, ids=["text", "letters", "list", "maps"])
def test_the_largest_that_is_found_fit_is_taken(record: Any) -> None:
    assert MAX_DOCUMENT_BYTES - 1_000 < checked_size(record) <= MAX_DOCUMENT_BYTES
    Documents().commit([put(PATH, {"data": record, "task_id": "x" * 500})], 0, b"")


def _nested(levels: int) -> Any:
    return {"a": [_nested(levels - 2)]} if levels > 0 else 1


def test_the_deepest_that_is_found_fit_is_taken() -> None:
    checked_size(_nested(18))
    Documents().commit([put(PATH, {"data": _nested(18)})], 0, b"")
    with pytest.raises(NotStorable, match="nested"):
        checked_size(_nested(20))
    with pytest.raises(Problem):
        Documents().commit([put(PATH, {"data": _nested(20)})], 0, b"")


@pytest.mark.parametrize("record", [{"a": [[1]]}, {"a": 2**63}, {"__a__": 1}, {"": 1}, {"é" * 751: 1}])
def test_what_no_document_can_hold_is_found_unfit(record: Any) -> None:
    with pytest.raises(NotStorable):
        checked_size(record)


def test_moments_come_back_to_the_microsecond() -> None:
    moment = datetime(2026, 11, 15, 12, 0, 0, 123_456, tzinfo=UTC)
    assert decode(encode(moment)) == moment


IDS = ["t1", "a/b", "a-b", ".", "..", "__x__", "", "x" * 1_001, "x" * 1_002, "\ud800", "a\0b", "1-23~4", "50%", "é"]


def test_a_geographic_point_becomes_its_coordinates() -> None:
    point = new_value()
    point.geo_point_value.latitude, point.geo_point_value.longitude = 41.5, -72.25
    assert decode(point) == {"latitude": 41.5, "longitude": -72.25}


def test_every_id_is_one_that_firestore_takes_and_no_two_are_the_same() -> None:
    documents = Documents()
    found = {document_id([text]) for text in IDS}
    found |= {document_id(["a~b", "c"]), document_id(["a", "b~c"]), document_id(["a", "b", "c"])}
    assert len(found) == len(IDS) + 3
    for name in found:
        documents.commit([put(f"projects/p/databases/d/documents/tasks/{name}", {})], 0, b"")
    assert [document_id([text]) for text in ("t1", "1-23~4", "50%")] == ["t1", "1-23~4", "50%"], (
        "as they are, if they can"
    )


@pytest.mark.parametrize(("root", "path"), [("", "tasks/t1"), ("a/b", "a/b/tasks/t1")])
def test_collections_are_below_the_root(root: str, path: str) -> None:
    layout = Layout("projects/p/databases/d", root, "w-1")
    assert layout.task("t1") == f"projects/p/databases/d/documents/{path}"
