"""`mygov_due`: bills in parts, of several accounts, preliminary ones, and certificates."""

from __future__ import annotations

from typing import Any

import pytest

from parcelpost.model import Done, NotFound, Retry
from tests.scrapers.reading import outcome, record

COUNTY = {"description": "C1 MARIGOLD COUNTY GENERAL", "just": "900", "assessed": "800", "exempt": "50", "taxable": 750}
SCHOOL = {"description": "SCHOOL BOARD", "just": "900", "assessed": "900", "exempt": "25", "taxable": "875"}
CITY = {"description": "CITY OF MARIGOLD", "just": "900", "assessed": "800", "exempt": "60", "taxable": "740"}


def bill(year: int, amount: float | None, *charges: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {"taxYear": str(year), "bill_number": f"{year}1", "account_number": "1-2", "owner": "BLOOM CLARA"}
    flags = {"paid": True, "delinquent": False, "isPreliminary": False, "certificate": {}, "payments": []}
    billed = {"amount": amount, "due": 0, "charges": {"adValorem": {"charges": list(charges)}}}
    return {**plain, **flags, **billed, **more}


def answer(*bills: dict[str, Any], parcels: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"due": {"PPT": {"bills": list(bills), "parcels": parcels or [], "accounts": []}}, "status": 1}


def test_a_year_that_is_billed_in_parts_is_summed() -> None:
    parts = [bill(2023, 100.25, installment=number, bill_number=f"9-{number}") for number in (1, 2)]
    found = record("mygov_due", answer(*parts, bill(2022, 300)))
    assert (found["tax_year"], found["tax_amount"]) == (2023, 200.5)
    assert [(one["bill_number"], one["installment"]) for one in found["tax_bills"][:2]] == [("9-1", "1"), ("9-2", "2")]


def test_a_part_without_its_amount_leaves_the_year_s_tax_unknown() -> None:
    assert record("mygov_due", answer(bill(2023, 100), bill(2023, None)))["tax_amount"] is None


def test_several_years_may_be_delinquent() -> None:
    late = {"paid": False, "delinquent": True}
    bills = bill(2021, 10, due=12.5, **late), bill(2023, 30, due=30), bill(2022, 20, due=21, **late)
    found = record("mygov_due", answer(*bills))
    assert (found["delinquent"], found["delinquent_years"], found["tax_due"]) == (True, [2021, 2022], 63.5)
    assert (found["tax_year"], found["tax_amount"]) == (2023, 30)
    assert [one["status"] for one in found["tax_bills"]] == ["paid", "delinquent", "delinquent"]


def test_only_a_line_of_the_county_tells_what_is_exempt_for_it() -> None:
    found = record("mygov_due", answer(bill(2023, 1, SCHOOL, CITY, COUNTY)))
    assert (found["assessed_value"], found["exemption_value"], found["taxable_value"]) == (800, 50, 750)
    assert found["taxable_value_school"] == 875
    without = record("mygov_due", answer(bill(2023, 1, SCHOOL, CITY)))
    assert (without["market_value"], without["assessed_value"]) == (900, 800)
    assert (without["exemption_value"], without["taxable_value"]) == (None, None)


def test_a_preliminary_bill_gives_way_to_the_last_final_one() -> None:
    found = record("mygov_due", answer(bill(2024, 9, COUNTY, isPreliminary=True), bill(2023, 8, COUNTY)))
    assert (found["value_year"], found["value_status"], found["tax_amount"]) == (2023, "billed", 8)
    alone = record("mygov_due", answer(bill(2024, 9, COUNTY, isPreliminary=True)))
    assert (alone["value_year"], alone["value_status"]) == (2024, "preliminary")


def test_another_account_s_bills_are_not_mixed_in() -> None:
    other = bill(2022, 7, account_number="9-9", owner="CARVER LOUIS", paid=False, delinquent=True, due=7)
    parcels = [{"account_number": "9-9", "parcel_address_1": "9 OAK ST"}]
    found = record("mygov_due", answer(bill(2023, 8), other, parcels=parcels))
    assert (found["parcel_id"], found["owner_names"], found["delinquent"]) == ("1-2", ["BLOOM CLARA"], False)
    assert (len(found["tax_bills"]), found["mailing_lines"]) == (1, [])


@pytest.mark.parametrize(
    ("paid", "status", "redeemed"), [(True, "redeemed", "2024-05-01"), (False, "outstanding", None), (None, None, None)]
)
def test_a_certificate_is_redeemed_when_its_bill_is_paid(
    paid: bool | None, status: str | None, redeemed: str | None
) -> None:
    info = {"number": "7", "year": "2023", "sold": "2023-06-01", "bidPercentage": "25", "face": "123456"}
    payments = [
        {"status": "VOIDED", "amount": 5, "date": "2024-06-01"},
        {"status": None, "amount": 1300, "date": "2024-05-01"},
    ]
    (lien,) = record("mygov_due", answer(bill(2022, 1, certificate={"info": info}, paid=paid, payments=payments)))[
        "liens"
    ]
    assert (lien["status"], lien["redemption_date"]) == (status, redeemed)
    assert (lien["tax_year"], lien["certificate_year"], lien["face_amount"]) == (2022, 2023, 1234.56)
    assert lien["interest_rate_pct"] == 0.25


def test_a_face_amount_in_dollars_would_be_read_as_cents_so_it_is_not_read() -> None:
    info = {"number": "7", "face": "1234.56"}
    (lien,) = record("mygov_due", answer(bill(2022, 1, certificate={"info": info})))["liens"]
    assert lien["face_amount"] is None


def test_no_bills_is_no_record() -> None:
    assert isinstance(outcome("mygov_due", answer()), NotFound)
    assert isinstance(outcome("mygov_due", {"anything": 1}), Retry)


@pytest.mark.parametrize("trouble", [{"status": 500}, {"status": 500, "due": {}}, {"due": {}, "error": "down"}])
def test_a_site_in_trouble_has_not_said_that_there_is_no_account(trouble: dict[str, Any]) -> None:
    assert isinstance(outcome("mygov_due", trouble), Retry)


@pytest.mark.parametrize("asked", ["R-1", "3-2", "1-3"])
def test_the_bills_of_another_account_are_no_answer(asked: str) -> None:
    assert isinstance(outcome("mygov_due", answer(bill(2023, 8)), asked=asked), Retry)


@pytest.mark.parametrize("asked", ["1-2", "12", " 1 2 ", "R1-2", "1-2-0"])
def test_an_account_may_be_asked_for_as_others_write_it(asked: str) -> None:
    other = bill(2024, 7, account_number="9-9")
    found = outcome("mygov_due", answer(other, bill(2023, 8)), asked=asked)
    assert isinstance(found, Done)
    assert isinstance(found.data, dict)
    assert found.data["parcel_id"] == "1-2"


@pytest.mark.parametrize("more", [{"hasMore": True}, {"total": 9}, {"next_page": 2}])
def test_a_list_that_says_that_it_has_more_bills_is_not_all(more: dict[str, Any]) -> None:
    page = answer(bill(2023, 100))
    assert record("mygov_due", page)["unreadable"] == []
    page["due"]["PPT"] |= more
    assert "tax_bills" in record("mygov_due", page)["unreadable"]


def test_coordinates_of_another_grid_or_swapped_are_named() -> None:
    for latitude, longitude, is_read in [
        ("28.1", "-81.9", True),
        ("-81.9", "28.1", False),
        ("712345.1", "-81.9", False),
    ]:
        place = {"account_number": "1-2", "parcel_coordinates": {"latitude": latitude, "longitude": longitude}}
        found = record("mygov_due", answer(bill(2023, 100), parcels=[place]))
        assert (found["latitude"] is None, "longitude" in found["unreadable"]) == (not is_read, not is_read)
