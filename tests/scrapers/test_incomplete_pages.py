"""What a page lacks, or shows in a form that cannot be read, is named: it is never passed on as a fact."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from lxml import html

from parcelpost.model import Done, NotFound, Outcome, Page, Retry, Target
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World
from tests.scrapers.reading import grid, outcome, qpublic, record, two_columns
from tests.scrapers.test_grizzly_gis import page as grizzly_page
from tests.scrapers.test_miamidade_pa import answer
from tests.simulator.asking import parcel_page

WORLD = World(county="invented", size=20)
OF_HTML = ("collier_pa", "grizzly_gis", "leepa", "qpublic", "vgsi")
PARCEL = 7


def parsed(platform: str, body: bytes) -> Outcome:
    found = county_platform(platform)
    assert found is not None
    return found.parse(Page(body=body), Target(parcel_id="", state="FL", county="invented")).outcome


def facts(found: Outcome) -> dict[str, Any]:
    assert isinstance(found, Done), found
    assert isinstance(found.data, dict)
    return found.data


@pytest.mark.parametrize("platform", OF_HTML)
def test_a_page_that_is_cut_off_and_closed_by_a_browser_is_not_whole(platform: str) -> None:
    body = parcel_page(platform, WORLD, PARCEL).body
    whole = facts(parsed(platform, body))
    assert (whole["completeness"], whole["unreadable"]) == ("complete", [])
    for share in range(5, 100, 3):
        cut = html.tostring(html.document_fromstring(body[: len(body) * share // 100]))
        found = parsed(platform, cut)
        if isinstance(found, Done):
            assert facts(found)["sales"] == whole["sales"], share
            assert facts(found)["valuations"] == whole["valuations"], share
        elif isinstance(found, Retry) and found.partial is not None:
            assert facts(found.partial)["completeness"].startswith("missing: "), share


def test_an_incomplete_page_comes_again_with_what_could_be_read() -> None:
    found = outcome("grizzly_gis", grizzly_page())
    assert isinstance(found, Retry)
    assert "the end of the page" in found.reason
    assert found.partial is not None
    assert facts(found.partial)["owner_names"] == ["BLOOM CLARA"]


def test_a_heading_is_no_owner() -> None:
    title = "<td><b>Owner &amp; Property Info</b></td><td>Result: 1 of 1</td>"
    page = grizzly_page().replace("<td><b>Owner &amp; Property Info</b></td>", title)
    renamed = page.replace("<td>Owner</td>", "<td>Holder</td>")
    found = outcome("grizzly_gis", renamed)
    assert isinstance(found, Retry)
    assert found.partial is None


SALES = ("Sale Date", "Sale Price", "Legal Reference", "Deed Type")
SUMMARY, OWNER = two_columns(parcel_id="34-09"), "BLOOM CLARA<br>9 ELM ST<br>BOONE, IA 50036"


def sold(*rows: tuple[str, ...]) -> dict[str, Any]:
    return record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, sales=grid(SALES, *rows)))


def test_a_row_with_other_cells_is_dropped_and_named() -> None:
    whole = sold(("1/2/2020", "$5", "1/2", "WD"))
    assert (len(whole["sales"]), whole["last_sale_price"], "sales" in whole["unreadable"]) == (1, 5, False)
    for odd in [("1/2/2021", "7/8", "WD"), ("1/2/2021", "$9", "$8", "7/8", "WD")]:
        found = sold(("1/2/2020", "$5", "1/2", "WD"), odd)
        assert [sale["date"] for sale in found["sales"]] == ["2020-01-02"]
        assert {"sales", "last_sale_price"} <= set(found["unreadable"])
        assert found["last_sale_price"] is None, "the dropped row may be the last sale"


def test_a_list_of_sales_with_headings_only_says_nothing() -> None:
    found = sold()
    assert (found["sales"], "sales" in found["unreadable"]) == ([], True)


def test_a_row_whose_date_cannot_be_read_is_named_and_a_note_is_not() -> None:
    assert "sales" in sold(("Loading...", "$5", "1/2", "WD"))["unreadable"]
    assert "sales" not in sold(("1/2/2020", "$5", "1/2", "WD"), ("* not verified", "", "", ""))["unreadable"]


def test_a_page_without_a_section_does_not_say_that_there_is_nothing() -> None:
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER))
    assert found["sales"] == []
    assert "sales" in found["unreadable"]
    says_so = '<div id="x_pnlNoDataForModules">No data available for: Sales, Buildings, Valuation.</div>'
    empty = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER).replace("</body>", f"{says_so}</body>"))
    assert (empty["sales"], empty["unreadable"]) == ([], [])


@pytest.mark.parametrize(
    ("cell", "shown"),
    [("12/31/1999", None), ("$1,234", None), ("Click here to view", None), ("1457 / 2165", "1457 / 2165")],
)
def test_a_value_of_another_shape_is_null_and_named(cell: str, shown: str | None) -> None:
    found = sold(("1/2/2020", "$5", cell, "WD"))
    assert found["sales"][0]["book_page"] == shown
    assert ("sales.book_page" in found["unreadable"]) is (shown is None)


def test_a_table_that_looks_the_same_makes_a_value_uncertain() -> None:
    other = "<table><tr><td>Area</td><td>9.5 AC</td><td>S/T/R</td><td>02-2S-03</td></tr></table>"
    page = grizzly_page().replace('<div id="ownerDiv">', f'<h3>Neighbor</h3>{other}<div id="ownerDiv">')
    same = "<table><tr><td>Area</td><td>1.5 AC</td><td>S/T/R</td><td>01-2S-03</td></tr></table>"
    single = re.sub(r"<table><tr><td>Area</td>.*?</table>", same, page, flags=re.DOTALL, count=0)
    found = record("grizzly_gis", single.replace(same, other, 1))
    assert found["land_area_acres"] is None
    assert "land_area_acres" in found["unreadable"]


@pytest.mark.parametrize("heading", ["Owner of Record", "Co-Owner", "Titular"])
def test_a_sub_heading_is_no_owner(heading: str) -> None:
    owner = f"<strong>{heading}</strong><br>BLOOM CLARA<br>9 ELM ST<br>BOONE, IA 50036"
    found = record("qpublic", qpublic(summary=SUMMARY, owner=owner))
    assert found["owner_names"] == ["BLOOM CLARA"]
    assert ("owner_names" in found["unreadable"]) is (heading == "Titular")
    assert heading not in found["owner_names"]


def test_a_code_is_no_description() -> None:
    found = record("qpublic", qpublic(summary=two_columns(parcel_id="34-09", property_class="H."), owner=OWNER))
    assert (found["land_use_code"], found["land_use_desc"]) == ("H.", None)


@pytest.mark.parametrize("broken", ["DateOfSale", "SalesInfos"])
def test_a_sale_without_its_date_in_json_is_named(broken: str) -> None:
    sale = {"DateOfSale": "1/2/2020", "SalePrice": 5}
    text = json.dumps(answer(SalesInfos=[sale])).replace(f'"{broken}"', '"Renamed"')
    found = record("miamidade_pa", json.loads(text))
    assert found["sales"] == []
    assert {"sales", "last_sale_date"} <= set(found["unreadable"])


FOOTER = "<footer>All rights reserved</footer>"
ITEM = "<tr><td></td><td>{}</td><td>$100</td><td>-</td><td>-</td><td>Upcoming</td></tr>"


def auction(*cases: str, page: int = 1, pages: int = 1) -> str:
    heads = "<tr><td></td><td>Tax Deed #</td><td>Opening Bid</td><td>Best Bid</td><td>Close</td><td>Status</td></tr>"
    form = f"""<form action="/table/filter" method="post"><input name="page" value="{page}">
