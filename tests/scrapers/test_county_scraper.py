"""From a task to a record: each platform against a site in its own structure, with invented parcels."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Blocked, Done, GiveUp, NotFound, Outcome, Retry, Target, Task
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.county_scraper import county_scrapers
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.scrapers.fetching import fetching
from tests.scrapers.test_incomplete_pages import auction
from tests.website import Asked, Reply, Website

CLOCK = ManualClock()


@pytest.fixture
async def lpm(tmp_path: Path) -> AsyncIterator[LocalPersistenceManager]:
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=CLOCK) as opened:
        yield opened


class Scraping:
    """`outcome` of one attempt at a platform whose only county is the test's website."""

    def __init__(self, site: Website, cache: Any) -> None:
        self._site = site
        self._cache = cache

    async def __call__(
        self,
        platform: str,
        parcel: str = "1",
        *,
        entry: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        url: str = "",
    ) -> Outcome:
        given = {"platform": platform, "state": "FL", "county": "nowhere", "fips": "12999", "site": self._site.url}
        counties = Counties([County(**{**given, **entry})] if entry is not None else [])
        target = Target(parcel_id=parcel, state="FL", county="Nowhere County", url=url, extra=extra or {})
        async with fetching(CLOCK, cache=self._cache) as one:
            scrapers = county_scrapers(counties, one.fetcher.session, Ranking(), CLOCK)
            return await scrapers[platform].scrape(Task(task_id="t", platform=platform, target=target))


@pytest.fixture
def scraping(site: Website, lpm: LocalPersistenceManager) -> Scraping:
    return Scraping(site, lpm.cache)


# arcgis and socrata


def _layer(site: Website, parcels: int, page: int) -> None:
    def query(asked: Asked) -> Reply:
        start = int(asked.query.get("resultOffset", 0))
        rows = range(start, min(start + page, parcels))
        more = {"exceededTransferLimit": True} if start + page < parcels else {}
        given = {"OWN_NAME": "DOE", "JV": 1.10, "DOR_UC": "000"}
        features = [{"attributes": {"PARCEL_ID": f"01-{n:04}", **given}} for n in rows]
        return Reply(json.dumps({"features": features, **more}).encode(), headers={"Content-Type": "application/json"})

    site.pages["/rest/0/query"] = query


async def test_arcgis_pages_are_joined_and_each_row_is_a_record(site: Website, scraping: Scraping) -> None:
    _layer(site, parcels=25, page=10)
    entry = {"site": f"{site.url}/rest/0"}
    outcome = await scraping("arcgis", "", entry=entry, extra={"where": "CO_NO = 12"})
    assert isinstance(outcome, Done), outcome
    records: list[Any] = [outcome.data, *outcome.additional_records]
    assert [record["parcel_id"] for record in records] == [f"01-{n:04}" for n in range(25)]
    assert str(records[0]["market_value"]) == "1.1"
    assert {record["county_fips"] for record in records} == {"12999"}
    assert [asked.query["resultOffset"] for asked in site.asked] == ["0", "10", "20"]
    assert site.asked[0].query["where"] == "CO_NO = 12"
    assert await scraping("arcgis", "", entry=entry, extra={"where": "CO_NO = 12"}) == outcome
    assert len(site.asked) == 3


async def test_arcgis_asks_for_one_parcel_by_its_column(site: Website, scraping: Scraping) -> None:
    _layer(site, parcels=1, page=10)
    entry = {"site": f"{site.url}/rest/0", "ids": {"parcel_column": "PARCEL_ID"}}
    await scraping("arcgis", "O'Neil", entry=entry)
    assert site.asked[0].query["where"] == "PARCEL_ID='O''Neil'"


async def test_an_answer_of_too_many_rows_is_refused(site: Website, scraping: Scraping) -> None:
    _layer(site, parcels=25_000, page=1_000)
    outcome = await scraping("arcgis", "", entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, GiveUp)
    assert "20,000" in outcome.reason


@pytest.mark.parametrize(("part", "found"), [("", 25), ("&resultRecordCount=10", 10)])
async def test_a_query_that_is_given_whole_is_answered_whole(
    site: Website, scraping: Scraping, part: str, found: int
) -> None:
    _layer(site, parcels=25, page=10)
    url = f"{site.url}/rest/0/query?where=1%3D1&f=json{part}"
    outcome = await scraping("arcgis", "", url=url, entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, Done), outcome
    assert 1 + len(outcome.additional_records) == found


