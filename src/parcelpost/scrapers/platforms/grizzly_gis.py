"""`grizzly_gis`: property appraisers of several Florida counties. A parcel's page is the response to a form."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, parcel_number, quote_part, require_county, target_url
from parcelpost.scrapers.fetch.errors import CannotFetch
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.addresses import is_unit, owners_and_mailing, take_mailing
from parcelpost.scrapers.html.document import (
    Document,
    Element,
    Piece,
    beside,
    is_shell,
    label,
    lines_of,
    says_no_parcel,
    text_of,
)
from parcelpost.scrapers.html.extract import Extractor, Field, section, shown_fields
from parcelpost.scrapers.html.selectors import IN_ONE_LINE, Beginning, Css, Id, Inside, Label, Says, XPath
from parcelpost.scrapers.html.tables import SALE_KINDS, Columns, Headed, read_sales
from parcelpost.scrapers.platform import (
    CountyPlatform,
    Fetcher,
    PageReader,
    PageSection,
    ReadResult,
    fetch_or_render,
    page_end,
)
from parcelpost.scrapers.records.problems import VALUES, Problems
from parcelpost.scrapers.records.record import Building, Record, Valuation, take_last_sale, take_values, total_area

_TITLE = re.compile(r"\b(\d{4})\s+(Certified|Final|Working|Preliminary|Proposed|Tentative)\b", re.IGNORECASE)
_WHOLE_TITLE = re.compile(r"\d{4}\s+\w+(?:\s+values?\b.*)?$", re.ASCII)
"""A note that mentions a year among other words is not a year."""
_STATUSES = {"certified": "certified", "final": "certified", "working": "working"}
_HOMESTEAD = "HX"
_CODE = re.compile(r"[A-Z0-9]{2,3}", re.ASCII)
_WHOSE = re.compile(
    r"(?<![a-z])(county|city|other|school)(?: taxable)?(?: value)?\s*:?\s*(\(?-?\$?\d[\d,]*(?:\.\d+)?\)?)",
    re.IGNORECASE | re.ASCII,
)
_VALUE = re.compile(r"\s*\bvalues?$")

JUST = Label("Just")
_ROWS = {
    "land_value": ("mkt land", "market land", "land"),
    "building_value": ("building", "buildings", "bldg"),
    "extra_feature_value": ("xfob", "extra features", "extra feature"),
    "classified_land_value": ("ag land", "agricultural land"),
    "market_value": ("just", "just market", "market"),
    "classified_use_value": ("class", "classified"),
    "assessment_cap_value": ("soh cap", "soh/10% cap", "10% cap"),
    "assessed_value": ("assessed",),
}
_ROW_NAMES = frozenset(name for names in _ROWS.values() for name in names)
_EXEMPT, _TAXABLE = ("exempt",), ("total taxable", "taxable")
_SHOWN = {**_ROWS, "exemption_value": _EXEMPT, "taxable_value": _TAXABLE}

Title = tuple[int | None, str | None]
Rows = dict[str, list[Piece]]


def valuations(extractor: Extractor) -> list[Valuation]:
    """One per column of values, with its year above it or in the page's title.

    If a page shows one year only, its column is split into two adjacent tables.
    """
    listed = list(_valuations(extractor.document, extractor.problems))
    distinct = [valuation for at, valuation in enumerate(listed) if valuation not in listed[:at]]
    if len({(valuation.year, valuation.status) for valuation in distinct}) < len(distinct):
        extractor.problems.note(VALUES, "a year has two different columns of values")
    extractor.selector_results.note("valuations", JUST, bool(distinct))
    if distinct:
        extractor.selector_results.note_columns("valuations", _SHOWN, shown_fields(distinct, _SHOWN))
    return distinct


def _valuations(document: Document, problems: Problems) -> Iterator[Valuation]:
    assessed = {table for label in _labelled(document, "Assessed") for table in label.iterancestors("table")}
    around = (element.iterancestors("table") for element in _labelled(document, JUST.expression))
    innermost = (next((table for table in above if table in assessed), None) for above in around)
    tables_of_values = dict.fromkeys(table for table in innermost if table is not None)
    titles_by_table = {table: _titles(" ".join(map(str, table.itertext()))) for table in tables_of_values}
    if any(titles_by_table.values()) and not all(titles_by_table.values()):
        problems.note(VALUES, "a column of values has no year")
    of_page = _title_of_page(document, problems) if not any(titles_by_table.values()) else [(None, None)]
    for table, own in titles_by_table.items():
        titles = own or of_page
        beside_it = next(table.iterancestors("td"), None)
        if beside_it is not None and any(_is_unread(label, titles_by_table) for label in _columns_beside(beside_it)):
            problems.note(VALUES, "a column of values is empty, or cannot be read")
        rows, conflicts = _rows(table)
        if conflicts:
            problems.note(VALUES, f"two different rows of values are called {conflicts.pop()}")
        for at, title in enumerate(titles):
            yield _valuation(document, rows, title, at, len(titles))


def _columns_beside(cell: Element) -> Iterator[Element]:
    yield from cell.itersiblings("td")
    yield from cell.itersiblings("td", preceding=True)


def _is_unread(cell: Element, tables_of_values: Container[Element]) -> bool:
    """Whether the cell is empty, or has amounts but no table of values."""
    texts = [text for text in cell.itertext() if text and not text.isspace()]
    return not texts or (
        any("$" in text for text in texts) and not any(table in tables_of_values for table in cell.iter("table"))
    )


def _labelled(document: Document, name: str) -> list[Element]:
    return [*document.labelled(name), *document.labelled(f"{name} Value")]


def _titles(text: str) -> list[Title]:
    matches = (match for match in _TITLE.finditer(text) if values.year(match[1]))
    return [(int(match[1]), _STATUSES.get(match[2].lower(), "preliminary")) for match in matches]


def _title_of_page(document: Document, problems: Problems) -> list[Title]:
    titles_of_page = {titles[0] for text in document.labels() if _WHOLE_TITLE.match(text) and (titles := _titles(text))}
    if len(titles_of_page) > 1:
        problems.note(VALUES, "the page has titles of several years")
    return [titles_of_page.pop() if len(titles_of_page) == 1 else (None, None)]


def _rows(table: Element) -> tuple[Rows, set[str]]:
    """Row label -> the other cells of the row, including nested tables; and labels with different values."""
    rows: Rows = {}
    conflicts = set()
    for cells in (cells for piece in table.iter("table") for cells in tables.rows_of(piece)):
        name = _row_name(label(text_of(cells[0]).split("[", maxsplit=1)[0]))
        pieces = [Piece(cell) for cell in cells[1:]]
        if name not in rows:
            rows[name] = pieces
        elif name in _ROW_NAMES and [piece.text for piece in rows[name]] != [piece.text for piece in pieces]:
            conflicts.add(name)
    return rows, conflicts


@lru_cache(maxsize=1_024)
def _row_name(text: str) -> str:
    name = _VALUE.sub("", text)
    return "exempt" if name.startswith("exempt") else name


def _valuation(document: Document, rows: Rows, title: Title, at: int, columns: int) -> Valuation:
    def cell(names: Sequence[str]) -> Piece | None:
        cells = [piece for piece in next((rows[name] for name in names if name in rows), []) if piece.text]
        return cells[at] if cells and columns == len(cells) else None

    cells_by_name = ((name, cell(texts)) for name, texts in _ROWS.items())
    amounts: dict[str, Any] = {name: values.money(part.text) for name, part in cells_by_name if part is not None}
    taxable = cell(_TAXABLE)
    exempt = rows.get("exempt", []) if columns == 1 else [cell(_EXEMPT)]
    words = [word for part in exempt if part is not None for word in part.text.split()]
    codes, exemption_value = _codes(words), _only_money(words)
    is_readable = all(_is_code(word) or values.money(word) is not None or word == "USD" for word in words)
    return Valuation(
        year=title[0],
        status=title[1],
        exemptions=codes if is_readable and (codes or exemption_value == 0) else None,
        exemption_value=exemption_value,
        taxable_value=_taxable(document, taxable, "county"),
        taxable_value_school=_taxable(document, taxable, "school"),
        **amounts,
    )


def _only_money(words: Sequence[str]) -> Decimal | None:
    """The amount after the codes, which may also be digits. None if there are several."""
    shown = [word for word in words if not _is_code(word) and word != "USD"]
    return values.money(shown[0]) if len(shown) == 1 else None


def _codes(words: Sequence[str]) -> list[str]:
    return [word for word in words if _is_code(word)]


def _is_code(word: str) -> bool:
    return _CODE.fullmatch(word) is not None and word != "USD"


def _taxable(document: Document, cell: Piece | None, name: str) -> Decimal | None:
    """`county: $1 city: $2` in one cell; a single amount has no authority."""
    around = cell.element if cell is not None else None
    if around is None:
        return None
    for element in around.iter():
        if element is not around and label(element.text or "") == name:
            piece = beside(element, document)
            return values.money(piece.text) if piece is not None else None
    amounts = [match[2] for match in _WHOSE.finditer(text_of(around)) if match[1].lower() == name]
    return values.money(amounts[0]) if len(amounts) == 1 else None


_PARCEL = re.compile(r"([0-9A-Z][0-9A-Z./-]{3,40}?)(?:\s*\((\d+)\))?(?:\s+[A-Z0-9]{2})*", re.ASCII)
_USE = re.compile(r"(.*?)\s*\(([0-9][0-9A-Z]{1,5})\)", re.ASCII)
_ACRES = re.compile(
    r"(?:^|[\s(])(?<!\d\s)(\d[\d,]{0,12}(?:\.\d{1,9}|\s\d/\d)?|\d/\d|\.\d{1,9})\s*(?:\+\s*/?\s*-\s*)?AC(?:RES?|\b)",
    re.ASCII | re.IGNORECASE,
)
_CITY = re.compile(r"([^\d,]{2,}?)(?:\s+FL)?(?:\s+(\d{5}(?:-\d{4})?))?", re.ASCII)
_RECORD = "#ownerDiv, table.parcelIDtable"
_NOTE = re.compile(r"above is not\b", re.IGNORECASE)
_NONE = re.compile(r"\bN ?O ?N ?E\b|\bNO (?:DATA|RECORDS|BUILDINGS)\b", re.IGNORECASE)
_UPDATED = re.compile(r"updated:\s*(\d{1,2}/\d{1,2}/\d{4})", re.ASCII | re.IGNORECASE)
_TAX_LINK = re.compile(r"linkTax/\?PIN=([^&\"'\s]{1,60})")


def _parcel(piece: Piece) -> tuple[str, str | None] | None:
    """The parcel's number, and in parentheses behind it the county's running number."""
    match = _PARCEL.fullmatch(values.clean(piece.text))
    return (match[1], match[2]) if match and any(sign.isdigit() for sign in match[1]) else None


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


def _owner(piece: Piece) -> tuple[list[str], int, int | None] | None:
    """The lines of names and address, how many are certainly names, and how many are names if that is known.

    The first name is in bold everywhere; where several are, a county shows all of them in bold.
    """
    bold = next(piece.element.iter("b", "strong"), None) if piece.element is not None else None
    named = [line for line in lines_of(bold) if line.strip(".,- ")] if bold is not None else []
    if not piece.lines:
        return None
    return piece.lines, max(1, len(named)), len(named) if len(named) > 1 and not named[-1].endswith("&") else None


def _site(piece: Piece) -> str | None:
    """The first of several addresses."""
    return next((line for line in piece.lines if values.text_or_none(line)), None)


def _acres(piece: Piece) -> Decimal | None:
    match = _ACRES.search(values.clean(piece.text))
    return values.acres(match[1]) if match else None


def _use(piece: Piece) -> tuple[str, str] | None:
    match = _USE.match(piece.text)
    return (match[1], match[2]) if match else None


def _updated(piece: Piece) -> str | None:
    day = _UPDATED.fullmatch(piece.text)
    return values.iso_date(day[1]) if day else None


def _legal(piece: Piece) -> str | None:
    """Shown twice: shortened with `...more>>>` or in full, then in full with `<<<less`."""
    if _NOTE.match(piece.text):
        return None
    whole, less, behind = piece.text.rpartition("...more>>>")[2].rpartition("<<<less")
    if less and behind:
        return None
    text = values.text_or_none(whole or behind)
    half = (text or "")[: len(text or "") // 2].strip()
    return half if half and text == f"{half} {half}" else text


PARCEL = Field(
    "parcel_id",
    (
        Css("table.parcelIDtable b"),
        Inside("Parcel"),
        XPath(f".//tr[td[1][{IN_ONE_LINE}='Parcel:' or {IN_ONE_LINE}='Parcel']]/td[position() > 1]"),
    ),
    _parcel,
)
OWNER = Field(
    "owner_names",
    (
        Label("Owner"),
        Label("Owner's"),
        XPath(f".//*[@id='ownerDiv']//tr[td[1][starts-with({IN_ONE_LINE}, 'Owner')]]/td[2]"),
    ),
    _owner,
)
SITE = Field("situs_address", (Label("Site"), Label("Site Address"), Label("Location")), _site)
LEGAL = Field("legal_description", (Id("Flegal"), Id("Blegal"), Label("Description"), Label("Legal")), _legal)
ACRES = Field("land_area_acres", (Label("Area"), Label("Land Area"), Label("Acreage")), _acres)
SECTION = Field("sec_twp_rng", (Label("S/T/R"), Label("Sec/Twp/Rng")), _words)
DISTRICT = Field("tax_district", (Label("Tax District"),), _words)
UPDATED = Field("data_date", (Beginning("updated:"),), _updated)
USE = Field("land_use_code", (Label("Use Code"), Label("Land Use")), _use)

_SALES = Columns(
    {
        "date": ("Sale Date", "Date"),
        "price": ("Sale Price", "Price"),
        "book_page": ("Book/Page", "Book / Page", "OR Book/Page"),
        "instrument": ("Deed", "Instr", "Instrument"),
        "vacant_improved": ("V/I",),
        "qualified": ("Qualification (Codes)", "Qualification", "Q/U"),
        "reason_code": ("RCode",),
    },
    *("price", "book_page"),
)
_BUILDINGS = Columns(
    {
        "desc": ("Description", "Bldg Desc", "Bldg Type", "Desc"),
        "year_built": ("Year Blt", "Year Built", "Yr Blt"),
        "base_sqft": ("Base SF", "Base S.F.", "Heated SF", "Heated S.F."),
        "actual_sqft": ("Actual SF", "Actual S.F.", "Total SF"),
        "value": ("Bldg Value", "Building Value"),
    },
    *("base_sqft", "actual_sqft"),
)
SALES = section("sales", _SALES, Id("parcelDetails_SalesTable"), Headed(_SALES), kinds=SALE_KINDS)
_KINDS = {
    "year_built": values.whole_number,
    "base_sqft": values.number,
    "actual_sqft": values.number,
    "value": values.money,
}
BUILDINGS = section("buildings", _BUILDINGS, Id("parcelDetails_BldgTable"), Headed(_BUILDINGS), kinds=_KINDS)


def read(reader: PageReader) -> ReadResult:
    extractor, document = reader.extractor, reader.document
    block = _owner_block(document)
    if document.by_id("ownerDiv") is None and not document.labelled("Owner & Property Info"):
        return _no_record(document)
    parcel = extractor.parcel(PARCEL)
    columns = valuations(extractor)
    owner = extractor.value(OWNER, block)
    sales = extractor.rows(SALES)
    if parcel is None or owner is None or not columns or not _has_sales(document):
        return Retry("the page is incomplete: its number, owner, values or sales are missing")
    names, mailing, place = owners_and_mailing(owner[0], owner[2], at_least=owner[1])
    use_desc, use_code = extractor.value(USE) or (None, None)
    record = Record(
        parcel_id=parcel[0],
        alternate_id=parcel[1],
        tax_account=_tax_account(document),
        data_date=extractor.value(UPDATED),
        owner_names=names,
        owner_lines=owner[0],
        legal_description=extractor.value(LEGAL, block),
        land_area_acres=extractor.value(ACRES),
        sec_twp_rng=extractor.value(SECTION),
        land_use_code=use_code,
        land_use_desc=use_desc,
        tax_district=extractor.value(DISTRICT),
        valuations=columns,
        sales=list(read_sales(sales or (), extractor.problems)),
    )
    take_mailing(record, mailing, place)
    _situs(record, extractor.value(SITE, block))
    _take_buildings(record, extractor)
    take_values(record)
    if record.exemptions is not None:
        record.homestead = _HOMESTEAD in record.exemptions
    take_last_sale(record)
    return record


def _owner_block(document: Document) -> Element | None:
    """The table with both the owner and the description; other tables have a description too."""
    for element in document.labelled("Owner"):
        table = next(element.iterancestors("table"), None)
        if table is not None:
            return table
    return None


def _no_record(document: Document) -> ReadResult:
    if says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: it is the search form or an outer frame")


def _situs(record: Record, site: str | None) -> None:
    """`12 ELM ST, MARIGOLD`; text with digits after a comma is not a city."""
    street, _, behind = (site or "").rpartition(",")
    match = _CITY.fullmatch(behind.strip()) if street and not is_unit(behind) else None
    record.situs_address = values.text_or_none(street if match else site)
    if match:
        record.situs_city, record.situs_zip = values.text_or_none(match[1]), match[2]


def _take_buildings(record: Record, extractor: Extractor) -> None:
    record.buildings = list(_buildings(extractor.rows(BUILDINGS) or (), extractor.problems))
    record.year_built = record.buildings[0].year_built if record.buildings else None
    record.building_area_sqft = total_area(record.buildings)
    if record.buildings or _says_none(extractor.document):
        record.building_count = len(record.buildings)


def _tax_account(document: Document) -> str | None:
    link = next((match for script in document.scripts if (match := _TAX_LINK.search(script))), None)
    return link[1] if link else None


def _has_sales(document: Document) -> bool:
    return bool(document.labelled("Sales History")) or document.by_id("parcelDetails_SalesTable") is not None


def _says_none(document: Document) -> bool:
    """Whether the page says that there are no buildings; unreadable rows do not count."""
    frames = (piece.element for selector in BUILDINGS.field.selectors for piece in selector.find(document, None))
    first = (next(frame.iter("table"), None) for frame in frames if frame is not None)
    return any(_NONE.search(text_of(table)) for table in first if table is not None)


def _buildings(rows: Iterable[tables.Row], problems: Problems) -> Iterator[Building]:
    for row in rows:
        year, value = values.year(tables.text(row, "year_built")), values.money(tables.text(row, "value"))
        if year is None and value is None:
            if tables.is_row_of_values(row):
                problems.note("buildings", "a row has neither a year nor a value")
            continue  # 'N O N E', or a note below the table
        yield Building(
            desc=values.text_or_none(tables.text(row, "desc")),
            year_built=year,
            base_sqft=values.number(tables.text(row, "base_sqft")),
            actual_sqft=values.number(tables.text(row, "actual_sqft")),
            value=value,
        )


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """The URL returns a frame whose form leads to the record. If a script writes the form, a browser runs it."""
    url = target_url(target, county)
    if not url:
        known = require_county(county, target)
        url = f"{known.base}/gis/?pin={quote_part(values.parcel_norm(parcel_number(target, known)))}"
    if page := await fetcher.cached_page(url):
        return page
    by_form = partial(_by_form, fetcher, url)
    fetched = await fetch_or_render(fetcher, url, _is_shell, county=county, until=_RECORD, plain=by_form)
    page = Page(body=fetched.body, content_type=fetched.content_type, url=url)
    fetcher.cache_as(url, page)
    return page


async def _by_form(fetcher: Fetcher, url: str) -> Page:
    frame = await fetcher.get(url, cached=False)
    form = _form(frame)
    if form is None:
        return frame
    action, fields = form
    if urlsplit(action).netloc != urlsplit(frame.url).netloc:
        raise CannotFetch(f"the form submits to another site: {action!r:.200}")
    return await fetcher.post(action, fields)


def _is_shell(page: Page) -> bool:
    document = Document.of(page)
    return is_shell(page) and document is not None and not isinstance(_no_record(document), NotFound)


def _form(shell: Page) -> tuple[str, dict[str, str]] | None:
    """The action and the fields of the record's form; None if the page has none, or is the record itself."""
    document = Document.of(shell)
    if document is None or document.by_id("ownerDiv") is not None:
        return None
    forms = [e for e in document.root.iter("form") if "parentForm" in (e.get("name"), e.get("id"))]
    fields = {name: e.get("value") or "" for form in forms[:1] for e in form.iter("input") if (name := e.get("name"))}
    if not fields.get("bHandoff_PIN"):
        return None
    return urljoin(shell.url, forms[0].get("action") or "recordSearch_2_Results/"), fields


PAGE_SECTIONS = (
    PageSection("sales", (Id("parcelDetails_SalesTable"), Says("Sales History"))),
    PageSection("buildings", (Id("parcelDetails_BldgTable"), Says("Building Characteristics"))),
    PageSection("land", (Id("parcelDetails_LandTable"), Says("Land Breakdown"))),
    page_end("grizzlylogic", "no warrant", "last updated"),
)
PLATFORM = CountyPlatform(name="grizzly_gis", version=8, read=read, fetch=fetch, sections=PAGE_SECTIONS)
