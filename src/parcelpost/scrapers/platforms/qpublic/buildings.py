"""The building modules of `qpublic`: labels with values, or a table with one row per building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, Piece, text_of
from parcelpost.scrapers.html.extract import Extractor, shown_fields
from parcelpost.scrapers.html.selectors import Label, Titled
from parcelpost.scrapers.html.tables import Columns
from parcelpost.scrapers.records.record import Building, Record, total_area

_WORDS = ("building", "residential", "commercial", "dwelling", "mobile home", "manufactured home", "improvement info")
_OTHER = (
    "agricultural",
    "permit",
    "sketch",
    "photo",
    "valuation",
    "extra",
    "accessory",
    "yard",
    "sub area",
    "cost",
    "notice",
    "land",
    "sale",
    "exemption",
)
_YEARS = ("Actual Year Built", "Year Built", "Yr Built", "Yr Blt", "Construction Year")
_AREAS = (
    "Heated Square Feet",
    "Heated Sq Ft",
    "Heated Area",
    "Total Gross Living Area",
    "Gross Living Area",
    "Above Grade Living Area",
    "Total Living Area",
    "Living Area",
    "Living Sq Ft",
    "Finished Area",
    "Finished Sq Ft",
    "Conditioned Area",
    "Base Area",
    "Gross Building Area",
    "Gross Sq Ft",
    "Square Feet",
    "Square Footage",
    "Total Sq Ft",
    "Total Area",
)
_LISTED = ("building", "residential", "dwelling")
_ROWS = Columns({"year": _YEARS, "area": _AREAS})
_SHOWN = {"year_built": _YEARS, "base_sqft": _AREAS}
MODULES = Titled(_WORDS, exclude=_OTHER)


def take_buildings(record: Record, extractor: Extractor) -> None:
    document = extractor.document
    of_buildings = [section for title, section in document.sections.items() if _is_of_buildings(title)]
    parsed = [building for module in of_buildings for building in _buildings(document, module)]
    if not parsed:
        if not of_buildings and says_none(document, _LISTED):
            record.building_count = 0
        else:
            extractor.problems.note("buildings", "the page has no readable building")
            extractor.selector_results.note("buildings", MODULES, success=False)
        return
    extractor.selector_results.note("buildings", MODULES, success=True)
    extractor.selector_results.note_columns("buildings", _SHOWN, shown_fields(parsed, _SHOWN))
    record.buildings, record.building_count = parsed, len(parsed)
    record.year_built = next((building.year_built for building in parsed if building.year_built), None)
    record.building_area_sqft = total_area(parsed)


def _is_of_buildings(title: str) -> bool:
    return any(word in title for word in _WORDS) and not any(word in title for word in _OTHER)


def says_none(document: Document, words: Sequence[str]) -> bool:
    """Whether the list of modules without data, at the end of the page, has one of these words in a title."""
    listed = " ".join(text_of(element) for element in document.by_id_end("pnlNoDataForModules")).lower()
    return any(word in listed for word in words)


def _buildings(document: Document, module: Element) -> list[Building]:
    years = [values.year(text) for text in _beside(document, module, _YEARS)]
    areas = [values.leading_number(text) for text in _beside(document, module, _AREAS)]
    if not any(years) and not any(areas):
        table = _ROWS.read(Piece(module))
        rows = [row for row in table.rows if "year" in row] if table is not None else []
        listed = [Building(year_built=values.year(row["year"].text), base_sqft=_area(row)) for row in rows]
        return [building for building in listed if building.year_built]
    count = max(len(years), len(areas))
    same = len(years) == len(areas)
    return [
        Building(
            year_built=years[at] if at < len(years) else None,
            base_sqft=(areas[at] or None) if at < len(areas) and (same or not years) else None,
        )
        for at in range(count if not years else len(years))
    ]


def _area(row: Mapping[str, Piece]) -> Decimal | None:
    return values.leading_number(row["area"].text) or None if "area" in row else None


def _beside(document: Document, module: Element, names: Sequence[str]) -> list[str]:
    """The values of the first of these labels that the module has; there may be several."""
    for name in names:
        texts = [piece.text for piece in Label(name).find(document, module)]
        if any(text[:1].isdigit() for text in texts):
            return texts
    return []