def _rows(numbers: range) -> list[dict[str, Any]]:
    given = {"OWN_NAME": "DOE", "JV": 1.10, "DOR_UC": "000"}
    return [{"attributes": {"PARCEL_ID": f"01-{n:04}", **given}} for n in numbers]


def _answering(site: Website, path: str, answer: Callable[[Asked], Any]) -> None:
    headers = {"Content-Type": "application/json"}
    site.pages[path] = lambda asked: Reply(json.dumps(answer(asked)).encode(), headers=headers)


@pytest.mark.parametrize("more", [{"exceededTransferLimit": True}, {}])
async def test_a_layer_that_gives_its_first_rows_again_and_again_is_given_up(
    site: Website, scraping: Scraping, more: dict[str, Any]
) -> None:
    _answering(site, "/rest/0/query", lambda _: {"features": _rows(range(200)), **more})
    outcome = await scraping("arcgis", "", entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, GiveUp)
    assert "the same rows instead of the next page" in outcome.reason
    assert len(site.asked) == 2


@pytest.mark.parametrize(("there", "asked_for"), [(25, 1), (100, 2), (250, 3)])
async def test_a_layer_that_never_says_that_it_has_more_is_asked_after_a_round_number_of_rows(
    site: Website, scraping: Scraping, there: int, asked_for: int
) -> None:
    def query(asked: Asked) -> Any:
        start = int(asked.query["resultOffset"])
        return {"features": _rows(range(start, min(start + 100, there)))}

    _answering(site, "/rest/0/query", query)
    outcome = await scraping("arcgis", "", entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, Done), outcome
    assert 1 + len(outcome.additional_records) == there
    assert len(site.asked) == asked_for


@pytest.mark.parametrize(("there", "kind"), [(1, Done), (37, Done), (200, GiveUp)])
async def test_a_layer_that_cannot_page_is_asked_for_all_at_once(
    site: Website, scraping: Scraping, there: int, kind: type[Outcome]
) -> None:
    def query(asked: Asked) -> Any:
        if "resultOffset" in asked.query:
            return {"error": {"code": 400, "message": "Pagination is not supported.", "details": []}}
        return {"features": _rows(range(there))}

    _answering(site, "/rest/0/query", query)
    outcome = await scraping("arcgis", "", entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, kind), outcome


async def test_rows_that_come_twice_are_asked_for_again(site: Website, scraping: Scraping) -> None:
    def query(asked: Asked) -> Any:
        start = max(0, int(asked.query["resultOffset"]) - 1)
        return {"features": _rows(range(start, start + 10)), "exceededTransferLimit": start < 10}

    _answering(site, "/rest/0/query", query)
    outcome = await scraping("arcgis", "", entry={"site": f"{site.url}/rest/0"}, extra={"where": "1=1"})
    assert isinstance(outcome, Retry)
    assert "returned twice" in outcome.reason


async def test_a_table_that_knows_no_offset_is_given_up(site: Website, scraping: Scraping) -> None:
    rows = [{"borough": "1", "block": str(n), "lot": "1", "cycle": "x"} for n in range(1_000)]
    _answering(site, "/resource/abcd-1234.json", lambda _: rows)
    outcome = await scraping("socrata", "", entry={"ids": {"dataset": "abcd-1234"}}, extra={"where": "borough='1'"})
    assert isinstance(outcome, GiveUp)
    assert "the same rows instead of the next page" in outcome.reason


async def test_socrata_pages_are_joined(site: Website, scraping: Scraping) -> None:
    def table(asked: Asked) -> Reply:
        start, limit = int(asked.query["$offset"]), int(asked.query["$limit"])
        rows = [{"borough": "1", "block": str(n), "lot": "1"} for n in range(start, min(start + limit, 1_200))]
        return Reply(json.dumps(rows).encode(), headers={"Content-Type": "application/json"})

    site.pages["/resource/abcd-1234.json"] = table
    entry = {"ids": {"dataset": "abcd-1234", "app_token": "mine"}}
    await scraping("socrata", "", entry=entry, extra={"where": "borough='1'"})
    assert [asked.query["$offset"] for asked in site.asked] == ["0", "1000"]
    assert site.asked[0].query["$order"] == ":id"
    assert site.asked[0].headers["x-app-token"] == "mine"


