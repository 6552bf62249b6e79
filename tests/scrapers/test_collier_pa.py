"""`collier_pa`: buildings among pools and walls, the years before, owners abroad."""

from __future__ import annotations

import pytest

from parcelpost.model import Retry
from tests.scrapers.reading import grid, outcome, record

VALUES = {"LandJustValue": "$100", "ImprovementsJustValue": "$200", "TotalJustValue": "$300"}


def amounts(prefix: str = "", suffix: str = "", **shown: str) -> str:
    cells = ((f"{prefix}{name}{suffix}", text) for name, text in shown.items())
    return "".join(f'<tr><td>row</td><td><span id="{ident}">{text}</span></td></tr>' for ident, text in cells)


def page(
    *more: str,
    site: str = "12 ELM ST, MARIGOLD 34103",
    roll: str = "2024 Certified Tax Roll",
    place: tuple[str, str, str] = ("City", "MARIGOLD", "FL"),
    values: str = amounts(**VALUES),
) -> str:
    label, city, state = place
    return f"""<html><body><table><tr><td>Parcel ID</td><td><span id="ParcelID">15955960009</span></td></tr></table>
<span id="FullAddressUnit">{site}</span><span id="OwnerLine1">BLOOM CLARA</span><span id="OwnerLine2">9 OAK ST</span>
<table><tr><td><span id="CityCountry">{label}</span></td><td><span id="OwnerCity">{city}</span></td>
<td><span id="OwnerState">{state}</span></td></tr></table>
<table id="PropertyTaxTable"><tr><td><div id="RollType">{roll}</div></td></tr>{values}</table>
{"".join(more)}</body></html>"""


def building(number: int, year: str, desc: str, area: str, adjusted: str) -> str:
    cells = {"YRBUILT": year, "BLDGCLASS": desc, "BASEAREA": area, "TYADJAREA": adjusted}
    return "".join(f'<span id="{name}{number}">{text}</span>' for name, text in cells.items())


def test_pools_and_walls_are_no_buildings() -> None:
    listed = [
        building(1, "1985", "SINGLE FAMILY RESIDENCE", "2,000", "2,500"),
        building(2, "1990", "SWIMMING POOL", "400", "400"),
        building(3, "1991", "SCREEN ENCLOSURE", "900", "900"),
        building(4, "1999", "GUEST HOUSE", "500", "550"),
        building(5, "2001", "HOUSE DOCK", "100", "100"),
        building(6, "2002", "SOMETHING ELSE", "70", "70"),
    ]
    found = record("collier_pa", page(*listed))
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, 1985, 2_500)
    assert [one["actual_sqft"] for one in found["buildings"]] == [2_500, 550]


def test_buildings_without_ids_are_found_by_their_headings() -> None:
    table = """<table><tr><td>#</td><td>Year Built</td><td>Description</td><td>Area</td><td>Adj Area</td></tr>
<tr><td>10</td><td>1985</td><td>RETAIL STORE</td><td>800</td><td>900</td></tr></table>"""
    found = record("collier_pa", page(table))
    assert (found["building_count"], found["building_area_sqft"]) == (1, 800)


def test_land_without_a_building() -> None:
    found = record("collier_pa", page('<table><tfoot id="BuildingAdditional"></tfoot></table>'))
    assert (found["building_count"], found["buildings"], found["year_built"]) == (None, [], None)


def test_the_years_before_are_listed_and_stay_before() -> None:
    years = amounts("History", "1", TaxYear="2024", TotalJustValue="$300", CountyAssessedValue="$250")
    years += amounts("History", "2", TaxYear="2023", TotalJustValue="$280", CountyAssessedValue="$240")
    found = record("collier_pa", page(f"<table>{years}</table>"))
    assert (found["value_year"], found["market_value"], found["assessed_value"]) == (2024, 300, None)
    assert [(one["year"], one["market_value"]) for one in found["valuations"]] == [(2024, 300), (2023, 280)]


def test_an_amount_that_the_roll_does_not_have_is_not_taken_from_another_year() -> None:
    years = "<tr><td>(+) Improvements</td><td>$7</td><td>$8</td></tr>"
    found = record("collier_pa", page(f"<table>{years}</table>", values=amounts(TotalJustValue="$300")))
    assert (found["market_value"], found["building_value"]) == (300, None)


