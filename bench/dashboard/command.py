"""`python -m bench dashboard`: searching and exploring 200,000 parcels and 100,000 liens through a real gateway."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import asyncpg
import httpx2

from bench.dashboard.filling import COUNTIES, County, fill_ledger
from bench.gateway import client
from bench.measure import fresh_folder, machine, percentile, scratch
from bench.report import Goal, Report, Table, at_most, progress
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.factory import open_ledger

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
