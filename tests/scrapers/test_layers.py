"""The forms in which layers and tables come: their columns and a sample of their rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.model import Page
from parcelpost.scrapers.fetch.errors import FetchFailed
from parcelpost.scrapers.layers import fetch_layer, read_layer
from tests.scrapers.fetching import fetching
from tests.website import Website, website

ROW = {"PIN": "7", "OWNER": "BLOOM"}
FIELDS = [
    {"name": "PIN", "alias": "Parcel", "type": "esriFieldTypeString"},
    {"name": "OBJECTID", "type": "esriFieldTypeOID"},
]
SOCRATA = {"columns": [{"fieldName": "pin", "name": "Parcel Number", "dataTypeName": "text"}]}

FORMS: list[tuple[Any, list[str], int]] = [
    ({"features": [{"attributes": ROW}]}, ["PIN", "OWNER"], 1),
    ({"features": [{"attributes": ROW}], "fields": FIELDS}, ["PIN", "OBJECTID"], 1),
    ({"type": "FeatureCollection", "features": [{"properties": ROW}]}, ["PIN", "OWNER"], 1),
    ({"fields": FIELDS, "name": "Parcels"}, ["PIN", "OBJECTID"], 0),
    ([ROW, ROW, 7, None], ["PIN", "OWNER"], 2),
    (SOCRATA, ["pin"], 0),
    ({"meta": {"view": SOCRATA}, "data": [["7"], ["8"], "x"]}, ["pin"], 2),
    ("PIN,OWNER\n7,BLOOM\n\n8,MOSS\n", ["PIN", "OWNER"], 2),
    ("\ufeffPIN;OWNER\r\n7;BLOOM, CLARA\r\n", ["PIN", "OWNER"], 1),
]


@pytest.mark.parametrize(("given", "columns", "rows"), FORMS)
def test_columns_and_rows_are_found(given: Any, columns: list[str], rows: int) -> None:
    layer = read_layer(_page(given))
    assert ([column.name for column in layer.columns], len(layer.rows)) == (columns, rows)


def test_types_and_aliases_are_kept() -> None:
    first, second = read_layer(_page({"fields": FIELDS})).columns
    assert (first.alias, first.kind, second.kind) == ("Parcel", "text", "system")


WRONG: list[tuple[Any, str]] = [
    ("<html>Sign in</html>", "this is a web page"),
    ("{", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ({"error": {"code": 499, "message": "Token Required"}}, "the server replied 499 Token Required"),
    ({"layers": [{"id": 0, "name": "Parcels"}, {"id": 1, "name": "Roads"}]}, "several layers: 0 Parcels, 1 Roads"),
    ({"message": "Cannot find view"}, "the server replied Cannot find view"),
    ({"features": []}, "neither columns nor rows"),
    ([], "neither columns nor rows"),
    ({}, "this is not a layer or table"),
    ("just a text", "this is not a layer or table"),
    ("", "this is not a layer or table"),
    ('PIN,OWNER\n7,"BLOOM\n', "the table cannot be read"),
]


def test_what_is_no_layer_is_said_plainly() -> None:
    for given, reason in WRONG:
        with pytest.raises(InvalidInput, match=reason):
            read_layer(_page(given))


async def test_a_layer_is_described_and_sampled() -> None:
    async with website() as site, fetching() as fetcher:
        _json(site, "/Parcels/MapServer/0", {"fields": FIELDS})
        _json(site, "/Parcels/MapServer/0/query", {"features": [{"attributes": ROW}]})
        layer = await fetch_layer(f"{site.url}/Parcels/MapServer/0/query?where=x", fetcher.session)
        assert ([column.name for column in layer.columns], list(layer.rows)) == (["PIN", "OBJECTID"], [ROW])
        described, sampled = site.asked
        assert (described.query, sampled.query["where"], sampled.query["resultRecordCount"]) == (
            {"f": "json"},
            "1=1",
            "200",
        )


async def test_a_layer_without_paging_is_asked_again() -> None:
    def answer(asked: Any) -> Any:
        from tests.website import Reply

        error = {"error": {"code": 400, "message": "Pagination is not supported."}}
        found = error if "resultRecordCount" in asked.query else {"features": [{"attributes": ROW}]}
        return Reply(json.dumps(found).encode())

    async with website() as site, fetching() as fetcher:
        _json(site, "/MapServer/3", {"fields": FIELDS})
        site.pages["/MapServer/3/query"] = answer
        assert len((await fetch_layer(f"{site.url}/MapServer/3", fetcher.session)).rows) == 1


async def test_a_table_of_socrata_is_described_and_sampled() -> None:
    async with website() as site, fetching() as fetcher:
        _json(site, "/api/views/abcd-1234.json", SOCRATA)
        _json(site, "/resource/abcd-1234.json", [{"pin": "7"}])
        for path in ("/resource/abcd-1234.json", "/Finance/Tax-roll/abcd-1234"):
            layer = await fetch_layer(f"{site.url}{path}", fetcher.session)
            assert (layer.columns[0].alias, list(layer.rows)) == ("Parcel Number", [{"pin": "7"}])


async def test_private_addresses_are_not_asked() -> None:
    async with website() as site, fetching(allow_private=()) as fetcher:
        with pytest.raises(FetchFailed, match="private"):
            await fetch_layer(f"{site.url}/MapServer/0", fetcher.session)
        assert site.asked == []


def _page(given: Any) -> Page:
    return Page(body=(given if isinstance(given, str) else json.dumps(given)).encode(), content_type="")


def _json(site: Website, path: str, document: Any) -> None:
    site.page(path, json.dumps(document).encode(), Content_Type="application/json")
