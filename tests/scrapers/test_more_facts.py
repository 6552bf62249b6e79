"""Facts beside values and sales: each from its label, and null where the text is not of its kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scrapers import test_broward_bcpa as broward
from tests.scrapers import test_collier_pa as collier
from tests.scrapers import test_grizzly_gis as grizzly
from tests.scrapers import test_leepa as leepa
from tests.scrapers import test_lists as lists
from tests.scrapers import test_miamidade_pa as miamidade
from tests.scrapers import test_mygov_due as mygov
from tests.scrapers import test_qpublic as state_pages
from tests.scrapers import test_vgsi as vgsi
from tests.scrapers.reading import grid, qpublic, record, two_columns
from tests.scrapers.test_field_maps import METRO, NAL, PACS, answer
from tests.scrapers.test_field_maps import records as rows_of_layer


def listed(found: dict[str, Any], name: str, *members: str) -> list[tuple[Any, ...]]:
    return [tuple(item[member] for member in members) for item in found[name]]


def sales_of(*rows: tuple[str, ...]) -> str:
    return f'<div id="SalesDetails">{grid(*rows)}</div>'


FARM = (("Ag Land", "$700"), ("Class", "$9,800"), ("SOH/10% Cap <a>[?]</a>", "$1,800"))


def test_a_farm_has_what_its_land_is_worth_by_use_and_what_the_cap_takes_off() -> None:
    found = record("grizzly_gis", grizzly.page(values=grizzly.column("2024 Certified Values", *FARM)))
    assert (found["classified_land_value"], found["classified_use_value"]) == (700, 9_800)
    assert found["assessment_cap_value"] == 1_800


@pytest.mark.parametrize(
    ("exempt", "homestead"),
    [
        ("<td>HX HB</td><td>$50</td>", True),
        ("<td>WX</td><td>$5</td>", False),
        ("<td></td><td>$0</td>", False),
        ("<td>Homestead etc.</td><td>$50</td>", None),
    ],
)
def test_a_homestead_has_its_code_and_an_amount_without_a_code_says_nothing(
    exempt: str, homestead: bool | None
) -> None:
    cell = ("Exempt", f"<table><tr>{exempt}</tr></table>")
    found = record("grizzly_gis", grizzly.page(values=grizzly.column("2024 Certified Values", cell)))
    assert found["homestead"] is homestead


def test_without_a_row_of_exemptions_the_page_does_not_say() -> None:
    assert record("grizzly_gis", grizzly.page())["homestead"] is None


@pytest.mark.parametrize(
    ("text", "day"), [("updated: 8/1/2024", "2024-08-01"), ("updated: weekly", None), ("Updated maps", None)]
)
def test_the_day_of_the_data_is_a_date(text: str, day: str | None) -> None:
    page = grizzly.page().replace("<body>", f"<body><table><tr><td>{text}</td></tr></table>")
    assert record("grizzly_gis", page)["data_date"] == day


def test_the_district_and_the_county_s_running_number() -> None:
    found = record("grizzly_gis", grizzly.page())
    assert (found["parcel_id"], found["alternate_id"]) == ("01-2S-03-00004-005", "67")
    assert found["tax_district"] == "3"
    other = record("grizzly_gis", grizzly.page().replace("<td>Tax District", "<td>Fire Tax District"))
    assert other["tax_district"] is None


def test_a_sale_of_several_parcels_is_marked_behind_its_code() -> None:
    rows = "".join(
        f"<tr><td>1/2/2020</td><td>$100</td><td>1 / {number}</td><td>WD</td><td>{text}</td></tr>"
        for number, text in enumerate(("05 (Multi-Parcel Sale) - <a>show</a>", "11", "", "see remarks", "Q"))
    )
    page = grizzly.page(sales=rows).replace("<td>Deed</td></tr>", "<td>Deed</td><td>RCode</td></tr>")
    found = record("grizzly_gis", page)
    assert listed(found, "sales", "reason_code", "multi_parcel") == [
        ("05", True),
        ("11", None),
        *[(None, None)] * 3,
    ]


SALE_HEADS = ("Sale Price", "Date", "Clerk File Number", "Type", "Notes", "Vacant/ Improved")


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Owner Of Record - Life Estate", "Life Estate"),
        ("Owner Of Record - Tenants by Entirety", "Tenants by Entirety"),
        ("Owner Of Record  - Joint Tenants<br><div><a>[Change Mailing Address]</a></div>", "Joint Tenants"),
        ("Owner Of Record", None),
        ("Owner Of Record - BLOOM CLARA", None),
    ],
)
def test_how_owners_hold_a_parcel_is_in_their_title(title: str, kind: str | None) -> None:
    page = leepa.page().replace("Owner Of Record - Sole Owner", title)
    assert record("leepa", page)["ownership_type"] == kind
    assert record("leepa", page.replace("sectionSubTitle", "other"))["ownership_type"] == kind


def test_a_note_says_that_other_parcels_were_sold_too() -> None:
    rows = (
        ("969,000.00", "08/04/2021", "2021000258601", "05", "There are 37 additional parcel(s) with this", "V"),
        ("100.00", "08/04/2011", "2011000258601", "11", "See 2 documents", "V"),
    )
    found = record("leepa", leepa.page(sales_of(SALE_HEADS, *rows)))
    assert listed(found, "sales", "reason_code", "multi_parcel") == [("05", True), ("11", None)]


@pytest.mark.parametrize(
    ("title", "district"), [("CITY OF MARIGOLD / 057", "CITY OF MARIGOLD / 057"), ("Taxing Authorities", None)]
)
def test_the_district_is_the_title_of_the_authorities(title: str, district: str | None) -> None:
    authorities = f"<div>{title}</div>{grid(('Name / Code', 'Category'), ('MARIGOLD CO / 044', 'County'))}"
    assert record("leepa", leepa.page(authorities))["tax_district"] == district


def test_that_there_are_no_exemptions_is_said() -> None:
    none = record("leepa", leepa.page("<div>No existing exemptions found for this property.</div>"))
    assert (none["exemptions"], none["homestead"]) == ([], False)
    silent = record("leepa", leepa.page())
    assert (silent["exemptions"], silent["homestead"]) == (None, None)


def test_permits_are_counted_where_they_are_listed() -> None:
    heads = ("Permit Number", "Permit Type", "Date")
    two = grid(heads, ("B-1", "Roof", "1/2/2020"), ("B-2", "Pool", "1/2/2021"), ("none", "", ""))
    assert record("leepa", leepa.page(two))["permit_count"] == 2
    assert record("leepa", leepa.page(grid(heads)))["permit_count"] == 0
    assert record("leepa", leepa.page())["permit_count"] is None


def test_the_data_are_as_of_the_day_before_the_visit() -> None:
    found = record("leepa", leepa.page(leepa.details("", ""), "<div>Generated on 4/11/2025</div>"))
    assert found["data_date"] == "2025-04-10"


def test_block_and_lot_stand_below_their_headings() -> None:
    place = grid(("Section", "Block", "Lot"), ("18", "05683", "0190"))
    found = record("leepa", leepa.page(place))
    assert (found["block"], found["lot"]) == ("05683", "0190")
    shifted = record("leepa", leepa.page(place.replace("<td>18</td>", "")))
    assert (shifted["block"], shifted["lot"]) == (None, None)


YEARS = '<span id="HistoryTaxYear1">2025 PRELIMINARY</span><span id="HistoryTaxYear2">2024</span>'


def tax_history(*rows: tuple[str, str, str, str]) -> str:
    """Rows: id without its number, name, and an amount for each year."""
    cells = "".join(
        f'<tr id="TrHistory{ident}"><td>{name}</td><td>All</td><td><span id="History{ident}1">{one}</span></td>'
        f'<td><span id="History{ident}2">{two}</span></td></tr>'
        for ident, name, one, two in rows
    )
    return f"{YEARS}<table>{cells}</table>"


def test_earlier_years_have_their_tax_their_cap_and_the_names_of_exemptions() -> None:
    history = tax_history(
        ("SohBenefit", "(-) Save our Homes", "$0", "$2,000"),
        ("NonSchool10PctBenefit", "(-) Non-Homestead 10%", "$0", "$300"),
        ("HmstdExemptAmount", "(-)&nbsp;Homestead", "$0", "$25,000"),
        ("BlindExemptAmount", "(-)&nbsp;Blind", "$0", "$0"),
        ("CountyDisabledVetExemptAmount", "(-)&nbsp;Disabled Veteran", "$0", "$500"),
        ("SchoolDisabledVetExemptAmount", "(-)&nbsp;Disabled Veteran", "$0", "$500"),
        ("TotalTaxes", "(=) Total Taxes", "$90.10", "$80.25"),
    )
    found = record("collier_pa", collier.page(history, roll="2026 Preliminary Tax Roll"))
    fields = ("year", "status", "assessment_cap_value", "exemptions", "tax_amount")
    assert listed(found, "valuations", *fields)[1:] == [
        (2025, "preliminary", 0, [], 90.1),
        (2024, "certified", 2_300, ["Homestead", "Disabled Veteran"], 80.25),
    ]
    assert found["tax_bills"] == []


def test_a_cap_is_known_where_both_of_its_rows_are_shown() -> None:
    history = tax_history(("NonSchool10PctBenefit", "(-) Non-Homestead 10%", "$0", "$300"))
    found = record("collier_pa", collier.page(history, roll="2026 Preliminary Tax Roll"))
    assert [one["assessment_cap_value"] for one in found["valuations"]] == [None, None, None]


def test_an_amount_that_cannot_be_read_leaves_the_exemptions_of_its_year_unknown() -> None:
    history = tax_history(("HmstdExemptAmount", "(-) Homestead", "pending", "$25,000"))
    found = record("collier_pa", collier.page(history, roll="2026 Preliminary Tax Roll"))
    assert [one["exemptions"] for one in found["valuations"]] == [None, None, ["Homestead"]]


def test_exemptions_that_do_not_explain_the_taxable_value_are_unknown() -> None:
    for taxable, exemptions in (("$75,000", ["Homestead"]), ("$50,000", None)):
        history = tax_history(
            ("HmstdExemptAmount", "(-) Homestead", "$0", "$25,000"),
            ("CountyAssessedValue", "(=) Assessed Value", "$0", "$100,000"),
            ("CountyTaxableValue", "(=) Taxable Value", "$0", taxable),
        )
        found = record("collier_pa", collier.page(history, roll="2026 Preliminary Tax Roll"))
        assert found["valuations"][2]["exemptions"] == exemptions


def test_the_tax_of_a_year_is_not_that_of_the_record() -> None:
    total = collier.amounts(TotalTaxes="$70.00", **collier.VALUES)
    history = tax_history(("TotalTaxes", "(=) Total Taxes", "$90.10", "$80.25"))
    found = record("collier_pa", collier.page(history, roll="2026 Preliminary Tax Roll", values=total))
    assert (found["tax_year"], found["tax_amount"]) == (2026, 70)


def test_the_rate_is_the_total_and_the_strap_is_below_its_heading() -> None:
    numbers = grid(("Map No.", "Strap No."), ("4A16", "112000 8 54A16"))
    rate = '<table><tr><td>(=) Taxable</td><td id="TdDetailTotalMillage">{}</td></tr></table>'
    found = record("collier_pa", collier.page(numbers, rate.format("9.0514")))
    assert (found["alternate_id"], found["millage_rate"]) == ("112000 8 54A16", 9.0514)
    assert record("collier_pa", collier.page(rate.format("$0")))["millage_rate"] is None
    assert record("collier_pa", collier.page(rate.format("2,184,000")))["millage_rate"] is None


def test_permits_are_counted_by_their_rows() -> None:
    heads = "<tr><td>Tax Yr</td><td>Issuer</td><td>Permit #</td></tr>"
    rows = "".join(
        f'<tr id="TrPermit{at}"><td><span id="taxyear{at}">{year}</span></td><td>MARIGOLD</td>'
        f'<td><span id="permitno{at}">{number}</span></td></tr>'
        for at, (year, number) in enumerate([("2024", "B-1"), ("1971", ""), ("1970", "931")], 1)
    )
    assert record("collier_pa", collier.page(f"<table>{heads}{rows}</table>"))["permit_count"] == 3
    assert record("collier_pa", collier.page(f"<table>{heads}</table>"))["permit_count"] == 0
    assert record("collier_pa", collier.page())["permit_count"] is None


@pytest.mark.parametrize(
    ("text", "zone"), [("AE", "AE"), ("X", "X"), ("A13", "A13"), ("Yes", None), ("See map", None), ("", None)]
)
def test_a_flood_zone_is_one_of_the_federal_maps(text: str, zone: str | None) -> None:
    summary = two_columns(parcel_number="1", flood_zone=text)
    assert record("qpublic", qpublic(summary=summary, owner=state_pages.OWNER))["flood_zone"] == zone


@pytest.mark.parametrize(
    ("rows", "district", "rate"),
    [
        ({"millage_group": "UNINCORPORATED (01)", "millage_rate": "19.2923"}, "UNINCORPORATED (01)", 19.2923),
        ({"tax_district": "COUNTY (District 01)"}, "COUNTY (District 01)", None),
        ({"school_tax_district": "5", "school_millage_rate": "7.1"}, None, None),
        ({"millage_rate": "see bill"}, None, None),
    ],
)
def test_the_district_and_its_rate(rows: dict[str, str], district: str | None, rate: float | None) -> None:
    found = record("qpublic", qpublic(summary=two_columns(parcel_number="1", **rows), owner=state_pages.OWNER))
    assert (found["tax_district"], found["millage_rate"]) == (district, rate)


def test_iowa_names_seller_buyer_and_whether_several_parcels_were_sold() -> None:
    sales = grid(
        ("Date", "Seller", "Buyer", "Recording", "Type", "Multi Parcel", "Amount"),
        ("1/2/2020", "BLOOM CLARA ,", "CARVER LOUIS", "2020-1", "Deed", "Y", "$100.00"),
        ("1/2/2010", "UNKNOWN", "", "2010-1", "Deed", "N", "$90.00"),
    )
    found = record("beacon", qpublic(summary=state_pages.SUMMARY, owner=state_pages.OWNER, sales=sales), "IA")
    assert listed(found, "sales", "grantor", "grantee", "multi_parcel") == [
        ("BLOOM CLARA", "CARVER LOUIS", True),
        (None, None, False),
    ]


def test_permits_are_counted_and_a_list_without_data_has_none() -> None:
    permits = grid(("Permit Number", "Permit Date", "Type"), ("B-1", "1/2/2020", "Roof"), ("B-2", "1/3/2021", "Pool"))
    page = qpublic(summary=state_pages.SUMMARY, owner=state_pages.OWNER, permits=permits)
    assert record("qpublic", page)["permit_count"] == 2
    page = qpublic(summary=state_pages.SUMMARY, owner=state_pages.OWNER)
    assert record("qpublic", page)["permit_count"] is None
    none = '<div id="a_pnlNoDataForModules">No data available for the following modules: Permits, Sketch.</div>'
    assert record("qpublic", page.replace("</body>", f"{none}</body>"))["permit_count"] == 0


def test_what_the_cap_takes_off_and_the_day_of_the_upload() -> None:
    values = grid(("", "", "2024"), ("=", "Just Value", "$300"), ("-", "Capped Differential", "$40"))
    page = qpublic(summary=state_pages.SUMMARY, owner=state_pages.OWNER, valuation=values)
    upload = "<a>Last Data Upload: 8/7/2024, 7:32:05 AM</a>"
    found = record("qpublic", page.replace("</body>", f"{upload}</body>"))
    assert (found["assessment_cap_value"], found["data_date"]) == (40, "2024-08-07")


def test_a_life_estate_has_its_remainder() -> None:
    owners = [{"Name": "BLOOM CLARA LE", "Description": "Life Estate"}]
    owners += [{"Name": f"REM BLOOM {name}", "Description": "Remainder"} for name in ("LOUIS", "ANNA")]
    assert record("miamidade_pa", miamidade.answer(OwnerInfos=owners))["ownership_type"] == "Life Estate, Remainder"
    assert record("miamidade_pa", miamidade.answer())["ownership_type"] is None


def test_a_cap_is_a_reduction_and_no_exemption() -> None:
    benefits = [
        {"TaxYear": 2024, "Type": "Assessment Reduction", "Description": "Save Our Homes Cap", "Value": 400},
        {"TaxYear": 2024, "Type": "Assessment Reduction", "Description": "Agriculture", "Value": 9_000},
        {"TaxYear": 2023, "Type": "Assessment Reduction", "Description": "Non-Homestead Cap", "Value": 70},
        {"TaxYear": 2024, "Type": "Exemption", "Description": "Homestead", "Value": 25_000},
    ]
    found = record("miamidade_pa", miamidade.answer(Benefit={"BenefitInfos": benefits}))
    assert (found["assessment_cap_value"], found["exemptions"]) == (400, ["Homestead"])


def test_a_sale_has_its_parties_and_its_reason() -> None:
    sale = {"DateOfSale": "1/2/2020", "ReasonCode": "02", "GrantorName1": "BLOOM CLARA", "GrantorName2": "ELM LLC"}
    reason = {"QualificationDescription": "Deeds that include more than one parcel", "GranteeName1": ""}
    found = record("miamidade_pa", miamidade.answer(SalesInfos=[{**sale, **reason}]))
    assert listed(found, "sales", "grantor", "grantee", "reason_code", "multi_parcel") == [
        ("BLOOM CLARA; ELM LLC", None, "02", True)
    ]


def test_a_tax_named_like_a_value_is_the_tax_of_its_year() -> None:
    more = {"justLastYearValue": "$250", "sohLastYearValue": "$190", "assessedLastYearValue": "$79.14"}
    found = record("broward_bcpa", broward.answer(**more))
    assert listed(found, "valuations", "assessed_value", "tax_amount") == [(200, None), (190, 79.14)]
    assert (found["tax_amount"], found["tax_bills"]) == (None, [])


def test_the_rate_is_that_of_the_newest_year() -> None:
    rates = [{"millageYear": "2022", "millageRate": "18.1"}, {"millageYear": "2023", "millageRate": "18.8172"}]
    page = broward.answer(millageCode="0312")
    page["d"]["millageRatek__BackingField"] = rates
    found = record("broward_bcpa", page)
    assert (found["millage_rate"], found["tax_district"]) == (18.8172, "0312")


def test_flags_of_a_bill_are_kept_as_printed() -> None:
    bills = mygov.bill(2023, 1, flags=["LITIGATION", ""]), mygov.bill(2022, 1, flags=[]), mygov.bill(2021, 1)
    found = record("mygov_due", mygov.answer(*bills))
    assert listed(found, "tax_bills", "flags") == [(["LITIGATION"],), ([],), (None,)]


def test_an_auction_s_highest_bid_and_what_it_leaves() -> None:
    cells = {"CaseNumber": "2023-1", "OpeningBid": "$1,131.91", "HighBid": "$2,000.00", "Surplus": "$868.09"}
    (found,) = lists.records("pioneer_taxdeed", lists.pioneer(**cells))
    assert (found["opening_bid"], found["high_bid"], found["surplus"]) == (1131.91, 2_000, 868.09)


def test_without_a_bid_there_is_no_highest() -> None:
    item = lists.item(1, "51640", "$100", "Upcoming")
    first, second = lists.records("deedauction", lists.auction(item, item.replace("$9", "-").replace("51640", "7")))
    assert (first["high_bid"], second["high_bid"]) == (9, None)


def test_a_tax_rate_area_is_a_district() -> None:
    details = "<p>Tax Rate Area: 001-495</p><p>Use Code: 103</p>"
    (found,) = lists.records("govease", lists.live("01-02-03", "$50.00", details, lists.AUCTION))
    assert (found["tax_district"], found["land_use_code"]) == ("001-495", "103")


def test_a_town_shows_the_number_on_its_map_and_who_bought() -> None:
    sale = "<tr><td>CARVER LOUIS</td><td>$5</td><td></td><td>1/2</td><td>01/02/2020</td></tr>"
    found = record("vgsi", vgsi.page(vgsi.SALES.format(sale), Mblu="407/ 141/ / /"), "CT")
    assert found["map_block_lot"] == "407/ 141/ / /"
    assert listed(found, "sales", "grantor", "grantee") == [(None, "CARVER LOUIS")]


def test_layers_have_districts_lots_and_what_land_is_worth_by_its_use() -> None:
    (florida,) = rows_of_layer("arcgis", answer({**NAL, "ALT_KEY": 123, "TAX_AUTH_CD": "057", "AV_CLASS_USE": 70}))
    assert (florida["alternate_id"], florida["tax_district"]) == ("123", "057")
    assert florida["classified_land_value"] == 70
    (metro,) = rows_of_layer("arcgis", answer({**METRO, "BLOCK": "5", "LOT": " ", "TOTAL_TAX": 0}))
    assert (metro["block"], metro["lot"], metro["tax_amount"]) == ("5", None, None)
    (texas,) = rows_of_layer("arcgis", answer({**PACS, "GEO_ID": "34", "block": "6", "tract_or_lot": "11"}))
    assert (texas["alternate_id"], texas["block"], texas["lot"]) == ("34", "6", "11")
