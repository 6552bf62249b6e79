"""What must hold of the settings of Firestore."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.settings.sources import Loaded
from parcelpost.settings.validation import check_runnable

Load = Callable[..., Loaded]
Refused = Callable[..., str]

WRONG = [
    ("firestore.root", "parcelpost", "path of a document"),
    ("firestore.root", "a//b/c", "path of a document"),
    ("firestore.root", "a/..", "path of a document"),
    ("firestore.root", "a/__b__", "path of a document"),
    ("firestore.project", "My Project", "a project ID"),
    ("firestore.database", "a/b", "must be a database ID"),
    ("firestore.raw", "s3://key:secret@bucket", "must not contain a user name or a password"),
    ("firestore.raw", "https://host/raw?sig=secret", "must not contain a query"),
    ("firestore.raw", "memory:///", "must be durable storage"),
]


@pytest.mark.parametrize(("name", "value", "what"), WRONG)
def test_a_bad_value_is_told_without_being_quoted(refused: Refused, name: str, value: str, what: str) -> None:
    told = refused(flags={name: value})
    assert name in told
    assert what in told
    assert "secret" not in told


@pytest.mark.parametrize("root", ["", "a/b", "/a/b/", "a/b/c/d"])
def test_a_root_is_a_document_or_nothing(loading: Load, root: str) -> None:
    assert loading(flags={"firestore.root": root}).settings.firestore.root == root


def test_leases_must_outlast_heartbeats(loading: Load, refused: Refused) -> None:
    short = {"firestore.lease_seconds": "119", "worker.upstream": "firestore"}
    assert "4 times heartbeat.seconds" in refused(flags=short)
    loading(flags={**short, "heartbeat.seconds": "29"})
    loading(flags={"firestore.lease_seconds": "119"})


def test_a_worker_needs_a_place_for_raw_files_and_no_gateway(loading: Load) -> None:
    with pytest.raises(InvalidSettings, match=r"firestore\.raw"):
        check_runnable(loading(flags={"worker.upstream": "firestore"}).settings)
    check_runnable(loading(flags={"worker.upstream": "firestore", "firestore.raw": "gs://bucket"}).settings)
