"""`qpublic` and `beacon` as other states write them."""

from __future__ import annotations

import pytest

from parcelpost.model import NotFound, Retry
from tests.scrapers.reading import grid, outcome, qpublic, record, two_columns

SUMMARY = two_columns(parcel_number="045B010022", location_address="12 PINE ST", acres="1.25")
BUILDINGS = (("1", "HOUSE", "1999", "1,500"), ("2", "SHOP", "2005", "600"))
OWNER = "BLOOM CLARA<br>12 PINE ST<br>STONEBRIDGE, GA 30999"


def test_georgia_shows_a_previous_value_and_no_assessed_one() -> None:
    values = grid(
        ("", "", "2024", "2023"),
        ("", "Previous Value", "$90,000", "$80,000"),
        ("", "Land Value", "$20,000", "$19,000"),
        ("+", "Improvement Value", "$75,000", "$70,000"),
        ("+", "Accessory Value", "$5,000", "$1,000"),
        ("=", "Current Value", "$100,000", "$90,000"),
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "GA")
    assert (found["parcel_id"], found["situs_address"]) == ("045B010022", "12 PINE ST")
    assert (found["land_value"], found["building_value"], found["extra_feature_value"]) == (20_000, 75_000, 5_000)
    assert (found["market_value"], found["assessed_value"], found["value_year"]) == (100_000, None, 2024)
    assert [one["market_value"] for one in found["valuations"]] == [100_000, 90_000]


def test_a_use_with_two_codes_has_none() -> None:
    summary = two_columns(parcel_number="1", property_use_code="VAC RES")
    for others, code in ((), "0000"), (("VAC RES (3781)",), None):
        land = grid(("Land Use", "Other"), ("VAC RES (0000)", *others))
        found = record("qpublic", qpublic(summary=summary, owner=OWNER, land=land))
        assert (found["land_use_code"], "land_use_code" in found["unreadable"]) == (code, code is None)


def test_georgia_s_class_comes_without_its_note() -> None:
    note = "(Note: This is for tax purposes only. Not to be used for zoning.)"
    summary = two_columns(parcel_number="1", **{"class": f"R3-Residential {note}"})
    found = record("qpublic", qpublic(summary=summary, owner=OWNER), "GA")
    assert found["land_use_desc"] == "R3-Residential"


def test_iowa_s_dwelling_is_a_building() -> None:
    values = grid(
        ("", "", "2024", "2023"),
        ("+", "Assessed Land Value", "$20,000", "$20,000"),
        ("+", "Assessed Building Value", "$0", "$0"),
        ("+", "Assessed Dwelling Value", "$150,000", "$140,000"),
        ("=", "Gross Assessed Value", "$170,000", "$160,000"),
        ("-", "Exempt Value", "$4,850", "$0"),
        ("=", "Net Assessed Value", "$165,150", "$160,000"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "IA")
    assert (found["land_value"], found["building_value"]) == (20_000, 150_000)
    assert (found["assessed_value"], found["exemption_value"], found["taxable_value"]) == (170_000, 4_850, None)


def test_iowa_s_address_has_its_city_in_a_second_line() -> None:
    summary = two_columns(parcel_id="06-974", property_address="12 PINE ST<br>AMES, IA 50010")
    found = record("beacon", qpublic(summary=summary, owner=OWNER), "IA")
    assert (found["situs_address"], found["situs_city"], found["situs_zip"]) == ("12 PINE ST", "AMES", "50010")


def test_iowa_names_deed_holder_contract_holder_and_where_mail_goes() -> None:
    owner = (
        "<b>Deed Holder</b><br>BLOOM CLARA<br>12 PINE ST<br>AMES, IA 50010<br><b>Contract Holder</b><br>CARVER LOUIS"
        "<br><b>Mailing Address</b><br>BLOOM CLARA<br>PO BOX 9<br>BOONE, IA 50036"
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=owner), "IA")
    assert found["owner_names"] == ["BLOOM CLARA", "CARVER LOUIS"]
    assert (found["mailing_lines"], found["mailing_city"]) == (["PO BOX 9"], "BOONE")