@pytest.mark.parametrize(
    ("roll", "status"),
    [
        ("2025 Preliminary Tax Roll", "preliminary"),
        ("2025 TRIM Tax Roll", "preliminary"),
        ("2024 Certified Tax Roll", "certified"),
        ("2025 Interim Tax Roll", "preliminary"),
        ("2025 Draft", "preliminary"),
        ("2025 In Progress Tax Roll", "preliminary"),
        ("2024 Final Tax Roll", "certified"),
        ("2024 Tax Roll", "certified"),
    ],
)
def test_a_roll_is_final_or_not(roll: str, status: str) -> None:
    assert record("collier_pa", page(roll=roll))["value_status"] == status


def test_an_owner_abroad_has_the_country_where_the_city_stands() -> None:
    found = record("collier_pa", page(place=("Country", "CANADA", "")))
    assert (found["mailing_country"], found["mailing_city"], found["mailing_state"]) == ("CANADA", None, None)


def test_the_city_of_an_owner_abroad_is_in_a_line() -> None:
    found = record("collier_pa", page('<span id="OwnerLine3">10115 BERLIN</span>', place=("Country", "GERMANY", "")))
    assert (found["owner_names"], found["mailing_lines"]) == (["BLOOM CLARA"], ["9 OAK ST"])
    assert [found[f"mailing_{name}"] for name in ("city", "zip", "country")] == ["BERLIN", "10115", "GERMANY"]


@pytest.mark.parametrize(
    ("site", "address", "city"),
    [
        ("12 ELM ST, MARIGOLD 34103", "12 ELM ST", "MARIGOLD"),
        ("12 ELM ST, UNIT 4, MARIGOLD 34103", "12 ELM ST, UNIT 4", "MARIGOLD"),
        (", MARIGOLD 34103", None, "MARIGOLD"),
        ("NO SITE ADDRESS", "NO SITE ADDRESS", None),
    ],
)
def test_a_site_is_a_street_and_a_city(site: str, address: str | None, city: str | None) -> None:
    found = record("collier_pa", page(site=site))
    assert (found["situs_address"], found["situs_city"]) == (address, city)


@pytest.mark.parametrize(
    ("text", "price"),
    [("$1,800", 1_800), ("about $1,800", 1_800), ("($1,800)", None), ("$1,800-$2,000", None), ("Exempt", None)],
)
def test_a_price_is_an_amount_and_nothing_else_is(text: str, price: int | None) -> None:
    sale = (
        '<table><tr id="TrSale1"><td><span id="SaleDate1">07/05/23</span></td><td>1-2</td><td><span id="SaleAmount1">'
    )
    found = record("collier_pa", page(f"{sale}{text}</span></td></tr></table>"))
    assert (found["last_sale_date"], found["last_sale_price"]) == ("2023-07-05", price)


def test_exemptions_are_known_only_if_every_amount_is() -> None:
    row = "<tr id=Tr{0}ExemptAmount><td>(-) {0}</td><td>All</td>{1}</tr>"
    property_tax = row.format("Tangible", "") + row.format("Homestead", "<td>$0</td>")

    def exemptions(*more: str) -> list[str] | None:
        found: list[str] | None = record("collier_pa", page(values=amounts(**VALUES) + property_tax + "".join(more)))[
            "exemptions"
        ]
        return found

    assert exemptions() == []
    assert exemptions(row.format("Widow", "<td>$500</td>")) == ["Widow"]
    assert exemptions(row.format("Widow", "<td>500 USD or so</td>")) is None


def test_a_homestead_is_told_by_what_is_exempt() -> None:
    assert record("collier_pa", page(amounts(HmstdExemptAmount="$25,000")))["homestead"] is True
    assert record("collier_pa", page(amounts(HmstdExemptAmount="$0")))["homestead"] is False
    assert record("collier_pa", page())["homestead"] is None


def test_a_table_of_permits_is_none_of_sales() -> None:
    permits = grid(("Date", "Permit", "Amount"), ("01/02/20", "ROOF", "$500"))
    sales = grid(("Date", "Book-Page", "Amount"), ("03/04/21", "12-34", "$900"))
    assert record("collier_pa", page(permits))["sales"] == []
    assert [one["price"] for one in record("collier_pa", page(permits, sales))["sales"]] == [900]


def test_without_its_first_line_an_address_is_no_owner() -> None:
    assert isinstance(outcome("collier_pa", page().replace('id="OwnerLine1"', "")), Retry)


def test_the_section_and_the_sheet_of_the_map() -> None:
    table = grid(("Map No.", "Section", "Township", "Range"), ("4A16", "16", "49", "25"))
    found = record("collier_pa", page(table))
    assert (found["sec_twp_rng"], found["map_block_lot"]) == ("16-49-25", "4A16")
    without = record("collier_pa", page(table.replace("<td>49</td>", "<td></td>")))
    assert without["sec_twp_rng"] is None
