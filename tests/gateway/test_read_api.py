"""What people and programs ask of the gateway, over both ledgers."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parcelpost.clock import ManualClock
from parcelpost.gateway.app import make_app
from parcelpost.gateway.context import Context
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.models import ParcelKey
from parcelpost.gateway.parcel_paths import parse_parcel_path
from tests.gateway.filling import a_beat, an_arrival, fill, keep_page
from tests.gateway.stage import a_client, a_result, a_task, add_tasks, some_context

TOKENS = {"PARCELPOST_READ_TOKENS": "reading", "PARCELPOST_ADMIN_TOKENS": "ruling"}


one_ledger = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For what is answered before either ledger is asked."""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def context(database: str, tmp_path: Path) -> AsyncIterator[Context]:
    async with some_context(tmp_path, database=database) as made:
        yield made


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(context) as made:
        yield made


async def store(context: Context, *records: dict[str, Any], page: bytes | None = None) -> None:
    given = {"platform": "vgsi", "state": "CT", "county": "hartford"}
    for number, record in enumerate(records):
        at = context.clock.now() + timedelta(days=number)
        await context.ledger.store([an_arrival({**given, **record}, at, f"t{number}", page)], "w-1", at)


async def store_at_once(context: Context, records: Iterable[dict[str, Any]]) -> None:
    given, now = {"platform": "vgsi", "state": "CT", "county": "hartford"}, context.clock.now()
    arrivals = [an_arrival({**given, **record}, now, f"t{number}") for number, record in enumerate(records)]
    await context.ledger.store(arrivals, "w-1", now)


async def ids(client: httpx2.AsyncClient, query: str) -> list[str]:
    answer = await client.get(f"/v1/parcels?{query}")
    assert answer.status_code == 200, answer.text
    return [parcel["parcel_id"] for parcel in answer.json()["parcels"]]


RECORDS: list[dict[str, Any]] = [
    {
        "parcel_id": "1",
        "owner_names": ["ANN LEE"],
        "delinquent": True,
        "liens": [{"status": "Open", "face_amount": 10.5}],
    },
    {"parcel_id": "2", "owner_names": ["BO LEE"], "situs_address": "9 Elm St", "delinquent": False, "tax_due": 1234.5},
    {"parcel_id": "3", "state": "FL", "county": "harlow", "liens": [{"status": "redeemed", "face_amount": 99}]},
]

FILTERS = [
    ("", ["1", "2", "3"]),
    ("state=FL", ["3"]),
    ("county=hartford", ["1", "2"]),
    ("platform=none", []),
    ("owner=lee", ["1", "2"]),
    ("q=elm", ["2"]),
    ("delinquent=true", ["1"]),
    ("delinquent=false", ["2"]),
    ("lien_status=OPEN", ["1"]),
    ("min_amount=10.50&max_amount=98.99", ["1"]),
    ("min_amount=10.51", ["3"]),
    ("changed_since=2026-01-01T12:00:00Z", ["2", "3"]),
]


async def test_parcels_are_found_by_what_is_asked(
    subtests: pytest.Subtests, context: Context, client: httpx2.AsyncClient
) -> None:
    await store(context, *RECORDS)
    for query, expected in FILTERS:
        with subtests.test(query=query, expected=expected):
            assert await ids(client, query) == expected


