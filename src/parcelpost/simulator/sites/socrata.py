"""A server of `socrata`: one table in the columns of New York City's tax lien sale list, as JSON or CSV."""

from __future__ import annotations

import re

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import CSV, NOT_FOUND, Layout, Request, Response, json_response, whole_number

_PATH = re.compile(r"/resource/[a-z0-9]{4}-[a-z0-9]{4}\.(json|csv)")
_TERM = re.compile(r"\s*(borough|block|lot)\s*=\s*'?(\d{1,9})'?\s*", re.IGNORECASE)
_BBL = re.compile(r"\s*bbl\s*=\s*'?(\d)(\d{5})(\d{4})'?\s*", re.IGNORECASE)
_ALL = re.compile(r"\s*(1\s*=\s*1|cycle\s*=\s*'90 Day Notice')?\s*", re.IGNORECASE)
_LOTS, _BOROUGHS = 1_000, 5
_MOST_ROWS = 50_000
_ROWS = 1_000
"""Default number of rows per response."""


def parcel_id(number: int) -> str:
    borough, block, lot = _place(number)
    return f"{borough}{block:05}{lot:04}"


def respond(request: Request, world: World, looks: Layout) -> Response:
    match = _PATH.fullmatch(request.path)
    if not match:
        return NOT_FOUND
    query = request.query
    limit, offset = whole_number(query.get("$limit"), _ROWS), whole_number(query.get("$offset"), 0)
    where = query.get("$where", "")
    if not _ALL.fullmatch(where):
        number = _number(where)
        if number is None:
            return Response(status=400, body=b'{"message": "Query coordinator error", "errorCode": "query.soql"}')
        numbered = world.number(number)
        parcels = [numbered] if numbered and offset == 0 else []
    else:
        parcels = list(world.page(offset, min(limit, _MOST_ROWS)))
    rows = [_row(parcel) for parcel in parcels]
    return json_response(rows) if match[1] == "json" else _csv(rows)


def _place(number: int) -> tuple[int, int, int]:
    """Borough, block and lot."""
    return number % _BOROUGHS + 1, number // _LOTS + 1, number % _LOTS + 1


def _number(where: str) -> int | None:
    """Of the row that a condition on borough, block and lot is for. None: it is another kind of condition."""
    if whole := _BBL.fullmatch(where):
        return _at(int(whole[1]), int(whole[2]), int(whole[3]))
    terms = [_TERM.fullmatch(term) for term in re.split(r"\band\b", where, flags=re.IGNORECASE)]
    given = {term[1].lower(): int(term[2]) for term in terms if term}
    return _at(given["borough"], given["block"], given["lot"]) if len(given) == len(terms) == 3 else None


def _at(borough: int, block: int, lot: int) -> int:
    """0 where there can be none."""
    number = (block - 1) * _LOTS + lot - 1
    return number if _place(number) == (borough, block, lot) else 0


def _row(parcel: Parcel) -> dict[str, str]:
    borough, block, lot = _place(parcel.number)
    number, _, street = parcel.situs.partition(" ")
    return {
        "month": "2024-04-01T00:00:00.000",
        "cycle": "90 Day Notice",
        "borough": str(borough),
        "block": str(block),
        "lot": str(lot),
        "tax_class_code": "4",
        "building_class": f"Z{parcel.number % 10}",
        "house_number": number,
        "street_name": street,
        "zip_code": "10280",
        "water_debt_only": "NO",
    }


def _csv(rows: list[dict[str, str]]) -> Response:
    lines = [",".join(f'"{name}"' for name in _row_names(rows))]
    lines += [",".join(f'"{text}"' for text in row.values()) for row in rows]
    return Response(body="\n".join((*lines, "")).encode(), content_type=CSV)


def _row_names(rows: list[dict[str, str]]) -> list[str]:
    return list(rows[0]) if rows else []
