from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.scrapers.html import values


def test_an_amount_is_read_exactly(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("$1,234.50", "1234.50"),
        ("1234", "1234"),
        ("$0", "0"),
        ("(1,234)", "-1234"),
        ("-$5.00", "-5.00"),
        ("$(1,234.50)", "-1234.50"),
        ("($5)", "-5"),
        ("\u2212$5", "-5"),
        ("$ 12", "12"),
        (" $1,234 ", "1234"),
        (".50", ".50"),
    ]:
        with subtests.test(text=text, expected=expected):
            assert values.money(text) == Decimal(expected)


def test_what_is_no_amount_is_none(subtests: pytest.Subtests) -> None:
    for text in [
        *("", "N/A", "-", "12-34-56", "1,23", "$", "(5", "5)", "1.2.3", "9" * 30, "12 AC", None),
        *("1.234,56", "$ -", "1 234", "$1.5M", "1e5", "$5.00 CR"),
    ]:
        with subtests.test(text=text):
            assert values.money(text) is None


def test_a_date_is_read_from_the_ways_pages_write_it(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("8/14/2020", "2020-08-14"),
        ("08/04/2021 11:11:19 AM", "2021-08-04"),
        ("2024-03-31", "2024-03-31"),
        ("2024-03-31T00:00:00.000", "2024-03-31"),
        ("20240331", "2024-03-31"),
        ("Aug 14, 2020", "2020-08-14"),
        ("August 4th, 2020", "2020-08-04"),
        ("14-AUG-2020", "2020-08-14"),
        ("/Date(1418601600000)/", "2014-12-15"),
        ("05/01/72", "1972-05-01"),
        ("11/14/01", "2001-11-14"),
    ]:
        with subtests.test(text=text, expected=expected):
            assert values.iso_date(text) == expected


@pytest.mark.parametrize("text", ["", "1/0/1900", "13/40/2020", "0/0/0000", "9999", "yesterday", "1/1/9999", None])
def test_what_is_no_date_is_none(text: str | None) -> None:
    assert values.iso_date(text) is None


def test_a_year_of_two_digits_is_never_after_the_newest() -> None:
    newest = date(2025, 12, 31)
    assert values.iso_date("07/05/23", newest=newest) == "2023-07-05"
    assert values.iso_date("07/05/26", newest=newest) == "1926-07-05"


@pytest.mark.parametrize(
    ("line", "city", "state", "zip_code"),
    [
        ("LAKE CITY, FL 32038", "LAKE CITY", "FL", "32038"),
        ("Rock Hill SC 29732", "Rock Hill", "SC", "29732"),
        ("RAIFORD, FL 32083-0415", "RAIFORD", "FL", "32083-0415"),
        ("COTTAGE GROVE MN  550161234", "COTTAGE GROVE", "MN", "55016-1234"),
        ("LYME, NH", "LYME", "NH", None),
    ],
)
def test_the_last_line_of_an_address_names_city_state_and_zip(
    line: str, city: str, state: str, zip_code: str | None
) -> None:
    assert values.city_state_zip(line) == values.CityStateZip(city, state, zip_code)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "PO BOX 144",
        "2624 SW NEWARK DR",
        "TORONTO ON M5V 2T6",
        "SMITH JO",
        "12 XX 12345",
        "12 ELM ST MARIGOLD FL 32099",
        "," * 100_000 + " FL 32099",
    ],
)
def test_other_lines_are_no_place(line: str) -> None:
    assert values.city_state_zip(line) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("1.012 AC", "1.012"), ("1,756 sq ft", "1756"), ("9.09 AC (see note)", "9.09")]
)
def test_a_number_may_be_followed_by_its_unit(text: str, expected: str) -> None:
    assert values.leading_number(text) == Decimal(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("1986", 1986), ("0", None), ("9999", None), ("1986.0", 1986), ("86", None)]
)
def test_a_year_that_cannot_be_is_not_known(text: str, expected: int | None) -> None:
    assert values.year(text) == expected


@given(st.text())
def test_no_text_makes_a_value_fail(text: str) -> None:
    for read in (values.money, values.number, values.leading_number, values.whole_number, values.year, values.percent):
        read(text)
    values.iso_date(text)
    values.city_state_zip(text)
    values.text_or_none(text)
    assert values.parcel_norm(text) == values.parcel_norm(values.parcel_norm(text))


