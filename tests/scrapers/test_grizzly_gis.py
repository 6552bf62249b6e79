"""`grizzly_gis` as its other counties and rarer parcels write it."""

from __future__ import annotations

import pytest

from parcelpost.model import Retry
from tests.scrapers.reading import outcome, record

OWNER = "<b>BLOOM CLARA</b><br>12 ELM ST<br>MARIGOLD, FL 32099"
COLUMN = [("Mkt Land", "$5,000"), ("Building", "$9,000"), ("XFOB", "$100"), ("Just", "$14,100"), ("Assessed", "$8,000")]
SALES = "<tr><td>1/2/2020</td><td>$100</td><td>1 / 2</td><td>WD</td></tr>"
BUILDINGS = "<tr><td>Sketch</td><td>HOUSE (0100)</td><td>1990</td><td>1,000</td><td>1,200</td><td>$9,000</td></tr>"


def rows(*pairs: tuple[str, str]) -> str:
    return "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in pairs)


def column(title: str, *pairs: tuple[str, str]) -> str:
    return f"<td><table><tr><td colspan=2><b>{title}</b></td></tr>{rows(*COLUMN, *pairs)}</table></td>"


def page(
    owner: str = OWNER,
    site: str = "12 ELM ST, MARIGOLD",
    area: str = "1.5 AC",
    use: str = "VACANT (0000)",
    values: str = column("2024 Certified Values"),
    sales: str = SALES,
    buildings: str = BUILDINGS,
) -> str:
    return f"""<html><body><table><tr><td>2025 Working Values</td></tr></table><div id="ownerDiv">
<table class="parcelIDtable"><tr><td>Parcel: </td><td><b>01-2S-03-00004-005 (67) HX 08</b></td></tr></table>
<table><tr><td><b>Owner &amp; Property Info</b></td></tr></table>
<table>{rows(("Owner", owner), ("Site", site), ("Description*", "LOT 1"))}</table>
<table><tr><td>Area</td><td>{area}</td><td>S/T/R</td><td>01-2S-03</td></tr>
<tr><td>Use Code**</td><td>{use}</td><td>Tax District</td><td>3</td></tr></table>
<table><tr><td><b>Property &amp; Assessment Values</b></td></tr><tr>{values}</tr></table></div>
<table><tr><td><b>Sales History</b></td></tr></table><div id="parcelDetails_SalesTable"><table>
<tr><td>Sale Date</td><td>Sale Price</td><td>Book/Page</td><td>Deed</td></tr>{sales}</table></div>
<div id="parcelDetails_BldgTable"><table><tr><td>Bldg Sketch</td><td>Description*</td><td>Year Blt</td><td>Base SF</td>
<td>Actual SF</td><td>Bldg Value</td></tr>{buildings}</table></div></body></html>"""


@pytest.mark.parametrize(
    ("cell", "codes", "amount"),
    [
        ("<td>HX HB</td><td>$50,000</td>", ["HX", "HB"], 50_000),
        ("<td>05</td><td>$8,400</td>", ["05"], 8_400),
        ("<td>HX 08</td><td>$500</td>", ["HX", "08"], 500),
        ("<td>&nbsp;</td><td>$0</td>", [], 0),
        ("<td>WX</td><td>&nbsp;</td>", ["WX"], None),
    ],
)
def test_codes_of_exemptions_may_be_digits(cell: str, codes: list[str], amount: int | None) -> None:
    exempt = ("Exempt", f"<table class=exemptTable><tr>{cell}</tr></table>")
    found = record("grizzly_gis", page(values=column("2024 Certified Values", exempt)))
    assert (found["exemptions"], found["exemption_value"]) == (codes, amount)


def test_market_land_is_not_what_a_farm_s_land_is_taxed_at() -> None:
    farm = ("Ag Land", "$700"), ("Class", "$9,800"), ("Appraised", "$9,800")
    values = column("2024 Certified Values", *farm)
    found = record("grizzly_gis", page(values=values))
    assert (found["land_value"], found["market_value"], found["assessed_value"]) == (5_000, 14_100, 8_000)