def test_several_owners_with_an_address_each_are_all_named() -> None:
    first, second = "BLOOM CLARA<br>12 PINE ST<br>AMES, IA 50010", "CARVER LOUIS<br>9 ELM ST<br>BOONE, IA 50036"
    owner = f"<b>Primary Owner</b><br>{first}<br>{second}"
    found = record("beacon", qpublic(summary=SUMMARY, owner_information=owner), "IA")
    assert found["owner_names"] == ["BLOOM CLARA", "CARVER LOUIS"]
    assert (found["mailing_lines"], found["mailing_zip"]) == (["12 PINE ST"], "50010")


def test_iowa_s_sales_have_amount_and_recording() -> None:
    sales = grid(
        ("Date", "Seller", "Buyer", "Recording", "Sale Condition - NUTC", "Type", "Multi Parcel", "Amount"),
        ("7/5/2019", "CARVER", "BLOOM", "2019-0334", "NORMAL", "Deed", "", "$155,000.00"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, sales=sales), "IA")
    assert (found["last_sale_date"], found["last_sale_price"]) == ("2019-07-05", 155_000)
    assert (found["last_sale_book_page"], found["last_sale_instrument"]) == ("2019-0334", "Deed")


def test_indiana_s_columns_are_headed_in_a_row_that_begins_with_words() -> None:
    values = grid(
        ("Assessment Year", "2024", "2023"),
        ("Reason", "Annual Adjustment", "Annual Adjustment"),
        ("Land", "$30,000", "$29,000"),
        ("Improvement", "$110,000", "$100,000"),
        ("Total", "$140,000", "$129,000"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "IN")
    assert (found["value_year"], found["land_value"], found["building_value"]) == (2024, 30_000, 110_000)
    assert found["market_value"] == 140_000


def test_minnesota_names_values_by_the_year_they_are_payable_in() -> None:
    values = grid(
        ("", "2024 Payable 2025", "2023 Payable 2024"),
        ("Estimated Land Value", "$50,000", "$40,000"),
        ("Estimated Building Value", "$200,000", "$190,000"),
        ("Total Estimated Market Value", "$250,000", "$230,000"),
        ("Total Taxable Market Value", "$220,000", "$200,000"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "MN")
    assert (found["value_year"], found["market_value"], found["taxable_value"]) == (2024, 250_000, 220_000)


def test_years_may_stand_in_the_first_column() -> None:
    values = grid(
        ("Tax Year", "Land Value", "Building Value", "Total Market Value"), ("2023", "$1,000", "$2,000", "$3,000")
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, assessment_history=values), "SC")
    assert (found["value_year"], found["land_value"], found["market_value"]) == (2023, 1_000, 3_000)


def test_certified_values_go_before_working_ones() -> None:
    values = grid(("", "2025 Working Values", "2024 Certified Values"), ("Just Value", "$2,000", "$1,000"))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
    assert (found["value_year"], found["value_status"], found["market_value"]) == (2024, "certified", 1_000)
    assert found["valuations"][0]["status"] == "working"


def test_buildings_of_several_modules_are_counted_and_farm_buildings_are_not() -> None:
    page = qpublic(
        summary=SUMMARY,
        owner=OWNER,
        residential_dwellings=two_columns(year_built="1950", total_gross_living_area="1,200 SF"),
        commercial_buildings=two_columns(year_built="1980", gross_building_area="3,000"),
        agricultural_buildings=two_columns(year_built="1910"),
    )
    found = record("beacon", page, "IA")
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, 1950, 4_200)


def test_buildings_may_be_a_table() -> None:
    table = grid(
        ("Bldg", "Type", "Year Built", "Heated Sq Ft"), ("1", "HOUSE", "1999", "1,500"), ("2", "SHOP", "2005", "600")
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, building_information=table))
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, 1999, 2_100)


def test_bills_of_a_tax_history() -> None:
    bills = grid(
        ("Tax Year", "Bill #", "Total Tax", "Amount Paid", "Balance Due"), ("2023", "77", "$912.50", "$0.00", "$912.50")
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, tax_history=bills), "SC")
    assert found["tax_bills"][0]["tax_due"] == 912.5
    assert found["tax_bills"][0]["bill_number"] == "77"


