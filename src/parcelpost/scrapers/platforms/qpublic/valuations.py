"""The valuation module of `qpublic`: a grid with one row per value and one column per year."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Element, label, text_of
from parcelpost.scrapers.html.extract import Extractor, shown_fields
from parcelpost.scrapers.html.selectors import Titled
from parcelpost.scrapers.html.tables import Columns
from parcelpost.scrapers.platforms.qpublic.buildings import says_none
from parcelpost.scrapers.records.problems import VALUES
from parcelpost.scrapers.records.record import Valuation
from parcelpost.scrapers.records.validation import is_broken

_HEADING = re.compile(
    r"(?:(?:assessment|tax|payable|assessed|valuation)\s+)?(?:year\s+)?(\d{4})\b(?:\s*(?:pay(?:able)?|/|p)\s*\d{4})?"
    r"[\s(-]*(certified|working|preliminary|proposed|final|current|tentative)?\)?(?:\s+(?:values?|assessments?))?",
    re.IGNORECASE,
)
_STATUSES = {
    "working": "working",
    "current": "working",
    "preliminary": "preliminary",
    "proposed": "preliminary",
    "tentative": "preliminary",
}
_MOST_HEADING_ROWS = 3
_YEAR_HEADINGS = ("year", "tax year", "assessment year", "valuation year", "value year", "roll year", "assessment yr")
_TITLES = ("valuation", "values", "value information", "assessment", "assessment information", "assessed value")
_PART = re.compile(r"assess\w*\W+(?!100)\d{1,2}(?:\.\d+)?\s*%|\bcurrent assess|\bhistorical assessed", re.ASCII)
"""Words in titles of modules with values assessed at a fraction."""
_NO_VALUES = ("special", "appeal", "notice", "personal", "drainage")
MODULES = Titled(_TITLES, exclude=_NO_VALUES)
_SIGN = re.compile(r"^[\s+=\u2013-]+")

# For each value the names that rows have for it, the most telling first: the first one that the grid has is taken.
_ROWS: dict[str, tuple[str, ...]] = {
    "land_value": (
        "land value market value",
        "market land value",
        "land value",
        "assessed land value",
        "land market value",
        "estimated land value",
        "est. land value",
        "total land value",
        "land",
    ),
    "building_value": (
        "building value",
        "improvement value",
        "improvements value",
        "building market value",
        "market improvement value",
        "estimated building value",
        "est. building value",
        "total improvement value",
        "total building value",
        "improvement",
        "improvements",
        "building",
        "buildings",
    ),
    "extra_feature_value": (
        "extra features value",
        "yard items",
        "accessory value",
        "misc value",
        "obxf value",
        "extra feature value",
        "miscellaneous value",
        "extra features",
        "xfob value",
        "market misc value",
        "misc improvement value",
    ),
    "market_value": (
        "total just or market value",
        "just (market) value",
        "just market value",
        "just value",
        "total market value",
        "fair market value",
        "market value",
        "total estimated market value",
        "estimated market value",
        "total appraised value",
        "total value (appraised 100%)",
        "appraised value (100%)",
        "appraised value",
        "current value",
        "total value",
        "total",
    ),
    "classified_use_value": ("classified use value", "classified value", "current use value"),
    "assessment_cap_value": ("capped differential", "cap differential", "assessment cap", "save our homes cap"),
    "assessed_value": (
        "classified use or assessed value",
        "total assessed value",
        "assessed value",
        "assessed value (40%)",
        "assessed value (35%)",
        "total value (assessed 40%)",
        "total value (assessed 35%)",
        "gross assessed value",
        "net assessed value",
    ),
    "exemption_value": ("exempt value", "total exemptions", "exemption value", "exempt amount", "exemptions"),
    "taxable_value": (
        "total non school taxable value",
        "county taxable value",
        "taxable value",
        "total taxable value",
        "net taxable value",
        "taxable market value",
        "total taxable market value",
    ),
    "taxable_value_school": ("school taxable value",),
}
_YEAR_IN_ROW = Columns({"year": _YEAR_HEADINGS, **_ROWS})
_BUILDING_PARTS = ("assessed building value", "assessed dwelling value")
"""Iowa: other buildings, and dwellings."""
_EXEMPTION_PARTS = ("school exemptions", "additional non school exemptions")
_MARKET, _ASSESSED = ("apprais", "market", "just"), ("assess",)
"""Words in section titles: what the rows of a section belong to."""
_TOTALS, _ASSESSED_TOTAL = ("total", "total value"), "total assessed value"


Column = tuple[int, int, str]
"""The number of cells after it, its year, its status."""


def valuations(extractor: Extractor) -> list[Valuation]:
    """From the first module with a grid of values by year; assessed values may have their own module."""
    modules = extractor.document.sections
    exact = [(name, modules[name]) for name in _TITLES if name in modules]
    others = [
        pair for pair in modules.items() if ("valu" in pair[0] or "assessment" in pair[0]) and not _is_other(pair[0])
    ]
    parts = [module for title, module in others if _PART.search(title)]
    wholes = dict.fromkeys(module for title, module in (*exact, *others) if not _PART.search(title))
    listed = _with_assessed(_first(wholes), _first(parts))
    extractor.selector_results.note("valuations", MODULES, bool(listed))
    if any(_is_placeholder(cell) for module in (*wholes, *parts) for cell in module.iter("th", "td")):
        extractor.problems.note(VALUES, "some of the values were not loaded")
    if not listed and not says_none(extractor.document, ("valu", "assessment")):
        extractor.problems.note(VALUES, "the page has no readable values")
    if listed:
        extractor.selector_results.note_columns("valuations", _ROWS, shown_fields(listed, _ROWS))
    return listed


def _is_placeholder(cell: Element) -> bool:
    """Whether it says that it is loading, or is a heading that the site did not fill in."""
    text = text_of(cell)
    if cell.tag == "th" and (is_broken(text) or values.is_placeholder(text)):
        return True
    return text[:1].isalpha() and values.text_or_none(text) is None and text.lower().startswith(("loading", "please"))


def _first(modules: Iterable[Element]) -> list[Valuation]:
    return next((listed for module in modules if (listed := _by_year(module))), [])


def _by_year(module: Element) -> list[Valuation]:
    """One per year, in document order. Years are column headings, or values of a column."""
    for table in module.iter("table"):
        listed = list(_by_row(table)) or list(_by_column(table))
        if any(getattr(valuation, field) is not None for valuation in listed for field in _ROWS):
            return listed
    return []


def _is_other(title: str) -> bool:
    return any(word in title for word in _NO_VALUES)


def _with_assessed(listed: list[Valuation], assessed: list[Valuation]) -> list[Valuation]:
    """Adds the totals of years assessed at a fraction; their land and building values are not market values."""
    totals = {valuation.year: (valuation.status, _total(valuation)) for valuation in assessed}
    for valuation in listed:
        if valuation.assessed_value is None:
            valuation.assessed_value = totals.get(valuation.year, (None, None))[1]
    if listed:
        return listed
    return [Valuation(year=year, status=status, assessed_value=total) for year, (status, total) in totals.items()]


def _total(valuation: Valuation) -> Decimal | None:
    return valuation.assessed_value if valuation.assessed_value is not None else valuation.market_value


def _by_column(table: Element) -> Iterator[Valuation]:
    grid = [[text_of(cell) for cell in cells] for cells in tables.rows_of(table)]
    at, columns = _heading(grid)
    if columns:
        width = max(behind for behind, _, _ in columns) + 1
        rows = _named(grid[at + 1 :], width)
        known = {field: next((rows[name] for name in names if name in rows), None) for field, names in _ROWS.items()}
        yield from (_valuation(rows, known, *column) for column in columns)


def _heading(grid: list[list[str]]) -> tuple[int, list[Column]]:
    """The first row with years, and the years."""
    for at, cells in enumerate(grid[:_MOST_HEADING_ROWS]):
        if columns := _columns(cells):
            return at, columns
    return 0, []


def _by_row(table: Element) -> Iterator[Valuation]:
    """If a year has several rows, each is only a part, so none is used."""
    by_year: dict[int, list[Valuation]] = {}
    listed = _YEAR_IN_ROW.table(table)
    for row in listed.rows if listed is not None else ():
        match = _HEADING.fullmatch(values.clean(row["year"].text)) if "year" in row else None
        if match and values.year(match[1]) is not None:
            amounts: dict[str, Any] = {name: values.money(row[name].text) for name in _ROWS if name in row}
            valuation = Valuation(year=int(match[1]), status=_status(match[2]), **amounts)
            by_year.setdefault(int(match[1]), []).append(valuation)
    yield from (same[0] for same in by_year.values() if all(valuation == same[0] for valuation in same))


def _status(word: str | None) -> str:
    return _STATUSES.get((word or "").lower(), "certified")


def _columns(cells: list[str]) -> list[Column]:
    """The columns headed by a year. A year in the first cell is the heading of its row."""
    headings = [(len(cells) - 1 - at, _HEADING.fullmatch(values.clean(cell))) for at, cell in enumerate(cells) if at]
    return [(behind, int(match[1]), _status(match[2])) for behind, match in headings if match and values.year(match[1])]


def _named(grid: list[list[str]], width: int) -> dict[str, list[str]]:
    """Rows by name. Of different rows with the same name, the one in the market section, else none."""
    rows_by_name: dict[str, list[tuple[str, list[str]]]] = {}
    section = ""
    for row in grid:
        texts = [text for cell in row[:-width] or row if (text := label(_SIGN.sub("", cell)))]
        if texts and (len(texts) > 1 or not any(row[-width:]) or len(row) <= width):
            section = texts[0]
        if len(row) > width and any(row[-width:]):
            name = texts[-1] if texts else ""
            is_assessed = name in _TOTALS and _is_of(section, _ASSESSED)
            rows_by_name.setdefault(_ASSESSED_TOTAL if is_assessed else name, []).append((section, row))
    return {name: only for name, rows in rows_by_name.items() if (only := _only(rows, width)) is not None}


def _only(rows: list[tuple[str, list[str]]], width: int) -> list[str] | None:
    if all(row[-width:] == rows[0][1][-width:] for _, row in rows):
        return rows[0][1]
    market = [row for section, row in rows if _is_of(section, _MARKET)]
    return market[0] if len(market) == 1 else None


def _is_of(section: str, words: tuple[str, ...]) -> bool:
    return any(word in section for word in words) and (words is _MARKET or not _is_of(section, _MARKET))


def _valuation(
    rows: dict[str, list[str]], known: dict[str, list[str] | None], behind: int, year: int, status: str
) -> Valuation:
    """`known`: the row of each value, if there is one."""
    at = -1 - behind
    amounts: dict[str, Any] = {field: values.money(row[at]) if row else None for field, row in known.items()}
    for field, names in (("exemption_value", _EXEMPTION_PARTS), ("building_value", _BUILDING_PARTS)):
        if amounts[field] is None:
            amounts[field] = _sum(rows, names, at)
    return Valuation(year=year, status=status, **amounts)


def _sum(rows: dict[str, list[str]], names: tuple[str, ...], at: int) -> Decimal | None:
    parts = [amount for name in names if name in rows and (amount := values.money(rows[name][at])) is not None]
    return sum(parts, Decimal(0)) if parts else None