def test_certified_values_go_before_newer_ones_that_are_still_worked_at() -> None:
    taxable = "<b>county:</b>${} <b>city:</b>$1<br><b>school:</b>${}"
    values = column("2024 Certified Values", ("Total<br>Taxable", taxable.format("3,000", "4,000")))
    values += column("2025 Working Values", ("Total<br>Taxable", taxable.format("5,000", "6,000")))
    found = record("grizzly_gis", page(values=values))
    assert (found["value_year"], found["value_status"]) == (2024, "certified")
    assert (found["taxable_value"], found["taxable_value_school"]) == (3_000, 4_000)
    assert [one["taxable_value"] for one in found["valuations"]] == [3_000, 5_000]


def test_years_may_head_the_columns_of_one_table() -> None:
    lines = [("", "2023 Certified Values", "2024 Working Values"), ("Mkt Land", "$1", "$2"), ("Just Value", "$3", "$4")]
    lines += [("Assessed Value", "$2", "$3"), ("XFOB", "", "$7")]
    table = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    found = record("grizzly_gis", page(values=f"<td><table>{table}</table></td>"))
    assert (found["value_year"], found["land_value"], found["market_value"]) == (2023, 1, 3)
    assert [(one["year"], one["assessed_value"]) for one in found["valuations"]] == [(2023, 2), (2024, 3)]
    assert [one["extra_feature_value"] for one in found["valuations"]] == [None, None]


def test_a_taxable_value_of_nobody_is_not_the_county_s() -> None:
    found = record("grizzly_gis", page(values=column("2024 Certified Values", ("Total Taxable", "$3,000"))))
    assert found["taxable_value"] is None


@pytest.mark.parametrize(
    ("owner", "names", "mailing"),
    [
        ("<b>BLOOM CLARA<br>CARVER LOUIS</b><br>MARIGOLD, FL 32099", ["BLOOM CLARA", "CARVER LOUIS"], []),
        ("<b>BLOOM CLARA<br>21 OAKS</b><br>9 ELM ST<br>MARIGOLD, FL 32099", ["BLOOM CLARA", "21 OAKS"], ["9 ELM ST"]),
        ("<b>BLOOM CLARA &</b><br>LOUIS<br>9 ELM ST<br>MARIGOLD, FL 32099", ["BLOOM CLARA & LOUIS"], ["9 ELM ST"]),
        ("<b>CONFIDENTIAL</b>", ["CONFIDENTIAL"], []),
    ],
)
def test_what_is_bold_is_a_name(owner: str, names: list[str], mailing: list[str]) -> None:
    found = record("grizzly_gis", page(owner=owner))
    assert (found["owner_names"], found["mailing_lines"]) == (names, mailing)


def test_a_foreign_owner_has_a_country() -> None:
    owner = "<b>BLOOM CLARA</b><br>12 ELM ST<br>TORONTO ON M5V 2T6<br>CANADA"
    found = record("grizzly_gis", page(owner=owner))
    assert (found["mailing_country"], found["mailing_state"], found["mailing_city"]) == ("CANADA", "ON", "TORONTO")


@pytest.mark.parametrize(
    ("site", "address", "city", "zip_code"),
    [
        ("12 ELM ST, MARIGOLD", "12 ELM ST", "MARIGOLD", None),
        ("12 ELM ST, UNIT 4", "12 ELM ST, UNIT 4", None, None),
        ("12 ELM ST, UNIT 4, MARIGOLD 32099", "12 ELM ST, UNIT 4", "MARIGOLD", "32099"),
        ("12 ELM ST", "12 ELM ST", None, None),
        ("12 ELM ST, MARIGOLD<br>14 ELM ST, MARIGOLD", "12 ELM ST", "MARIGOLD", None),
        ("&nbsp;", None, None, None),
    ],
)
def test_the_site_is_a_street_and_a_city(
    site: str, address: str | None, city: str | None, zip_code: str | None
) -> None:
    found = record("grizzly_gis", page(site=site))
    assert (found["situs_address"], found["situs_city"], found["situs_zip"]) == (address, city, zip_code)


