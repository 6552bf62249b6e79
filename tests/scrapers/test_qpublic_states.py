"""`qpublic` and `beacon`: grids of values and taxes in the forms that states have for them."""

from __future__ import annotations

from parcelpost.model import Retry
from tests.scrapers.reading import grid, outcome, qpublic, record, two_columns

SUMMARY = two_columns(parcel_number="045B010022", location_address="12 PINE ST", acres="1.25")
OWNER = "BLOOM CLARA<br>12 PINE ST<br>STONEBRIDGE, GA 30999"

YEARS = ("Year", "Property Class", "LUC", "Land Value", "Building Value", "Total Value")
APPRAISED = grid(YEARS, ("2024", "R3", "101", "$40,000", "$160,000", "$200,000"))
ASSESSED = grid(("Year", "Land Value", "Building Value", "Total Value"), ("2024", "$16,000", "$64,000", "$80,000"))


def titled(modules: dict[str, str]) -> str:
    """With titles that no keyword can be."""
    page = qpublic(summary=SUMMARY, owner=OWNER, **{f"module_{at}": one for at, one in enumerate(modules.values())})
    for at, title in enumerate(modules):
        page = page.replace(f"Module {at}", title)
    return page


def test_georgia_s_years_stand_in_rows_and_what_is_assessed_in_a_module_of_its_own() -> None:
    appraised, assessed = "Valuation (Appraised 100%)", "Valuation (Assessed 40%)"
    for page in (
        titled({appraised: APPRAISED, assessed: ASSESSED}),
        titled({assessed: ASSESSED, appraised: APPRAISED}),
        titled({"Valuation - Current Assessed (40%)": ASSESSED, "Valuation - Current Appraised (100%)": APPRAISED}),
    ):
        found = record("qpublic", page, "GA")
        assert (found["land_value"], found["building_value"]) == (40_000, 160_000)
        assert (found["market_value"], found["assessed_value"], found["value_year"]) == (200_000, 80_000, 2024)
    found = record("qpublic", titled({assessed: ASSESSED}), "GA")
    assert (found["land_value"], found["market_value"], found["assessed_value"]) == (None, None, 80_000)


def test_ohio_s_totals_say_in_brackets_of_what() -> None:
    values = grid(
        ("", "2024", "2023"),
        ("Land Value", "$30,000", "$20,000"),
        ("Improvements Value", "$70,000", "$60,000"),
        ("CAUV Value", "$0", "$0"),
        ("Total Value (Assessed 35%)", "$35,000", "$28,000"),
        ("Total Value (Appraised 100%)", "$100,000", "$80,000"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, valuation=values), "OH")
    assert (found["land_value"], found["building_value"]) == (30_000, 70_000)
    assert (found["market_value"], found["assessed_value"]) == (100_000, 35_000)


def test_a_year_may_stand_in_any_column_and_say_how_final_it_is() -> None:
    values = grid(
        ("Class", "Year", "Market Value", "Land Value"),
        ("R", "2025 Working", "$900", "$90"),
        ("R", "2024 Certified Values", "$800", "$80"),
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, values=values))
    assert (found["value_year"], found["value_status"]) == (2024, "certified")
    assert (found["market_value"], found["land_value"]) == (800, 80)


def test_rows_of_one_year_are_parts_of_it_and_none_is_the_whole() -> None:
    values = grid(
        ("Year", "Class", "Total Value"), ("2024", "Farm", "$5"), ("2024", "House", "$7"), ("2023", "Farm", "$4")
    )
    found = record("qpublic", qpublic(summary=SUMMARY, owner=OWNER, valuation=values))
    assert [(one["year"], one["market_value"]) for one in found["valuations"]] == [(2023, 4)]


def test_iowa_s_bills_come_in_halves_within_a_row() -> None:
    bills = grid(
        ("Year", "Due Date", "Amount", "Paid", "Date Paid", "Receipt"),
        (
            "2023<br>2024-2025",
            "March 2025<br>September 2024",
            "$512<br>$512.50",
            "No<br>Yes",
            "<br>9/20/2024",
            "305655",
        ),
        ("2022", "March 2024<br>September 2023", "$500<br>$500", "Yes<br>Yes", "3/1/2024<br>9/2/2023", "301"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, tax_history=bills), "IA")
    assert [(one["tax_year"], one["installment"], one["tax_amount"], one["status"]) for one in found["tax_bills"]] == [
        (2023, "March 2025", 512, "unpaid"),
        (2023, "September 2024", 512.5, "paid"),
        (2022, "March 2024", 500, "paid"),
        (2022, "September 2023", 500, "paid"),
    ]
    assert [one["paid_date"] for one in found["tax_bills"]] == [None, None, "2024-03-01", "2023-09-02"]
    assert (found["tax_year"], found["tax_amount"], found["tax_due"]) == (2023, 1_024.5, None)


def test_taxes_may_have_their_years_above_the_columns() -> None:
    taxation = grid(
        ("", "2024 Pay 2025-2026", "2023 Pay 2024-2025"),
        ("+ Taxable Land Value", "$9,000", "$8,000"),
        ("= Gross Taxes Due", "$300.00", "$280.00"),
        ("- Credits", "($10.00)", "$0.00"),
        ("= Net Annual Taxes", "$290.00", "$280.00"),
    )
    found = record("beacon", qpublic(summary=SUMMARY, owner=OWNER, taxation=taxation), "IA")
    assert [(one["tax_year"], one["tax_amount"]) for one in found["tax_bills"]] == [(2024, 290), (2023, 280)]
    assert (found["tax_year"], found["tax_amount"], found["market_value"]) == (2024, 290, None)


def test_a_tax_history_goes_before_how_taxes_are_reckoned() -> None:
    taxation = grid(("", "2024 Pay 2025"), ("= Net Annual Taxes", "$290.00"))
    bills = grid(("Tax Year", "Total Tax"), ("2024", "$291.00"))
    for order in (("taxation", "tax_history"), ("tax_history", "taxation")):
        given = {"taxation": taxation, "tax_history": bills}
        page = qpublic(summary=SUMMARY, owner=OWNER, **{name: given[name] for name in order})
        assert record("beacon", page, "IA")["tax_amount"] == 291


def test_the_summary_is_the_module_with_the_parcel_s_number_whatever_its_title() -> None:
    for title in ("general_property_data", "parcel_details", "location"):
        page = qpublic(tax_summary=two_columns(tax_year="2024"), owner=OWNER, **{title: SUMMARY})
        found = record("qpublic", page)
        assert (found["parcel_id"], found["situs_address"]) == ("045B010022", "12 PINE ST")


def test_a_number_among_others_parcels_is_not_the_page_s() -> None:
    neighbours = two_columns(parcel_number="1-2-3")
    for title in ("nearby_parcels", "comparable_sales", "related_parcels", "area_sales"):
        assert isinstance(outcome("qpublic", qpublic(owner=OWNER, **{title: neighbours})), Retry), title


def test_a_title_is_known_by_its_id_too() -> None:
    page = qpublic(summary=SUMMARY, owner=OWNER).replace('<div class="title">', '<div id="ctlBodyPane_ctl07_lblName">')
    assert record("qpublic", page)["parcel_id"] == "045B010022"
