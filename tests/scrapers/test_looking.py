"""Guesses by labels that resemble a field's own: what they may be made of, and what never."""

from __future__ import annotations

import pytest

from parcelpost.model import Page
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Piece
from parcelpost.scrapers.html.extract import Extractor, Field
from parcelpost.scrapers.html.selectors import Label
from tests.scrapers.reading import grid, qpublic, record, two_columns


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


def field(name: str, *labels: str) -> Field[str]:
    return Field(name, tuple(map(Label, labels)), _words)


def look(*rows: tuple[str, str]) -> Extractor:
    found = Document.of(Page(body=grid(*rows).encode()))
    assert found is not None
    return Extractor(found)


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("Property Address", "Property Owner Address"),
        ("Property Address", "Property Address City"),
        ("Total Acres", "Total Exempt Acres"),
        ("Alternate Parcel ID", "Parcel ID"),
        ("Account Number", "Previous Account Number"),
        ("Account Number", "Account Number (Old)"),
        ("Year Built", "Effective Year Built"),
        ("Taxable Value", "School Taxable Value"),
        ("Property Address", "Owner's Property Address"),
    ],
)
def test_a_word_that_changes_the_meaning_is_in_both_labels_or_in_neither(own: str, shown: str) -> None:
    assert look((shown, "7")).value(field("something", own)) is None


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("Owner Name", "Name of Owner"),
        ("Alternate Parcel ID", "Alternate Parcel"),
        ("Account Number", "Tax Account Number"),
        ("Taxable Value", "Total Taxable Value"),
    ],
)
def test_another_name_for_the_same_is_guessed(own: str, shown: str) -> None:
    assert look((shown, "7")).value(field("something", own)) == "7"


def test_a_label_of_another_field_is_not_guessed_from() -> None:
    page = look(("Property Class Code", "0100"), ("Zoning", "RD"))
    page.value(field("land_use_code", "Property Class Code"))
    assert page.value(field("property_class", "Property Class")) is None


def test_a_parcel_number_is_never_guessed() -> None:
    assert look(("Number of Parcel", "1-2")).value(field("parcel_id", "Parcel Number")) is None


def test_a_county_that_shows_no_account_has_none() -> None:
    page = qpublic(
        summary=two_columns(parcel_id="01-02-03", property_owner_address="9 ELM ST", total_exempt_acres="4.5"),
        owner="<b>ANN LEE</b><br>1 OAK ST<br>OSLO, FL 33333",
    )
    found = record("qpublic", page)
    assert found["parcel_id"] == "01-02-03"
    assert (found.get("tax_account"), found.get("situs_address"), found.get("land_area_acres")) == (None, None, None)