@pytest.mark.parametrize(
    ("area", "acres"),
    [("1.5 AC", 1.5), ("0.5 ACRES (see note)", 0.5), ("43,560 SF (1 AC)", 1), ("120 FF", None), ("", None)],
)
def test_an_area_counts_in_acres_only(area: str, acres: float | None) -> None:
    assert record("grizzly_gis", page(area=area))["land_area_acres"] == acres


def test_the_code_of_a_use_has_digits() -> None:
    found = record("grizzly_gis", page(use="CONDO (RES) (0400)"))
    assert (found["land_use_code"], found["land_use_desc"]) == ("0400", "CONDO (RES)")


def test_nothing_built_and_nothing_sold() -> None:
    none = "<tr><td colspan=7>N O N E</td></tr>"
    found = record("grizzly_gis", page(sales=none, buildings=none))
    assert (found["building_count"], found["buildings"], found["sales"]) == (0, [], [])
    assert (found["year_built"], found["last_sale_date"]) == (None, None)


def test_several_buildings_are_summed_and_the_first_has_the_year() -> None:
    second = BUILDINGS.replace("1990", "0").replace("1,000", "500")
    found = record("grizzly_gis", page(buildings=second + BUILDINGS))
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, None, 1_500)


def test_a_page_without_its_values_is_no_record() -> None:
    assert isinstance(outcome("grizzly_gis", page(values="")), Retry)


def test_names_of_values_by_the_thousand_are_read_in_one_go() -> None:
    """Compared each with each, so many would take minutes."""
    lone = "".join(f"<table><tr><td>{name}</td></tr></table>" * 40_000 for name in ("Just", "Assessed"))
    found = record("grizzly_gis", page().replace("</body>", f"{lone}</body>"))
    assert (found["market_value"], len(found["valuations"])) == (14_100, 1)


def test_extra_features_are_no_buildings() -> None:
    features = "<table><tr><td>Description</td><td>Year Blt</td><td>Value</td></tr>"
    features += "<tr><td>FENCE</td><td>2001</td><td>$100</td></tr></table>"
    without = page(buildings="").replace("Base SF", "x").replace("Actual SF", "y").replace("_BldgTable", "_X")
    found = record("grizzly_gis", without.replace("</body>", f"{features}</body>"))
    assert (found["buildings"], found["year_built"], found["building_count"]) == ([], None, None)


def test_extra_features_in_the_frame_of_the_buildings_are_none_of_them() -> None:
    features = "</table><table><tr><td>Description</td><td>Year Blt</td></tr><tr><td>FENCE</td><td>2001</td></tr>"
    found = record("grizzly_gis", page(buildings=BUILDINGS + features))
    assert [one["year_built"] for one in found["buildings"]] == [1990]


def test_a_note_that_names_a_year_is_no_title() -> None:
    values = column("Values")
    assert record("grizzly_gis", page(values=values))["value_year"] == 2025
    noted = page(values=values).replace("2025 Working Values", "Updated after 2019 Certified roll")
    found = record("grizzly_gis", noted)
    assert (found["value_year"], found["value_status"], found["market_value"]) == (None, None, 14_100)


@pytest.mark.parametrize(
    "cell",
    [
        "<b>county:</b>$70 <b> city:</b>$1<br><b>other:</b>$2 <b>school:</b>$90",
        "<b>county:</b>$70<b>city:</b>$1<b>other:</b>$2<b>school:</b>$90",
        "county: $70 city: $1<br>school: $90",
        "<label for=c>County</label>: <label for=s>School</label> <span id=c>$70</span><span id=s>$90</span>",
        "<table><tr><td>County</td><td>$70</td></tr><tr><td>School</td><td>$90</td></tr></table>",
        "<div>School Taxable Value: $90</div><div>County Taxable Value: $70</div>",
    ],
)
def test_what_is_taxable_is_told_by_whose_it_is_however_the_cell_is_built(cell: str) -> None:
    found = record("grizzly_gis", page(values=column("2024 Certified Values", ("Total Taxable", cell))))
    assert (found["taxable_value"], found["taxable_value_school"]) == (70, 90)


@pytest.mark.parametrize("cell", ["$70", "city: $1 other: $2", "county: city: $1", "county: N/A school:"])
def test_what_is_taxable_of_nobody_or_of_others_is_not_the_county_s(cell: str) -> None:
    found = record("grizzly_gis", page(values=column("2024 Certified Values", ("Total Taxable", cell))))
    assert (found["taxable_value"], found["taxable_value_school"]) == (None, None)


