"""Invented parcels, the counties that hold them, and their tax deed cases.

The same seed, county and number give the same parcel, in any order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import date, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

_FIRST = ("ANNA", "BORIS", "CLARA", "DAVID", "EDITH", "FRANK", "GRETA", "HENRY", "IRENE", "JONAS", "KARLA", "LOUIS")
_LAST = ("ABERNATHY", "BLOOM", "CARVER", "DUNMORE", "ELLERY", "FENWICK", "GALLOWAY", "HARGROVE", "IVERSON", "MUÑOZ")
_FIRMS = ("LARKSPUR HOLDINGS LLC", "TWO OAKS TRUST", "PINE RIDGE FARMS INC", "BLUE HERON LAND CO")
_STREETS = ("ELM ST", "SW HERON WAY", "NE CR 793", "OLD MILL RD", "MAPLE AVE", "LAKESHORE DR", "QUARRY LN")
_TOWNS = ((28.072, -81.986), (28.022, -81.733), (27.897, -81.588), (27.899, -81.843), (28.105, -81.627))
_CITIES = (("MARIGOLD", "FL", "32099"), ("FERNHILL", "FL", "32098"), ("STONEBRIDGE", "GA", "30999"))
_USES = (("0100", "SINGLE FAMILY"), ("0000", "VACANT"), ("0200", "MOBILE HOME"), ("5000", "IMPROVED AG"))
_DEEDS = ("WD", "QC", "CT", "PB")
_HOLDERS = ("OAK TREE CERTIFICATES LLC", "RIVERBEND TAX FUND", "FIRST MEADOW CAPITAL")
_OLDEST = date(1985, 1, 1)
_DAYS = 14_000
_VACANT = "0000"


class Sale(Struct, frozen=True, kw_only=True):
    on: date
    price: int
    book: int
    page: int
    deed: str

    @property
    def is_of_several(self) -> bool:
        """Whether other parcels were sold with it."""
        return self.page % 5 == 0


class Building(Struct, frozen=True, kw_only=True):
    year: int
    living_sqft: int
    actual_sqft: int
    value: int


class Certificate(Struct, frozen=True, kw_only=True):
    number: str
    tax_year: int
    sold_on: date
    face_cents: int
    rate_hundredths: int
    holder: str
    redeemed_on: date | None


class Parcel(Struct, frozen=True, kw_only=True):
    number: int
    parcel_id: str
    account: str
    owners: tuple[str, ...]
    street: str
    city: str
    state: str
    zip_code: str
    situs: str
    situs_city: str
    legal: str
    acres: str
    use_code: str
    use: str
    year: int
    land: int
    building: int
    extra: int
    cap: int
    exempt: int
    exemptions: tuple[str, ...]
    sales: tuple[Sale, ...]
    buildings: tuple[Building, ...]
    certificates: tuple[Certificate, ...]

    @property
    def coordinates(self) -> tuple[float, float]:
        """Latitude and longitude, near one of a county's towns."""
        chance = random.Random(f"coordinates/{self.number}")  # noqa: S311 - no secrets
        latitude, longitude = chance.choice(_TOWNS)
        return round(latitude + chance.gauss(0, 0.02), 6), round(longitude + chance.gauss(0, 0.025), 6)

    @property
    def section(self) -> str:
        """Section, township and range: the parcel's number begins with them."""
        return self.parcel_id[:8]

    @property
    def market(self) -> int:
        return self.land + self.building + self.extra

    @property
    def improved(self) -> int:
        return self.building + self.extra

    @property
    def tax_cents(self) -> int:
        """At eighteen dollars and a half for a thousand."""
        return self.taxable * 185 // 100

    @property
    def assessed(self) -> int:
        return self.market - self.cap

    @property
    def taxable(self) -> int:
        return max(0, self.assessed - self.exempt)

    @property
    def taxable_school(self) -> int:
        return max(0, self.assessed - self.exempt // 2)


def make_parcel(seed: int, county: str, number: int) -> Parcel:
    chance = random.Random(f"{seed}/{county}/{number}")  # noqa: S311 - invented people, no secrets
    city, state, zip_code = chance.choice(_CITIES)
    use_code, use = chance.choice(_USES)
    buildings = () if use_code == _VACANT else tuple(_building(chance) for _ in range(chance.choice((1, 1, 1, 2))))
    land, extra = chance.randrange(5, 400) * 500, 0 if not buildings else chance.randrange(0, 30) * 400
    homestead = bool(buildings) and chance.random() < 0.4
    value = sum(building.value for building in buildings)
    street = f"{chance.randrange(1, 9999)} {chance.choice(_STREETS)}"
    return Parcel(
        number=number,
        parcel_id=parcel_id(number),
        account=f"R{number:05}-000",
        owners=_owners(chance),
        street=street if chance.random() < 0.8 else f"PO BOX {chance.randrange(1, 999)}",
        city=city,
        state=state,
        zip_code=zip_code,
        situs=street if buildings else "",
        situs_city=city if buildings else "",
        legal=f"LOT {number % 97 + 1} BLK {number % 13 + 1} INVENTED ESTATES UNIT {number % 7 + 1}",
        acres=f"{chance.randrange(100, 90_000) / 1000:.3f}",
        use_code=use_code,
        use=use,
        year=2024,
        land=land,
        building=value,
        extra=extra,
        cap=chance.choice((0, 0, 1_000, 12_345)) if homestead else 0,
        exempt=50_000 if homestead else 0,
        exemptions=("HX", "HB") if homestead else (),
        sales=_sales(chance),
        buildings=buildings,
        certificates=_certificates(chance),
    )


def parcel_id(number: int) -> str:
    """`07-2S-16-00042-001`, as a Florida county would write it."""
    return f"{number % 36 + 1:02}-{number % 6 + 1}S-{number % 4 + 15}-{number:05}-{number % 9:03}"


def number_of(given: str) -> int | None:
    """The parcel's number, however its id is punctuated. None: no parcel has such an id."""
    plain = "".join(sign for sign in given.upper() if sign.isalnum())
    if not (14 <= len(plain) <= 24 and plain[6:-3].isdecimal() and plain.isascii()):
        return None
    number = int(plain[6:-3])
    return number if "".join(sign for sign in parcel_id(number) if sign.isalnum()) == plain else None


def _owners(chance: random.Random) -> tuple[str, ...]:
    if chance.random() < 0.2:
        return (chance.choice(_FIRMS),)
    last = chance.choice(_LAST)
    count = 2 if chance.random() < 0.4 else 1
    return tuple(f"{last} {first}" for first in chance.sample(_FIRST, count))


def _building(chance: random.Random) -> Building:
    living = chance.randrange(600, 4_000)
    return Building(
        year=chance.randrange(1900, 2024),
        living_sqft=living,
        actual_sqft=living + chance.randrange(0, 900),
        value=living * chance.randrange(40, 180),
    )


def _sales(chance: random.Random) -> tuple[Sale, ...]:
    days = sorted((chance.randrange(_DAYS) for _ in range(chance.randrange(0, 6))), reverse=True)
    return tuple(
        Sale(
            on=_OLDEST + timedelta(days=day),
            price=chance.choice((0, 100, chance.randrange(5, 900) * 500)),
            book=chance.randrange(100, 1500),
            page=chance.randrange(1, 2900),
            deed=chance.choice(_DEEDS),
        )
        for day in days
    )


def _certificates(chance: random.Random) -> tuple[Certificate, ...]:
    years = sorted(chance.sample(range(2012, 2024), chance.choice((0, 0, 0, 1, 2, 3))), reverse=True)
    found = []
    for year in years:
        certificate = _certificate(chance, f"{chance.randrange(1, 99999):05}", year, date(year + 2, 3, 14))
        found.append(certificate if chance.random() < 0.6 else replace(certificate, redeemed_on=None))
    return tuple(found)


def _certificate(chance: random.Random, number: str, year: int, redeemed_on: date | None) -> Certificate:
    return Certificate(
        number=number,
        tax_year=year,
        sold_on=date(year + 1, 6, 1),
        face_cents=chance.randrange(20_000, 900_000),
        rate_hundredths=chance.choice((25, 525, 650, 1800)),
        holder=chance.choice(_HOLDERS),
        redeemed_on=redeemed_on,
    )


_BORDER = ((28.22, -82.06), (28.22, -81.53), (27.99, -81.47), (27.8, -81.49), (27.78, -81.74), (27.8, -82.06))
_LAKES = ((28.06, -81.85, 0.022), (27.97, -81.72, 0.03), (27.93, -81.68, 0.014), (28.14, -81.75, 0.018))
"""Latitude, longitude and radius."""


def county_outline() -> dict[str, Any]:
    """The county's border, towns, lakes and main roads as GeoJSON, where the parcels' coordinates are."""
    chance = random.Random("outline")  # noqa: S311 - no secrets
    corners = [*_BORDER, _BORDER[0]]
    border = [point for start, end in pairwise(corners) for point in _winding(chance, start, end, 0.004)]
    features = [_feature("Polygon", [[*border, border[0]]])]
    features += [_feature("Polygon", [_ring(chance, *town, 0.055)]) for town in _TOWNS]
    features += [_feature("Polygon", [_ring(chance, *lake)]) for lake in _LAKES]
    around = [*_TOWNS[:2], _TOWNS[4], *_TOWNS[1:4], _TOWNS[0]]
    features += [_feature("LineString", _winding(chance, *road, 0.003)) for road in pairwise(around)]
    return {"type": "FeatureCollection", "features": features}


def _winding(
    chance: random.Random, start: tuple[float, float], end: tuple[float, float], width: float
) -> list[tuple[float, float]]:
    """Longitude and latitude of points from start to end."""
    points = [start]
    for step in range(1, 12):
        latitude, longitude = (begin + (stop - begin) * step / 12 for begin, stop in zip(start, end, strict=True))
        points.append((latitude + chance.gauss(0, width), longitude + chance.gauss(0, width)))
    return [(longitude, latitude) for latitude, longitude in (*points, end)]


def _ring(chance: random.Random, latitude: float, longitude: float, radius: float) -> list[tuple[float, float]]:
    turns = [(2 * math.pi * step / 24, radius * chance.uniform(0.82, 1.1)) for step in range(24)]
    points = [(longitude + far * math.cos(turn), latitude + 0.8 * far * math.sin(turn)) for turn, far in turns]
    return [*points, points[0]]


def _feature(kind: str, coordinates: object) -> dict[str, Any]:
    return {"type": "Feature", "properties": {}, "geometry": {"type": kind, "coordinates": coordinates}}


class World(Struct, frozen=True, kw_only=True):
    seed: int = 1
    county: str = "invented"
    size: int = 1_000

    def find(self, parcel_id: str) -> Parcel | None:
        number = number_of(parcel_id)
        return None if number is None else self.number(number)

    def number(self, number: int) -> Parcel | None:
        """None: there are not so many."""
        return self.at(number) if 0 < number <= self.size else None

    def at(self, number: int) -> Parcel:
        """The first is 1."""
        return make_parcel(self.seed, self.county, number)

    @property
    def register(self) -> World:
        """A county elsewhere, of the same size, that publishes its liens: other owners owe other taxes there."""
        return World(seed=self.seed, county=f"{self.county} register", size=self.size)

    def page(self, start: int, count: int) -> Iterator[Parcel]:
        """Some of them in their order, the first of all being at 0."""
        return map(self.at, range(max(start, 0) + 1, min(max(start, 0) + count, self.size) + 1))

    def all(self) -> Iterator[Parcel]:
        return map(self.at, range(1, self.size + 1))


class ChangingWorld(World, frozen=True, kw_only=True):
    """A county in which things happen: what is in `changed` is as it is now."""

    changed: dict[int, Parcel] = {}

    def at(self, number: int) -> Parcel:
        return self.changed.get(number) or super().at(number)

    def change(self, number: int, day: date) -> Event:
        """Something happens to a parcel: its owner, its value, its taxes or a lien. Returns what."""
        parcel = self.at(number)
        chance = random.Random(f"{self.seed}/{self.county}/{number}/{day}")  # noqa: S311 - invented events
        happened = chance.choice(list(Event))
        open_ones = [one for one in parcel.certificates if one.redeemed_on is None]
        free_years = {parcel.year - back for back in range(1, 5)} - {one.tax_year for one in parcel.certificates}
        if happened is Event.REDEEMED and open_ones:
            redeemed = replace(open_ones[0], redeemed_on=day)
            certificates = tuple(redeemed if one is open_ones[0] else one for one in parcel.certificates)
        elif happened is Event.LIEN and free_years:
            year = max(free_years)
            number_of_it = f"{number:05}{day:%m%d}"
            new = _certificate(chance, number_of_it, year, None)
            certificates = tuple(sorted((*parcel.certificates, new), key=lambda one: one.tax_year, reverse=True))
        else:
            certificates = parcel.certificates
            happened = Event.VALUE if happened is Event.VALUE else Event.OWNER
        owners, land = parcel.owners, parcel.land
        if happened is Event.OWNER:
            owners = (f"{chance.choice(_LAST)} {day:%b}{day.day} {number}".upper(),)
        elif happened is Event.VALUE:
            land += 5_000
        self.changed[number] = replace(parcel, owners=owners, land=land, certificates=certificates)
        return happened


class Event(StrEnum):
    """What can happen to a parcel."""

    OWNER = "owner"
    VALUE = "value"
    LIEN = "lien"
    REDEEMED = "redeemed"


ROWS_PER_PAGE = 25
"""Number of rows on a page of a list."""
AUCTION_DAY = date(2024, 9, 18)


class AuctionCase(Struct, frozen=True, kw_only=True):
    """A parcel that is to be auctioned for the certificate on it."""

    parcel: Parcel
    certificate: Certificate
    number: str
    opening_cents: int

    @property
    def high_cents(self) -> int:
        return self.opening_cents + 100_000


def auction_cases(world: World, page: int) -> Iterator[AuctionCase]:
    """Of the page's share of all parcels those with a certificate; the first page is 1."""
    for parcel in world.page((page - 1) * ROWS_PER_PAGE, ROWS_PER_PAGE):
        if parcel.certificates:
            yield auction_case(parcel)


def page_count(world: World) -> int:
    return max(1, -(-world.size // ROWS_PER_PAGE))


def auction_case(parcel: Parcel) -> AuctionCase:
    certificate = parcel.certificates[0]
    return AuctionCase(
        parcel=parcel,
        certificate=certificate,
        number=f"{AUCTION_DAY.year}-{parcel.number:04}TD",
        opening_cents=certificate.face_cents + 45_000,
    )


def page_number(given: str) -> int:
    """1 where it is no number."""
    return max(1, int(given)) if given.isascii() and given.isdecimal() and len(given) < 10 else 1
