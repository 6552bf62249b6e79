"""What the lists of auctions and liens show of a parcel."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from msgspec import Struct

from parcelpost.simulator.parcels import Certificate, Parcel
from parcelpost.simulator.world import World

ROWS = 25
"""On one page."""
AUCTION_DAY = date(2024, 9, 18)


class Case(Struct, frozen=True, kw_only=True):
    """A parcel that is to be auctioned for the certificate on it."""

    parcel: Parcel
    certificate: Certificate
    number: str
    opening_cents: int


def cases(world: World, page: int) -> Iterator[Case]:
    """Of the page's share of all parcels those with a certificate; the first page is 1."""
    for parcel in world.page((page - 1) * ROWS, ROWS):
        if parcel.certificates:
            yield case_of(parcel)


def pages(world: World) -> int:
    return max(1, -(-world.size // ROWS))


def case_of(parcel: Parcel) -> Case:
    certificate = parcel.certificates[0]
    return Case(
        parcel=parcel,
        certificate=certificate,
        number=f"{AUCTION_DAY.year}-{parcel.number:04}TD",
        opening_cents=certificate.face_cents + 45_000,
    )


def page_number(given: str) -> int:
    """1 where it is no number."""
    return max(1, int(given)) if given.isascii() and given.isdecimal() and len(given) < 10 else 1
