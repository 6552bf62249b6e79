"""The tax roll of `collier_pa`, and what it was in the years before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import takewhile
from typing import Any

from parcelpost.scrapers import values
from parcelpost.scrapers.document import Document, Element, Piece, text_of
from parcelpost.scrapers.looking import Field, Look
from parcelpost.scrapers.record import Valuation
from parcelpost.scrapers.ways import IN_ONE_LINE, Id, XPath

_ROLL = re.compile(r"(\d{4})\b(.*)", re.ASCII)
_NOT_FINAL = ("preliminary", "proposed", "trim", "tentative", "estimate", "working")
_AMOUNT = re.compile(r"(?<![(\d-])\$[\d,]+(?:\.\d+)?(?![\d)])", re.ASCII)
_MOST_YEARS = 20
_HISTORY = {
    "land_value": "LandJustValue",
    "building_value": "ImprovementsJustValue",
    "market_value": "TotalJustValue",
    "assessed_value": "CountyAssessedValue",
    "taxable_value": "CountyTaxableValue",
    "taxable_value_school": "SchoolTaxableValue",
}


def amount(piece: Piece) -> Decimal | None:
    """The only one: what is written around it is left out."""
    if (whole := values.money(piece.text)) is not None:
        return whole
    found = _AMOUNT.findall(piece.text)
    return values.money(found[0]) if found and piece.text.count("$") == 1 else None


def _roll(piece: Piece) -> tuple[int, str] | None:
    found = _ROLL.match(values.clean(piece.text))
    if not found or values.year(found[1]) is None:
        return None
    return int(found[1]), "preliminary" if any(word in found[2].lower() for word in _NOT_FINAL) else "certified"


def _row(name: str, words: str) -> tuple[Id, Id, XPath]:
    """An amount by its own id, else as the last cell of its row, whose id tells what it is, or of one that reads so.

    A row with several amounts is one of several years or authorities.
    """
    reads = f".//tr[td[1][{IN_ONE_LINE}='{words}'] and count(td[contains(., '$')])=1]/td[last()]"
    return Id(name), Id(f"Tr{name}"), XPath(reads)


ROLL = Field(
    "value_year",
    (Id("RollType"), XPath(".//*[@id='PropertyTaxTable']//td[1]"), XPath(".//td[contains(., 'Tax Roll')]")),
    _roll,
)
LAND = Field("land_value", _row("LandJustValue", "Land"), amount)
BUILDING = Field("building_value", _row("ImprovementsJustValue", "(+) Improvements"), amount)
JUST = Field("market_value", _row("TotalJustValue", "(=) Total Just"), amount)
ASSESSED = Field("assessed_value", _row("CountyAssessedValue", "(=) Assessed"), amount)
TAXABLE = Field("taxable_value", _row("CountyTaxableValue", "(=) Taxable"), amount)
SCHOOL = Field("taxable_value_school", _row("SchoolTaxableValue", "(=) School Taxable"), amount)
FIRST_YEAR = Id("HistoryTaxYear1")
TAX = Field("tax_amount", _row("TotalTaxes", "(=) Total Tax"), amount)


def valuation(look: Look, document: Document, year: int, status: str) -> Valuation:
    return Valuation(
        year=year,
        status=status,
        land_value=look.value(LAND),
        building_value=look.value(BUILDING),
        market_value=look.value(JUST),
        assessed_value=look.value(ASSESSED),
        exemption_value=_exempt(document),
        taxable_value=look.value(TAXABLE),
        taxable_value_school=look.value(SCHOOL),
    )


def history(look: Look) -> Iterator[Valuation]:
    """Of each year that has a column, as numbered ids tell; a row's cells without ids go by their place."""
    document = look.document
    look.tries.note("valuations", FIRST_YEAR, document.by_id(FIRST_YEAR.name) is not None)
    for column in range(1, _MOST_YEARS):
        heading = document.by_id(f"HistoryTaxYear{column}")
        roll = _roll(Piece(heading)) if heading is not None else None
        if roll is None:
            return
        found: dict[str, Any] = {field: _of_column(document, name, column) for field, name in _HISTORY.items()}
        yield Valuation(year=roll[0], status=roll[1], **found)


def _of_column(document: Document, name: str, column: int) -> Decimal | None:
    cell = document.by_id(f"History{name}{column}")
    if cell is None:
        row = document.by_id(f"TrHistory{name}")
        shown = [one for one in row.iterchildren("td") if "$" in text_of(one)] if row is not None else []
        years = sum(1 for number in range(1, _MOST_YEARS) if document.by_id(f"HistoryTaxYear{number}") is not None)
        cell = shown[column - 1] if len(shown) == years else None
    return values.money(text_of(cell)) if cell is not None else None


def homestead(document: Document) -> bool | None:
    """Whether anything is exempt as one."""
    cell = document.by_id("HmstdExemptAmount")
    exempt = values.money(text_of(cell)) if cell is not None else None
    return exempt > 0 if exempt is not None else None


def _exempt(document: Document) -> Decimal | None:
    """All that count for the county: each has a row of its own that says what it applies to."""
    amounts = []
    for row in _exempt_rows(document):
        cells = [text_of(cell) for cell in row.iter("td")]
        applies = cells[1].lower() if len(cells) > 2 else ""
        exempt = values.money(cells[-1]) if cells else None
        if exempt is not None and not applies.startswith(("school", "municipal", "other")):
            amounts.append(exempt)
    return sum(amounts, Decimal(0)) if amounts else None


def _exempt_rows(document: Document) -> list[Element]:
    """By their ids, else those from the heading of exemptions to the next one."""
    table = document.by_id("PropertyTaxTable")
    named = [] if table is None else [row for row in table.iter("tr") if (row.get("id") or "").endswith("ExemptAmount")]
    if named:
        return named
    headings = (one for one in document.labelled("Exemptions") if one.tag == "td")
    row = next((one.getparent() for one in headings), None)
    following = row.itersiblings("tr") if row is not None else iter(())
    return list(takewhile(lambda one: text_of(one).startswith("(-)"), following))
