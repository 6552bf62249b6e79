"""The buildings of `collier_pa`, which its page lists in one table with pools, walls and docks."""

from __future__ import annotations

import re
from decimal import Decimal

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.looking import Look, section
from parcelpost.scrapers.record import Building, Record
from parcelpost.scrapers.tables import Columns, Headed, Numbered, Row

_COLUMNS = Columns(
    {
        "year": ("Year Built",),
        "desc": ("Description",),
        "area": ("Area",),
        "adjusted": ("Adj Area", "Adj. Area"),
    },
    *("area", "adjusted"),
)
_IDS = {"desc": "BLDGCLASS", "year": "YRBUILT", "area": "BASEAREA", "adjusted": "TYADJAREA"}
BUILDINGS = section("buildings", _COLUMNS, Numbered(_IDS), Headed(_COLUMNS))
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


def take_buildings(record: Record, look: Look) -> None:
    """Only what reads as a building counts; what else stands there is neither counted nor measured."""
    record.buildings = [one for row in look.rows(BUILDINGS) or () if (one := _building(row)) is not None]
    areas = [one.base_sqft for one in record.buildings if one.base_sqft]
    record.building_count = len(record.buildings) or None
    record.building_area_sqft = sum(areas, Decimal(0)) if areas else None
    record.year_built = next((one.year_built for one in record.buildings if one.year_built), None)


def _building(row: Row) -> Building | None:
    desc = values.words(tables.text(row, "desc"))
    upper = (desc or "").upper()
    if _NO_BUILDING.search(upper) or not _BUILDING.search(upper):
        return None
    return Building(
        desc=desc,
        year_built=values.year(tables.text(row, "year")),
        base_sqft=values.number(tables.text(row, "area")),
        actual_sqft=values.number(tables.text(row, "adjusted")),
    )
