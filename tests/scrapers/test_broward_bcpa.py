"""`broward_bcpa`: condominiums, land without values, owners in two lines, and answers that are none."""

from __future__ import annotations

from typing import Any

import pytest

from parcelpost.model import NotFound, Retry
from tests.scrapers.reading import outcome, record


def answer(**more: Any) -> dict[str, Any]:
    values = {"justValue": "$300", "sohValue": "$200", "landValue": "$100", "bldgValue": "$200"}
    plain = {"folioNumber": "504108AB0140", "ownerName1": "BLOOM CLARA", **values}
    return {"d": {"parcelInfok__BackingField": [{**plain, **more}]}}


@pytest.mark.parametrize(
    ("use", "code", "words"),
    [
        ("04 - Condominium", "04", "Condominium"),
        ("04 Condominium", "04", "Condominium"),
        ("48-04 Warehouse - Metal", "48-04", "Warehouse - Metal"),
        ("94", "94", None),
        ("Vacant Lot", None, "Vacant Lot"),
    ],
)
def test_a_use_is_a_code_and_words(use: str, code: str, words: str | None) -> None:
    found = record("broward_bcpa", answer(useCode=use))
    assert (found["land_use_code"], found["land_use_desc"]) == (code, words)


def test_letters_of_a_condominium_s_folio_are_kept() -> None:
    assert record("broward_bcpa", answer())["parcel_id"] == "504108AB0140"


def test_a_name_that_ends_in_and_goes_on() -> None:
    found = record("broward_bcpa", answer(ownerName1="BLOOM,CLARA &", ownerName2="CARVER,LOUIS"))
    assert found["owner_names"] == ["BLOOM,CLARA & CARVER,LOUIS"]
    two = record("broward_bcpa", answer(ownerName1="BLOOM,CLARA", ownerName2="CARVER,LOUIS"))
    assert two["owner_names"] == ["BLOOM,CLARA", "CARVER,LOUIS"]


@pytest.mark.parametrize(
    ("flag", "homestead"), [(", N", False), ("Y", True), ("Y, 50", True), (" ", None), ("Y/N", None)]
)
def test_a_homestead_is_flagged(flag: str, homestead: bool | None) -> None:
    assert record("broward_bcpa", answer(homesteadFlag=flag))["homestead"] is homestead


def test_land_that_nobody_values_is_a_record_all_the_same() -> None:
    found = record("broward_bcpa", answer(justValue="", sohValue="", landValue="", bldgValue="", bldgSqFT="0"))
    assert (found["owner_names"], found["market_value"], found["valuations"]) == (["BLOOM CLARA"], None, [])
    assert found["building_area_sqft"] is None


def test_an_owner_abroad() -> None:
    found = record("broward_bcpa", answer(mailingAddress1="5 KING ST", mailingAddress2="TORONTO ON M5V 2T6 CANADA"))
    assert (found["mailing_state"], found["mailing_country"]) == ("ON", "CANADA")


@pytest.mark.parametrize("unknown", [{"d": {"parcelInfok__BackingField": None}}, {"parcelInfo": []}])
def test_an_unknown_folio_is_not_found(unknown: dict[str, Any]) -> None:
    assert isinstance(outcome("broward_bcpa", unknown), NotFound)


@pytest.mark.parametrize("failed", [{"Message": "There was an error processing the request."}, {"d": None}, {}])
def test_an_error_of_the_site_says_nothing_of_the_parcel(failed: dict[str, Any]) -> None:
    assert isinstance(outcome("broward_bcpa", failed), Retry)


@pytest.mark.parametrize("second", ["% CARVER LOUIS", "C/O CARVER LOUIS", "ATTN: TAX DEPT"])
def test_a_second_name_that_takes_the_mail_is_no_owner(second: str) -> None:
    found = record("broward_bcpa", answer(ownerName2=second))
    assert (found["owner_names"], found["owner_lines"][:2]) == (["BLOOM CLARA"], ["BLOOM CLARA", second])


@pytest.mark.parametrize(
    ("lots", "acres"),
    [
        (("136,749 SqFt",), 3.1393),
        (("43,560 SqFt", "1.5 Acres"), 2.5),
        (("43,560 SqFt", "100 Front Feet"), None),
        (("",), None),
    ],
)
def test_the_land_is_all_lots_together(lots: tuple[str, ...], acres: float | None) -> None:
    shown = {f"landCalcFact{number}": text for number, text in enumerate(lots, 1)}
    assert record("broward_bcpa", answer(**shown))["land_area_acres"] == acres


def test_a_deed_is_named_in_words() -> None:
    sale = {"saleDate1": "1/2/2020", "stampAmount1": "$5", "deedType1": "0", "saleVerification1": "Qualified Sale"}
    found = record("broward_bcpa", answer(**sale))
    assert (found["sales"][0]["instrument"], found["sales"][0]["qualified"]) == (None, "Qualified Sale")
    assert "sales.instrument" in found["unreadable"]