@given(st.decimals(min_value=0, max_value=10**12, places=2))
def test_an_amount_written_with_commas_is_read_back(amount: Decimal) -> None:
    assert values.money(f"${amount:,.2f}") == amount


def test_acres_with_their_unit_and_without(subtests: pytest.Subtests) -> None:
    for text, acres in [
        *(("12.5", "12.5"), ("12.5 AC +/-", "12.5"), ("12.5 +/- AC", "12.5"), ("12.5 \u00b1 acres", "12.5")),
        *(
            (".25 Acres", "0.25"),
            ("1,200.5 ac.", "1200.5"),
            ("1/2", "0.5"),
            ("1 1/2 AC", "1.5"),
            ("2-3/4 acres", "2.75"),
        ),
        *(
            ("5 acres (217,800 sf)", "5"),
            ("0", "0"),
            ("1/3", None),
            ("10,890 SF", None),
            ("12 x 40", None),
            ("1/0", None),
        ),
        *(
            ("1.234,56", None),
            ("N/A", None),
            ("--", None),
            ("", None),
            ("< 1", None),
            ("5 lots", None),
            ("1/2/2020", None),
        ),
    ]:
        with subtests.test(text=text, acres=acres):
            assert values.acres(text) == (Decimal(acres) if acres else None)


@pytest.mark.parametrize("text", ["1/2", "1 1/2 baths", "1.234,56", "12,34", "1.2.3"])
def test_a_number_that_goes_on_is_not_begun_with(text: str) -> None:
    assert values.leading_number(text) is None


@pytest.mark.parametrize(("text", "amount"), [("$0", 0), ("($1,234)", -1_234), ("$(5)", -5), ("$1,234 *", 1_234)])
def test_amounts_with_brackets_and_stars(text: str, amount: int) -> None:
    assert values.money(text) == amount


@pytest.mark.parametrize(
    "text", ["1/1/1900", "01/01/1900 12:00:00 AM", "12/30/1899", "00/00/0000", "0/0/00", "00/00/00"]
)
def test_a_date_that_nobody_entered_is_none(text: str) -> None:
    assert values.iso_date(text) is None


@pytest.mark.parametrize(
    ("text", "day"), [("4/5/55", "1955-04-05"), ("4/5/27", "2027-04-05"), ("2020/01/02", "2020-01-02")]
)
def test_a_year_of_two_digits_is_not_far_in_the_future(text: str, day: str) -> None:
    assert values.iso_date(text) == day


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("OSLO FL 333331234", ("OSLO", "FL", "33333-1234")),
        ("OSLO FL 33333 1234", ("OSLO", "FL", "33333-1234")),
        ("OSLO FL 33333-", ("OSLO", "FL", "33333")),
        ("OSLO FL 33333-0000", ("OSLO", "FL", "33333")),
        ("WASHINGTON, D.C. 20001", ("WASHINGTON", "DC", "20001")),
    ],
)
def test_places_in_odd_writing(line: str, place: tuple[str, str, str]) -> None:
    found = values.city_state_zip(line)
    assert found is not None
    assert (found.city, found.state, found.zip) == place


def test_a_party_comes_without_the_comma_of_a_missing_name() -> None:
    shown = ("SCOTT CORP      ,", "BLOOM, CLARA", "UNKNOWN", " , ", None)
    assert [values.party(text) for text in shown] == ["SCOTT CORP", "BLOOM, CLARA", None, None, None]


def test_a_short_code_has_a_digit_and_stands_alone_or_before_its_meaning() -> None:
    shown = ("05", "05 (Multi-Parcel Sale) - show", "A1", "Q", "QU", "0512", "05-06", "see 05", "", None)
    assert [values.short_code(text) for text in shown] == ["05", "05", "A1", *[None] * 7]


def test_a_millage_is_a_rate_per_thousand() -> None:
    shown = ("19.2923", "0", "$0", "2,184,000", "-1", "19.2923 mills", None)
    assert [values.millage(text) for text in shown] == [Decimal("19.2923"), *[None] * 6]