# Pages of one parcel


SHELL = b"""<html><body><form name="parentForm" id="parentForm" method="POST" action="/gis/recordSearch_2_Results/">
<input type="hidden" name="Show_Rec"><input type="hidden" name="bHandoff" value="1">
<input type="hidden" name="bHandoff_PIN" value="112S1500010001"></form></body></html>"""


async def test_grizzly_answers_the_form_of_the_frame_with_its_cookies(site: Website, scraping: Scraping) -> None:
    site.page("/gis/", SHELL, Set_Cookie="ASPSESSION=1; Path=/")
    site.page("/gis/recordSearch_2_Results/", b"<html><body>0 records</body></html>")
    outcome = await scraping("grizzly_gis", "11-2S-15-00010-001", entry={})
    assert isinstance(outcome, NotFound)
    get, post = site.asked
    assert get.query == {"pin": "112S1500010001"}
    assert post.form == {"Show_Rec": "", "bHandoff": "1", "bHandoff_PIN": "112S1500010001"}
    assert post.headers["cookie"] == "ASPSESSION=1"


async def test_a_form_that_leads_elsewhere_is_not_answered(site: Website, scraping: Scraping) -> None:
    site.page("/gis/", SHELL.replace(b'action="/gis', b'action="http://elsewhere.example.org/gis'))
    assert isinstance(await scraping("grizzly_gis", "11-2S-15-00010-001", entry={}), GiveUp)


async def test_qpublic_is_addressed_by_the_four_ids_and_a_check_is_blocked(site: Website, scraping: Scraping) -> None:
    site.page("/Application.aspx", b"<html><title>Just a moment...</title></html>", 403)
    ids = {"AppID": "867", "LayerID": "16385", "PageID": "7232"}
    assert isinstance(await scraping("qpublic", "34-09", entry={"ids": ids}), Blocked)
    assert site.asked[0].query == {**ids, "PageTypeID": "4", "KeyValue": "34-09"}
    lacking = await scraping("qpublic", "34-09", entry={"ids": {"AppID": "867"}})
    assert isinstance(lacking, GiveUp)
    assert "ids.LayerID" in lacking.reason


async def test_mygov_due_sends_the_public_token(site: Website, scraping: Scraping) -> None:
    answer = {"due": {"PPT": {"bills": [{"account_number": "A 1", "taxYear": 2025}], "parcels": [], "accounts": []}}}
    site.page("/api/v2/due/PPT/A%201", json.dumps(answer).encode(), Content_Type="application/json")
    outcome = await scraping("mygov_due", "A 1", entry={"ids": {"token": "public"}})
    assert isinstance(outcome, Done), outcome
    assert site.asked[0].headers["authorization"] == "Basic public"


async def test_a_list_is_followed_to_its_last_page(site: Website, scraping: Scraping) -> None:
    site.page("/auction/110", auction("51", "52", page=1, pages=2).encode())
    site.pages["/table/filter"] = lambda asked: Reply(
        auction("53", page=int(parse_qs(asked.body.decode())["page"][0]), pages=2).encode()
    )
    outcome = await scraping("deedauction", "", url=f"{site.url}/auction/110")
    assert isinstance(outcome, Done), outcome
    records: Any = (outcome.data, *outcome.additional_records)
    assert [one["case_number"] for one in records] == ["51", "52", "53"]
    assert [asked.path for asked in site.asked] == ["/auction/110", "/table/filter"]


async def test_a_list_whose_next_page_does_not_come_is_no_list(site: Website, scraping: Scraping) -> None:
    site.page("/auction/110", auction("51", "52", page=1, pages=2).encode())
    site.page("/table/filter", auction("51", "52", page=1, pages=2).encode())
    outcome = await scraping("deedauction", "", url=f"{site.url}/auction/110")
    assert isinstance(outcome, Retry)
    assert "page 2 of 2" in outcome.reason


async def test_vgsi_is_addressed_by_town_and_number(site: Website, scraping: Scraping) -> None:
    await scraping("vgsi", "837", entry={"site": f"{site.url}/lymenh/"})
    assert site.paths == ["/lymenh/Parcel.aspx?Pid=837"]