def test_a_summary_alone_is_no_record() -> None:
    assert isinstance(outcome("qpublic", qpublic(summary=SUMMARY)), Retry)
    assert isinstance(outcome("qpublic", qpublic(summary=SUMMARY, photos="", sketches="")), Retry)


def test_a_column_behind_the_years_is_no_year() -> None:
    values = grid(
        ("", "2024", "2023", "Change"), ("Land Value", "$20", "$10", "100%"), ("Market Value", "$50", "$40", "25%")
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "GA")
    assert [(one["year"], one["land_value"], one["market_value"]) for one in found["valuations"]] == [
        (2024, 20, 50),
        (2023, 10, 40),
    ]


def test_market_values_that_are_called_so_part_by_part() -> None:
    values = grid(
        ("", "2024 Certified Values"),
        ("Market Improvement Value", "$70"),
        ("Market Misc Value", "$5"),
        ("Market Land Value", "$25"),
        ("Just Market Value", "$100"),
        ("Total Assessed Value", "$90"),
        ("School Exempt Value", "$25"),
        ("School Taxable Value", "$65"),
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
    assert (found["land_value"], found["building_value"], found["extra_feature_value"]) == (25, 70, 5)
    assert (found["market_value"], found["assessed_value"], found["taxable_value_school"]) == (100, 90, 65)
    assert (found["exemption_value"], found["taxable_value"]) == (None, None)


def test_a_year_that_the_site_did_not_fill_in_is_named() -> None:
    for heading in ("2023 Certified", "{{ year }}", "undefined"):
        values = grid(("", "2024 Certified", heading), ("Just Market Value", "$100", "$90"))
        values = values.replace(f"<td>{heading}</td>", f"<th>{heading}</th>")
        found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
        assert ("valuations" in found["unreadable"]) is (heading != "2023 Certified")


def test_special_assessments_are_no_values() -> None:
    fees = grid(("Year", "Total Value"), ("2024", "$120"))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, special_assessments=fees))
    assert (found["market_value"], found["valuations"]) == (None, [])


def test_sales_in_the_area_are_of_other_parcels() -> None:
    sales = grid(("Sale Date", "Sale Price"), ("1/2/2020", "$5"))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, recent_sales_in_area=sales))
    assert (found["sales"], found["last_sale_date"]) == ([], None)


def test_land_in_feet_is_not_taken_for_acres() -> None:
    for text, acres in (("10,890 SF", None), ("2.5", 2.5), (".25 Acres", 0.25), ("1,200.5 ac", 1200.5), ("", None)):
        summary = two_columns(parcel_id="1", land_area=text)
        assert record("qpublic", qpublic(summary=summary, owner=OWNER))["land_area_acres"] == acres, text


def test_a_use_has_its_code_behind_or_before() -> None:
    for text, code, words in (
        ("SINGLE FAMILY (0100)", "0100", "SINGLE FAMILY"),
        ("510 - House", "510", "House"),
        ("VACANT (RES)", None, "VACANT (RES)"),
        ("R - Residential", None, "R - Residential"),
    ):
        summary = two_columns(parcel_id="1", property_class=text)
        found = record("qpublic", qpublic(summary=summary, owner=OWNER))
        assert (found["land_use_code"], found["land_use_desc"]) == (code, words)


def test_a_note_is_no_part_of_the_description() -> None:
    for note in ("(Note: Not to be used on legal documents)", "*The Description above is not to be used on documents."):
        summary = two_columns(parcel_id="1", legal_description=f"LOT 4 ELM PARK {note}")
        assert record("qpublic", qpublic(summary=summary, owner=OWNER))["legal_description"] == "LOT 4 ELM PARK"


def test_modules_of_the_same_title_are_all_read() -> None:
    one = two_columns(actual_year_built="1990", heated_area="1,000")
    page = qpublic(summary=SUMMARY, owner=OWNER, building_information=one, building_two=one)
    found = record("qpublic", page.replace("Building Two", "Building Information"))
    assert (found["building_count"], found["building_area_sqft"]) == (2, 2_000)


