"""Pages that say there is no such parcel, and records of which some section says that it has nothing."""

from __future__ import annotations

import pytest

from parcelpost.model import NotFound, Retry
from tests.scrapers.reading import outcome

PLATFORMS = ("collier_pa", "grizzly_gis", "leepa", "qpublic", "vgsi")
FORM = "<form><label>Owner</label><input name=o><label>Parcel ID</label><input name=p></form>"


def test_a_page_that_says_so_is_not_found(subtests: pytest.Subtests) -> None:
    for platform in PLATFORMS:
        for words in [
            *(
                "No records found.",
                "No results match your search criteria.",
                "0 records",
                "No matches",
                "No such parcel",
            ),
            *(
                "Parcel ID 12-34 was not found",
                "Folio 10131571 does not exist.",
                "Invalid Folio ID",
                "No data for this parcel",
            ),
            *(
                "The property could not be located",
                "Sorry, that account is no longer valid",
                "There are no matching parcels",
            ),
            *("NO PARCELS WERE FOUND THAT MATCH", "There are no matching parcels", "No data for this parcel"),
            "Your search returned no results to display",
        ]:
            with subtests.test(platform=platform, words=words):
                assert isinstance(outcome(platform, f"<html><body>{FORM}<p>{words}</p></body></html>"), NotFound)


def test_a_record_in_part_and_a_site_in_trouble_are_tried_again(subtests: pytest.Subtests) -> None:
    for platform in PLATFORMS:
        for words in [
            *("Sketch not found", "404 - File or directory not found.", "No records found before 1990 are shown", FORM),
            *("Enter your parcel number. Not sure? Search by owner", "1,200 records", "The server could not be found"),
            "<p>Just Value $12,000</p><p>Permits</p><p>No records found</p>",
        ]:
            with subtests.test(platform=platform, words=words):
                found = outcome(platform, f"<html><body><p>Sales 1,200</p><p>{words}</p></body></html>")
                assert isinstance(found, Retry), found


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_page_without_any_word_of_it_is_tried_again(platform: str) -> None:
    for words in (
        "Parcel Number<br>Sketch not found",
        "Sketch not found",
        "404 - File or directory not found.",
        FORM,
        "Loading the parcel, please wait",
    ):
        assert isinstance(outcome(platform, f"<html><body>{words}</body></html>"), Retry)
