"""`vgsi` as other towns show it: several buildings, none, land in feet, no history."""

from __future__ import annotations

import pytest

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.platforms import county_platform
from tests.scrapers.reading import outcome, record

GENERAL = {"Pid": "12", "Location": "9 ELM ST", "GenOwner": "BLOOM CLARA", "Owner": "BLOOM CLARA", "BldCount": "1"}
SALES = """<table id="MainContent_grdSales"><tr><th>Owner</th><th>Sale Price</th><th>Certificate</th>
<th>Book &amp; Page</th><th>Sale Date</th></tr>{}</table>"""


def span(name: str, text: str) -> str:
    return f'<span id="MainContent_lbl{name}">{text}</span>'


def values(kind: str, when: str, *rows: tuple[str, ...], heading: str = "Valuation Year") -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    ident = f"MainContent_grd{when}{'Appr' if kind == 'Appraisal' else 'Asmt'}"
    return f"""<table id="{ident}"><caption>{kind}</caption><tr><th>{heading}</th><th>Improvements</th><th>Land</th>
<th>Total</th></tr>{cells}</table>"""


NOW = values("Appraisal", "CurrentValue", ("2024", "$200", "$100", "$300"))
NOW += values("Assessment", "CurrentValue", ("2024", "$140", "$70", "$210"))


def building(number: int, year: str, area: str, value: str, bedrooms: str = "", baths: str = "", half: str = "") -> str:
    ident = f"MainContent_ctl{number:02}"
    rooms = (("Total Bedrooms:", bedrooms), ("Total Bthrms:", baths), ("Total Half Baths:", half))
    return f"""<fieldset><legend>Building {number} : Section 1</legend><table id="{ident}_tblBldg">
<tr><td>Year Built:</td><td>{year}</td></tr><tr><td>Living Area:</td><td>{area}</td></tr>
<tr><td>Replacement Cost:</td><td>$999,999</td></tr>
<tr><td>Replacement Cost<br>Less Depreciation:</td><td>{value}</td></tr></table>
<table>{"".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in rooms)}</table></fieldset>"""


def page(*blocks: str, current: str = NOW, **general: str) -> str:
    spans = "".join(f"<div>{span(name, text)}</div>" for name, text in {**GENERAL, **general}.items())
    return f"<html><body>{spans}{current}{''.join(blocks)}</body></html>"


def test_what_is_appraised_is_not_what_is_assessed() -> None:
    found = record("vgsi", page(), "CT")
    assert (found["market_value"], found["assessed_value"]) == (300, 210)
    assert (found["land_value"], found["building_value"], found["value_year"]) == (100, 200, 2024)


def test_a_town_without_a_history_shows_the_values_of_now() -> None:
    found = record("vgsi", page(), "CT")
    assert [(one["market_value"], one["assessed_value"]) for one in found["valuations"]] == [(300, None), (None, 210)]


def test_the_values_of_former_years_do_not_become_those_of_now() -> None:
    past = values("Appraisal", "HistoryValues", ("2025", "$1", "$1", "$2"), ("2023", "$3", "$3", "$6"))
    found = record("vgsi", page(past), "CT")
    assert (found["value_year"], found["market_value"], found["assessed_value"]) == (2024, 300, 210)
    assert [one["year"] for one in found["valuations"]] == [2025, 2023]


def test_grids_of_which_only_some_have_a_caption_or_an_id_are_all_read() -> None:
    past = values("Appraisal", "HistoryValues", ("2023", "$3", "$3", "$6"))
    for now, then in (
        (NOW.replace("<caption>Appraisal</caption>", ""), past),
        (NOW, past.replace("<caption>Appraisal</caption>", "")),
        (NOW, past.replace("MainContent_grdHistoryValuesAppr", "")),
    ):
        found = record("vgsi", page(then, current=now), "CT")
        assert (found["value_year"], found["market_value"], found["assessed_value"]) == (2024, 300, 210)
        assert [(one["year"], one["market_value"]) for one in found["valuations"]] == [(2023, 6)]


def test_only_an_assessment_says_nothing_of_the_market() -> None:
    assessed = values("Assessment", "CurrentValue", ("2024", "$140", "$70", "$210"), heading="Assessment Year")
    found = record("vgsi", page(current=assessed), "CT")
    assert (found["assessed_value"], found["market_value"], found["land_value"]) == (210, None, None)
    assert found["value_year"] == 2024