def test_a_column_without_its_title_is_not_of_the_year_beside_it() -> None:
    untitled = f"<td><table>{rows(*COLUMN)}</table></td>"
    found = record("grizzly_gis", page(values=untitled + column("2025 Working Values")))
    assert [(one["year"], one["status"]) for one in found["valuations"]] == [(None, None), (2025, "working")]
    assert record("grizzly_gis", page(values=untitled))["value_year"] == 2025


def test_buildings_whose_headings_are_not_known_are_not_none() -> None:
    headings = "<td>Bldg Sketch</td><td>Description*</td><td>Year Blt</td><td>Base SF</td>\n<td>Actual SF</td>"
    unknown = page().replace(headings, "<td>1</td><td>2</td><td>3</td><td>4</td><td>5</td>").replace("Bldg Value", "6")
    assert record("grizzly_gis", unknown)["building_count"] is None
    assert record("grizzly_gis", page(buildings="<tr><td colspan=6>N O N E</td></tr>"))["building_count"] == 0


def test_the_number_may_be_bold_in_any_way_and_stand_behind_buttons() -> None:
    shown = "<td><b>01-2S-03-00004-005 (67) HX 08</b></td>"
    for cells in (shown, shown.replace("b>", "strong>"), "<td><input type=button></td>" + shown.replace("b>", "span>")):
        found = record("grizzly_gis", page().replace(shown, cells).replace(' class="parcelIDtable"', ""))
        assert found["parcel_id"] == "01-2S-03-00004-005"


def test_an_amount_is_no_owner() -> None:
    for owner_row in ("<tr><td>Owner</td>", "<tr><td>Owner's</td>"):
        gone = page().replace("<tr><td>Owner</td>", owner_row).replace(OWNER, "")
        assert isinstance(outcome("grizzly_gis", gone.replace(owner_row, "<tr><td>Held by</td>")), Retry)


def test_a_description_that_stands_twice_is_read_once_and_a_note_on_it_never() -> None:
    twice = page().replace(
        "LOT 1", "<table><tr><td>LOT 1</td></tr></table><table><tr><td>LOT 1 &lt;&lt;&lt;less</td></tr></table>"
    )
    assert record("grizzly_gis", twice)["legal_description"] == "LOT 1"
    beside = twice.replace("&lt;&lt;&lt;less</td>", "&lt;&lt;&lt;less</td><td>12/31/1999</td>")
    assert record("grizzly_gis", beside)["legal_description"] is None
    note = "<p><b>Description</b> above is not to be used as the Legal Description</p>"
    gone = page().replace("<tr><td>Description*</td><td>LOT 1</td></tr>", f"<tr><td>{note}</td></tr>")
    assert record("grizzly_gis", gone)["legal_description"] is None


@pytest.mark.parametrize("unit", ["UNIT B", "REAR", "APT C", "NW", "# B"])
def test_a_part_of_a_building_is_no_city(unit: str) -> None:
    found = record("grizzly_gis", page(site=f"12 ELM ST, {unit}"))
    assert (found["situs_address"], found["situs_city"]) == (f"12 ELM ST, {unit}", None)


def test_neither_a_book_nor_a_page_is_no_place_in_the_books() -> None:
    found = record("grizzly_gis", page(sales=SALES.replace("1 / 2", "0 / 0")))
    assert (found["last_sale_book_page"], found["sales"][0]["book_page"]) == (None, None)
    assert "sales.book_page" not in found["unreadable"]


def test_bold_lines_may_also_say_who_takes_the_mail() -> None:
    owner = "<b>BLOOM CLARA<br>CARVER LOUIS<br>C/O MOSS ADA</b><br>12 ELM ST<br>MARIGOLD, FL 32099"
    found = record("grizzly_gis", page(owner=owner))
    assert found["owner_names"] == ["BLOOM CLARA", "CARVER LOUIS"]
    assert found["mailing_lines"] == ["C/O MOSS ADA", "12 ELM ST"]
