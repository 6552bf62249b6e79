"""`python -m bench dashboard`: searching and exploring 200,000 parcels and 100,000 liens through a real gateway."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import asyncpg
import httpx2
import msgspec
from msgspec import Struct

from bench.gateway import client
from bench.measure import fresh_folder, machine, percentile, scratch
from bench.report import Goal, Report, Table, at_most, progress
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import IngestedResult, SourceKey
from parcelpost.places import parcel_norm
from parcelpost.search_fields import search_fields

NAME = "dashboard"
HELP = "lists, facets, search, sorting, deep pages and the map of a large ledger"

MILLISECONDS_GOAL = 100
GROWTH_GOAL = 3
_NOW = datetime(2026, 11, 15, tzinfo=UTC)
_SEED = 5
_WARM_UP = 3
_PLATFORM_DEGREES = 0.35
"""Half the width of a map of a county."""

Params = Mapping[str, Any]
Request = tuple[str, Params]


@dataclass(frozen=True, slots=True)
class Plan:
    small: int
    large: int
    requests: int
    """Of each kind."""


_FULL = Plan(small=20_000, large=200_000, requests=120)
_QUICK = Plan(small=2_000, large=20_000, requests=30)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="measure only this database")


class Questions:
    """Requests of a person who explores, as their choices vary. No two need be the same."""

    def __init__(self, parcels: int) -> None:
        self._dice = random.Random(_SEED)
        self._parcels = parcels

    def kinds(self) -> Mapping[str, Any]:
        return {
            "list": self.page,
            "facets": self.facets,
            "search": self.search,
            "facets of a search": self.search_facets,
            "deep page": self.deep_page,
            "sort": self.sort,
            "map": self.map,
            "range": self.range,
            "facets of a range": self.range_facets,
            "liens": self.liens,
        }

    def page(self) -> Request:
        return "parcels", {**self._choices(), "sort": "changed_at", "order": "desc"}

    def facets(self) -> Request:
        return self._table() + "/facets", self._choices()

    def search(self) -> Request:
        return self._table(), {"q": self._text(), "sort": self._dice.choice(("owner", "tax_due", "scraped_at"))}

    def search_facets(self) -> Request:
        return "parcels/facets", {"q": self._text(), **self._choices()}

    def deep_page(self) -> Request:
        offset = self._dice.randrange(self._parcels // 4, self._parcels - 100)
        return "parcels", {"sort": self._sort_column(), "order": self._order(), "offset": offset}

    def sort(self) -> Request:
        return "parcels", {**self._choices(), "sort": self._sort_column(), "order": self._order()}

    def map(self) -> Request:
        county, zoom = self._county(), self._dice.choice((5, 7, 9, 10, 11, 12, 13))
        half = min(_PLATFORM_DEGREES * 2 ** (10 - zoom), 12.0)
        x, y = (place + self._dice.uniform(-0.05, 0.05) for place in (county.longitude, county.latitude))
        box = f"{x - half:.5f},{y - half / 2:.5f},{x + half:.5f},{y + half / 2:.5f}"
        return "parcels/map", {"zoom": zoom, "bbox": box, **self._dice.choice(({}, {"delinquent": "true"}))}

    def range(self) -> Request:
        return "parcels", {**self._range(), "sort": self._sort_column(), "order": self._order()}

    def range_facets(self) -> Request:
        return "parcels/facets", self._range()

    def liens(self) -> Request:
        column = self._dice.choice(("lien_amount", "sold_on", "holder_name", "owner", "status"))
        return "liens", {"status": self._dice.choice(("open", "sold")), "sort": column, "order": self._order()}

    def _table(self) -> str:
        return self._dice.choice(("parcels", "parcels", "liens"))

    def _choices(self) -> dict[str, Any]:
        """Up to three facets."""
        county = self._county()
        possible: tuple[dict[str, Any], ...] = (
            {"county": county.name},
            {"state": county.state},
            {"platform": county.platforms[0]},
            {"delinquent": "true"},
            {"has_liens": self._dice.choice(("true", "false"))},
            {"use": self._dice.choice(("SINGLE FAMILY", "MOBILE HOME", "WAREHOUSE"))},
            {"tax_year": self._dice.choice((2024, 2025))},
        )
        chosen: dict[str, Any] = {}
        for choice in self._dice.sample(possible, self._dice.choice((0, 1, 1, 2, 3))):
            chosen |= choice
        return chosen

    def _county(self) -> County:
        return self._dice.choices(COUNTIES, [county.share for county in COUNTIES])[0]

    def _sort_column(self) -> str:
        columns = ("owner", "situs", "parcel_id", "tax_due", "market_value", "acres", "sold_on", "lien_amount")
        return self._dice.choice((*columns, "county", "use", "scraped_at"))

    def _order(self) -> str:
        return self._dice.choice(("asc", "desc"))

    def _text(self) -> str:
        """As it is typed: words of a name, an address or a number, the last one unfinished."""
        number = self._dice.randrange(self._parcels)
        street = f"{self._dice.randrange(100, 9_900)} {self._dice.choice(('MAIN', 'OAK', 'ELM', 'LAKE'))}"
        name = self._dice.choice(("SMITH JAMES", "GARCIA MARY", "NGUYEN", "CASLOTON", "HALL LAND TRUST", "BERWESON A"))
        parcel = f"{number % 36 + 1:02}-{number % 12 + 1}S-{number % 30 + 1:02}-{number // 1000:05}"
        text = self._dice.choice((street, name, name, parcel, f"2025-{number:06}"))
        return text[: self._dice.randint(min(4, len(text)), len(text))].lower()

    def _range(self) -> dict[str, Any]:
        least = self._dice.choice((50, 500, 1_000, 2_500))
        wide = {"min_market_value": self._dice.randrange(40_000, 120_000, 500), "max_market_value": 300_000}
        return self._dice.choice(({"min_tax_due": least}, wide, {**wide, "min_acres": "0.25"}))


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    figures: dict[str, dict[int, dict[str, list[float]]]] = {}
    with scratch(arguments.dir) as folder, client.postgres(arguments.dir) as server:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        for kind in ("sqlite", "postgres") if arguments.only is None else (arguments.only,):
            databases = {size: _database(kind, folder, server, size) for size in (plan.small, plan.large)}
            for size, database in databases.items():
                progress(f"filling {kind} with {size:,} parcels and {size // 2:,} liens")
                asyncio.run(_fill(database, size))
            figures[kind] = _measure(databases, plan, folder)
    data = {"machine": where, "plan": asdict(plan), "milliseconds": figures}
    return Report(NAME, list(_targets(figures, plan)), [_table(kind, of, plan) for kind, of in figures.items()], data)


def _database(kind: str, folder: Path, server: str, size: int) -> str:
    if kind == "sqlite":
        return str(folder / f"{size}.db")
    return asyncio.run(client.fresh_database(server, f"dashboard_{size}"))


async def _fill(database: str, size: int) -> None:
    async with open_ledger(database, 3, SystemClock()) as ledger:
        await fill_ledger(ledger, size, size // 2, _NOW)
    if database.startswith("postgres"):
        connection = await asyncpg.connect(database)
        try:
            await connection.execute("VACUUM ANALYZE")  # as autovacuum would after a minute
        finally:
            await connection.close()


def _measure(databases: Mapping[int, str], plan: Plan, folder: Path) -> dict[int, dict[str, list[float]]]:
    """Milliseconds by parcels and kind of request. Both sizes take turns, so that what else the machine does disturbs
    both.
    """
    measured: dict[int, dict[str, list[float]]] = {size: {} for size in databases}
    with fresh_folder(folder) as first, fresh_folder(folder) as second:
        small, large = databases
        with (
            client.gateway(databases[small], first) as small_url,
            client.gateway(databases[large], second) as large_url,
        ):
            urls = {small: small_url, large: large_url}
            with httpx2.Client(timeout=60) as http:
                for kind in Questions(small).kinds():
                    progress(f"{kind}: {plan.requests} requests")
                    asked = {size: Questions(size).kinds()[kind] for size in databases}
                    for size, url in urls.items():
                        measured[size][kind] = []
                        for _ in range(_WARM_UP):
                            _ask(http, url, asked[size]())
                    for _ in range(plan.requests):
                        for size, url in urls.items():
                            measured[size][kind].append(_ask(http, url, asked[size]()))
    return measured


def _ask(http: httpx2.Client, url: str, request: Request) -> float:
    path, params = request
    began = time.perf_counter()
    response = http.get(f"{url}/v1/search/{path}?{urlencode(params)}")
    milliseconds = (time.perf_counter() - began) * 1_000
    response.raise_for_status()
    return milliseconds


def _p95(values: Sequence[float]) -> float:
    return percentile(values, 0.95)


def _targets(figures: Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]], plan: Plan) -> Iterator[Goal]:
    for kind, by_size in figures.items():
        for name, values in by_size[plan.large].items():
            yield at_most(f"{kind}, {name}: p95 ms with {plan.large:,} parcels", MILLISECONDS_GOAL, _p95(values))
            ratio = _p95(values) / _p95(by_size[plan.small][name])
            yield at_most(f"{kind}, {name}: p95 over that with {plan.small:,} parcels", GROWTH_GOAL, ratio)


def _table(kind: str, by_size: Mapping[int, Mapping[str, Sequence[float]]], plan: Plan) -> Table:
    rows = []
    for name, values in by_size[plan.large].items():
        small = by_size[plan.small][name]
        rows.append(
            [
                name,
                f"{statistics.median(small):.1f}",
                f"{_p95(small):.1f}",
                f"{statistics.median(values):.1f}",
                f"{_p95(values):.1f}",
                f"{_p95(values) / _p95(small):.1f}",
            ]
        )
    header = [
        "request",
        *(f"{size:,} {what}" for size in (plan.small, plan.large) for what in ("p50", "p95")),
        "growth",
    ]
    return Table(f"Milliseconds of a request: {kind}", header, rows)


class County(Struct, frozen=True):
    """`share`: of all parcels, relative to the others."""

    state: str
    name: str
    platforms: tuple[str, ...]
    share: float
    longitude: float
    latitude: float
    uses: int


COUNTIES = (
    County("FL", "harlow", ("grizzly_gis",), 38, -82.62, 30.18, 24),
    County("FL", "san-telmo", ("qpublic", "lien_register"), 21, -81.55, 28.31, 20),
    County("GA", "alder", ("qpublic",), 11, -83.21, 32.85, 18),
    County("TN", "marrow-creek", ("mygov_due",), 9, -86.33, 35.72, 14),
    County("CT", "new-wexford", ("vgsi",), 7, -72.71, 41.66, 16),
    County("FL", "cypress-run", ("grizzly_gis", "realauction"), 5, -84.12, 30.44, 12),
    County("GA", "three-mills", ("qpublic",), 3, -84.4, 33.35, 10),
    County("AL", "pearl-bluff", ("govease",), 2.2, -87.9, 31.1, 8),
    County("CT", "old-saltport", ("vgsi",), 1.6, -72.1, 41.33, 9),
    County("TN", "hickory-gap", ("mygov_due",), 1, -84.6, 36.05, 7),
    County("FL", "little-pine", ("realauction",), 0.8, -85.3, 30.2, 5),
    County("AL", "nine-oaks", ("govease",), 0.4, -86.2, 32.4, 4),
)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_LAST = (
    *_listed("SMITH JOHNSON WILLIAMS BROWN JONES GARCIA MILLER DAVIS RODRIGUEZ MARTINEZ HERNANDEZ LOPEZ GONZALEZ"),
    *_listed("WILSON ANDERSON THOMAS TAYLOR MOORE JACKSON MARTIN LEE PEREZ THOMPSON WHITE HARRIS SANCHEZ CLARK"),
    *_listed("RAMIREZ LEWIS ROBINSON WALKER YOUNG ALLEN KING WRIGHT SCOTT TORRES NGUYEN HILL FLORES GREEN ADAMS"),
    *_listed("NELSON BAKER HALL RIVERA CAMPBELL MITCHELL CARTER ROBERTS ABERNATHY BELLWEATHER CASTELLANE DUNMORE"),
    *("O'LEARY", "PEÑA", "QUIRK"),
    *(a + b + c for a in _listed("AL BER CAS DUN EVER FAIR GRIM HOL") for b in _listed("BA DE LO MO RI TE WE")
      for c in _listed("LAND TON BY FORD WICK SEN SON RELL MAN")),
)  # fmt: skip
_LAST_WEIGHTS = [1 / (rank + 8) for rank in range(len(_LAST))]
_FIRST = (
    *_listed("JAMES MARY ROBERT PATRICIA JOHN JENNIFER MICHAEL LINDA DAVID ELIZABETH WILLIAM BARBARA RICHARD SUSAN"),
    *_listed(
        "JOSEPH JESSICA THOMAS SARAH CARLOS KAREN DANIEL LISA MATTHEW NANCY ANTHONY BETTY MARK SANDRA ADA BERNARD"
    ),
)
_COMPANIES = ("HOMES", "HOLDINGS", "LAND TRUST", "PROPERTIES", "INVESTMENTS", "TIMBER", "FARMS", "CHURCH OF GOD")
_STREETS = _listed(
    "MAIN OAK PINE MAPLE CEDAR ELM WASHINGTON LAKE HILL WALNUT SPRING NORTH RIDGE CHURCH LARKSPUR QUARRY"
)
_KINDS = ("ST", "AVE", "RD", "DR", "LN", "CT", "BLVD", "WAY")
_TOWNS = ("PORT HARLOW", "MILLBROOK", "EAST FORD", "SALT SPRINGS", "HERON BAY", "GRANGE", "TWIN RIVERS", "OAKDALE")
_USES = (
    *("SINGLE FAMILY", "VACANT RESIDENTIAL", "MOBILE HOME", "TIMBERLAND", "CONDOMINIUM", "IMPROVED AGRICULTURAL"),
    *("VACANT ACREAGE", "STORE 1 STORY", "WAREHOUSE", "MULTI-FAMILY", "CHURCH", "OFFICE 1 STORY", "COUNTY"),
    *("VACANT COMMERCIAL", "RESTAURANT", "SERVICE STATION", "STATE", "GRAZING LAND", "MINI STORAGE", "SCHOOL"),
    *("RIVERS AND LAKES", "UTILITY", "ORCHARD", "PARKING LOT"),
)
_HOLDERS = ("CYPRESS RIDGE FUNDING LLC", "BLUE HERON TAX PARTNERS", "COUNTY HELD", "TAX EASE", "FIG 20 LLC", "MTAG")
_STATUSES = ("open", "open", "open", "open", "redeemed", "redeemed", "sold", "cancelled")
_BATCH = 500


def _zipf(dice: random.Random, values: Any) -> Any:
    """The first ones are much more frequent."""
    return values[min(int(len(values) * dice.random() ** 2.2), len(values) - 1)]


def made_up_results(parcels: int, liens: int, now: datetime) -> Iterator[IngestedResult]:
    """A few parcels in a hundred have a second source."""
    dice = random.Random(11)
    shares = [county.share for county in COUNTIES]
    per_lien_parcel = 2.5
    lien_share = min(0.9, liens / parcels / per_lien_parcel)
    left = liens
    for number in range(parcels):
        county = dice.choices(COUNTIES, shares)[0]
        here = min(left, 1 + int(dice.expovariate(1 / (per_lien_parcel - 0.5)))) if dice.random() < lien_share else 0
        if parcels - number <= left / 8:
            here = min(left, 8)
        left -= here
        record = _record(dice, number, county, here)
        at = now - timedelta(minutes=dice.randrange(60 * 24 * 40))
        yield _result(record, county, county.platforms[0], at, number)
        if len(county.platforms) > 1 and dice.random() < 0.1:
            shown = {name: record[name] for name in ("parcel_id", "owner_names", "liens")}
            yield _result({**shown, "delinquent": bool(here)}, county, county.platforms[1], at, number)


def _record(dice: random.Random, number: int, county: County, liens: int) -> dict[str, Any]:
    town = dice.randrange(5)
    spread = 0.02 + 0.03 * town
    value = round(dice.lognormvariate(11.6, 0.9), -2)
    due = round(value * 0.0123, 2) if liens or dice.random() < 0.06 else 0
    parcel_id = f"{number % 36 + 1:02}-{number % 12 + 1}S-{number % 30 + 1:02}-{number // 1000:05}-{number % 1000:03}"
    street = f"{dice.randrange(1, 9_900)} {_zipf(dice, _STREETS)} {_zipf(dice, _KINDS)}"
    record = {
        "parcel_id": parcel_id,
        "owner_names": [_owner(dice) for _ in range(dice.choice((1, 1, 1, 2)))],
        "mailing_lines": [street],
        "mailing_city": _TOWNS[town],
        "mailing_state": county.state,
        "situs_address": street,
        "situs_city": _TOWNS[town],
        "legal_description": f"LOT {number % 40 + 1} BLK {number % 9 + 1} {_TOWNS[town]} UNIT {number % 4 + 1}",
        "land_use_desc": _zipf(dice, _USES[: county.uses]),
        "land_area_acres": round(dice.lognormvariate(-0.9, 1.3), 3),
        "building_area_sqft": 900 + number % 2_400,
        "year_built": 1931 + number % 92,
        "land_value": value // 4,
        "building_value": value - value // 4,
        "market_value": value,
        "assessed_value": value,
        "taxable_value": max(value - 25_000, 0),
        "homestead": number % 2 == 0,
        "tax_year": _zipf(dice, (2025, 2024, 2023)),
        "tax_status": "unpaid" if due else _zipf(dice, ("paid", "exempt")),
        "tax_amount": round(value * 0.0123, 2),
        "tax_due": due,
        "delinquent": due > 0,
        "last_sale_date": f"{1985 + int(40 * dice.random() ** 0.6)}-{number % 12 + 1:02}-{number % 28 + 1:02}",
        "last_sale_price": value,
        "liens": [_lien(dice, number, place, value) for place in range(liens)],
    }
    if dice.random() > 0.08:
        angle = 7 * town
        record["longitude"] = round(county.longitude + 0.04 * (angle % 5) + dice.gauss(0, spread), 6)
        record["latitude"] = round(county.latitude + 0.03 * (angle % 3) + dice.gauss(0, spread), 6)
    return record


def _owner(dice: random.Random) -> str:
    (last,) = dice.choices(_LAST, _LAST_WEIGHTS)
    if dice.random() < 0.12:
        return f"{last} {dice.choice(_COMPANIES)} LLC"
    return f"{last} {_zipf(dice, _FIRST)} {chr(65 + dice.randrange(26))}"


def _lien(dice: random.Random, number: int, place: int, value: float) -> dict[str, Any]:
    year = 2025 - place
    return {
        "certificate_number": f"{year}-{number:06}",
        "certificate_year": year,
        "tax_year": year - 1,
        "face_amount": round(value * 0.0123 + dice.random() * 400, 2),
        "interest_rate_pct": dice.choice((5.25, 12.5, 18)),
        "sale_date": f"{year}-06-{number % 28 + 1:02}",
        "holder_name": _zipf(dice, _HOLDERS),
        "status": dice.choice(_STATUSES),
    }


def _result(record: dict[str, Any], county: County, platform: str, at: datetime, number: int) -> IngestedResult:
    data = msgspec.json.encode(record)
    task_id = f"made-{platform}-{number}"
    return IngestedResult(
        task_id=task_id,
        source=SourceKey(county.state, county.name, parcel_norm(record["parcel_id"]), platform),
        parcel_id=record["parcel_id"],
        data=data,
        search_fields=search_fields(record, data),
        scraped_at=at,
        parse_duration_ms=9,
        idempotency_key=task_id,
    )


async def fill_ledger(ledger: Ledger, parcels: int, liens: int, now: datetime) -> None:
    """Stores them as a worker's results, and brings the search up to date."""
    batch: list[IngestedResult] = []
    for result in made_up_results(parcels, liens, now):
        batch.append(result)
        if len(batch) == _BATCH:
            await ledger.store(batch, "made-up", now)
            batch = []
    if batch:
        await ledger.store(batch, "made-up", now)
    await index_all(ledger, now)


async def index_all(ledger: Ledger, now: datetime) -> None:
    while await ledger.update_search(now, _BATCH):
        pass
