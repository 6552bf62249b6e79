"""`miamidade_pa`: folios that were deleted, are new, or have buildings in segments."""

from __future__ import annotations

from typing import Any

import pytest

from parcelpost.model import NotFound, Retry
from tests.scrapers.reading import outcome, record


def answer(**more: Any) -> dict[str, Any]:
    valued = {"Year": 2024, "LandValue": 5, "BuildingOnlyValue": 7, "TotalValue": 12, "AssessedValue": 10}
    plain = {
        "Completed": True,
        "RollYear1": 2024,
        "PropertyInfo": {"FolioNumber": "01-2345-006-0070", "Status": "AC Active", "ShowCurrentValuesFlag": "Y"},
        "OwnerInfos": [{"Name": "BLOOM CLARA"}, {"Name": "CARVER LOUIS"}, {"Name": ""}],
        "Assessment": {"AssessmentInfos": [valued], "Messages": []},
        "Benefit": {"BenefitInfos": []},
    }
    return {**plain, **more}


def building(number: int, segment: int, roll: int, model: str = "House") -> dict[str, Any]:
    areas = {"Actual": 1990 + number, "HeatedArea": 100, "ActualArea": 120, "DepreciatedValue": 9}
    return {"BuildingNo": number, "SegNo": segment, "RollYear": roll, "improvementModelDesc": model, **areas}


def test_a_deleted_folio_is_not_there() -> None:
    info = {"FolioNumber": "01-2345-006-0070", "Status": "DE Deleted"}
    found = outcome("miamidade_pa", answer(PropertyInfo=info, Assessment={"AssessmentInfos": []}))
    assert found == NotFound("the folio was deleted")


def test_a_new_folio_has_an_owner_and_no_values_yet() -> None:
    found = record("miamidade_pa", answer(Assessment={"AssessmentInfos": None}))
    assert (found["owner_names"], found["market_value"]) == (["BLOOM CLARA", "CARVER LOUIS"], None)
    assert isinstance(outcome("miamidade_pa", answer(Assessment=None, Completed=False)), Retry)


@pytest.mark.parametrize(
    ("flag", "message", "year"), [("Y", "Values are not out yet", 2023), ("N", "", 2023), ("Y", "", 2024)]
)
def test_zeros_of_a_year_that_is_not_out_yet_are_no_values(flag: str, message: str, year: int) -> None:
    zeros = {"Year": 2024, "LandValue": 0, "TotalValue": 0, "AssessedValue": 0, "Message": None}
    last = {"Year": 2023, "LandValue": 5, "TotalValue": 12, "AssessedValue": 10}
    info = {"FolioNumber": "01-2345-006-0070", "ShowCurrentValuesFlag": flag}
    notes = [{"Year": 2024, "Message": message}, {"Year": 2023, "Message": ""}]
    found = record(
        "miamidade_pa", answer(PropertyInfo=info, Assessment={"AssessmentInfos": [zeros, last], "Messages": notes})
    )
    assert found["value_year"] == year


def test_a_building_in_segments_is_one_building_and_former_rolls_are_left_out() -> None:
    listed = [building(1, 1, 2024), building(1, 2, 2024, "Porch"), building(2, 1, 2024), building(3, 1, 2023)]
    found = record("miamidade_pa", answer(Building={"BuildingInfos": listed}))
    assert (found["building_count"], len(found["buildings"])) == (2, 3)


def test_what_was_torn_down_is_no_building() -> None:
    found = record("miamidade_pa", answer(Building={"BuildingInfos": [building(1, 1, 2023)]}))
    assert (found["building_count"], found["buildings"]) == (None, [])


def test_without_a_list_of_benefits_nothing_is_said_of_a_homestead() -> None:
    assert record("miamidade_pa", answer(Benefit=None))["homestead"] is None
    assert record("miamidade_pa", answer())["homestead"] is False
    benefits = [
        {"TaxYear": 2024, "Type": "Assessment Reduction", "Description": "Save Our Homes Cap"},
        {"TaxYear": 2023, "Type": "Exemption", "Description": "Homestead"},
    ]
    assert record("miamidade_pa", answer(Benefit={"BenefitInfos": benefits}))["homestead"] is False


def test_a_zone_is_a_number_and_a_building_has_words() -> None:
    info = {"FolioNumber": "01-2345-006-0070", "Status": "AC Active", "PrimaryZone": "0500"}
    listed = {"BuildingInfos": [building(1, 1, 2024)]}
    found = record("miamidade_pa", answer(PropertyInfo=info, Building=listed))
    assert (found["zoning"], found["buildings"][0]["desc"]) == ("0500", "House (1)")
    listed = {"BuildingInfos": [building(1, 1, 2024, "1542")]}
    found = record("miamidade_pa", answer(PropertyInfo={**info, "PrimaryZone": "AC Active"}, Building=listed))
    assert (found["zoning"], found["buildings"][0]["desc"]) == (None, None)
    assert {"zoning", "buildings.desc"} <= set(found["unreadable"])


def test_an_exemption_without_a_name_leaves_them_unknown() -> None:
    benefit = {"TaxYear": 2024, "Type": "Exemption", "Description": "25000"}
    found = record("miamidade_pa", answer(Benefit={"BenefitInfos": [benefit]}))
    assert (found["exemptions"], found["homestead"], "exemptions" in found["unreadable"]) == (None, None, True)


def test_a_site_without_a_street_has_no_address() -> None:
    found = record("miamidade_pa", answer(SiteAddress=[{"Address": ", Marigold, FL", "City": "Marigold"}]))
    assert (found["situs_address"], found["situs_city"]) == (None, "Marigold")


def test_an_owner_abroad_has_a_country_and_no_state() -> None:
    mailing = {"Address1": "5 KING ST", "City": "TORONTO", "State": "", "ZipCode": "M5V 2T6", "Country": "CANADA"}
    found = record("miamidade_pa", answer(MailingAddress=mailing))
    assert (found["mailing_state"], found["mailing_zip"], found["mailing_country"]) == (None, "M5V 2T6", "CANADA")


def test_an_unknown_folio_is_not_found() -> None:
    assert isinstance(outcome("miamidade_pa", {"Completed": True, "PropertyInfo": None}), NotFound)
    assert isinstance(outcome("miamidade_pa", {"PropertyInfo": None}), Retry)


def test_a_site_in_trouble_has_not_said_that_there_is_no_folio() -> None:
    for completed in (None, False, True):
        trouble = {"Message": "An error has occurred.", "Completed": completed}
        assert isinstance(outcome("miamidade_pa", trouble), Retry)


def test_values_that_a_note_calls_preliminary_are_not_certified() -> None:
    years = [{"Year": one, "LandValue": 5, "TotalValue": 12, "AssessedValue": 10} for one in (2024, 2023)]
    notes = [{"Year": 2024, "Message": "The values are PRELIMINARY and may change."}, {"Year": 2023, "Message": ""}]
    found = record("miamidade_pa", answer(Assessment={"AssessmentInfos": years, "Messages": notes}))
    assert [one["status"] for one in found["valuations"]] == ["preliminary", "certified"]
