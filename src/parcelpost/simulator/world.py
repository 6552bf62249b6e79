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
        return self.at(number) if number is not None and 0 < number <= self.size else None

    def at(self, number: int) -> Parcel:
        """The first is 1."""
        return parcel(self.seed, self.county, number)

    def all(self) -> Iterator[Parcel]:
        return map(self.at, range(1, self.size + 1))
