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
    "": "",
}
STATES = {"CT": "CT", "ct": "CT", " Connecticut ": "CT", "NEW  HAMPSHIRE": "NH", "D.C.": "DC", "pr": "PR", "": ""}


def test_spellings_of_a_place_are_one() -> None:
    assert {text: county_slug(text) for text in COUNTIES} == COUNTIES
    assert {slug: county_slug(slug) for slug in COUNTIES.values()} == {slug: slug for slug in COUNTIES.values()}
    assert {text: state_code(text) for text in STATES} == STATES
    target = Target(parcel_id="1", state="florida", county="Lee County", url="u", extra={"a": 1})
    assert normalized(target) == Target(parcel_id="1", state="FL", county="lee", url="u", extra={"a": 1})


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
