"""The parsers on real pages with hand-typed facts. The pages are not ours: they are read from PARCELPOST_CORPUS."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parcelpost.model import Done, Encoded, Outcome, Page, Retry, Target
from parcelpost.scrapers.platforms import county_platform

CORPUS = Path(os.environ.get("PARCELPOST_CORPUS", ""))
TOOL = CORPUS.parent / "tools" / "score_corpus.py"
pytestmark = pytest.mark.skipif(
    not os.environ.get("PARCELPOST_CORPUS") or not TOOL.is_file(), reason="PARCELPOST_CORPUS names no corpus"
)

FLOOR_OF_ALL, FLOOR_OF_EACH = 1.0, 1.0


@cache
def _score() -> Any:
    spec = importlib.util.spec_from_file_location("score_corpus", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _manifest() -> list[dict[str, str]]:
    with (CORPUS / "MANIFEST.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _records(row: dict[str, str]) -> list[dict[str, Any]]:
    platform = county_platform(row["platform"])
    assert platform is not None
    target = Target(parcel_id=row["parcel_id"], state=row["state"], county=row["county"])
    outcome = platform.parse(Page(body=(CORPUS / row["file"]).read_bytes()), target).outcome
    return _found(outcome)


def _found(outcome: Outcome) -> list[dict[str, Any]]:
    """Also what was read of a page that says itself that it is incomplete: the first of a list of two."""
    if isinstance(outcome, Retry) and outcome.partial is not None:
        outcome = outcome.partial
    if not isinstance(outcome, Done) or isinstance(outcome.data, Encoded):
        return []
    return [dict(record) for record in (outcome.data, *outcome.additional_records)]


def test_the_facts_of_real_pages_are_read() -> None:
    right: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    misses = []
    for row in _manifest():
        records = _records(row)
        want = json.loads((CORPUS / row["expected"]).read_text(encoding="utf-8"))
        for field, is_right, wanted, got in _score().judge(want, 0 if records else 1, records):
            total[row["platform"]] += 1
            right[row["platform"]] += is_right
            if not is_right:
                misses.append(f"{row['file']} {field}: wanted {wanted!r}, got {got!r}")
    scores = {name: right[name] / total[name] for name in total}
    assert sum(right.values()) / sum(total.values()) >= FLOOR_OF_ALL, misses
    assert not {name: score for name, score in scores.items() if score < FLOOR_OF_EACH}, misses


def test_pages_that_nobody_typed_facts_of_are_read_whole() -> None:
    platform = county_platform("grizzly_gis")
    assert platform is not None
    pages = sorted((CORPUS / "grizzly_gis_unlabelled").glob("*.html"))
    assert pages
    for page in pages:
        outcome = platform.parse(Page(body=page.read_bytes()), Target(parcel_id="", state="FL", county="x")).outcome
        (record,) = _found(outcome)
        for field in ("parcel_id", "owner_names", "mailing_lines", "land_use_code", "market_value", "value_year"):
            assert record[field] not in (None, [], ""), (page.name, field)
