"""What the writer of each format is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from parcelpost.export.tables import Parcel, Table


class Sink(Protocol):
    """Takes parcels a page at a time, always from one thread at once, and keeps none of them."""

    notes: list[str]
    """What whoever gets the files should know, once it is closed."""

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        """How many rows that made."""

    def close(self) -> None:
        """Nothing is missing in the files when this has returned."""

    def abandon(self) -> None:
        """In place of `close`, or after it failed: lets go of everything."""
