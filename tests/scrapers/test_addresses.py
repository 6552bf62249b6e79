"""Owners and addresses in one block of lines."""

from __future__ import annotations

import pytest

from parcelpost.scrapers.html.addresses import country_of, owners_and_mailing
from parcelpost.scrapers.records.record import Record
from parcelpost.scrapers.records.validation import check_shapes
from tests.scrapers.reading import record

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


@pytest.mark.parametrize(
    ("names", "owners", "others"),
    [
        (["SMITH JOHN", "C/O DOE"], ["SMITH JOHN"], ["C/O DOE"]),
        (["SMITH JOHN", "% DOE JANE"], ["SMITH JOHN"], ["% DOE JANE"]),
        (["SMITH JOHN", "ATTN: TAX"], ["SMITH JOHN"], ["ATTN: TAX"]),
        (["SMITH JOHN &", "C/O DOE"], ["SMITH JOHN"], ["C/O DOE"]),
        (["SMITH JOHN", "12 ELM ST"], ["SMITH JOHN"], ["12 ELM ST"]),
        (["SMITH JOHN", "45 N ELM AVE APT 4"], ["SMITH JOHN"], ["45 N ELM AVE APT 4"]),
        (["SMITH JOHN", "PO BOX 77"], ["SMITH JOHN"], ["PO BOX 77"]),
        (["SMITH JOHN C/O DOE"], ["SMITH JOHN"], ["C/O DOE"]),
        (["OAK BANK ATTN: TAX DEPT"], ["OAK BANK"], ["ATTN: TAX DEPT"]),
        (["SMITH JOHN", "TRUSTEE"], ["SMITH JOHN TRUSTEE"], []),
        (["SMITH JOHN 50 % INT"], ["SMITH JOHN 50 % INT"], []),
        (["12 ELM ST LLC", "7 OAKS FARM"], ["12 ELM ST LLC", "7 OAKS FARM"], []),
        (["HOME CARE OF OCALA INC", "ATTENTIVE CARE"], ["HOME CARE OF OCALA INC", "ATTENTIVE CARE"], []),
    ],
)
def test_who_takes_the_mail_is_no_owner_wherever_a_page_names_him(
    names: list[str], owners: list[str], others: list[str]
) -> None:
    found = Record(parcel_id="1", owner_names=names, mailing_lines=["9 OAK ST"])
    check_shapes(found)
    assert (found.owner_names, found.mailing_lines, found.unreadable) == (owners, [*others, "9 OAK ST"], [])
    assert found.owner_lines == [*names, "9 OAK ST"], "as the page shows them"


def test_an_address_in_the_place_of_the_only_owner_is_named() -> None:
    found = Record(parcel_id="1", owner_names=["12 ELM ST"])
    check_shapes(found)
    assert (found.owner_names, found.mailing_lines, found.unreadable) == ([], ["12 ELM ST"], ["owner_names"])


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["SMITH JOHN ESTATE OF"], ["SMITH JOHN ESTATE OF"]),
        *(
            (["SMITH JOHN", rest], [f"SMITH JOHN {rest}"])
            for rest in ("ESTATE OF", "HEIRS", "HEIRS OF", "DECEASED", "EST")
        ),
        *((["SMITH JOHN", rest], [f"SMITH JOHN {rest}"]) for rest in ("TR", "TRS", "SUCC TRUSTEE", "CO-TRS", "JR")),
        *(
            (["SMITH JOHN", rest], [f"SMITH JOHN {rest}"])
            for rest in ("UTD 5/1/2001", "UNDER TRUST AGREEMENT", "JTWROS")
        ),
        *((["SMITH JOHN", rest], [f"SMITH JOHN {rest}"]) for rest in ("PERSONAL REPRESENTATIVE", "DBA OAK FARM")),
        *((["SMITH JOHN", rest], [f"SMITH JOHN {rest}"]) for rest in ("& JANE", "AND JANE", "F/K/A DOE")),
        (["ESTATE OF", "SMITH JOHN"], ["ESTATE OF SMITH JOHN"]),
        (["SMITH JOHN", "ESTATE OF DOE JANE"], ["SMITH JOHN", "ESTATE OF DOE JANE"]),
        (["SMITH JOHN", "TRENT MARY"], ["SMITH JOHN", "TRENT MARY"]),
        (["SMITH JOHN", "ANDERSON MARY"], ["SMITH JOHN", "ANDERSON MARY"]),
        (["N/A"], []),
    ],
)
def test_what_completes_a_name_is_no_owner(lines: list[str], names: list[str]) -> None:
    assert owners_and_mailing([*lines, "12 ELM ST", PLACE])[:2] == (names, ["12 ELM ST"])