async def test_a_record_says_where_and_when_it_is_from(site: Website, scraping: Scraping) -> None:
    answer = {"due": {"PPT": {"bills": [{"account_number": "7", "taxYear": 2025}], "parcels": [], "accounts": []}}}
    site.page("/api/v2/due/PPT/7", json.dumps(answer).encode(), Content_Type="application/json")
    outcome = await scraping("mygov_due", "7", entry={})
    assert isinstance(outcome, Done)
    data: Any = outcome.data
    assert data["county_fips"] == "12999"
    assert data["source_url"] == f"{site.url}/api/v2/due/PPT/7?detail_level=public"
    assert len(data["raw_html_hash"]) == 64
    assert outcome.scraped_at == CLOCK.now()


# Addresses


async def test_a_number_that_cannot_be_of_the_county_asks_nothing(site: Website, scraping: Scraping) -> None:
    outcome = await scraping("vgsi", "x", entry={"parcel": r"\d+", "example": "837"})
    assert isinstance(outcome, GiveUp)
    assert "837" in outcome.reason
    assert site.asked == []


async def test_an_address_of_another_site_is_refused(site: Website, scraping: Scraping) -> None:
    outcome = await scraping("leepa", entry={"site": "https://county.example.org"}, url=f"{site.url}/x")
    assert isinstance(outcome, GiveUp)
    assert site.asked == []
    await scraping("leepa", entry={"site": "https://county.example.org", "hosts": (site.url,)}, url=f"{site.url}/x")
    await scraping("leepa", url=f"{site.url}/y")
    assert site.paths == ["/x", "/y"]


@pytest.mark.parametrize("platform", ["leepa", "collier_pa", "miamidade_pa", "broward_bcpa", "govease", "deedauction"])
async def test_without_an_address_the_task_is_given_up_with_what_it_needs(scraping: Scraping, platform: str) -> None:
    outcome = await scraping(platform, entry={})
    assert isinstance(outcome, GiveUp)
    assert "needs a url" in outcome.reason


async def test_an_entry_may_say_how_an_address_is_made(site: Website, scraping: Scraping) -> None:
    await scraping("leepa", "1 2/3", entry={"url": f"{site.url}/p?FolioID={{parcel}}&plain={{plain}}"})
    assert site.paths == ["/p?FolioID=1%202%2F3&plain=123"]


# realauction

ITEM = (
    '<div id="AITEM_1" @CAUCTION_ITEM">@A"><@I @Cad_tab">@H@CAD_LBL">Case #:</td><td @CAD_DTA">2025-TD-1@G'
    '@H@CAD_LBL">Certificate #:@F @CAD_DTA">77@G@H@CAD_LBL">Opening Bid:@F @CAD_DTA">$1,234.56@G'
    '@H@CAD_LBL">Parcel ID:@F @CAD_DTA"><a href="/x">01-02-03</a>@G'
    '@H@CAD_LBL">Property Address:@F @CAD_DTA">1 MAIN ST@G@H@CAD_LBL">@F @CAD_DTA">NOWHERE, FL- 32000@G'
    '@H@CAD_LBL">Assessed Value:@F @CAD_DTA">$9,000.00@G</@I>@B</div>'
)


def _auction(site: Website) -> None:
    def index(asked: Asked) -> Reply:
        if asked.query.get("Zmethod") == "PREVIEW":
            return Reply(b"<html></html>", headers={"Set-Cookie": "CFID=1; Path=/"})
        if "LOAD" not in asked.target:
            return Reply(b"<html></html>")
        number = min(int(asked.query["bypassPage"]), 2)
        known = "CFID=1" in asked.headers.get("cookie", "")
        found = {"retHTML": ITEM.replace("2025-TD-1", f"2025-TD-{number}"), "rlist": str(number)} if known else {}
        return Reply(json.dumps(found).encode(), headers={"Content-Type": "application/json"})

    site.pages["/index.cfm"] = index


async def test_realauction_keeps_its_session_and_expands_the_answers(site: Website, scraping: Scraping) -> None:
    _auction(site)
    outcome = await scraping("realauction", "", entry={}, extra={"auction_date": "2026-01-15"})
    assert isinstance(outcome, Done), outcome
    first: Any = outcome.data
    second: Any = outcome.additional_records[0]
    assert [first["case_number"], second["case_number"]] == ["2025-TD-1", "2025-TD-2"]
    wanted = {"parcel_id": "01-02-03", "certificate_number": "77", "opening_bid": 1234.56, "auction_date": "2026-01-15"}
    assert {name: first[name] for name in wanted} == wanted
    assert (first["situs_address"], first["situs_city"], first["situs_zip"]) == ("1 MAIN ST", "NOWHERE", "32000")
    assert first["assessed_value"] == 9000
    before = len(site.asked)
    assert await scraping("realauction", "", entry={}, extra={"auction_date": "2026-01-15"}) == outcome
    assert len(site.asked) == before


