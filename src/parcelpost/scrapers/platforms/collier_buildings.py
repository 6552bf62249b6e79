"""The buildings of `collier_pa`, which its page lists in one table with pools, walls and docks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.document import Document, text_of
from parcelpost.scrapers.record import Building, Record

_MOST = 500
_IDS = {"year": "YRBUILT", "desc": "BLDGCLASS", "area": "BASEAREA", "adjusted": "TYADJAREA"}
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "year": ("Year Built",),
    "desc": ("Description",),
    "area": ("Area",),
    "adjusted": ("Adj Area", "Adj. Area"),
}
_NO_BUILDING = re.compile(
    r"\b(POOL|SPA|DECK\w*|PATIO|SCREEN\w*|ENCLOSURE|FENC\w*|WALLS?|SEAWALL|DOCK\w*|BOAT\w*|LIFT|DRIVE\w*|PAV\w*|ASPHALT|"
    r"CONCRETE|BRICK|TILE|FOUNTAIN|LIGHT\w*|TENNIS|COURT|SHED|CARPORT|CANOPY|GAZEBO|CHICKEE|TIKI|SIGN\w*|GATE\w*|"
    r"PUMP\w*|TANK\w*|ELEVATOR|GENERATOR|KITCHEN|FIREPLACE|BAR|BARBECUE|SIDEWALK|WALK\w*|CURB\w*|BRIDGE|TERRACE|"
    r"UTILITY|TRELLIS|PERGOLA|SPRINKLER\w*|GOLF|HEATER|PIER|POND|BULKHEAD|RIP\s?RAP)\b"
)
_BUILDING = re.compile(
    r"\b(RESIDEN\w*|FAMILY|CONDO\w*|HOUSE|HOME|DUPLEX|TRIPLEX|FOURPLEX|QUADRUPLEX|TOWN\s?HOU\w*|VILLA|APARTMENT\w*|"
    r"COOPERATIVE|OFFICE\w*|STORE\w*|RETAIL|WAREHOUSE\w*|HOTEL|MOTEL|RESTAURANT\w*|CHURCH\w*|SCHOOL\w*|BANK\w*|CLUB\w*|"
    r"HOSPITAL|SHOPPING|MEDICAL|INDUSTRIAL|MANUFACTUR\w*|COMMERCIAL|GARAGE|BUILDING|BLDG)\b"
)


def take_buildings(record: Record, document: Document) -> None:
    """Only what reads as a building counts; what else stands there is neither counted nor measured."""
    record.buildings = [one for row in _rows(document) if (one := _building(row)) is not None]
    areas = [one.base_sqft for one in record.buildings if one.base_sqft]
    record.building_count = len(record.buildings) or None
    record.building_area_sqft = sum(areas, Decimal(0)) if areas else None
    record.year_built = next((one.year_built for one in record.buildings if one.year_built), None)


def _building(row: Mapping[str, str]) -> Building | None:
    desc = values.words(row.get("desc"))
    upper = (desc or "").upper()
    if _NO_BUILDING.search(upper) or not _BUILDING.search(upper):
        return None
    return Building(
        desc=desc,
        year_built=values.year(row.get("year")),
        base_sqft=values.number(row.get("area")),
        actual_sqft=values.number(row.get("adjusted")),
    )


def _rows(document: Document) -> Iterator[Mapping[str, str]]:
    """Each in cells with numbered ids, else the rows below the headings."""
    if document.by_id("BLDGCLASS1") is None:
        table = tables.with_headings(document, _COLUMNS, "area", "adjusted")
        shown = tables.records(table, _COLUMNS) if table is not None else iter(())
        yield from ({name: piece.text for name, piece in row.items()} for row in shown if "desc" in row)
        return
    for number in range(1, _MOST):
        found = {name: document.by_id(f"{ident}{number}") for name, ident in _IDS.items()}
        if found["desc"] is None:
            return
        yield {name: text_of(element) for name, element in found.items() if element is not None}
