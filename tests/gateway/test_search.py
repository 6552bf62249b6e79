"""Search, facets, map and downloads of parcels and liens, over both ledgers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parcelpost.gateway.context import Context
from parcelpost.gateway.ledger.search_groups import MAX_FACET_VALUES
from tests.gateway.filling import an_arrival
from tests.gateway.stage import a_client, some_context

PARCELS: list[dict[str, Any]] = [
    {
        "parcel_id": "12-3S-16-02345-001",
        "owner_names": ["ÁLVAREZ MARÍA"],
        "situs_address": "9 Elm St",
        "delinquent": True,
        "tax_due": 1234.5,
        "market_value": 90_000,
        "land_area_acres": 1.5,
        "land_use_desc": "Single family",
        "tax_year": 2025,
        "latitude": 30.1,
        "longitude": -82.6,
        "liens": [
            {"certificate_number": "2024-00172", "certificate_year": 2024, "status": "Open", "face_amount": 10.5},
            {"certificate_number": "2023-00009", "certificate_year": 2023, "status": "redeemed", "face_amount": 4},
        ],
    },
    {"parcel_id": "2", "owner_names": ["=CMD LEE"], "delinquent": False, "market_value": 150_000, "tax_due": 0},
    {
        "parcel_id": "3",
        "state": "FL",
        "county": "harlow",
        "platform": "qpublic",
        "owner_names": ["LEE BO"],
        "last_sale_date": "2011-06-14",
        "land_use_desc": "Vacant",
        "latitude": 30.1,
        "longitude": -82.6,
        "liens": [{"status": "redeemed", "face_amount": 99}],
    },
]


@pytest.fixture
async def context(database: str, tmp_path: Path) -> AsyncIterator[Context]:
    async with some_context(tmp_path, database=database) as made:
        await store(made, *PARCELS)
        yield made


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(context) as made:
        yield made


async def store(context: Context, *records: dict[str, Any]) -> None:
    given = {"platform": "vgsi", "state": "CT", "county": "hartford"}
    for number, record in enumerate(records):
        at = context.clock.now() + timedelta(days=number)
        await context.ledger.store([an_arrival({**given, **record}, at, f"t{number}")], "w-1", at)
    await index(context)


async def index(context: Context) -> None:
    while await context.ledger.update_search(context.clock.now(), 100):
        pass


async def get(client: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(f"/v1/search/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids(client: httpx2.AsyncClient, **params: Any) -> list[str]:
    page = await get(client, "parcels", **params)
    assert page["total"] == len(page["rows"])
    return [row["parcel_id"] for row in page["rows"]]


FIRST, SECOND, THIRD = (record["parcel_id"] for record in PARCELS)

FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"q": "lee"}, [SECOND, THIRD]),
    ({"q": "le"}, [SECOND, THIRD]),
    ({"q": "le "}, []),
    ({"q": "bo lee"}, [THIRD]),
    ({"q": "alvarez"}, [FIRST]),
    ({"q": "ÁLVAREZ"}, [FIRST]),
    ({"q": "elm 9"}, [FIRST]),
    ({"q": "12-3S-16"}, [FIRST]),
    ({"q": "123s160234"}, [FIRST]),
    ({"q": "2024-00172"}, [FIRST]),
    ({"q": "00172"}, [FIRST]),
    ({"q": "\"' * OR AND NOT NEAR( : ^ \\ "}, []),
    ({"q": "lee OR bo"}, []),
    ({"q": "\0"}, [FIRST, SECOND, THIRD]),
    ({"q": "🏠"}, [FIRST, SECOND, THIRD]),
    ({"q": "()&|!:*'\""}, [FIRST, SECOND, THIRD]),
    ({"q": "a" * 10_000}, []),
    ({"q": "lee " * 2_500}, [SECOND, THIRD]),
    ({"state": "FL"}, [THIRD]),
    ({"state": ["fl", "CT"]}, [FIRST, SECOND, THIRD]),
    ({"county": "Hartford County"}, [FIRST, SECOND]),
    ({"platform": "vgsi"}, [FIRST, SECOND]),
    ({"platform": "vgs_"}, []),
    ({"use": ["Vacant", "Single family"]}, [FIRST, THIRD]),
    ({"tax_year": 2025}, [FIRST]),
    ({"freshness": "unscheduled"}, [FIRST, SECOND, THIRD]),
    ({"delinquent": "true"}, [FIRST]),
    ({"delinquent": "false"}, [SECOND]),
    ({"has_liens": "false"}, [SECOND]),
    ({"min_tax_due": "0.01"}, [FIRST]),
    ({"max_tax_due": "0"}, [SECOND]),
    ({"min_market_value": "90000", "max_market_value": "90000.00"}, [FIRST]),
    ({"min_lien_amount": "14.50", "max_lien_amount": "14.50"}, [FIRST]),
    ({"min_acres": "1.5"}, [FIRST]),
    ({"sold_from": "2011-06-14", "sold_to": "2011-06-14"}, [THIRD]),
    ({"scraped_from": "2026-01-02", "scraped_to": "2026-01-02"}, [SECOND]),
    ({"changed_since": "2026-01-02T00:00:00Z"}, [SECOND, THIRD]),
    ({"bbox": "-83,30,-82,31"}, [FIRST, THIRD]),
    ({"bbox": "170,30,-82.6,31"}, [FIRST, THIRD]),
    ({"bbox": "-82,30,-81,31"}, []),
    ({"owner": "LEE BO"}, [THIRD]),
    ({"owner": "LEE"}, []),
    ({"state": "CT", "q": "lee", "delinquent": "false"}, [SECOND]),
]


async def test_filters_choose_the_parcels_that_match_all_of_them(client: httpx2.AsyncClient) -> None:
    for params, expected in FILTERS:
        assert sorted(await ids(client, **params)) == sorted(expected), params


async def test_every_column_sorts_with_missing_values_last(client: httpx2.AsyncClient) -> None:
    columns = (await get(client, "parcels"))["columns"]
    for column in columns:
        for order in ("asc", "desc"):
            rows = (await get(client, "parcels", sort=column["name"], order=order))["rows"]
            values = [row[column["name"]] for row in rows]
            known = [value for value in values if value is not None]
            assert values == [*known, *([None] * (3 - len(known)))], column
            if column["kind"] != "text":
                assert known == sorted(known, reverse=order == "desc"), column
    assert await ids(client) == [THIRD, SECOND, FIRST]
    assert await ids(client, sort="owner") == [SECOND, THIRD, FIRST]


async def test_pages_hold_each_row_once(client: httpx2.AsyncClient) -> None:
    pages = [await get(client, "parcels", sort="tax_year", offset=offset, limit=1) for offset in range(4)]
    assert sorted(row["parcel_id"] for page in pages for row in page["rows"]) == sorted([FIRST, SECOND, THIRD])
    assert [page["total"] for page in pages] == [3, 3, 3, 3]
    assert pages[3]["rows"] == []


async def test_a_row_has_its_values_and_its_address(client: httpx2.AsyncClient) -> None:
    (row,) = (await get(client, "parcels", q="elm"))["rows"]
    assert row == {
        "parcel_id": FIRST,
        "owner": "ÁLVAREZ MARÍA",
        "situs": "9 Elm St",
        "county": "hartford",
        "state": "CT",
        "use": "Single family",
        "delinquent": True,
        "tax_due": 1234.5,
        "liens": 2,
        "lien_amount": 14.5,
        "market_value": 90000.0,
        "acres": 1.5,
        "tax_year": 2025,
        "status": None,
        "sold_on": None,
        "platform": "vgsi",
        "freshness": "unscheduled",
        "scraped_at": "2026-01-01T00:00:00Z",
        "changed_at": "2026-01-01T00:00:00Z",
        "address": "/v1/parcels/CT/hartford/12-3S-16-02345-001",
        "key": row["key"],
        "partial": False,
    }


async def test_a_row_says_whether_a_page_was_partly_unreadable(context: Context, client: httpx2.AsyncClient) -> None:
    lien = {"certificate_number": "2024-5", "certificate_year": 2024}
    await store(context, {"parcel_id": "77", "owner_names": ["OAK ANN"], "unreadable": ["liens"], "liens": [lien]})
    for table in ("parcels", "liens"):
        assert [row["partial"] for row in (await get(client, table, q="oak ann"))["rows"]] == [True]
        assert {row["partial"] for row in (await get(client, table, q="lee"))["rows"]} <= {False}
    (found,) = (await client.get("/v1/liens", params={"owner": "oak"})).json()["liens"]
    assert [source["partial"] for source in found["sources"]] == [True]


async def test_liens_are_found_by_their_own_values_and_their_parcels(client: httpx2.AsyncClient) -> None:
    page = await get(client, "liens", q="alvarez", status="open")
    (row,) = page["rows"]
    assert (row["certificate_number"], row["lien_amount"], row["parcel_id"]) == ("2024-00172", 10.5, FIRST)
    assert [lien["lien_amount"] for lien in (await get(client, "liens", sort="lien_amount"))["rows"]] == [4, 10.5, 99]
    assert (await get(client, "liens", q="2023-8"))["total"] == 0
    assert (await get(client, "liens", q="2023-00009"))["total"] == 1
    assert (await get(client, "liens", min_lien_amount="10.50"))["total"] == 2


async def test_a_facet_ignores_its_own_selection(client: httpx2.AsyncClient) -> None:
    counted = await get(client, "parcels/facets", state="FL", delinquent="true")
    assert counted["total"] == 0
    assert counted["facets"]["state"] == [{"value": "CT", "count": 1}]
    assert counted["facets"]["delinquent"] == []
    counted = await get(client, "parcels/facets", state="CT")
    assert counted["facets"]["state"] == [{"value": "CT", "count": 2}, {"value": "FL", "count": 1}]
    assert counted["facets"]["delinquent"] == [{"value": False, "count": 1}, {"value": True, "count": 1}]
    assert counted["facets"]["has_liens"] == [{"value": False, "count": 1}, {"value": True, "count": 1}]
    assert counted["facets"]["platform"] == [{"value": "vgsi", "count": 2}]
    liens = await get(client, "liens/facets", status="open")
    assert liens["facets"]["status"] == [{"value": "redeemed", "count": 2}, {"value": "open", "count": 1}]


async def test_values_beyond_the_most_frequent_are_found_by_a_part_of_them(
    client: httpx2.AsyncClient, context: Context
) -> None:
    now = context.clock.now()
    counties = [f"san-telmo-{number}" for number in range(MAX_FACET_VALUES)]
    arrivals = [
        an_arrival(
            {"platform": "vgsi", "state": "NY", "county": county, "parcel_id": str(number)}, now, f"f{number}{county}"
        )
        for county in counties
        for number in range(2)
    ]
    await context.ledger.store(arrivals, "w1", now)
    while await context.ledger.update_search(now, 1_000):
        pass
    counted = await get(client, "parcels/facets")
    assert len(counted["facets"]["county"]) == counted["max_values"] == MAX_FACET_VALUES
    assert "harlow" not in {value["value"] for value in counted["facets"]["county"]}
    found = await get(client, "parcels/facets", facet="county", find="HARL")
    assert found["facets"] == {"county": [{"value": "harlow", "count": 1}]}
    (found,) = (await get(client, "parcels/facets", facet="county", find="San Telmo 49"))["facets"]["county"]
    assert found == {"value": "san-telmo-49", "count": 2}


async def test_the_map_clusters_what_is_close_and_names_what_is_alone(client: httpx2.AsyncClient) -> None:
    found = await get(client, "parcels/map", zoom=4)
    assert (found["total"], found["without_coordinates"]) == (3, 1)
    (cluster,) = found["clusters"]
    assert (cluster["count"], cluster["delinquent"], cluster["lien_amount"]) == (2, 1, 113.5)
    assert cluster["bbox"] == [-84.375, 28.125, -81.5625, 30.9375]
    assert "parcel" not in cluster
    (cluster,) = (await get(client, "parcels/map", zoom=4, state="FL"))["clusters"]
    assert cluster["parcel"]["parcel_id"] == THIRD


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("parcels", {"sort": "nothing"}),
    ("parcels", {"limit": 501}),
    ("parcels", {"offset": -1}),
    ("parcels", {"bbox": "1,2,3"}),
    ("parcels", {"bbox": "nan,nan,nan,nan"}),
    ("parcels", {"scraped_from": "yesterday"}),
    ("parcels", {"min_tax_due": "0.001"}),
    ("parcels", {"freshness": "stale"}),
    ("parcels", {"tax_year": "MMXX"}),
    ("parcels", {"state": ["FL"] * 101}),
    ("parcels", {"anything": "1"}),
    ("parcels", {"owner": "x" * 201}),
    ("parcels/map", {"zoom": "23"}),
    ("parcels.csv", {"columns": "owner,nothing"}),
    ("parcels.csv", {"limit": "5"}),
]


async def test_what_is_not_valid_is_refused_by_name(client: httpx2.AsyncClient) -> None:
    for path, params in INVALID:
        answer = await client.get(f"/v1/search/{path}", params=params)
        assert answer.status_code == 422, (path, params)
        assert next(reversed(params)) in answer.text


async def test_a_download_holds_what_the_table_shows(client: httpx2.AsyncClient) -> None:
    params = {"sort": "owner", "columns": "owner,parcel_id,tax_due,delinquent,sold_on", "q": "lee"}
    text = (await client.get("/v1/search/parcels.csv", params=params)).text
    assert list(csv.reader(io.StringIO(text))) == [
        ["owner", "parcel_id", "tax_due", "delinquent", "sold_on"],
        ["'=CMD LEE", "2", "0.00", "false", ""],
        ["LEE BO", "3", "", "", "2011-06-14"],
    ]
    lines = (await client.get("/v1/search/parcels.jsonl", params=params)).text.splitlines()
    assert json.loads(lines[0]) == {
        "owner": "=CMD LEE",
        "parcel_id": "2",
        "tax_due": 0,
        "delinquent": False,
        "sold_on": None,
    }
    features = json.loads((await client.get("/v1/search/parcels.geojson", params=params)).text)["features"]
    assert [feature["geometry"] for feature in features] == [None, {"type": "Point", "coordinates": [-82.6, 30.1]}]
    assert features[1]["properties"]["owner"] == "LEE BO"
    assert json.loads((await client.get("/v1/search/liens.geojson?q=nobody")).text)["features"] == []


async def test_a_parquet_and_an_excel_file_hold_the_same(client: httpx2.AsyncClient) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO((await client.get("/v1/search/parcels.parquet")).content))
    assert table.column("owner").to_pylist() == ["LEE BO", "=CMD LEE", "ÁLVAREZ MARÍA"]
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO((await client.get("/v1/search/liens.xlsx?sort=lien_amount")).content))
    rows = list(book.worksheets[0].values)
    assert rows[0][:3] == ("certificate_number", "certificate_year", "lien_amount")
    assert [row[2] for row in rows[1:]] == [4, 10.5, 99]


async def test_the_index_follows_what_arrives(context: Context, client: httpx2.AsyncClient) -> None:
    changed = {**PARCELS[0], "owner_names": ["LEE ANN"], "liens": PARCELS[0]["liens"][:1], "delinquent": False}
    at = context.clock.now() + timedelta(days=9)
    given = {"platform": "vgsi", "state": "CT", "county": "hartford"}
    await context.ledger.store([an_arrival({**given, **changed}, at, "t9")], "w-1", at)
    assert await context.ledger.left_to_index() == 1
    await index(context)
    assert await context.ledger.left_to_index() == 0
    assert await ids(client, q="lee", delinquent="false") == [FIRST, SECOND]
    assert await ids(client, q="alvarez") == []
    assert (await get(client, "liens"))["total"] == 2


async def test_beyond_the_bound_totals_say_that_there_are_more_and_no_choice_is_hidden(
    context: Context, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.gateway.ledger.search.MAX_COUNTED", 3)
    counties = [("FL", "union"), ("FL", "harlow"), ("GA", "bibb"), ("GA", "san-telmo"), ("FL", "union")]
    await store(
        context,
        *(
            {"parcel_id": f"{number}", "owner_names": ["Ann Mooney"], "tax_due": 10 - number, "state": s, "county": c}
            for number, (s, c) in enumerate(counties, 1)
        ),
    )

    everywhere = await get(client, "parcels", q="mooney", sort="tax_due", limit=2)
    facets = await get(client, "parcels/facets", q="mooney")
    georgia = await get(client, "parcels", q="mooney", state="GA", sort="tax_due")
    of_georgia = await get(client, "parcels/facets", q="mooney", state="GA")
    by_state = await get(client, "parcels", q="mooney", sort="state", order="desc")
    in_union = await get(client, "parcels", q="mooney", county=["Union", "san-telmo"])
    last = await get(client, "parcels", q="mooney", sort="tax_due", offset=2)
    downloaded = await client.get("/v1/search/parcels.csv", params={"q": "mooney", "columns": "parcel_id"})
    unworded = await get(client, "parcels", min_tax_due="1")

    assert (everywhere["total"], everywhere["is_exact"]) == (3, False)
    assert [row["parcel_id"] for row in everywhere["rows"]] == ["5", "4"]  # of all that match
    assert (facets["total"], facets["is_exact"]) == (3, False)
    listed = {value["value"] for value in facets["facets"]["county"]}
    assert listed == {"union", "harlow", "bibb", "san-telmo", "hartford"}
    assert sum(value["count"] for value in facets["facets"]["state"]) >= 3
    assert (georgia["total"], georgia["is_exact"]) == (2, True)
    assert [row["parcel_id"] for row in georgia["rows"]] == ["4", "3"]
    assert (of_georgia["total"], of_georgia["is_exact"]) == (2, False)  # of the states, more match
    assert {value["value"]: value["count"] for value in of_georgia["facets"]["county"]} == {"bibb": 1, "san-telmo": 1}
    assert {value["value"] for value in of_georgia["facets"]["state"]} == {"CT", "FL", "GA"}
    assert (by_state["total"], by_state["is_exact"]) == (5, True)  # an order by groups counts all
    assert (in_union["total"], in_union["is_exact"]) == (3, True)
    assert len(last["rows"]) == 1
    assert len(downloaded.text.split()) == 1 + 5
    assert unworded["is_exact"]