def test_taxes_are_those_of_the_newest_year_and_dues_are_summed_if_all_are_told() -> None:
    heads = ("Tax Year", "Total Tax", "Balance Due")
    bills = grid(heads, ("2022", "$80.00", "$10.00"), ("2023", "$90.50", "$90.50"))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, tax_history=bills))
    assert (found["tax_year"], found["tax_amount"], found["tax_due"]) == (2023, 90.5, 100.5)
    halves = grid(heads, ("2023", "$45.00", "$0.00"), ("2023", "$45.50", ""))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, tax_history=halves))
    assert (found["tax_year"], found["tax_amount"], found["tax_due"]) == (None, None, None)


def test_brackets_that_never_close_are_read_in_one_go() -> None:
    """Looked for from each bracket to the end, so many would take minutes."""
    for count in (500, 100_000):
        summary = two_columns(parcel_id="1", legal_description="(not " * count)
        assert (
            record("qpublic", qpublic(summary=summary, owner=OWNER))["legal_description"] == ("(not " * count).strip()
        )


PARTS = ("Land", "Improvements", "Total")


def sections(*titled: tuple[str, tuple[str, str, str]]) -> str:
    rows = [row for title, amounts in titled for row in ((title, ""), *zip(PARTS, amounts, strict=True))]
    return grid(("", "2024"), *rows)


def test_values_of_the_same_name_are_told_by_their_section() -> None:
    appraised = ("Appraised Value (100%)", ("$100", "$200", "$300"))
    assessed = ("Assessed Value (35%)", ("$35", "$70", "$105"))
    for values in (sections(appraised, assessed), sections(assessed, appraised)):
        found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
        assert (found["land_value"], found["building_value"]) == (100, 200)
        assert (found["market_value"], found["assessed_value"]) == (300, 105)


def test_values_of_the_same_name_are_none_where_no_section_tells_them_apart() -> None:
    values = sections(("First", ("$100", "$200", "$300")), ("Second", ("$35", "$200", "$105")))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
    assert (found["land_value"], found["building_value"], found["market_value"]) == (None, 200, None)


def test_a_section_may_be_named_in_a_cell_of_its_own() -> None:
    values = grid(
        ("", "", "2024"),
        ("Assessed", "Land", "$35"),
        ("", "Total", "$105"),
        ("Market", "Land", "$100"),
        ("", "Total", "$300"),
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
    assert (found["land_value"], found["market_value"], found["assessed_value"]) == (100, 300, 105)


def test_previous_owners_are_not_those_of_now() -> None:
    summary = two_columns(parcel_id="1", owner="BLOOM CLARA")
    for title in ("previous_owners", "prior_owner_information", "owner_history", "ownership_history"):
        page = qpublic(summary=summary, **{title: "OLDE PETER<br>9 ELM ST<br>BOONE, IA 50036"})
        assert record("qpublic", page)["owner_names"] == ["BLOOM CLARA"], title


def test_tax_sales_are_no_sales_of_the_parcel() -> None:
    sales = grid(("Sale Date", "Sale Price"), ("1/2/2020", "$5"))
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, tax_sales=sales))
    assert (found["sales"], found["last_sale_date"]) == ([], None)


def test_taxes_on_other_things_are_not_the_parcel_s() -> None:
    bills = grid(("Tax Year", "Total Tax"), ("2023", "$912.50"))
    for title in ("personal_property_tax", "special_taxes", "tax_sale_tax_history"):
        found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, **{title: bills}))
        assert (found["tax_amount"], found["tax_bills"]) == (None, []), title
    assert record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, property_taxes=bills))["tax_amount"] == 912.5


def test_a_doctor_s_title_is_no_state() -> None:
    first, second = "JONES ROBERT, MD", "BLOOM CLARA"
    for street in ("12 ELM ST", "RIVER ROAD"):
        owner = f"{first}<br>{street}<br>BOONE, IA 50036"
        found = record("qpublic", qpublic(summary=SUMMARY, owner=owner))
        assert (found["owner_names"], found["mailing_lines"], found["mailing_city"]) == ([first], [street], "BOONE")
    found = record("qpublic", qpublic(summary=SUMMARY, owner=f"{second}<br>{first}<br>12 ELM ST<br>BOONE, IA 50036"))
    assert found["owner_names"] == [second, first]
    found = record("qpublic", qpublic(summary=two_columns(parcel_id="1", owner=first), land=""))
    assert (found["owner_names"], found["mailing_city"]) == ([first], None)