def test_several_buildings_are_summed_with_their_rooms() -> None:
    houses = (
        building(1, "1804", "1,500", "$90", "3 Bedrooms", "2", "1"),
        building(2, "1990", "500", "$9", "01", "1", "0"),
    )
    found = record("vgsi", page(*houses, BldCount="2"), "NH")
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, 1804, 2_000)
    assert [one["value"] for one in found["buildings"]] == [90, 9]
    assert (found["bedrooms"], found["bathrooms"]) == (4, 3.5)


def test_rooms_are_not_counted_under_two_names() -> None:
    twice = building(1, "1950", "900", "$5", "3", "2") + "<table><tr><td>Full Bathrooms</td><td>2</td></tr></table>"
    assert record("vgsi", page(twice), "NH")["bathrooms"] == 2


def test_rooms_that_are_no_number_are_not_counted() -> None:
    found = record("vgsi", page(building(1, "1950", "900", "$5", "3 Bedrooms", "1 1/2")), "NH")
    assert (found["bedrooms"], found["bathrooms"]) == (3, None)


def test_land_with_nothing_on_it_has_an_empty_section() -> None:
    found = record("vgsi", page(building(1, "", "0", "$0")), "NH")
    assert (found["buildings"], found["year_built"], found["building_area_sqft"]) == ([], None, None)


def test_no_building_section_at_all() -> None:
    found = record("vgsi", page(BldCount="0"), "NH")
    assert (found["building_count"], found["buildings"]) == (0, [])


@pytest.mark.parametrize(
    ("name", "text", "acres"), [("Size (Acres)", "1.59", 1.59), ("Size (Sqr Feet)", "6,534", None)]
)
def test_land_in_feet_is_not_taken_for_acres(name: str, text: str, acres: float | None) -> None:
    land = f"<table><tr><td>{name}</td><td>{span('LndAcres', text)}</td></tr></table>"
    assert record("vgsi", page(land), "RI")["land_area_acres"] == acres


def test_the_last_sale_is_the_newest_one_with_a_day() -> None:
    rows = [("CARVER", "$500", "", "3/4", "09/05/2001"), ("MOSS", "$0", "", "5/6", ""), ("BLOOM", "$0", "", "1/2", "")]
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    found = record("vgsi", page(SALES.format(cells)), "MA")
    assert (found["last_sale_date"], found["last_sale_price"], found["last_sale_book_page"]) == (
        "2001-09-05",
        500,
        "3/4",
    )
    assert len(found["sales"]) == 3


def test_without_a_history_the_owner_s_own_purchase_is_the_last_sale() -> None:
    nothing = SALES.format("<tr><td colspan=5>No Data for Ownership History</td></tr>")
    found = record("vgsi", page(nothing, Price="$750", SaleDate="10/12/2018", Bp="7/8"), "MA")
    assert (found["last_sale_date"], found["last_sale_price"], found["last_sale_book_page"]) == (
        "2018-10-12",
        750,
        "7/8",
    )
    without = record("vgsi", page(nothing, Price="$0", SaleDate=""), "MA")
    assert (without["sales"], without["last_sale_price"]) == ([], None)


def test_owner_co_owner_and_a_foreign_address() -> None:
    address = "C/O MOSS ADA<br>5 KING ST<br>TORONTO ON M5V 2T6<br>CANADA"
    found = record("vgsi", page(CoOwner="CARVER LOUIS", Addr1=address), "ME")
    assert found["owner_names"] == ["BLOOM CLARA", "CARVER LOUIS"]
    assert (found["mailing_country"], found["mailing_state"]) == ("CANADA", "ON")


@pytest.mark.parametrize("text", ["C/O DOE", "% DOE", "ATTN: TAX", "12 ELM ST"])
def test_a_co_owner_who_takes_the_mail_is_none(text: str) -> None:
    found = record("vgsi", page(CoOwner=text, Addr1="5 KING ST<br>LYME NH 03768"), "NH")
    assert (found["owner_names"], found["mailing_lines"]) == (["BLOOM CLARA"], [text, "5 KING ST"])
    assert text in found["owner_lines"]


def test_a_section_without_data_does_not_make_a_parcel_unknown() -> None:
    long = "<p>No Data for Building Permits</p>" + "<p>Vision Government Solutions</p>" * 50
    assert isinstance(outcome("vgsi", f"<html><body>{long}</body></html>"), Retry)
    assert isinstance(outcome("vgsi", "<html><body>There is no data for this parcel.</body></html>"), NotFound)


