"""Where a parcel is."""

from __future__ import annotations

from decimal import Decimal

from parcelpost.errors import ParcelpostError
from parcelpost.export.columns import Kind
from parcelpost.export.tables import Parcel
from parcelpost.export.values import FITTED


def point(parcel: Parcel) -> tuple[Decimal, Decimal] | None:
    """Longitude and latitude, in degrees (WGS 84). 0/0 is in the sea, and how sites write that they know none."""
    try:
        x, y = (FITTED[Kind.NUMBER](parcel.fields.get(name)) for name in ("longitude", "latitude"))
    except ValueError:
        return None
    if not isinstance(x, Decimal) or not isinstance(y, Decimal) or abs(x) > 180 or abs(y) > 90:
        return None
    if not x and not y:
        return None
    return x, y


class Located:
    """How many have coordinates, of how many, and the box they lie in."""

    def __init__(self) -> None:
        self.box: tuple[Decimal, ...] = ()
        """West, south, east, north; empty while there are none."""
        self._points = 0
        self._parcels = 0

    def count(self, where: tuple[Decimal, Decimal] | None) -> None:
        self._parcels += 1
        if where is not None:
            self._points += 1
            x, y = where
            west, south, east, north = self.box or (x, y, x, y)
            self.box = min(west, x), min(south, y), max(east, x), max(north, y)

    def notes(self) -> list[str]:
        """Raises ParcelpostError where none has: then a map has nothing to show."""
        if not self._points:
            raise ParcelpostError(
                f"none of {self._parcels:,} parcels has coordinates: their counties' pages show none",
                hint="a format without a map takes them, such as parcels.xlsx or parcels.csv",
            )
        without = self._parcels - self._points
        return [f"parcels without coordinates, which no map shows: {without:,}"] if without else []