@pytest.mark.parametrize(("ending", "expected"), [({}, Retry), (None, GiveUp)])
async def test_a_list_of_realauction_that_ends_early_is_not_the_list(
    site: Website, scraping: Scraping, ending: dict[str, str] | None, expected: type[Retry | GiveUp]
) -> None:
    """The session expires behind the first page, or the pages never end."""

    def index(asked: Asked) -> Reply:
        number = asked.query.get("bypassPage", "1")
        found = ending if ending is not None and number != "1" else {"retHTML": ITEM, "rlist": number}
        return Reply(json.dumps(found).encode(), headers={"Content-Type": "application/json"})

    site.pages["/index.cfm"] = index
    assert isinstance(await scraping("realauction", "", entry={}, extra={"auction_date": "2026-01-15"}), expected)


async def test_realauction_without_a_session_is_tried_again(site: Website, scraping: Scraping) -> None:
    site.page("/index.cfm", b"")
    outcome = await scraping("realauction", "", entry={}, extra={"auction_date": "2026-01-15"})
    assert isinstance(outcome, Retry)
    assert "session" in outcome.reason
    assert isinstance(await scraping("realauction", "", entry={}), GiveUp)


# pioneer_taxdeed

GRID = """<html><head><script>jQuery('#TaxDeed').jqGrid({datatype:'json', rowList:[10,2], rowNum:25, pager:'#pager',
url:'/Home/GridSearchData?SearchType=Status', colModel: [{name:'CaseNumber', index:'CaseNumber'},{name:'ParcelID'},
{name:'OpeningBid'}]});</script></head><body><table id="TaxDeed"></table>
<footer>All rights reserved</footer></body></html>"""


def _deeds(site: Website, *cases: list[str], records: int, pages: int | str | None = None) -> None:
    def rows(asked: Asked) -> Reply:
        number, size = int(asked.query["page"]), 10
        shown = [{"id": at, "cell": cell} for at, cell in enumerate(cases)][(number - 1) * size : number * size]
        answer = {"page": number, "total": pages or -(-len(cases) // size), "records": records, "rows": shown}
        return Reply(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})

    site.page("/deeds", GRID.encode())
    site.pages["/Home/GridSearchData"] = rows


async def test_a_grid_is_followed_to_its_last_page(site: Website, scraping: Scraping) -> None:
    cases = [[f"2024-{number}", f"12-{number}", "$5.00"] for number in range(23)]
    _deeds(site, *cases, records=23)
    outcome = await scraping("pioneer_taxdeed", "", url=f"{site.url}/deeds")
    assert isinstance(outcome, Done), outcome
    found: Any = [outcome.data, *outcome.additional_records]
    assert [(one["case_number"], one["parcel_id"], one["opening_bid"]) for one in found] == [
        (case, parcel, 5) for case, parcel, _ in cases
    ]


async def test_the_number_of_pages_of_a_grid_may_have_a_comma(site: Website, scraping: Scraping) -> None:
    _deeds(site, ["1", "2", "$3"], records=1, pages="1,234")
    outcome = await scraping("pioneer_taxdeed", "", url=f"{site.url}/deeds")
    assert isinstance(outcome, GiveUp)
    assert "1,234 pages" in outcome.reason


@pytest.mark.parametrize(
    ("records", "pages", "cell", "expected"),
    [(0, 1, None, NotFound), (5, None, ["1", "2", "$3"], Retry), (1, None, ["1", "2"], Retry), (1, 500, ["1"], GiveUp)],
)
async def test_a_grid_that_has_less_than_it_says_is_not_the_list(
    site: Website,
    scraping: Scraping,
    records: int,
    pages: int | None,
    cell: list[str] | None,
    expected: type[NotFound | Retry | GiveUp],
) -> None:
    _deeds(site, *([cell] if cell else []), records=records, pages=pages)
    assert isinstance(await scraping("pioneer_taxdeed", "", url=f"{site.url}/deeds"), expected)
