"""Owners and addresses in one block of lines."""

from __future__ import annotations

import pytest

from parcelpost.scrapers.html.addresses import country_of, owners_and_mailing

PLACE = "MARIGOLD, FL 32099"


def test_names_end_where_the_address_begins(subtests: pytest.Subtests) -> None:
    for lines, names, mailing in [
        (["BLOOM CLARA", "12 ELM ST", PLACE], ["BLOOM CLARA"], ["12 ELM ST"]),
        (["BLOOM CLARA", "CARVER LOUIS", "12 ELM ST", PLACE], ["BLOOM CLARA", "CARVER LOUIS"], ["12 ELM ST"]),
        (["BLOOM CLARA &", "CARVER LOUIS", "12 ELM ST", PLACE], ["BLOOM CLARA & CARVER LOUIS"], ["12 ELM ST"]),
        (["BLOOM CLARA", "C/O CARVER LOUIS", "12 ELM ST", PLACE], ["BLOOM CLARA"], ["C/O CARVER LOUIS", "12 ELM ST"]),
        (["BLOOM CLARA", "%CARVER LOUIS", "12 ELM ST", PLACE], ["BLOOM CLARA"], ["%CARVER LOUIS", "12 ELM ST"]),
        (["OAK BANK", "ATTN: TAX DEPT", "PO BOX 9", PLACE], ["OAK BANK"], ["ATTN: TAX DEPT", "PO BOX 9"]),
        (["BLOOM CLARA", "12 ELM ST", "APT 4", PLACE], ["BLOOM CLARA"], ["12 ELM ST", "APT 4"]),
        (["BLOOM CLARA", "UNIT 4", "12 ELM ST", PLACE], ["BLOOM CLARA"], ["UNIT 4", "12 ELM ST"]),
        (["123 MAIN LLC", "12 ELM ST", PLACE], ["123 MAIN LLC"], ["12 ELM ST"]),
        (["BLOOM CLARA", "123 MAIN TRUST", "12 ELM ST", PLACE], ["BLOOM CLARA", "123 MAIN TRUST"], ["12 ELM ST"]),
        (["BLOOM CLARA", "P.O. BOX 12", PLACE], ["BLOOM CLARA"], ["P.O. BOX 12"]),
        (["BLOOM CLARA", "W224N2785 ELM RD", PLACE], ["BLOOM CLARA"], ["W224N2785 ELM RD"]),
        (["BLOOM CLARA", "CARVER SR", "COUNTY ROAD 12", PLACE], ["BLOOM CLARA", "CARVER SR"], ["COUNTY ROAD 12"]),
        (
            ["BLOOM CLARA", "CARVER LOUIS", "POST OFFICE BOX 9", PLACE],
            ["BLOOM CLARA", "CARVER LOUIS"],
            ["POST OFFICE BOX 9"],
        ),
        (["BLOOM CLARA", "CARVER LOUIS", "NE 237TH PL", PLACE], ["BLOOM CLARA", "CARVER LOUIS"], ["NE 237TH PL"]),
        (["BLOOM CLARA", "STAR ROUTE 4", "BOX 12", PLACE], ["BLOOM CLARA"], ["STAR ROUTE 4", "BOX 12"]),
        (["BLOOM CLARA", "GENERAL DELIVERY", PLACE], ["BLOOM CLARA"], ["GENERAL DELIVERY"]),
        (["BLOOM CLARA", ".", "12 ELM ST", PLACE, "USA"], ["BLOOM CLARA"], ["12 ELM ST"]),
    ]:
        with subtests.test(lines=lines, names=names, mailing=mailing):
            found, below, place = owners_and_mailing(lines)
            assert (found, below) == (names, mailing)
            assert place is not None
            assert (place.city, place.state, place.zip) == ("MARIGOLD", "FL", "32099")


def test_a_zip_in_a_line_of_its_own_belongs_to_the_city() -> None:
    _, mailing, place = owners_and_mailing(["BLOOM CLARA", "12 ELM ST", "MARIGOLD FL", "32099"])
    assert mailing == ["12 ELM ST"]
    assert place is not None
    assert (place.city, place.zip) == ("MARIGOLD", "32099")


@pytest.mark.parametrize(
    ("last", "place"),
    [
        (["TORONTO ON M5V 2T6", "CANADA"], ("TORONTO", "ON", "M5V 2T6", "CANADA")),
        (["TORONTO, ON M5V2T6 CANADA"], ("TORONTO", "ON", "M5V2T6", "CANADA")),
        (["TORONTO ON M5V 2T6"], ("TORONTO", "ON", "M5V 2T6", "CANADA")),
        (["LONDON SW1A 1AA", "UNITED KINGDOM"], ("LONDON", None, "SW1A 1AA", "UNITED KINGDOM")),
        (["10115 BERLIN", "GERMANY"], ("BERLIN", None, "10115", "GERMANY")),
        (["SYDNEY NSW 2000", "AUSTRALIA"], ("SYDNEY", "NSW", "2000", "AUSTRALIA")),
    ],
)
def test_a_foreign_city_is_not_left_in_the_lines(last: list[str], place: tuple[str | None, ...]) -> None:
    names, mailing, found = owners_and_mailing(["BLOOM CLARA", "12 ELM ST", *last])
    assert (names, mailing) == (["BLOOM CLARA"], ["12 ELM ST"])
    assert found is not None
    assert (found.city, found.state, found.zip, found.country) == place