async def test_pages_follow_each_other_without_gap_or_repetition(context: Context, client: httpx2.AsyncClient) -> None:
    await store(context, *({"parcel_id": f"{number:03}"} for number in range(25)))
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await client.get("/v1/parcels", params={"limit": "10", "cursor": cursor})).json()
        seen += [parcel["parcel_id"] for parcel in page["parcels"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == [f"{number:03}" for number in range(25)]


async def test_liens_are_paged_too_with_exact_amounts(context: Context, client: httpx2.AsyncClient) -> None:
    liens = [{"certificate_number": str(number), "face_amount": number + 0.1} for number in range(5)]
    await store(context, {"parcel_id": "a", "liens": liens}, {"parcel_id": "b", "liens": liens})
    first = await client.get("/v1/liens?limit=7")
    second = await client.get("/v1/liens", params={"cursor": first.json()["next"]})
    assert [len(page.json()["liens"]) for page in (first, second)] == [7, 3]
    assert second.json()["next"] is None
    assert '"amount":4.10' in second.text


async def test_changes_are_read_on_from_where_one_stopped(context: Context, client: httpx2.AsyncClient) -> None:
    async def after(since: int, **query: Any) -> tuple[list[str], int]:
        reply = (await client.get("/v1/changes", params={"since": since, **query})).json()
        assert reply["more"] == ("limit" in query and since == 0)
        return [f"{change['kind']} {change['parcel_id']}" for change in reply["changes"]], reply["next"]

    assert await after(0) == ([], 0)
    lien = {"certificate_number": "7", "certificate_year": 2024, "face_amount": 12.5}
    await store(context, {"parcel_id": "1"}, {"parcel_id": "2"}, {"parcel_id": "1", "liens": [lien]})
    await Maintenance(context).step()
    assert await after(0, limit=2) == (["parcel.new 1", "parcel.new 2"], 2)
    assert await after(2, limit=2) == (["lien.new 1"], 3)
    beyond = await client.get("/v1/changes", params={"since": 4})
    assert (beyond.status_code, "restored from a backup" in beyond.text) == (422, True)
    assert await after(0, kind="lien, sale", county="Hartford County") == (["lien.new 1"], 3)
    assert await after(0, kind="lien", state="FL") == ([], 3), "what does not match is passed over"
    (change,) = (await client.get("/v1/changes", params={"kind": "lien"})).json()["changes"]
    newest = (await client.get("/v1/changes/latest", params={"limit": 2})).json()
    older = (await client.get("/v1/changes/latest", params={"limit": 2, "before": newest["next"]})).json()
    assert [one["number"] for one in newest["changes"] + older["changes"]] == [3, 2, 1]
    assert older["next"] is None
    assert (change["number"], change["subject"], change["before"]) == (3, "7", {})
    assert change["after"] == {"number": "7", "year": 2024, "amount": 12.5}
    assert (await client.get(change["address"])).json()["parcel"]["lien_count"] == 1


async def test_a_webhook_is_added_shown_paused_replayed_and_deleted(
    context: Context, client: httpx2.AsyncClient
) -> None:
    async def ask(method: str, path: str = "", **sent: Any) -> Any:
        reply = await client.request(method, f"/v1/webhooks{path}", json=sent or None)
        return reply.json() if reply.status_code == 200 else reply.status_code

    await store(context, {"parcel_id": "1"}, {"parcel_id": "2"})
    await Maintenance(context).step()
    url = "https://crm.example.org/hooks/hidden?key=hidden"
    added = await ask("POST", url=url, kinds=["lien", "tax.paid"] * 600, county="Hartford County", state="ct")
    assert (added["name"], added["receiver"]) == ("crm.example.org", "https://crm.example.org")
    assert (added["since"], added["behind"], added["county"], added["state"]) == (2, 0, "hartford", "CT")
    assert added["kinds"] == ["lien", "tax.paid"], "each once: they become a query"
    assert await ask("POST", url=url) == await ask("POST", url="http://127.0.0.1/") == 422
    assert await ask("POST", url=url, name="b", kinds=["lein"]) == await ask("POST", url=url, name="b", since=3) == 422
    assert (await ask("POST", "/crm.example.org/pause"))["status"] == "paused"
    assert (await ask("POST", "/crm.example.org/resume"))["status"] == "active"
    assert (await ask("POST", "/crm.example.org/replay", since=0))["since"] == 0
    assert await ask("POST", "/crm.example.org/replay", since=9) == 422
    assert (await ask("GET", "/crm.example.org"))["retries"] == []
    assert "hidden" not in (await client.get("/v1/webhooks")).text
    page = (await client.get("/metrics")).text
    assert 'parcelpost_gateway_webhook_changes{state="behind",webhook="crm.example.org"} 0.0' in page, (
        "none is of a kind it wants"
    )
    for method, path in (("GET", "/x"), ("DELETE", "/x"), ("POST", "/x/pause"), ("POST", "/x/resume")):
        assert await ask(method, path) == 404
    assert (await ask("DELETE", "/crm.example.org"))["name"] == "crm.example.org"
    assert await ask("GET") == {"webhooks": []}
    wrong = await client.put("/v1/webhooks/x")
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, DELETE")


async def test_a_known_parcel_is_scraped_again_by_the_target_of_its_task(
    context: Context, client: httpx2.AsyncClient
) -> None:
    async def refresh(**wanted: Any) -> int:
        reply = await client.post("/v1/refresh", json=wanted)
        assert reply.status_code == 200, reply.text
        return int(reply.json()["queued"])

    await add_tasks(context, a_task("t1", parcel_id="01-02-000300", url="https://example.org/p?id=9"))
    await context.ledger.grant("w-1", ["echo"], 1, context.clock.now(), context.clock.now() + timedelta(hours=1))
    lien = {"record_kind": "lien", "liens": [{"certificate_number": "7"}]}
    first, later = "2025-12-01T00:00:00Z", "2025-12-02T00:00:00Z"
    batch = [a_result("t1", parcel_id="01-02-000300", scraped_at=first), a_result("t2"), a_result("list~1", data=lien)]
    reply = await client.post("/internal/results", json=batch)
    assert reply.json()["failed"] == 0
    assert await refresh(state="CT", county="Hartford County", parcel_id="0102000300") == 1
    assert await refresh(platform="echo") == 1, "one is being refreshed, and one is only on a list"
    assert await refresh(platform="echo") == await refresh(state="FL") == 0
    granted = await context.ledger.grant("w-1", ["echo"], 9, context.clock.now(), context.clock.now())
    assert [(one.task.type, one.task.target.parcel_id, one.task.target.url) for one in granted] == [
        ("refresh", "01-02-000300", "https://example.org/p?id=9"),
        ("refresh", "parcel-t2", ""),
    ]
    again = a_result(granted[0].task.task_id, parcel_id="01-02-000300", data={"tax_due": 5}, scraped_at=later)
    await client.post("/internal/results", json=[again])
    context.clock.advance(1)  # type: ignore[attr-defined]
    assert await refresh(platform="echo", delinquent=True) == 0
    assert await refresh(parcel_id="01-02-000300", older_than_hours=1) == 1, "it was scraped in the past"
    (detail,) = (await client.get("/v1/parcels/CT/hartford/0102000300")).json()["sources"]
    assert [step["task_id"] for step in detail["history"]][-1] == "t1", "each scrape is a version"
    for nothing in ({}, {"parcel_id": "--"}, {"state": "FL", "parcel_id": " "}):
        assert (await client.post("/v1/refresh", json=nothing)).status_code == 422
    assert await refresh(state="...", dry_run=True) == await refresh(county="---", dry_run=True) == 0


async def test_the_latest_come_first_and_page_by_page(context: Context, client: httpx2.AsyncClient) -> None:
    liens = [{"certificate_number": str(number)} for number in range(5)]
    now, given = context.clock.now(), {"platform": "vgsi", "state": "CT", "county": "hartford", "liens": liens}
    for batch in ("abcdefg", "hij"):  # those of one batch came at the same moment
        arrivals = [an_arrival({**given, "parcel_id": name}, now, name) for name in batch]
        await context.ledger.store(arrivals, "w-1", now)
        now += timedelta(minutes=1)
    seen = await all_pages(client, "/v1/parcels/latest", limit=3)
    newest, oldest = {one["parcel_id"] for one in seen[:3]}, {one["parcel_id"] for one in seen[3:]}
    assert (len(seen), newest, oldest) == (10, set("hij"), set("abcdefg"))
    found = await all_pages(client, "/v1/liens/latest", limit=7)
    expected = [(one["parcel_id"], position) for one in seen for position in range(5)]
    assert [(one["parcel_id"], one["sources"][0]["position"]) for one in found] == expected


async def all_pages(client: httpx2.AsyncClient, path: str, limit: int, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        told = await client.get(path, params={"limit": str(limit), "cursor": cursor, **query})
        assert told.status_code == 200, told.text
        answer = told.json()
        (kind,) = answer.keys() - {"next"}
        assert len(answer[kind]) <= limit
        found += answer[kind]
        cursor = answer["next"]
    return found


BAD = [
    ("limit=0", "limit"),
    ("limit=1001", "limit"),
    ("limit=x", "limit"),
    ("colour=red", "colour"),
    ("min_amount=abc", "min_amount"),
    ("min_amount=-1", "min_amount"),
    ("max_amount=1.005", "max_amount"),
    ("max_amount=NaN", "max_amount"),
    ("delinquent=perhaps", "delinquent"),
    ("changed_since=yesterday", "changed_since"),
    ("changed_since=2026", "changed_since"),
    ("changed_since=1767225600", "changed_since"),
    ("changed_since=2026-01-01T00:00:00", "changed_since"),
    ("changed_since=0001-01-01T00:00:00%2B14:00", "changed_since"),
    ("q=%00", "q"),
    ("q=" + "x" * 201, "q"),
    ("cursor=nonsense", "cursor"),
    ("cursor=WzEsMl0", "cursor"),
]


@one_ledger
async def test_a_bad_parameter_is_named(subtests: pytest.Subtests, client: httpx2.AsyncClient) -> None:
    for path in ["/v1/parcels", "/v1/liens", "/v1/parcels/latest", "/v1/liens/latest"]:
        for query, named in BAD:
            with subtests.test(path=path, query=query, named=named):
                answer = await client.get(f"{path}?{query}")
                assert answer.status_code == 422
                assert f"{named}:" in answer.json()["error"]["message"]


NUMBERS = ["1", "12/34 5%2F6?x#y", "~a", "../../etc", "raw", "2/raw", "🏠 & <b>", "+3=4;'\"\\", "=5", "-6"]


async def test_every_parcel_has_an_address_of_its_own(
    subtests: pytest.Subtests, context: Context, client: httpx2.AsyncClient
) -> None:
    await keep_page(context.raw_store, b"a page")
    for place in ({"state": "CT", "county": "hartford"}, {"state": "", "county": ""}, {"state": "CT", "county": "raw"}):
        for number in NUMBERS:
            with subtests.test(place=place, number=number):
                record = {"platform": "a/b", "parcel_id": number, **place}
                await store(context, record, page=b"a page")
                everything = (await client.get("/v1/parcels?limit=1000")).json()["parcels"]
                (listed,) = (one for one in everything if {"parcel_id": number, **place}.items() <= one.items())
                answer = await client.get(listed["address"])
                assert answer.status_code == 200, answer.text
                assert answer.json()["sources"][0]["record"] == record
                (source,) = listed["sources"]
                assert gzip.decompress((await client.get(source["raw"])).content) == b"a page"


async def test_a_parcel_without_a_number_has_an_address_too(context: Context, client: httpx2.AsyncClient) -> None:
    """Its list has only cases: another platform's case with that number is of another parcel."""
    case = {"parcel_id": None, "case_number": "2024/7", "liens": [{"case_number": "2024/7", "status": "open"}]}
    batch = [
        a_result(name, platform=name, parcel_id="2024/7", data={**case, "owner_names": [name]})
        for name in ("deedauction", "realauction")
    ]
    batch.append(a_result("dashes", parcel_id="---", data={"owner_names": ["dashes"]}))
    batch.append(a_result("number", parcel_id="2024-7", data={"owner_names": ["number"]}))
    assert (await client.post("/internal/results", json=batch)).json()["inserted"] == 4
    parcels = (await client.get("/v1/parcels")).json()["parcels"]
    assert sorted(one["owner"] for one in parcels) == ["dashes", "deedauction", "number", "realauction"]
    for one in parcels:
        assert (await client.get(one["address"])).json()["parcel"] == one
    assert len((await client.get("/v1/liens")).json()["liens"]) == 2


def test_a_path_names_a_parcel_however_its_number_and_place_are_written() -> None:
    key = ParcelKey("CT", "new-haven", "1234567890A")
    for path in (
        b"CT/new-haven/12-34567890-A",
        b"ct/New%20Haven%20County/12/34567890a",
        b"Connecticut/new-haven/12%2F34567890%20a",
    ):
        assert parse_parcel_path(b"/v1/parcels/" + path) == (key, "")
        assert parse_parcel_path(b"/v1/parcels/" + path + b"/raw") == (key, "raw")
        assert parse_parcel_path(b"/v1/parcels/" + path + b"/page") == (key, "page")
    short = [parse_parcel_path(f"/v1/parcels/CT/x/{number}".encode()) for number in ("1-23", "1.23", "12-3")]
    assert short[0] == short[1] != short[2], "its parts are not padded, so they are kept apart"
    assert parse_parcel_path(b"/v1/parcels/CT/x") is None
    assert parse_parcel_path(b"/v1/parcels/CT/x/%00") is None
    assert parse_parcel_path(b"/v1/parcels/CT/x/%ff") is None


async def test_each_source_comes_with_what_changed(context: Context, client: httpx2.AsyncClient) -> None:
    await store(context, {"parcel_id": "1", "tax_due": 10.10}, {"parcel_id": "1", "tax_due": 12.5, "scraped_at": "x"})
    answer = await client.get("/v1/parcels/CT/hartford/1")
    (source,) = answer.json()["sources"]
    assert [scrape["changes"] for scrape in source["history"]] == [
        [{"field": "tax_due", "before": 10.10, "after": 12.5}],
        [],
    ]
    assert '"before":10.1' in answer.text
    assert (source["history"][1]["first"], source["more_history"]) == (True, False)
    assert answer.json()["parcel"]["tax_due"] == 12.5


async def test_a_parcel_of_three_platforms_is_one_with_three_sources(
    context: Context, client: httpx2.AsyncClient
) -> None:
    lien = {"certificate_number": "2024-17", "certificate_year": 2024}
    shown = {**lien, "status": "open", "face_amount": 5.10}
    for page in (b"appraiser", b"register"):
        await keep_page(context.raw_store, page)
    await store(
        context, {"parcel_id": "01-02-000300", "owner_names": ["ANN"], "situs_address": "1 Elm St"}, page=b"appraiser"
    )
    await store(context, {"parcel_id": "0102000300", "platform": "mygov_due", "tax_due": 7, "liens": [lien]})
    await store(
        context,
        {"parcel_id": "01 02 000300", "platform": "lien_register", "liens": [shown]},
        page=b"register",
    )
    (listed,) = (await client.get("/v1/parcels")).json()["parcels"]
    assert (listed["owner"], listed["situs"], listed["tax_due"], listed["lien_count"]) == ("ANN", "1 Elm St", 7, 1)
    assert {(one["platform"], one["parcel_id"]) for one in listed["sources"]} == {
        ("vgsi", "01-02-000300"),
        ("mygov_due", "0102000300"),
        ("lien_register", "01 02 000300"),
    }
    for query in ("platform=vgsi", "platform=mygov_due&q=0102", "platform=vgsi&owner=ann", "q=01-02", "q=elm"):
        assert len((await client.get(f"/v1/parcels?{query}")).json()["parcels"]) == 1, query
    assert (await client.get("/v1/parcels?platform=mygov_due&owner=ann")).json()["parcels"] == []

    (found,) = (await client.get("/v1/liens?records=true")).json()["liens"]
    assert {one["platform"] for one in found["sources"]} == {"mygov_due", "lien_register"}
    assert (found["status"], found["amount"], found["lien"]) == (
        "open",
        5.10,
        {**lien, "status": "open", "face_amount": 5.10},
    )

    detail = (await client.get(listed["address"])).json()
    assert {one["platform"]: one["record"]["parcel_id"] for one in detail["sources"]} == {
        "vgsi": "01-02-000300",
        "mygov_due": "0102000300",
        "lien_register": "01 02 000300",
    }
    for platform, page in (("vgsi", b"appraiser"), ("lien_register", b"register")):
        raw = await client.get(f"{listed['address']}/raw?platform={platform}")
        assert gzip.decompress(raw.content) == page
    assert (await client.get(f"{listed['address']}/raw?platform=mygov_due")).status_code == 404

    assert len((await client.get("/v1/export/parcels.jsonl")).text.splitlines()) == 3
    assert len((await client.get("/v1/export/parcels.jsonl?platform=vgsi")).text.splitlines()) == 1
    (line,) = (await client.get("/v1/export/liens.jsonl")).text.splitlines()
    assert json.loads(line)["lien"] == found["lien"]
    records = await all_pages(client, "/v1/parcels", limit=2, records="true")
    platforms = [source["record"]["platform"] for one in records for source in one["sources"]]
    assert platforms == ["lien_register", "mygov_due", "vgsi"]
    assert (await client.get("/v1/overview")).json()["counts"] == {"parcels": 1, "liens": 1, "results": 3}


async def test_a_page_is_a_download_that_no_browser_renders(context: Context, client: httpx2.AsyncClient) -> None:
    page = b"<script>alert(1)</script>"
    digest = await keep_page(context.raw_store, page)
    other = await keep_page(context.raw_store, b"of another parcel")
    await store(context, {"parcel_id": "1"}, page=page)
    path = "/v1/parcels/CT/hartford/1/raw"
    answer = await client.get(path)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="1.gz"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert gzip.decompress(answer.content) == page
    assert (await client.get(f"{path}?sha256={digest}")).status_code == 200
    assert (await client.get(f"{path}?sha256={other}")).status_code == 404
    assert (await client.get(f"{path}?sha256=../../gateway.db")).status_code == 404
    assert (await client.get("/v1/parcels/CT/hartford/2/raw")).status_code == 404


async def test_a_page_is_shown_without_scripts_and_without_what_it_loads(
    context: Context, client: httpx2.AsyncClient
) -> None:
    page = "<meta charset=latin1><p>Ñame</p><script>alert(1)</script>".encode("latin-1")
    await keep_page(context.raw_store, page)
    await store(context, {"parcel_id": "1"}, page=page)
    detail = (await client.get("/v1/parcels/CT/hartford/1")).json()
    answer = await client.get(detail["sources"][0]["page"])
    assert answer.content == page
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'; ")
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert (await client.get(f"/v1/parcels/CT/hartford/1/page?sha256={'0' * 64}")).status_code == 404
    assert (await client.get("/v1/parcels/CT/hartford/2/page")).status_code == 404


async def test_an_export_holds_every_row_once_in_either_form(
    subtests: pytest.Subtests, context: Context, client: httpx2.AsyncClient
) -> None:
    lien = [{"certificate_number": "7", "face_amount": 5}]
    await store_at_once(context, ({"parcel_id": f"{number:04}", "liens": lien} for number in range(601)))
    expected = [f"{number:04}" for number in range(601)]
    for kind in ("parcels", "liens"):
        with subtests.test(kind=kind):
            table = await client.get(f"/v1/export/{kind}.csv")
            lines = await client.get(f"/v1/export/{kind}.jsonl")
            rows = list(csv.DictReader(io.StringIO(table.text, newline="")))
            assert [row["parcel_id"] for row in rows] == expected
            assert [json.loads(line)["parcel_id"] for line in lines.text.splitlines()] == expected
            assert table.headers["content-disposition"] == f'attachment; filename="{kind}.csv"'
            narrow = await client.get(f"/v1/export/{kind}.csv?q=0007")
            assert len(narrow.text.splitlines()) == 2
            assert (await client.get(f"/v1/export/{kind}.csv?limit=5")).status_code == 422


async def test_an_export_ends_when_nobody_reads_it_or_the_gateway_stops(context: Context) -> None:
    await store_at_once(context, ({"parcel_id": f"{number:04}"} for number in range(1_000)))
    app = make_app(context)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/export/parcels.jsonl",
        "raw_path": b"/v1/export/parcels.jsonl",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8700),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
    sent: list[Any] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            gone.set()
            await asyncio.Event().wait()  # for good: who reads no more is not waited for

    async with asyncio.timeout(60):
        await app(scope, receive, send)
    assert len(sent) == 3
    assert sent[-1]["more_body"]
    context.stopping.set()
    sent.clear()
    gone.clear()
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start"]


async def test_an_overview_tells_how_everything_is(context: Context, client: httpx2.AsyncClient) -> None:
    await fill(context.ledger, context.raw_store, context.clock.now(), parcels=6)
    told = (await client.get("/v1/overview?hours=1")).json()
    assert told["counts"]["parcels"] == 6
    workers = {worker["worker_id"]: worker for worker in told["workers"]}
    assert {name: worker["state"] for name, worker in workers.items()} == {
        "attic": "offline",
        "boat-17": "alive",
        "cellar": "stopped",
        "harlow-01": "alive",
        "harlow-02": "alive",
    }
    assert workers["boat-17"]["pending_commands"] == ["sync-now"]
    assert workers["boat-17"]["lag_seconds"] == 57
    assert told["sync"]["unsynced"] == 1_240 + 3 * 18
    assert (told["activity"]["bucket_seconds"], len(told["activity"]["series"]["stored"])) == (60, 60)
    health = {platform["platform"]: platform for platform in told["platforms"]}
    assert health["qpublic"]["blocked_workers"] == ["harlow-02"]
    assert {one["field"] for one in health["qpublic"]["failing_selectors"]} == {"owner_names", "tax_due"}
    assert {one["field"] for one in health["qpublic"]["outdated_selectors"]} == {"year_built"}
    optional = health["vgsi"]
    assert (optional["failing_selectors"], optional["outdated_selectors"]) == ([], []), "most pages do not have it"
    assert (health["grizzly_gis"]["failed"], health["grizzly_gis"]["state"]) == (3, "failing")
    assert (health["mygov_due"]["success_rate"], health["mygov_due"]["state"]) == (None, "idle")
    assert sum(row["tasks"] for row in told["queue"] if row["state"] == "leased") == 21


async def test_what_a_worker_sees_break_is_named_with_its_site_until_it_is_away(
    context: Context, client: httpx2.AsyncClient
) -> None:
    one = {"platform": "vgsi", "state": "NH", "county": "grafton", "field": "owner", "failing": ["css #o"]}
    rates = {"success_rate": 0.9, "used_to": 1.0, "example": "t1"}
    bad = [{**one, **rates, "field": ""}, {**one, **rates, "failing": 7}, 7]
    found = {**one, **rates, "field": "situs", "found_otherwise": True}
    for worker in ("w-1", "w-2"):
        beat = {"platforms": ["vgsi"], "broken": [{**one, **rates}, found, *bad]}
        await client.post("/internal/heartbeat", json=beat, headers={"X-Worker-ID": worker})
    (health,) = (await client.get("/v1/overview")).json()["platforms"]
    (failing,) = health["failing_selectors"]
    assert (failing["site"], failing["field"], failing["selector"]) == ("NH/grafton", "owner", "css #o")
    assert failing["example"] == "t1"
    assert [outdated["field"] for outdated in health["outdated_selectors"]] == ["situs"]
    assert isinstance(context.clock, ManualClock)
    context.clock.advance(3_600)
    assert (await client.get("/v1/overview")).json()["platforms"] == []


async def test_a_task_is_shown_with_its_leases(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task("a/b c"))
    now = context.clock.now()
    await context.ledger.grant("w-1", ["echo"], 1, now, now + timedelta(minutes=1))
    told = (await client.get("/v1/tasks/a%2Fb%20c")).json()
    assert (told["state"], [lease["worker_id"] for lease in told["leases"]]) == ("leased", ["w-1"])
    assert (await client.get("/v1/tasks/none")).status_code == 404


async def test_a_command_waits_for_its_worker(context: Context, client: httpx2.AsyncClient) -> None:
    now = context.clock.now()
    for worker_id in ("w-1", "w-2"):
        await context.ledger.record_heartbeat(a_beat(worker_id), now, now, now)
    assert (await client.post("/v1/commands", json={"command": "pause", "worker_id": "w-1"})).json() == {"workers": 1}
    assert (await client.post("/v1/commands", json={"command": "platforms:a,b", "all": True})).json() == {"workers": 2}
    told = {one["worker_id"]: one["pending_commands"] for one in (await client.get("/v1/workers")).json()["workers"]}
    assert told == {"w-1": ["pause", "platforms:a,b"], "w-2": ["platforms:a,b"]}
    assert (await client.post("/v1/commands", json={"command": "pause", "worker_id": "w-9"})).status_code == 404
    bodies: list[Any] = [{"command": "reboot"}, {"command": "platforms"}, {"worker_id": "w-1"}, []]
    bodies += [{"command": "platforms:a\nb", "all": True}, {"command": "reboot", "all": True}]
    unclear: list[Any] = [{"command": "stop"}, {"command": "stop", "all": False}, {"command": "stop", "worker_id": ""}]
    unclear.append({"command": "stop", "worker_id": "w-1", "all": True})
    for bad in (*bodies, *unclear):
        assert (await client.post("/v1/commands", json=bad)).status_code == 422
    waiting = [one["pending_commands"] for one in (await client.get("/v1/workers")).json()["workers"]]
    assert waiting == [["pause", "platforms:a,b"], ["platforms:a,b"]], "nobody was told what was refused"


async def test_a_worker_that_said_goodbye_has_stopped_and_is_not_away(client: httpx2.AsyncClient) -> None:
    for leaving in (False, True):
        beat = {"platforms": ["vgsi"], "leaving": leaving}
        await client.post("/internal/heartbeat", json=beat, headers={"X-Worker-ID": "w-1"})
        (worker,) = (await client.get("/v1/workers")).json()["workers"]
        assert (worker["alive"], worker["state"]) == (not leaving, "stopped" if leaving else "alive")
    assert (await client.post("/v1/commands", json={"command": "stop", "worker_id": "w-1"})).status_code == 404


async def test_tasks_are_added_whatever_stands_beside_them(context: Context, client: httpx2.AsyncClient) -> None:
    good = {"task_id": "t1", "platform": "echo", "target": {"parcel_id": 7, "state": "CT", "county": ""}, "priority": 1}
    bad = [{"task_id": "t2"}, 7, {**good, "task_id": "t3", "priority": 9}]
    answer = (await client.post("/v1/tasks", json=[bad[0], good, bad[1], bad[2]])).json()
    assert (answer["new"], answer["known"]) == (1, 0)
    assert [(one["position"], one["task_id"]) for one in answer["bad"]] == [(1, "t2"), (3, ""), (4, "t3")]
    lines = "\n".join(json.dumps(one) for one in (good, {**good, "task_id": "t4"})) + "\n\n{cut"
    answer = (await client.post("/v1/tasks", content=lines)).json()
    assert (answer["new"], answer["known"], len(answer["bad"])) == (1, 1, 1)
    assert (await client.post("/v1/tasks", json=[good] * 10_001)).status_code == 422
    assert (await client.post("/v1/tasks", content=b"[{")).status_code == 422


async def test_tasks_that_were_not_found_are_listed_page_by_page(context: Context, client: httpx2.AsyncClient) -> None:
    now = context.clock.now()
    await add_tasks(context, *(a_task(f"t{number}") for number in range(3)))
    for grant in await context.ledger.grant("w-1", ["echo"], 3, now, now + timedelta(minutes=1)):
        await context.ledger.end_task(grant.task.task_id, "w-1", error="none", again=False, now=now, not_found=True)
    first = (await client.get("/v1/tasks?state=not_found&limit=2")).json()
    assert [(one["task_id"], one["state"], one["error"]) for one in first["tasks"]] == [
        ("t2", "not_found", "none"),
        ("t1", "not_found", "none"),
    ]
    assert first["tasks"][0]["target"]["parcel_id"] == "parcel-t2"
    rest = (await client.get(f"/v1/tasks?state=not_found&limit=2&cursor={first['next']}")).json()
    assert ([one["task_id"] for one in rest["tasks"]], rest["next"]) == (["t0"], None)
    assert (await client.get("/v1/tasks?state=not_found&platform=vgsi")).json() == {
        "tasks": [],
        "next": None,
        "total": 0,
    }
    for bad in ("", "?state=gone", "?state=dead&cursor=x", "?state=dead&platform=%00", "?state=dead&limit=201"):
        assert (await client.get(f"/v1/tasks{bad}")).status_code == 422, bad


async def test_a_task_that_can_be_added_can_be_delivered(context: Context, client: httpx2.AsyncClient) -> None:
    longest = {"parcel_id": "x" * 500, "state": "CT", "county": "x" * 500}
    good: dict[str, Any] = {"task_id": "é" * 250, "platform": "p" * 500, "target": longest}
    bad = [{**good, "task_id": "é" * 251}, {**good, "task_id": "t", "platform": "p" * 501}]
    bad += [{**good, "task_id": "t", "target": {**longest, name: "x" * 501}} for name in longest]
    added = (await client.post("/v1/tasks", json=[good, *bad])).json()
    assert (added["new"], len(added["bad"])) == (1, len(bad))
    assert "task_id has 502 bytes" in added["bad"][0]["problem"]
    result = a_result(good["task_id"], platform=good["platform"], **longest)
    assert (await client.post("/internal/results", json=[result])).json()["inserted"] == 1
    row = await context.ledger.task("é" * 250)
    assert row is not None and row.state == "done"


@one_ledger
async def test_a_path_that_is_asked_in_the_wrong_way_says_how_it_can_be_asked(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        answer = await client.put(path.replace("{", "").replace("}", ""))
        assert answer.status_code == 405
        also = {"GET"} if path in ("/v1/tasks/requeue", "/v1/tasks/delete") else set()  # of a task with that id
        assert set(answer.headers["allow"].split(", ")) == {method.upper() for method in methods} | also, path


@one_ledger
async def test_nothing_that_a_client_says_of_our_name_is_repeated(client: httpx2.AsyncClient) -> None:
    for path in ("/v1/parcels/", "/internal/work/", "/health/", "/docs/"):
        answer = await client.get(path, headers={"Host": "elsewhere.example"})
        assert answer.status_code == 404
        assert "elsewhere" not in f"{answer.headers} {answer.text}"


@one_ledger
async def test_the_document_says_which_token_each_route_takes(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    schemes = document["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "workerToken": "apiKey",
        "readToken": "http",
        "adminToken": "http",
    }
    taken = {
        f"{method} {path}": {name for one in operation.get("security", ()) for name in one}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    for route, names in taken.items():
        if "/internal/" in route:
            assert names == {"workerToken"}, route
        elif route.startswith(("post /v1", "delete /v1")):
            assert names == {"adminToken"}, route
        else:
            assert names == (set() if route == "get /health" else {"readToken", "adminToken"}), route


async def test_counties_are_listed_with_all_that_is_known_of_them(context: Context, client: httpx2.AsyncClient) -> None:
    await fill(context.ledger, context.raw_store, context.clock.now(), parcels=10)
    counties = {
        (row["platform"], row["state"], row["county"]): row
        for row in (await client.get("/v1/counties")).json()["counties"]
    }
    harlow = counties["grizzly_gis", "FL", "harlow"]
    assert harlow["health"] == "failing"
    assert counties["lien_register", "FL", "harlow"]["health"] == "idle"
    assert (harlow["parcels"], harlow["failed"], harlow["success_rate"]) == (1, 3, 0)
    assert harlow["queued"] > 100
    alder = counties["qpublic", "GA", "alder"]
    assert alder["blocked_workers"] == ["harlow-02"]
    failing = {field["field"]: field["found_otherwise"] for field in alder["failing_fields"]}
    assert failing == {"owner_names": False, "tax_due": False, "year_built": True}
    assert counties["lien_register", "FL", "harlow"]["parcels"] == 0


async def test_failed_tasks_are_queued_again(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    now = context.clock.now()
    await context.ledger.grant("w-1", ["echo"], 1, now, now + timedelta(minutes=1))
    await context.ledger.end_task("t1", "w-1", error="no", again=False, now=now)
    (group,) = (await client.get("/v1/failures")).json()["groups"]
    assert (group["outcome"], group["reason"], group["tasks"], group["example"]) == ("failed", "no", 1, "t1")
    shown = (await client.get("/v1/tasks?state=failed&reason=no&site=CT/hartford")).json()
    assert ([task["task_id"] for task in shown["tasks"]], shown["total"]) == (["t1"], 1)
    assert (await client.get("/v1/tasks?state=failed&reason=yes")).json()["total"] == 0
    counted = {"task_ids": ["t1", "t2"], "dry_run": True}
    assert (await client.post("/v1/tasks/requeue", json=counted)).json() == {"requeued": 1}
    assert (await client.post("/v1/tasks/delete", json=counted)).json() == {"deleted": 1}
    assert (await client.post("/v1/refresh", json={"task_ids": ["t1"]})).json() == {"queued": 0}
    assert (await client.get("/v1/tasks/t1")).json()["leases"][0]["error"] == "no"
    assert (await client.post("/v1/tasks/requeue", json={"states": ["failed"]})).json() == {"requeued": 1}
    queued = (await client.get("/v1/queue")).json()["queue"]
    assert [(row["state"], row["tasks"]) for row in queued] == [("queued", 1)]
    assert (await client.post("/v1/tasks/requeue", json={"states": ["done"]})).status_code == 422
    for path in ("requeue", "delete"):
        assert (await client.post(f"/v1/tasks/{path}", json={"platform": "echo"})).status_code == 422
    assert (await client.post("/v1/tasks/delete", json={"task_ids": ["t1"]})).json() == {"deleted": 1}
    assert (await client.get("/v1/tasks/t1")).status_code == 404


async def test_the_parcels_of_tasks_are_refreshed(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    now = context.clock.now()
    await context.ledger.grant("w-1", ["echo"], 1, now, now + timedelta(minutes=1))
    path = f"{context.settings.base_path}/results"
    sent = await client.post(path, json=[a_result()], headers={"X-Worker-ID": "w-1"})
    assert sent.json()["failed"] == 0
    assert (await client.get("/v1/tasks/t1")).json()["parcel"]
    assert (await client.post("/v1/refresh", json={"task_ids": ["t1"], "dry_run": True})).json() == {"queued": 1}
    assert (await client.post("/v1/refresh", json={"task_ids": ["t1"], "state": "ZZ"})).json() == {"queued": 0}
    assert (await client.post("/v1/refresh", json={"task_ids": ["t1", "t9"]})).json() == {"queued": 1}


async def test_the_parcels_of_failed_tasks_are_refreshed_by_state_reason_and_county(
    context: Context, client: httpx2.AsyncClient
) -> None:
    now = context.clock.now()
    tasks = [a_task(f"t{number}", parcel_id=f"01-{number}") for number in range(3)]
    await add_tasks(context, *tasks)
    await client.post(
        "/internal/results", json=[a_result(f"s{number}", parcel_id=f"01-{number}") for number in range(4)]
    )
    await context.ledger.grant("w-1", ["echo"], 3, now, now + timedelta(minutes=1))
    for number, reason in enumerate(("down", "down", "blocked")):
        await context.ledger.end_task(f"t{number}", "w-1", error=reason, again=False, now=now)

    async def refresh(**wanted: Any) -> Any:
        reply = await client.post("/v1/refresh", json={"task_states": ["failed"], **wanted})
        return reply.json().get("queued")

    assert await refresh(dry_run=True) == 3
    assert await refresh(reason="down", platform="echo", state="CT", county="hartford", dry_run=True) == 2
    assert await refresh(county="salem", state="CT") == await refresh(task_states=["dead"]) == 0
    assert await refresh(task_states=["failed"] * 6, dry_run=True) == 3
    assert (await client.post("/v1/refresh", json={"task_states": ["failed"] * 7})).status_code == 422
    assert await refresh(reason="down") == 2
    assert await refresh() == 1, "the others are being refreshed"
    assert (await client.post("/v1/refresh", json={"reason": "down"})).status_code == 422


READS = ["/v1/parcels", "/v1/parcels/a/b/c", "/v1/parcels/a/b/c/raw", "/v1/liens", "/v1/overview", "/v1/workers"]
READS += [
    "/v1/queue",
    "/v1/tasks/a",
    "/v1/tasks?state=dead",
    "/v1/export/parcels.csv",
    "/v1/export/liens.jsonl",
    "/v1/parcels?limit=x",
]


async def test_readers_need_a_token_where_there_is_one(subtests: pytest.Subtests, tmp_path: Path) -> None:
    async with some_context(tmp_path, TOKENS) as context, a_client(context) as client:
        for path in READS:
            with subtests.test(path=path):
                assert (await client.get(path)).status_code == 401
                assert (await client.get(path, headers=bearer("wrong"))).status_code == 401
                for token in ("reading", "ruling"):
                    assert (await client.get(path, headers=bearer(token))).status_code in {200, 404, 422}


async def test_orders_need_an_admin_token(subtests: pytest.Subtests, tmp_path: Path) -> None:
    async with some_context(tmp_path, TOKENS) as context, a_client(context) as client:
        for path in ("/v1/commands", "/v1/tasks", "/v1/tasks/requeue", "/v1/workers/release"):
            with subtests.test(path=path):
                for headers in ({}, bearer("wrong")):
                    assert (await client.post(path, json={}, headers=headers)).status_code == 401
                refused = await client.post(path, json={}, headers=bearer("reading"))
                assert (refused.status_code, "an admin token is required" in refused.text) == (403, True)
                assert (await client.post(path, json={}, headers=bearer("ruling"))).status_code in {200, 422}


@one_ledger
async def test_the_dashboards_files_are_strict_and_lead_nowhere_else(client: httpx2.AsyncClient) -> None:
    page = await client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304
    for name in ("../app.py", "__init__.py", "%2e%2e/app.py", "nothing.js"):
        assert (await client.get(f"/dashboard/{name}")).status_code == 404
