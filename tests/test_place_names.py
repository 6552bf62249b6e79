"""One spelling for a state and a county."""

from __future__ import annotations

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.model import Target
from parcelpost.places import county_slug, normalized, state_code

COUNTIES = {
    "Invented Co.": "invented",
    "County of Los Angeles": "los-angeles",
    "County of Los Angeles, CA": "los-angeles",
    "City of Baltimore, MD": "baltimore-city",
    "Miami-Dade, FL": "miami-dade",
    "Saint Johns ,fl ": "st-johns",
    "Palm Beach County, FL": "palm-beach",
    "Invented County": "invented",
    " INVENTED ": "invented",
    "Miami-Dade County": "miami-dade",
    "Miami Dade": "miami-dade",
    "new_york": "new-york",
    "Jefferson Parish": "jefferson",
    "Richmond City": "richmond-city",
    "Doña Ana": "dona-ana",
    "Prince George's": "prince-georges",
    "St. Johns": "st-johns",
    "Saint Johns County": "st-johns",
    "county": "county",
    "Baltimore City": "baltimore-city",
    "City of Baltimore": "baltimore-city",
    "Baltimore County": "baltimore",
    "Kenai Peninsula Borough": "kenai-peninsula",
    "Juneau City and Borough": "juneau",
    "City and County of San Francisco": "san-francisco",
    "San Francisco City & County": "san-francisco",
    "City & County of Denver, CO": "denver",
    "City and Borough of Juneau": "juneau",
    "City & Borough of Sitka": "sitka",
    "Anchorage Municipality": "anchorage",
    "Municipality of Anchorage": "anchorage",
    "Municipality of Skagway Borough": "skagway",
    "Parish of Orleans": "orleans",
    "Orleans Parish": "orleans",
    "King & Queen County": "king-and-queen",
    "King and Queen": "king-and-queen",
    "De Soto": "desoto",
    "DeSoto County, FL": "desoto",
    "DE SOTO PARISH": "desoto",
    "La Salle": "lasalle",
    "LaSalle County": "lasalle",
    "Du Page": "dupage",
    "Mc Henry": "mchenry",
    "O'Brien": "obrien",
    "O Brien": "obrien",
    "Van Buren": "vanburen",
    "Las Animas": "las-animas",
    "": "",
}
STATES = {"CT": "CT", "ct": "CT", " Connecticut ": "CT", "NEW  HAMPSHIRE": "NH", "D.C.": "DC", "pr": "PR", "": ""}


def test_spellings_of_a_place_are_one() -> None:
    assert {text: county_slug(text) for text in COUNTIES} == COUNTIES
    assert {slug: county_slug(slug) for slug in COUNTIES.values()} == {slug: slug for slug in COUNTIES.values()}
    assert {text: state_code(text) for text in STATES} == STATES
    target = Target(parcel_id="1", state="florida", county="Lee County", url="u", extra={"a": 1})
    assert normalized(target) == Target(parcel_id="1", state="FL", county="lee", url="u", extra={"a": 1})


def test_two_counties_of_one_state_are_never_one() -> None:
    """The counties and independent cities whose names are closest to another's in their state."""
    for names in (
        "Charles City County, James City County, Fairfax County, Fairfax city, Richmond County, Richmond city,"
        " Roanoke County, Roanoke city, Franklin County, Franklin city, Bedford County, Bedford city, Prince George,"
        " King George, King William, King & Queen, Prince William, Isle of Wight, Manassas city, Manassas Park city",
        "Baltimore County, Baltimore city, St. Mary's, Prince George's, Queen Anne's",
        "St. Louis County, St. Louis city, St. Francois, Ste. Genevieve, St. Clair, DeKalb, McDonald, New Madrid",
        "DeKalb, De Witt, DuPage, LaSalle, Lake, Lee, McHenry, McLean, McDonough, St. Clair",
        "LaPorte, LaGrange, DeKalb, Dearborn, Decatur, Dubois, Delaware, Lake, Lawrence, St. Joseph",
        "Lafayette, Lafourche, LaSalle, De Soto, St. Bernard, St. Charles, St. James, St. John the Baptist, St. Landry",
        "Lake of the Woods, Lac qui Parle, Le Sueur, St. Louis, McLeod",
        "La Salle, Lavaca, Lamar, DeWitt, Delta, Denton, McLennan, McMullen, McCulloch, Van Zandt, Val Verde",
        "Del Norte, El Dorado, Los Angeles, San Benito, San Bernardino, Santa Barbara, Santa Clara, Santa Cruz",
        "LaMoure, McHenry, McIntosh, McKenzie, McLean, Mercer",
        "Van Buren, Des Moines, Delaware, Dubuque, O'Brien, Lee, Linn",
        "DeSoto, Dixie, Lafayette, Lake, Lee, Leon, Levy, St. Johns, St. Lucie",
    ):
        listed = [name.strip() for name in names.split(",")]
        assert len({county_slug(name) for name in listed}) == len(listed), names


def test_a_place_that_does_not_exist_is_refused_and_the_nearest_named() -> None:
    for state, county, said in [
        ("ZZ", "x", "unknown state 'ZZ'"),
        ("Conecticut", "x", "unknown state 'Conecticut' (did you mean Connecticut (CT)?)"),
        ("CT", "€", "'€' is not a county name"),
        ("FL", "12023", "'12023' is not a county name"),
    ]:
        with pytest.raises(InvalidInput) as refused:
            normalized(Target(parcel_id="1", state=state, county=county))
        assert str(refused.value) == said