def test_a_foreign_address_of_another_form_keeps_its_lines() -> None:
    lines = ["BLOOM CLARA", "CALLE 12", "BOGOTA", "COLOMBIA"]
    names, mailing, place = owners_and_mailing(lines)
    assert (names, place, country_of(lines)) == (["BLOOM CLARA"], None, "COLOMBIA")
    assert mailing == ["CALLE 12", "BOGOTA", "COLOMBIA"]
    assert country_of(["12 ELM ST", PLACE]) is None


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["BLOOM CLARA", "TRUSTEE"], ["BLOOM CLARA TRUSTEE"]),
        (["BLOOM CLARA", "REVOCABLE TRUST"], ["BLOOM CLARA REVOCABLE TRUST"]),
        (["FIRST CHURCH", "OF RAIFORD"], ["FIRST CHURCH OF RAIFORD"]),
        (["FAMILY TRUST"], ["FAMILY TRUST"]),
        (["BLOOM CLARA TRUST", "CARVER LOUIS AS TRUSTEE"], ["BLOOM CLARA TRUST", "CARVER LOUIS AS TRUSTEE"]),
    ],
)
def test_a_part_of_a_name_is_no_second_owner(lines: list[str], names: list[str]) -> None:
    assert owners_and_mailing([*lines, "12 ELM ST", PLACE])[0] == names


def test_a_cemetery_is_no_city() -> None:
    names, mailing, place = owners_and_mailing(["EVERGREEN CEMETERY, FL"])
    assert (names, mailing, place) == (["EVERGREEN CEMETERY, FL"], [], None)


def test_lines_that_are_known_to_be_names_are_names() -> None:
    assert owners_and_mailing(["BLOOM CLARA", "21 OAKS", PLACE], at_least=2)[:2] == (["BLOOM CLARA", "21 OAKS"], [])
    assert owners_and_mailing(["BLOOM CLARA", "9 ELM ST", PLACE], at_least=1)[1] == ["9 ELM ST"]
    assert owners_and_mailing(["BLOOM CLARA"], at_least=3)[0] == ["BLOOM CLARA"]
    assert owners_and_mailing([], at_least=2) == ([], [], None)


def test_a_line_with_street_and_city_is_left_whole() -> None:
    assert owners_and_mailing(["12 OAK ST MARIGOLD FL 32099"], names=0) == ([], ["12 OAK ST MARIGOLD FL 32099"], None)


def test_who_takes_the_mail_and_where_it_goes(subtests: pytest.Subtests) -> None:
    for lines, names, mailing, place in [
        (
            ["BLOOM CLARA % CARVER LOUIS", "9 ELM ST", "OSLO FL 33333"],
            ["BLOOM CLARA"],
            ["% CARVER LOUIS", "9 ELM ST"],
            "OSLO",
        ),
        (["BLOOM CLARA C/O A BANK", "PO BOX 9", "OSLO FL 33333"], ["BLOOM CLARA"], ["C/O A BANK", "PO BOX 9"], "OSLO"),
        (
            ["BLOOM CLARA ET AL", "% A BANK", "PO BOX 9", "OSLO FL"],
            ["BLOOM CLARA ET AL"],
            ["% A BANK", "PO BOX 9"],
            "OSLO",
        ),
        (
            ["BLOOM HANS", "HAUPTSTRASSE 12", "10115 BERLIN", "GERMANY"],
            ["BLOOM HANS"],
            ["HAUPTSTRASSE 12"],
            "BERLIN",
        ),
        (["BLOOM CLARA", "9 ELM ST", "OSLO", "FL", "33333"], ["BLOOM CLARA"], ["9 ELM ST"], "OSLO"),
        (["BLOOM CLARA", "9 ELM ST", "OSLO, FL", "33333-1234"], ["BLOOM CLARA"], ["9 ELM ST"], "OSLO"),
        (["BLOOM CLARA", "9 ELM ST, OSLO, FL 33333"], ["BLOOM CLARA"], ["9 ELM ST"], "OSLO"),
        (["BLOOM CLARA", "9 ELM ST OSLO FL 33333"], ["BLOOM CLARA"], ["9 ELM ST OSLO FL 33333"], None),
        (["100% BLOOM LLC", "9 ELM ST", "OSLO FL 33333"], ["100% BLOOM LLC"], ["9 ELM ST"], "OSLO"),
        (["BLOOM CLARA", "BLOOM ROBERT MD"], ["BLOOM CLARA"], ["BLOOM ROBERT MD"], None),
    ]:
        with subtests.test(lines=lines, names=names, mailing=mailing, place=place):
            found = owners_and_mailing(lines)
            assert found[:2] == (names, mailing)
            assert (found[2].city if found[2] else None) == place