<input name="last_page" value="{pages}"><input name="rows" value="2"></form>"""
    items = "".join(ITEM.format(case) for case in cases)
    return f'<html><body>{form}<table id="results">{heads}{items}</table>{FOOTER}</body></html>'


def test_the_first_of_two_pages_is_not_the_list() -> None:
    assert isinstance(outcome("deedauction", auction("51", "52")), Done)
    found = outcome("deedauction", auction("51", "52", pages=2))
    assert isinstance(found, Retry)
    assert "1 of 2" in found.reason
    assert found.partial is not None
    assert len(found.partial.additional_records) == 1


def test_a_list_is_compared_with_the_total_that_it_prints() -> None:
    advertised = grid(("Advertised", "3"))
    page = auction("51", "52").replace("<form", f"{advertised}<form")
    assert isinstance(outcome("deedauction", page), Retry)
    assert isinstance(outcome("deedauction", page.replace("<td>3</td>", "<td>2</td>")), Done)
    assert isinstance(outcome("deedauction", auction("51", "51")), Retry), "a case is listed once"


def test_an_empty_list_says_so() -> None:
    assert isinstance(outcome("deedauction", auction()), NotFound)
    assert isinstance(outcome("deedauction", auction().replace(FOOTER, "")), Retry)
    for text, kind in [("No records to view", NotFound), ("", Retry)]:
        body = f'<html><body><table id="TaxDeed"></table><div>{text}</div>{FOOTER}</body></html>'
        assert isinstance(outcome("pioneer_taxdeed", body), kind), text


@pytest.mark.parametrize(("shown", "is_whole"), [("View 1 - 1 of 1", True), ("View 1 - 1 of 9", False), ("", False)])
def test_a_grid_is_compared_with_the_numbers_below_it(shown: str, is_whole: bool) -> None:
    cell = '<td aria-describedby="TaxDeed_CaseNumber" title="2023-1">2023-1</td>'
    body = f"<html><body><table><tr>{cell}</tr></table><div>{shown}</div>{FOOTER}</body></html>"
    assert isinstance(outcome("pioneer_taxdeed", body), Done) is is_whole


@pytest.mark.parametrize("span", ['colspan="4"', 'colspan="9"', ""])
def test_a_table_whose_only_row_is_a_message_is_empty_if_it_says_so(span: str) -> None:
    heads = "".join(f"<th>{name}</th>" for name in SALES)
    for message, is_empty in [
        ("No data available in table", True),
        ("No records found", True),
        ("There are no sales for this property.", True),
        ("N O N E", True),
        ("Loading...", False),
        ("No response from the server", False),
        ("Please sign in to see sales", False),
        ("1/2/2020", False),
    ]:
        table = f"<table><tr>{heads}</tr><tr><td {span}>{message}</td></tr></table>"
        found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, sales=table))
        assert found["sales"] == [], message
        assert ("sales" in found["unreadable"]) is not is_empty, message
