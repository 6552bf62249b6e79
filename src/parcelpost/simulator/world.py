"""The parcels of one simulated county."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from parcelpost.simulator.parcels import Parcel, number_of, parcel


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
        return parcel(self.seed, self.county, number)

    def page(self, start: int, count: int) -> Iterator[Parcel]:
        """Some of them in their order, the first of all being at 0."""
        return map(self.at, range(max(start, 0) + 1, min(max(start, 0) + count, self.size) + 1))

    def all(self) -> Iterator[Parcel]:
        return map(self.at, range(1, self.size + 1))
