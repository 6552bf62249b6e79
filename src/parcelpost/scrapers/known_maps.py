"""Which field map the rows of a table are read by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from parcelpost.errors import InvalidSettings
from parcelpost.model import GiveUp, Json, Retry, Target
from parcelpost.scrapers.counties import Counties
from parcelpost.scrapers.field_map import FieldMap, columns_of, plain_row, records
from parcelpost.scrapers.field_map_files import EXAMPLES, shipped
from parcelpost.scrapers.record import Record

Rows = Sequence[Mapping[str, Json]]


class FieldMaps:
    """The one that the county's entry names; else of those whose marks are all among the columns, the operator's own
    before the program's, the one with the most marks.
    """

    def __init__(self, own: Iterable[FieldMap] = (), counties: Counties = Counties()) -> None:  # noqa: B008 - never changed
        """Raises InvalidSettings for two of one name, and for an entry that names none."""
        self._own: dict[str, FieldMap] = {}
        for one in own:
            if one.name in self._own:
                raise InvalidSettings(
                    f"there are two field maps named {one.name}", hint="give one of them another name"
                )
            self._own[one.name] = one
        self._counties = counties
        for county in counties:
            if county.field_map and self._named(county.field_map) is None:
                known = ", ".join(sorted({*self._own, *(one.name for one in shipped())}))
                raise InvalidSettings(
                    f"the entry of {county.name} names the field map {county.field_map!r}, which is not there",
                    hint=f"known are {known}; add one to fetch.field_maps_folder, as those in {EXAMPLES}",
                )

    @property
    def digest(self) -> str:
        """Another one whenever a table may be read differently."""
        named = [(county.name, county.field_map) for county in self._counties if county.field_map]
        return hashlib.sha256(msgspec.json.encode((self._own, named), order="deterministic")).hexdigest()

    def read(self, platform: str, target: Target, rows: Rows) -> list[Record] | Retry | GiveUp:
        """The records of a table that has rows."""
        county = self._counties.find(platform, target.state, target.county)
        named = self._named(county.field_map) if county is not None and county.field_map else None
        given = [plain_row(row) for row in rows]
        columns = columns_of(given)
        field_map = named or _fitting(self._own.values(), columns) or _fitting(shipped(), columns)
        if field_map is None:
            return GiveUp(
                f"no field map fits these columns: add one to fetch.field_maps_folder, as those in {EXAMPLES}"
            )
        needed = field_map.fields["parcel_id"].columns
        if not columns & set(needed):
            return GiveUp(f"the field map {field_map.name} needs the column {' or '.join(needed)}, which is not there")
        return records(field_map, given) or Retry("the rows name no parcel")

    def _named(self, name: str) -> FieldMap | None:
        return self._own.get(name) or next((one for one in shipped() if one.name == name), None)


def _fitting(maps: Iterable[FieldMap], columns: set[str]) -> FieldMap | None:
    fitting = [one for one in maps if one.has and one.has <= columns]
    return max(fitting, key=lambda one: len(one.has), default=None)
