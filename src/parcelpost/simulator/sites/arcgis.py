"""A server of `arcgis`: one layer with MetroGIS's columns, queried with `where` and read page by page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, json_response, whole_number

MOST_ROWS = 1_000
_ONE = re.compile(r"\s*PIN\s*=\s*'([^']{1,60})'\s*", re.IGNORECASE)
_SOME = re.compile(r"\s*PIN\s+IN\s*\(([^)]{1,100000})\)\s*", re.IGNORECASE)
_ALL = re.compile(r"\s*(1\s*=\s*1|OBJECTID\s*>=?\s*0)?\s*", re.IGNORECASE)


def parcel_id(number: int) -> str:
    return f"{number:013}"


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not request.path.endswith("/query"):
        return NOT_FOUND
    asked = {**request.query, **request.form}
    start, count = whole_number(asked.get("resultOffset"), 0), whole_number(asked.get("resultRecordCount"), MOST_ROWS)
    count = min(count or MOST_ROWS, MOST_ROWS)
    where = asked.get("where", "")
    if _ALL.fullmatch(where):
        parcels, is_more = list(world.page(start, count)), start + count < world.size
    elif (numbers := _numbers(where)) is not None:
        wanted = [parcel for number in numbers if (parcel := world.number(number))]
        parcels, is_more = wanted[start : start + count], start + count < len(wanted)
    else:
        return json_response({"error": {"code": 400, "message": "Unable to complete operation.", "details": []}})
    answer: dict[str, Any] = {
        "displayFieldName": "STREETNAME",
        "geometryType": "esriGeometryPolygon",
        "spatialReference": {"wkid": 4326, "latestWkid": 4326},
        "features": [{"attributes": _attributes(listed)} for listed in parcels],
    }
    return json_response({**answer, "exceededTransferLimit": True} if is_more else answer)


def _numbers(where: str) -> list[int] | None:
    if match := _ONE.fullmatch(where):
        texts = [match[1]]
    elif some := _SOME.fullmatch(where):
        texts = [text.strip().strip("'") for text in some[1].split(",")]
    else:
        return None
    return [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 20]


def _attributes(parcel: Parcel) -> dict[str, Any]:
    sale = parcel.sales[0] if parcel.sales else None
    first = parcel.buildings[0] if parcel.buildings else None
    number, _, street = parcel.situs.partition(" ")
    sold = datetime(sale.on.year, sale.on.month, sale.on.day, tzinfo=UTC) if sale else None
    return {
        "OBJECTID": parcel.number,
        "COUNTY_ID": "163",
        "PIN": parcel_id(parcel.number),
        "BLDG_NUM": number or " ",
        "PREFIX_DIR": " ",
        "STREETNAME": street or " ",
        "STREETTYPE": " ",
        "UNIT_INFO": " ",
        "CITY_USPS": parcel.situs_city or " ",
        "ZIP": parcel.zip_code if parcel.situs else " ",
        "PLAT_NAME": "INVENTED ESTATES",
        "ACRES_POLY": 0,
        "ACRES_DEED": float(parcel.acres),
        "USE1_DESC": parcel.use,
        "OWNER_NAME": parcel.owners[0],
        "OWNER_MORE": parcel.owners[1] if len(parcel.owners) > 1 else " ",
        "OWN_ADD_L1": parcel.street,
        "OWN_ADD_L2": " ",
        "OWN_ADD_L3": f"{parcel.city}, {parcel.state} {parcel.zip_code}",
        "HOMESTEAD": "Y" if parcel.exempt else "N",
        "EMV_LAND": parcel.land,
        "EMV_BLDG": parcel.improved,
        "EMV_TOTAL": parcel.market,
        "FIN_SQ_FT": sum(building.living_sqft for building in parcel.buildings),
        "YEAR_BUILT": first.year if first else 0,
        "SALE_DATE": int(sold.timestamp() * 1000) if sold else None,
        "SALE_VALUE": sale.price if sale else 0,
        "TAXDESCRIP": parcel.legal,
    }
