"""Whatever comes instead of a page, an outcome comes back, and never a record that is half empty."""

from __future__ import annotations

import os
import random
import resource
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parcelpost.model import Blocked, Done, GiveUp, NotFound, Page, Retry, Target
from parcelpost.scrapers.platforms import NAMES, county_platform
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import Layout
from tests.scrapers.mutations import mutated
from tests.simulator.asking import list_page, parcel_page

CHUNKS, IN_CHUNK = 50, 200
LONGEST_SECONDS = 5.0
MAX_BYTES = 1024**3
WORLD = World(seed=11, county="bad", size=60)
TARGET = Target(parcel_id="1", state="FL", county="bad")
CORPUS = os.environ.get("PARCELPOST_CORPUS", "")
STARTS = [b"<html><body><table>", b"[", b'{"features": [', b"PARCEL,CERTIFICATE\n", b"\0"]
ROW = b"<tr><td>1,2\n"
HUNDRED_MEGABYTES = 100 * 1024**2 // len(ROW)
NOTHING = [b"", b" ", b"null", b"[]", b"{}", b"<html></html>", b"1e999", b'"', b"\xff\xfe", b"[" * 100_000]
TABLES = {"arcgis", "socrata"}
"""Their rows may say as little as they like."""
OF_PARCELS = [name for name in NAMES if name in SITES and SITES[name].parcel_id]


@cache
def pages() -> list[tuple[str, bytes]]:
    """Good ones, of every platform."""
    found = []
    for name in sorted({*NAMES} & {*SITES}):
        make = parcel_page if name in OF_PARCELS else list_page
        numbers = (1, 2, 3, 4) if name in OF_PARCELS else (1, 2)
        found += [
            (name, make(name, WORLD, number, looks).body)
            for number in numbers
            for looks in (Layout(), Layout(redesigned=True))
        ]
    if CORPUS:
        files = (file for name in NAMES for file in sorted(Path(CORPUS, name).glob("*")))
        found += [(file.parent.name, file.read_bytes()) for file in files if not file.name.endswith(".expected.json")]
    return found


def spoil(chance: random.Random, times: int) -> None:
    for _ in range(times):
        name, body = chance.choice(pages())
        _check(name, mutated(body, chance))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MAX_BYTES


def test_a_spoiled_page_gives_an_outcome() -> None:
    spoil(random.Random(1), 100)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_of_ten_thousand_spoiled_pages_gives_an_outcome(seed: int, chunk: int) -> None:
    spoil(random.Random(seed + chunk), IN_CHUNK)


def test_a_page_without_end_gives_an_outcome() -> None:
    for name in NAMES:
        for start in STARTS:
            _check(name, start + ROW * 5_000)
    _check(NAMES[0], STARTS[0] + ROW * HUNDRED_MEGABYTES)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_megabytes_give_an_outcome(name: str) -> None:
    for start in STARTS:
        _check(name, start + ROW * HUNDRED_MEGABYTES)


def test_next_to_nothing_is_no_record() -> None:
    found = [(name, body[:20]) for name in NAMES for body in NOTHING if isinstance(_check(name, body), Done)]
    assert found == []


def test_a_page_that_ends_early_is_no_record() -> None:
    found = []
    for name in OF_PARCELS:
        body = parcel_page(name, WORLD, 2).body
        cuts = range(0, len(body) - 20, len(body) // 50 + 1)
        found += [(name, at) for at in cuts if isinstance(_check(name, body[:at]), Done)]
    assert found == []


def _check(name: str, body: bytes) -> Any:
    found = county_platform(name)
    assert found is not None
    start = time.process_time()
    outcome = found.parse(Page(body=body), TARGET).outcome
    assert time.process_time() - start < LONGEST_SECONDS, (name, body[:1000])
    assert isinstance(outcome, Done | Retry | GiveUp | Blocked | NotFound), (name, body[:1000])
    if isinstance(outcome, Done):
        for record in (outcome.data, *outcome.additional_records):
            assert isinstance(record, dict)
            assert record["parcel_id"] or record["liens"], record
            if name in OF_PARCELS and name not in TABLES:
                assert record["owner_names"] or record["market_value"] is not None or record["tax_bills"], record
    return outcome