def test_all_buildings_are_found_without_their_ids() -> None:
    blocks = [building(number, str(1900 + number), "100", "$5").replace("_tblBldg", "") for number in range(1, 30)]
    found = record(
        "vgsi",
        page(*(f"<div><div><table><tr><td>{one}</td></tr></table></div></div>" for one in blocks), BldCount="29"),
        "CT",
    )
    assert [one["year_built"] for one in found["buildings"]] == list(range(1901, 1930))
    assert found["building_area_sqft"] == 2_900


@pytest.mark.parametrize(("co_owner", "tried"), [("", set()), ("CARVER LOUIS", {True})])
def test_a_page_without_a_co_owner_is_no_failure_of_a_selector(co_owner: str, tried: set[bool]) -> None:
    """Towns that show co-owners do not show one for each parcel."""
    platform = county_platform("vgsi")
    assert platform is not None
    shown = Page(body=page(CoOwner=co_owner).encode())
    parsed = platform.parse(shown, Target(parcel_id="", state="NH", county="invented"))
    assert {one.success for one in parsed.selector_results if one.field == "co_owner"} == tried


@pytest.mark.parametrize("day", ["", "00/00/0000"])
def test_which_sale_is_the_last_is_not_known_if_the_newest_has_no_day(day: str) -> None:
    rows = [("BLOOM", "$900", "", "1/2", day), ("CARVER", "$500", "", "3/4", "09/05/2014")]
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    found = record("vgsi", page(SALES.format(cells)), "MA")
    assert (found["last_sale_date"], found["last_sale_price"], found["last_sale_book_page"]) == (None, None, None)
    assert {"last_sale_date", "last_sale_price", "last_sale_book_page"} <= set(found["unreadable"])
    assert len(found["sales"]) == 2
    assert "sales" not in found["unreadable"]


def test_buildings_that_the_page_does_not_count_are_named() -> None:
    found = record("vgsi", page(building(1, "1804", "1,500", "$90"), BldCount="0"), "NH")
    assert {"buildings", "building_count"} <= set(found["unreadable"])


def test_a_sale_of_which_only_the_owner_can_be_read_is_named() -> None:
    history = SALES.format("<tr><td>BLOOM CLARA</td><td>$5</td><td></td><td>1/2</td><td></td></tr>")
    renamed = history.replace("Sale Price", "Amount Paid").replace("Book &amp; Page", "Recorded In")
    found = record("vgsi", page(renamed), "CT")
    assert (found["sales"], "sales" in found["unreadable"]) == ([], True)


def test_tables_with_each_other_s_title_leave_the_values_unknown() -> None:
    sound = record("vgsi", page(GenAssessment="$210"), "CT")
    swapped = record("vgsi", page(GenAssessment="$300"), "CT")
    assert (sound["assessed_value"], swapped["assessed_value"]) == (210, None)
    assert "assessed_value" in swapped["unreadable"]


def test_a_row_with_two_sales_is_named() -> None:
    for place, is_named in (("1/2", False), ("1/2 /0", True)):
        row = f"<tr><td>BLOOM CLARA</td><td>$5</td><td></td><td>{place}</td><td>01/02/2020</td></tr>"
        found = record("vgsi", page(SALES.format(row)), "CT")
        assert ("sales" in found["unreadable"]) is is_named


def test_of_two_values_beside_a_label_neither_is_taken() -> None:
    one = building(1, "1990", "1,000", "$5")
    assert record("vgsi", page(one), "CT")["buildings"][0]["value"] == 5
    two = one.replace("<td>$5</td>", "<td>$1,234</td><td>$5</td>")
    assert record("vgsi", page(two), "CT")["buildings"][0]["value"] is None


def test_rooms_that_only_some_buildings_show_are_not_summed() -> None:
    blocks = building(1, "1990", "1,000", "$5", "3", "1"), building(2, "1991", "900", "$4", "2", "1")
    assert record("vgsi", page(*blocks, BldCount="2"), "CT")["bedrooms"] == 5
    renamed = blocks[1].replace("Total Bedrooms", "Item 7")
    found = record("vgsi", page(blocks[0], renamed, BldCount="2"), "CT")
    assert (found["bedrooms"], "bedrooms" in found["unreadable"]) == (None, True)


def test_a_table_that_is_neither_of_now_nor_of_former_years_is_named() -> None:
    past = values("Appraisal", "HistoryValues", ("2023", "$3", "$3", "$6"))
    past += values("Assessment", "HistoryValues", ("2023", "$3", "$3", "$6"))
    of_others = past.replace("grdHistoryValues", "grd").replace("2023", "1999")
    assert "valuations" not in record("vgsi", page(past), "CT")["unreadable"]
    assert "valuations" in record("vgsi", page(past, of_others), "CT")["unreadable"]