def test_a_building_above_the_street_is_no_owner() -> None:
    lines = ["BLOOM CLARA", "MARINA TOWER", "12 ELM ST", PLACE]
    assert owners_and_mailing(lines)[:2] == (["BLOOM CLARA"], ["MARINA TOWER", "12 ELM ST"])
    assert owners_and_mailing(["MARINA TOWER", "12 ELM ST", PLACE])[0] == ["MARINA TOWER"]
    assert owners_and_mailing(lines, names=2)[0] == ["BLOOM CLARA", "MARINA TOWER"], "the page says that it is a name"


def test_the_united_states_can_be_an_owner() -> None:
    assert owners_and_mailing(["UNITED STATES OF AMERICA"])[0] == ["UNITED STATES OF AMERICA"]
    assert owners_and_mailing(["USA", "12 ELM ST", PLACE, "USA"])[:2] == (["USA"], ["12 ELM ST"])
    names, mailing, _ = owners_and_mailing(["FOREST SERVICE", "USA"])
    assert "USA" in (*names, *mailing)


@pytest.mark.parametrize(
    ("lines", "country", "street", "place"),
    [
        (["5 KING ST", "TORONTO ON M4B 1B3"], "CANADA", ["5 KING ST"], ("TORONTO", "ON", "M4B 1B3", "CANADA")),
        (
            ["5 KING ST", "TORONTO, ONTARIO M4B 1B3", "CANADA"],
            None,
            ["5 KING ST"],
            ("TORONTO", "ON", "M4B 1B3", "CANADA"),
        ),
        (["5 KING ST", "TORONTO ON CANADA M4B-1B3"], None, ["5 KING ST"], ("TORONTO", "ON", "M4B-1B3", "CANADA")),
        (["5 KING ST", "TORONTO ON", "M4B 1B3", "CANADA"], None, ["5 KING ST"], ("TORONTO", "ON", "M4B 1B3", "CANADA")),
        (["HAUPTSTR 5", "10115 BERLIN"], "GERMANY", ["HAUPTSTR 5"], ("BERLIN", None, "10115", "GERMANY")),
        (["HAUPTSTR 5", "10115 BERLIN", "DEUTSCHLAND"], None, ["HAUPTSTR 5"], ("BERLIN", None, "10115", "DEUTSCHLAND")),
        (
            ["CALLE 5 NO 23", "06600 MEXICO DF", "MEXICO"],
            None,
            ["CALLE 5 NO 23"],
            ("MEXICO DF", None, "06600", "MEXICO"),
        ),
        (
            ["NO 9 NANJING RD", "SHANGHAI 200001", "PEOPLE'S REPUBLIC OF CHINA"],
            None,
            ["NO 9 NANJING RD"],
            ("SHANGHAI", None, "200001", "PEOPLE'S REPUBLIC OF CHINA"),
        ),
        (["QUAI DES FLEURS", "GENEVA", "SWITZERLAND"], None, ["QUAI DES FLEURS", "GENEVA", "SWITZERLAND"], None),
    ],
)
def test_no_line_of_a_foreign_address_is_an_owner(
    lines: list[str], country: str | None, street: list[str], place: tuple[str | None, ...] | None
) -> None:
    names, mailing, found = owners_and_mailing(["BLOOM CLARA", *lines], country=country)
    assert (names, mailing) == (["BLOOM CLARA"], street)
    assert ((found.city, found.state, found.zip, found.country) if found else None) == place


def test_a_name_that_ends_like_a_country_is_a_name() -> None:
    assert owners_and_mailing(["BLOOM CLARA", "SMITH ISRAEL", "12 ELM ST", PLACE])[0] == ["BLOOM CLARA", "SMITH ISRAEL"]
    assert owners_and_mailing(["BANK OF INDIA"])[0] == ["BANK OF INDIA"]
    assert country_of(["SMITH ISRAEL"]) is None


def test_owner_lines_are_filled_by_every_platform_that_shows_owners() -> None:
    row = {"PIN": "12-34-567", "OWNER": "BLOOM CLARA", "OWNER2": "C/O CARVER LOUIS", "MKTVAL": 9_000}
    fields = [{"name": name, "type": ""} for name in row]
    of_layer = record("arcgis", {"fields": fields, "features": [{"attributes": row}]})
    assert of_layer["owner_lines"][0] == "BLOOM CLARA"
    assert "C/O CARVER LOUIS" not in of_layer["owner_names"]
