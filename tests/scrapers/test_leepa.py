"""`leepa`: details as they are now and as the last roll has them, several owners, land in acres."""

from __future__ import annotations

import pytest

from tests.scrapers.reading import grid, record

VALUES = (
    ("TRIM Notices", "Tax Year", "Just", "Land", "Market Assessed", "Capped Assessed", "Exemptions", "Taxable"),
    ("2024", "2024 (Final Value)", "300", "100", "290", "250", "50", "200"),
)
LAND = ("Use Code", "Use Code Description", "Number of Units", "Unit of Measure")


def houses(*years: str) -> str:
    return "".join(
        f"""<table><tr><th>Year Built</th><th>Effective Year Built</th><th>Heated Area</th></tr>
<tr><td>{year}</td><td>2010</td><td>1,000</td></tr></table>"""
        for year in years
    )


def details(current: str, roll: str) -> str:
    return f"""<div id="PropertyDetailsCurrent"><div><a>Property Details (Current as of 4/10/2025)</a></div>{current}
<div id="PropertyDetails"><div><a>Property Details (2024 Tax Roll)</a></div>{roll}</div></div>"""


def page(*more: str, owner: str = "BLOOM CLARA<br>9 OAK ST<br>MARIGOLD FL 33909", values: str = grid(*VALUES)) -> str:
    return f"""<html><body><span id="parcelLabel">STRAP: 18-43-24-C4-05684.0090 Folio ID: 10131571</span>
<div id="divDisplayParcelOwner"><div class="sectionSubTitle">Owner Of Record - Sole Owner</div>
<div class="textPanel">{owner}</div></div>{values.replace("<table>", '<table id="valueGrid">')}{"".join(more)}
</body></html>"""


def test_a_building_is_not_counted_again_in_the_last_roll() -> None:
    found = record("leepa", page(details(houses("1990", "2001"), houses("1990", "2001"))))
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (2, 1990, 2_000)


def test_sections_without_ids_are_told_by_their_titles() -> None:
    both = details(houses("1990"), houses("1990")).replace(' id="PropertyDetails', ' id="x')
    assert record("leepa", page(both))["building_count"] == 1


def test_what_only_the_last_roll_has_is_gone() -> None:
    found = record("leepa", page(details("", houses("1990"))))
    assert (found["building_count"], found["year_built"], found["building_area_sqft"]) == (None, None, None)


def test_details_of_the_roll_alone_are_read() -> None:
    only = f'<div id="PropertyDetails"><div><a>Property Details (2024 Tax Roll)</a></div>{houses("1990")}</div>'
    assert record("leepa", page(only))["building_count"] == 1


@pytest.mark.parametrize(
    ("owner", "names", "mailing"),
    [
        (
            "BLOOM CLARA +<br>CARVER LOUIS<br>9 OAK ST<br>MARIGOLD FL 33909",
            ["BLOOM CLARA", "CARVER LOUIS"],
            ["9 OAK ST"],
        ),
        ("BLOOM CLARA +<br>CARVER LOUIS<br>MARIGOLD FL 33909", ["BLOOM CLARA", "CARVER LOUIS"], []),
        ("BLOOM CLARA<br>C/O OAK BANK<br>9 OAK ST<br>MARIGOLD FL 33909", ["BLOOM CLARA"], ["C/O OAK BANK", "9 OAK ST"]),
    ],
)
def test_a_plus_says_that_another_name_follows(owner: str, names: list[str], mailing: list[str]) -> None:
    found = record("leepa", page(owner=owner))
    assert (found["owner_names"], found["mailing_lines"]) == (names, mailing)


@pytest.mark.parametrize(
    ("tracts", "acres"),
    [
        ([("1", "Pasture", "2.50", "Acres"), ("2", "Timber", "1.25", "Acres")], 3.75),
        ([("1", "Pasture", "2.50", "Acres"), ("2", "House", "1.00", "Units")], None),
        ([("1", "House", "10,000", "Square Feet")], None),
    ],
)
def test_land_has_acres_where_all_of_it_is_measured_so(
    tracts: list[tuple[str, str, str, str]], acres: float | None
) -> None:
    found = record("leepa", page(grid(LAND, *tracts)))
    assert (found["land_area_acres"], found["land_use_code"]) == (acres, "1")


def test_the_cap_is_what_is_assessed_and_a_proposal_is_not_final() -> None:
    values = grid(*VALUES, ("2025", "2025 (Proposed)", "400", "100", "390", "260", "50", "210"))
    found = record("leepa", page(values=values))
    assert (found["value_year"], found["market_value"], found["assessed_value"]) == (2024, 300, 250)
    assert found["valuations"][1]["status"] == "preliminary"


def test_a_table_of_permits_is_none_of_sales() -> None:
    assert record("leepa", page(grid(("Type", "Date"), ("ROOF", "1/2/2020"))))["sales"] == []


def test_owners_are_read_without_what_stands_around_them() -> None:
    owner = "BLOOM CLARA<br>9 OAK ST<br>MARIGOLD FL 33909"
    plain = page(owner=owner).replace(' class="textPanel"', "").replace(' class="sectionSubTitle"', "")
    link = "<div>[Change Mailing Address]</div>"
    around = plain.replace("Sole Owner</div>", f"Sole Owner{link}</div>").replace(owner, f"{owner}<br>Address History")
    for html in (plain, around.replace('<div id="divDisplayParcelOwner">', "<div>Owner Of Record</div><div>")):
        found = record("leepa", html)
        assert (found["owner_names"], found["mailing_lines"]) == (["BLOOM CLARA"], ["9 OAK ST"])
        assert found["mailing_city"] == "MARIGOLD"


def test_blanks_that_do_not_break_are_blanks() -> None:
    legal = '<div class="sectionSubTitle">Property&nbsp;Description</div><div class="textPanel">LOT 4</div>'
    assert record("leepa", page(legal))["legal_description"] == "LOT 4"


def test_a_heading_without_its_text_does_not_have_that_of_the_next() -> None:
    site = '<div class="sectionSubTitle">Site Address</div><div>'
    legal = '<div class="sectionSubTitle">Property Description</div><div class="textPanel">LOT 4</div>'
    found = record("leepa", page(f"{site}12 ELM ST</div>{legal}"))
    assert (found["situs_address"], found["legal_description"]) == ("12 ELM ST", "LOT 4")


def test_a_latitude_is_north_and_a_longitude_west() -> None:
    for cells, place in (
        (("26.7", "-81.9"), (26.7, -81.9)),
        (("-81.9", ""), (None, None)),
        (("", "26.7"), (None, None)),
    ):
        found = record("leepa", page(grid(("Latitude", "Longitude"), cells)))
        assert (found["latitude"], found["longitude"]) == place


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("Final Value", "certified"),
        ("Proposed", "preliminary"),
        ("Estimated", "preliminary"),
        ("Working Value", "preliminary"),
    ],
)
def test_a_value_is_final_only_if_the_page_says_so(words: str, status: str) -> None:
    found = record("leepa", page(values=grid(*VALUES).replace("Final Value", words)))
    assert found["value_status"] == status