def test_addresses_without_a_zip_end_an_owner_too() -> None:
    owner = "BLOOM CLARA<br>12 PINE ST<br>AMES, IA<br>CARVER LOUIS<br>9 ELM ST<br>BOONE, IA"
    found = record("beacon", qpublic(summary=SUMMARY, owner_information=owner), "IA")
    assert found["owner_names"] == ["BLOOM CLARA", "CARVER LOUIS"]
    assert (found["mailing_lines"], found["mailing_city"]) == (["12 PINE ST"], "AMES")


def test_only_the_site_s_own_words_say_that_there_is_no_parcel() -> None:
    for text, kind in (
        ("No results found.", NotFound),
        ("No data available for the following modules: Summary, Photos.", Retry),
        ("Image not found", Retry),
    ):
        assert isinstance(outcome("qpublic", f"<html><body><p>{text}</p></body></html>"), kind), text


@pytest.mark.parametrize("markup", ["<div>{}</div>", "<strong>{}</strong><br>", "<p>{}</p>"])
@pytest.mark.parametrize(
    "heading", ["Previous Owner", "PREVIOUS OWNER", "Agent", "Registered Agent", "Lessee", "Mortgage Company", "Tenant"]
)
def test_people_below_a_heading_of_others_are_no_owners(heading: str, markup: str) -> None:
    address = "".join(f"<div>{line}</div>" for line in ("SMITH JOHN", "9 ELM ST", "BOONE, IA 50036"))
    owner = f"{address}{markup.format(heading)}<div>OLD MAN</div><div>7 OAK ST</div><div>AMES, IA 50010</div>"
    found = record("qpublic", qpublic(summary=SUMMARY, owner=owner))
    assert (found["owner_names"], found["mailing_lines"]) == (["SMITH JOHN"], ["9 ELM ST"])
    assert "owner_names" not in found["unreadable"]
    assert "OLD MAN" in found["owner_lines"]


@pytest.mark.parametrize("markup", ["<div>{}</div>", "<strong>{}</strong><br>"])
@pytest.mark.parametrize("country", ["", "<div>USA</div>", "<div>CANADA</div>"])
def test_names_below_an_unknown_heading_are_no_owners_if_there_are_others(markup: str, country: str) -> None:
    place = "TORONTO ON M4B 1B3" if "CANADA" in country else "BOONE, IA 50036"
    address = "".join(f"<div>{line}</div>" for line in ("SMITH JOHN", "9 ELM ST", place)) + country
    found = record("qpublic", qpublic(summary=SUMMARY, owner=f"{address}{markup.format('Zunft')}<div>OLD MAN</div>"))
    assert (found["owner_names"], found["mailing_lines"]) == (["SMITH JOHN"], ["9 ELM ST"])
    assert "owner_names" in found["unreadable"]


def test_a_co_owner_is_an_owner() -> None:
    owner = "Owner<br>SMITH JOHN<br>9 ELM ST<br>BOONE, IA 50036<br>Co Owner<br>DOE JANE<br>7 OAK ST<br>AMES, IA 50010"
    found = record("qpublic", qpublic(summary=SUMMARY, owner=owner))
    assert (found["owner_names"], "owner_names" in found["unreadable"]) == (["SMITH JOHN", "DOE JANE"], False)


def test_a_page_without_its_owners_is_incomplete_and_without_values_names_all_of_them() -> None:
    values = grid(("", "2024"), ("Just Value", "$5"))
    found = outcome("qpublic", qpublic(summary=SUMMARY, valuation=values))
    assert isinstance(found, Retry)
    assert "owners" in found.reason
    without = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER))
    assert {"valuations", "market_value", "taxable_value", "value_year"} <= set(without["unreadable"])
    assert "owner_names" in record("qpublic", qpublic(summary=SUMMARY, owner="", valuation=values))["unreadable"]


def test_a_unit_below_the_street_is_no_city() -> None:
    for below, city in [("UNIT B", None), ("REAR", None), ("BOONE", "BOONE")]:
        summary = two_columns(parcel_id="34-09", property_address=f"12 PINE ST<br>{below}")
        found = record("qpublic", qpublic(summary=summary, owner=OWNER))
        assert found["situs_city"] == city
        assert (below in found["situs_address"]) is (city is None)
