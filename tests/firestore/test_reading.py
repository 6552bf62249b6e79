"""Whoever reads results finds every record, and none that is not the one meant."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.errors import InvalidInput, RawFileDamaged
from parcelpost.object_store import RawStore, open_any_raw_store
from parcelpost.upstream.firestore.client import FirestoreClient
from parcelpost.upstream.firestore.results import open_record
from tests.firestore.conftest import ROOT
from tests.firestore.server import FirestoreServer
from tests.upstream.factories import an_entry

RECORD = {"text": "é" * 700_000, "lists": [[1]], "large": 2**70}


def _store(folder: Path) -> RawStore:
    return open_any_raw_store(str(folder), {}, setting="firestore.raw", google_key_file="")


@pytest.fixture
async def result(server: FirestoreServer, client: FirestoreClient) -> dict[str, Any]:
    """A result whose record is too large for its document."""
    await client.submit_results([an_entry(data=msgspec.json.encode(RECORD))])
    return server.all(f"{ROOT}/results")["t1"]


async def test_a_record_in_the_raw_store_is_opened_by_its_reference(result: dict[str, Any], tmp_path: Path) -> None:
    assert await open_record(result, _store(tmp_path / "raw")) == RECORD


async def test_a_record_in_the_document_needs_no_store(
    server: FirestoreServer, client: FirestoreClient, tmp_path: Path
) -> None:
    await client.submit_results([an_entry(data=b'{"a":[1,{"b":null}]}')])
    assert await open_record(server.all(f"{ROOT}/results")["t1"], _store(tmp_path / "other")) == {"a": [1, {"b": None}]}


HARM: dict[str, Callable[[], bytes]] = {
    "another of that size": lambda: gzip.compress(b"x" * len(msgspec.json.encode(RECORD))),
    "another record": lambda: gzip.compress(b'{"text": "another"}'),
    "cut off": lambda: gzip.compress(b"{}")[:-9],
    "no gzip": lambda: b"plain",
    "far too large": lambda: gzip.compress(b" " * 100_000_000, 1),
    "large as it is": lambda: b"x" * 3_000_000,
}


@pytest.mark.parametrize("harm", HARM)
async def test_a_record_that_is_not_the_one_named_is_not_taken_for_it(
    result: dict[str, Any], tmp_path: Path, harm: str
) -> None:
    (tmp_path / "raw" / result["data_in_raw_store"]["key"]).write_bytes(HARM[harm]())
    with pytest.raises(RawFileDamaged, match=result["data_in_raw_store"]["sha256"]):
        await open_record(result, _store(tmp_path / "raw"))


async def test_a_record_that_is_gone_is_told(result: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "raw" / result["data_in_raw_store"]["key"]).unlink()
    with pytest.raises(RawFileDamaged, match="there is no record"):
        await open_record(result, _store(tmp_path / "raw"))


async def test_a_record_of_another_store_is_not_looked_for_in_this_one(result: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"another store: .*{re.escape((tmp_path / 'raw').as_uri())}"):
        await open_record(result, _store(tmp_path / "other"))


@pytest.mark.parametrize("harm", [{"sha256": "../../etc/passwd"}, {"bytes": -1}, {"bytes": "many"}, {"store": None}])
async def test_a_reference_that_makes_no_sense_opens_nothing(
    result: dict[str, Any], tmp_path: Path, harm: dict[str, Any]
) -> None:
    odd = {**result, "data_in_raw_store": {**result["data_in_raw_store"], **harm}}
    with pytest.raises((InvalidInput, RawFileDamaged)):
        await open_record(odd, _store(tmp_path / "raw"))
    with pytest.raises(InvalidInput, match="not a result"):
        await open_record({}, _store(tmp_path / "raw"))
