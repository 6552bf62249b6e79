"""Made-up counties, parcels and liens, as unevenly spread as real ones, and the same in every run.

Browser tests use them, too: `await fill_ledger(ledger, 20_000, 10_000, now)`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import IngestedResult, SourceKey
from parcelpost.places import parcel_norm
from parcelpost.search_fields import search_fields


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
