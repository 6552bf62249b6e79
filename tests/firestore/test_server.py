"""The tests' own Firestore keeps Firestore's rules: what it lets through, the real one does too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcelpost.upstream.firestore.calls import change, increment, put, query, remove
from tests.firestore.documents import Code, Documents, Problem

PARENT = "projects/p/databases/d/documents"
A, B = f"{PARENT}/tasks/a", f"{PARENT}/tasks/b"


def _queued(most: int = 10) -> Any:
    return type(query("tasks", limit=1)).pb(query("tasks", ("status", "==", "queued"), limit=most))


def _refusal(documents: Documents, *writes: Any, size: int = 0, transaction: bytes = b"") -> Any:
    before = dict(documents.all)
    with pytest.raises(Problem) as problem:
        documents.commit(writes, size, transaction)
    assert documents.all == before, "nothing of it was done"
    return problem.value.code


def test_of_two_transactions_on_one_document_one_is_aborted() -> None:
    documents = Documents()
    documents.commit([put(A, {"status": "queued"})], 0, b"")
    one, other = documents.begin(), documents.begin()
    for transaction in (one, other):
        assert documents.get(A, transaction) is not None
    documents.commit([change(A, {"status": "mine"})], 0, other)
    assert _refusal(documents, change(A, {"status": "mine too"}), transaction=one) is Code.ABORTED
    assert _refusal(documents, change(A, {"status": "again"}), transaction=one) is Code.INVALID_ARGUMENT, "it is over"


@pytest.mark.parametrize("meanwhile", [put(B, {"status": "queued"}), remove(A), change(A, {"status": "done"})])
def test_a_transaction_holds_what_its_query_found(meanwhile: Any) -> None:
    documents = Documents()
    documents.commit([put(A, {"status": "queued"})], 0, b"")
    transaction = documents.begin()
    assert [found.name for found in documents.find(PARENT, _queued(), transaction)] == [A]
    documents.commit([meanwhile], 0, b"")
    assert _refusal(documents, put(f"{PARENT}/tasks/c", {}), transaction=transaction) is Code.ABORTED


def test_a_transaction_that_was_rolled_back_is_over() -> None:
    documents = Documents()
    transaction = documents.begin()
    documents.rollback(transaction)
    for call in (documents.rollback, lambda name: documents.get(A, name)):
        with pytest.raises(Problem):
            call(transaction)


def test_a_commit_is_done_as_a_whole_or_not_at_all() -> None:
    documents = Documents()
    assert _refusal(documents, put(A, {"n": 1}), change(B, {"n": 1})) is Code.NOT_FOUND
    create = put(A, {"n": 1})
    create.current_document.exists = False
    documents.commit([create], 0, b"")
    assert _refusal(documents, put(B, {}), create) is Code.ALREADY_EXISTS
    stale = put(A, {"n": 2})
    stale.current_document.update_time.FromSeconds(1)
    assert _refusal(documents, stale) is Code.FAILED_PRECONDITION
    documents.commit([increment(A, {"m": 1}, {"n": 2}), change(A, {"x": "y"})], 0, b"")
    fields = documents.all[A].fields
    assert (fields["n"].integer_value, fields["m"].integer_value, fields["x"].string_value) == (3, 1, "y")


TOO_MUCH: list[tuple[str, Callable[[], list[Any]], int]] = [
    ("501 writes", lambda: [put(f"{PARENT}/tasks/{number}", {}) for number in range(501)], 0),
    ("sums count as writes", lambda: [increment(f"{PARENT}/t/{number}", {}, {"n": 1}) for number in range(251)], 0),
    ("10 MiB", lambda: [put(A, {})], 10 * 1024 * 1024 + 1),
    ("a document of 1 MiB", lambda: [put(A, {"text": "x" * 1024 * 1024})], 0),
    ("a list in a list", lambda: [put(A, {"list": [[1]]})], 0),
    ("a reserved name", lambda: [put(A, {"map": {"__x__": 1}})], 0),
    ("a name that is empty", lambda: [put(A, {"map": {"": 1}})], 0),
    ("an id that is reserved", lambda: [put(f"{PARENT}/tasks/__x__", {})], 0),
    ("21 levels", lambda: [put(A, {"map": _nested(20)})], 0),
]


def _nested(levels: int) -> Any:
    return {"a": _nested(levels - 1)} if levels else 1


@pytest.mark.parametrize(("what", "writes", "size"), TOO_MUCH, ids=[what for what, _, _ in TOO_MUCH])
def test_what_is_too_much_for_firestore_is_refused(what: str, writes: Callable[[], list[Any]], size: int) -> None:
    assert _refusal(Documents(), *writes(), size=size) is Code.INVALID_ARGUMENT, what


def test_queries_leave_out_what_lacks_a_field_and_ask_for_their_index() -> None:
    documents = Documents()
    rows = {"z": (2, "x"), "y": (1, "x"), "x": (2, "x"), "other": (1, "y"), "text": ("1", "x"), "none": (None, "x")}
    for name, (number, kind) in rows.items():
        fields = {"status": kind, "lease_expires_at": number}
        documents.commit(
            [put(f"{PARENT}/tasks/{name}", fields), put(f"{PARENT}/tasks/{name}/below/it", fields)], 0, b""
        )
    documents.commit([put(f"{PARENT}/tasks/without", {"status": "x"})], 0, b"")

    def names(*conditions: Any, order: tuple[str, ...] = ("lease_expires_at",), most: int = 10) -> list[str]:
        asked = query("tasks", *conditions, order=order, limit=most)
        found = documents.find(PARENT, type(asked).pb(asked), b"")
        return [document.name.rpartition("/")[2] for document in found]

    same = ("status", "==", "x")
    assert names(same) == ["none", "y", "x", "z", "text"]
    assert names(same, ("lease_expires_at", "<=", 2), most=2) == ["y", "x"]
    assert names(("status", "in", ["y", "q"]), order=()) == ["other"]
    with pytest.raises(Problem) as problem:
        names(same, order=("lease_expires_at", "status"))
    assert problem.value.code is Code.FAILED_PRECONDITION
    assert "requires an index" in str(problem.value)
