"""`vgsi`: assessor databases of towns in New England."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from msgspec import Struct

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, parcel_number, quote_part, require_county, target_url
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.addresses import joined_names, owners_and_mailing, take_mailing
from parcelpost.scrapers.html.document import Document, Element, Piece, label, says_no_parcel, text_of
from parcelpost.scrapers.html.extract import Extractor, Field, section
from parcelpost.scrapers.html.selectors import IN_ONE_LINE, Captioned, Css, Id, IdEnd, Label, Says, XPath
from parcelpost.scrapers.html.tables import SALE_KINDS, Columns, Headed, Row, Table
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, PageSection, ReadResult, page_end
from parcelpost.scrapers.records.problems import LAST_SALE, VALUES, Problems
from parcelpost.scrapers.records.record import Building, Record, Sale, Valuation, take_last_sale, total_area

_NUMBER = re.compile(r"building (\d{1,3})\b", re.ASCII | re.IGNORECASE)
_MOST_NOTICE_CHARS = 1_000
_ROOMS = re.compile(r"(\d{1,3}(?:\.\d)?)(?: [A-Za-z ]+)?", re.ASCII)
_TOWN = re.compile(r"(?:(?:town|city) of )?([A-Za-z .'-]{2,40}?),\s*([A-Z]{2})", re.IGNORECASE | re.ASCII)


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


def _money(piece: Piece) -> Decimal | None:
    return values.money(piece.text)


def _acres(piece: Piece) -> Decimal | None:
    """None if the row's label says that the unit is feet."""
    row = next(piece.element.iterancestors("tr", "dl"), None) if piece.element is not None else None
    words = text_of(row).lower() if row is not None else ""
    return None if "feet" in words and "acre" not in words else values.acres(piece.text)


def _whole(piece: Piece) -> int | None:
    return values.whole_number(piece.text)


def _lines(piece: Piece) -> list[str] | None:
    return piece.lines or None


def _town(piece: Piece) -> str | None:
    """`LYME,NH` or `Town of Lyme, NH`."""
    match = _TOWN.fullmatch(values.clean(piece.text))
    return match[1].strip() if match else None


def _values(piece: Piece) -> tuple[Element, Table] | None:
    table = _VALUES.table(piece.element) if piece.element is not None else None
    return (piece.element, table) if piece.element is not None and table is not None else None


def _table(piece: Piece) -> Element | None:
    return piece.element


class Holding(Struct, frozen=True):
    """Tables with both of these labels."""

    label: str
    other: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"{self.label} and {self.other}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        others = {table for own in document.labelled(self.other) for table in own.iterancestors("table")}
        tables_ = (next(own.iterancestors("table"), None) for own in document.labelled(self.label))
        return map(Piece, dict.fromkeys(own for own in tables_ if own is not None and own in others))


def _digits(piece: Piece) -> str | None:
    text = values.text_or_none(piece.text)
    return text if text and any(sign.isdigit() for sign in text) else None


PID = Field("parcel_id", (Id("MainContent_lblPid"), IdEnd("lblPid"), Label("PID")), _digits)
ACCOUNT = Field(
    "tax_account", (Id("MainContent_lblAcctNum"), IdEnd("lblAcctNum"), Label("Acct#"), Label("Acct")), _words
)
MBLU = Field("map_block_lot", (Id("MainContent_lblMblu"), IdEnd("lblMblu"), Label("Mblu")), _digits)
LOCATION = Field("situs_address", (Id("MainContent_lblLocation"), IdEnd("lblTab1Title"), Label("Location")), _words)
TOWN = Field(
    "situs_city",
    (Id("lblTownName"), IdEnd("lblTownName"), Css(".myinnercontainer"), XPath(".//table//span/span")),
    _town,
)
OWNER = Field("owner_names", (Id("MainContent_lblOwner"), Id("MainContent_lblGenOwner"), Label("Owner")), _words)
CO_OWNER = Field("co_owner", (Id("MainContent_lblCoOwner"), IdEnd("lblCoOwner"), Label("Co-Owner")), _words, True)
ADDRESS = Field("mailing_lines", (Id("MainContent_lblAddr1"), IdEnd("lblAddr1"), Label("Address")), _lines)
APPRAISAL = Field("market_value", (Id("MainContent_lblGenAppraisal"), Label("Appraisal")), _money)
ASSESSMENT = Field("assessed_value", (Id("MainContent_lblGenAssessment"), Label("Assessment")), _money)
BUILDINGS = Field(
    "building_count", (Id("MainContent_lblBldCount"), IdEnd("lblBldCount"), Label("Building Count")), _whole
)
USE_CODE = Field("land_use_code", (Id("MainContent_lblUseCode"), IdEnd("lblUseCode"), Label("Use Code")), _words)
USE = Field(
    "land_use_desc",
    (
        Id("MainContent_lblUseCodeDescription"),
        IdEnd("lblUseCodeDescription"),
        XPath(
            f".//tr[td[1][{IN_ONE_LINE}='Use Code']]/following-sibling::tr[td[1][{IN_ONE_LINE}='Description']]/td[2]"
        ),
    ),
    _words,
)
ZONE = Field("zoning", (Id("MainContent_lblZone"), IdEnd("lblZone"), Label("Zone")), _words)
ACRES = Field(
    "land_area_acres",
    (Id("MainContent_lblLndAcres"), IdEnd("lblLndAcres"), Label("Size (Acres)"), Label("Size (Acre)")),
    _acres,
)

_VALUES = Columns(
    {
        "year": ("Valuation Year", "Assessment Year", "Appraisal Year", "Fiscal Year", "Year"),
        "building_value": ("Improvements", "Buildings", "Building"),
        "land_value": ("Land",),
        "total": ("Total",),
    }
)
_SALES = Columns(
    {
        "owner": ("Owner",),
        "price": ("Sale Price", "Price"),
        "book_page": ("Book & Page", "Book/Page", "Book / Page", "Book and Page"),
        "instrument": ("Instrument",),
        "date": ("Sale Date",),
    },
    *("price", "book_page"),
)
SALES = section("sales", _SALES, Id("MainContent_grdSales"), IdEnd("grdSales"), Headed(_SALES), kinds=SALE_KINDS)
APPRAISED = Field("appraisal", (Captioned("Appraisal"), Css("table[id$='Appr']")), _values)
ASSESSED = Field("assessment", (Captioned("Assessment"), Css("table[id$='Asmt']")), _values)
SECTIONS = Field("buildings", (IdEnd("tblBldg"), Holding("Year Built", "Living Area")), _table)
_LAST_SALE = {"price": "lblPrice", "book_page": "lblBp", "instrument": "lblInstrument", "date": "lblSaleDate"}


def read(reader: PageReader) -> ReadResult:
    document, extractor = reader.document, reader.extractor
    pid = extractor.parcel(PID)
    if pid is None:
        return _no_record(document)
    owner = extractor.value(OWNER)
    appraised, assessed = list(_value_rows(extractor, APPRAISED)), list(_value_rows(extractor, ASSESSED))
    if owner is None or not (appraised or assessed):
        return Retry("the page is incomplete: its owner or its values are missing")
    co_owner = extractor.value(CO_OWNER)
    if co_owner is None and _hides_co_owner(document):
        reader.problems.note("owner_names", "the co-owner cannot be read")
    names = [name for name in (owner, co_owner) if name]
    record = Record(
        parcel_id=pid,
        tax_account=extractor.value(ACCOUNT),
        map_block_lot=extractor.value(MBLU),
        owner_names=joined_names(names),
        owner_lines=names,
        situs_address=extractor.value(LOCATION),
        situs_city=extractor.value(TOWN),
        building_count=extractor.value(BUILDINGS),
        land_use_code=extractor.value(USE_CODE),
        land_use_desc=extractor.value(USE),
        zoning=extractor.value(ZONE),
        land_area_acres=extractor.value(ACRES),
        sales=_sales(extractor),
    )
    if not document.by_id_end("lblOwner") and not document.by_id_end("lblCoOwner"):
        reader.problems.note("owner_names", "the owner of record is missing: there may be a co-owner")
    _take_mailing(record, extractor.value(ADDRESS) or [])
    _take_current(record, extractor, appraised, assessed)
    _take_buildings(record, extractor)
    _take_rooms(record, document, extractor.problems)
    take_last_sale(record)
    _check_last_sale(record, extractor.problems)
    return record


def _hides_co_owner(document: Document) -> bool:
    """Whether there is a label without a cell for the name, with a name in its own cell, or a text that is no name."""
    shown = document.by_id_end("lblCoOwner")
    is_named = any(text.startswith("co-owner") for text in document.labels())
    return any(text_of(element) for element in shown) or (is_named and not shown)


def _no_record(document: Document) -> ReadResult:
    text = text_of(document.root)[:20_000].lower()
    is_notice = "no data" in text and len(text) < _MOST_NOTICE_CHARS  # otherwise it belongs to a section
    if is_notice or says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: it has no PID")


def _take_mailing(record: Record, lines: list[str]) -> None:
    _, below, place = owners_and_mailing(lines, names=0)
    take_mailing(record, below, place)
    record.owner_lines += lines


def _value_rows(extractor: Extractor, kind: Field[tuple[Element, Table]]) -> Iterator[tuple[bool | None, Row]]:
    """The rows of all tables of that kind, each with whether it is current or history; None if that is unknown."""
    grids = _grids(extractor, kind)
    if grids:
        columns = {name for table in grids.values() for name in _VALUES.headings if name in table.columns}
        extractor.selector_results.note_columns(kind.name, _VALUES.headings, columns)
    for element, table in grids.items():
        name = (element.get("id") or "").lower()
        is_current = True if "current" in name or _is_under(element, "current value") else None
        if is_current is None and ("history" in name or _is_under(element, "valuation history")):
            is_current = False
        rows = [row for row in table.rows if values.year(tables.text(row, "year")) is not None]
        if (
            table.is_part
            or table.dropped
            or any(row not in rows and tables.is_row_of_values(row) for row in table.rows)
        ):
            extractor.problems.note("valuations", "a row of values cannot be read")
        yield from ((is_current, row) for row in rows)


def _grids(extractor: Extractor, kind: Field[tuple[Element, Table]]) -> dict[Element, Table]:
    """All tables in document order, by every selector: some towns give only some of them a caption or an id."""
    grids = dict(extractor.values(kind))
    count = len(grids)
    for piece in (piece for selector in kind.selectors if grids for piece in selector.find(extractor.document, None)):
        if piece.element not in grids and (other := kind.convert(piece)) is not None:
            grids[other[0]] = other[1]
    if len(grids) != count:
        grids = {element: grids[element] for element in extractor.document.root.iter("table") if element in grids}
    return _without_repeated_ids(grids)


def _without_repeated_ids(grids: dict[Element, Table]) -> dict[Element, Table]:
    """An id belongs to one element: a second table with it is a copy."""
    names: set[str] = set()
    kept = {}
    for element, table in grids.items():
        name = element.get("id") or ""
        if name not in names:
            kept[element] = table
        names |= {name} - {""}
    return kept


def _is_under(table: Element, words: str) -> bool:
    """Whether the fieldset around it has that title."""
    frame = next(table.iterancestors("fieldset"), None)
    legend = next(frame.iterchildren("legend"), None) if frame is not None else None
    return legend is not None and label(text_of(legend)) == words


def _take_current(
    record: Record,
    extractor: Extractor,
    appraised: list[tuple[bool | None, Row]],
    assessed: list[tuple[bool | None, Row]],
) -> None:
    """The appraisal is the market value, the assessment the taxed value; both have current and historic rows."""
    newest = max(
        (row for current, row in appraised if current is None),
        key=lambda row: values.year(tables.text(row, "year")) or 0,
        default=None,
    )
    is_marked = any(current for current, _ in (*appraised, *assessed))
    if is_marked and any(current is None for current, _ in (*appraised, *assessed)):
        extractor.problems.note("valuations", "a table does not say whether its values are current")
    now = _newest(appraised) if any(current for current, _ in appraised) else None if is_marked else newest
    past = [_valuation(row, "market_value") for current, row in appraised if not current]
    taxed_past = [_valuation(row, "assessed_value") for current, row in assessed if not current]
    if not past or not taxed_past or now is None:
        extractor.problems.note("valuations", "the current values or part of the history are missing")
    past += taxed_past
    shown_now = [_valuation(row, "market_value") for _, row in appraised]
    record.valuations = past or shown_now + [_valuation(row, "assessed_value") for _, row in assessed]
    record.value_status = "current"
    record.market_value = extractor.value(APPRAISAL)
    record.assessed_value = extractor.value(ASSESSMENT)
    if now is not None:
        shown = _valuation(now, "market_value")
        record.value_year, record.land_value, record.building_value = shown.year, shown.land_value, shown.building_value
        record.market_value = shown.market_value if shown.market_value is not None else record.market_value
    taxed = _newest(assessed)
    if taxed is not None and (total := values.money(tables.text(taxed, "total"))) is not None:
        if record.assessed_value not in (None, total):  # the tables have each other's title
            extractor.problems.note(VALUES, "the assessment at the top of the page is another one than in its table")
        record.assessed_value = total
        record.value_year = record.value_year or values.year(tables.text(taxed, "year"))


def _newest(rows: Iterable[tuple[bool | None, Row]]) -> Row | None:
    """Of the current ones."""
    current = (row for is_current, row in rows if is_current)
    return max(current, key=lambda row: values.year(tables.text(row, "year")) or 0, default=None)


def _valuation(row: Row, total: str) -> Valuation:
    valuation = Valuation(
        year=values.year(tables.text(row, "year")),
        status="current",
        land_value=values.money(tables.text(row, "land_value")),
        building_value=values.money(tables.text(row, "building_value")),
    )
    setattr(valuation, total, values.money(tables.text(row, "total")))
    return valuation


def _sales(extractor: Extractor) -> list[Sale]:
    """The sales history; if a town shows none, the last sale."""
    history = extractor.rows(SALES) or ()
    last = [_last_sale(extractor.document)]
    return list(_sold(history, extractor.problems)) or [sale for sale in _sold(last, Problems()) if sale.date]


def _check_last_sale(record: Record, problems: Problems) -> None:
    """Sales are listed from the newest one: one without a date above the newest date may be the last sale."""
    dates = [sale.date for sale in record.sales if sale.date]
    if dates == sorted(dates, reverse=True) and dates and record.sales[0].date is None:
        problems.note(LAST_SALE, "the newest sale has no date")


def _last_sale(document: Document) -> dict[str, Piece]:
    elements_by_name = ((name, document.by_id_end(ending)) for name, ending in _LAST_SALE.items())
    return {name: Piece(elements[0]) for name, elements in elements_by_name if elements}


def _sold(rows: Iterable[Row], problems: Problems) -> Iterator[Sale]:
    for row in rows:
        date, price = values.iso_date(tables.text(row, "date")), values.money(tables.text(row, "price"))
        if date is None and any(sign.isalpha() for sign in tables.text(row, "date")):
            problems.note("sales", "a row has no readable date")
        if date is None and price is None:
            if (
                tables.is_row_of_values(row)
                or "price" not in row
                or any(map(str.isdigit, tables.text(row, "book_page")))
            ):
                problems.note("sales", "a row has neither a date nor a price")
            continue  # 'No Data for Ownership History'
        if tables.text(row, "book_page").count("/") > 1:
            problems.note("sales", "a row has the books and pages of two sales")
        yield Sale(
            date=date,
            price=price,
            book_page=values.text_or_none(tables.text(row, "book_page")),
            instrument=values.text_or_none(tables.text(row, "instrument")),
            grantee=values.party(tables.text(row, "owner")),
        )


def _buildings(document: Document, sections: Iterable[Element]) -> Iterator[Building]:
    """One per building section; vacant land has an empty section."""
    for table in sections:
        building = Building(
            desc=_heading(table),
            year_built=values.year(_beside(document, table, "Year Built")),
            base_sqft=values.number(_beside(document, table, "Living Area")),
            value=_dollars(_beside(document, table, "Replacement Cost Less Depreciation")),
        )
        if building.year_built or building.base_sqft or building.value:
            yield building


def _dollars(text: str | None) -> Decimal | None:
    """The rows beside that of the cost are percentages."""
    return values.money(text) if "$" in (text or "") else None


def _numbers(buildings: Iterable[Building]) -> set[int]:
    """Of the headings `Building 2 : Section 1`; buildings without a number are counted."""
    listed = list(buildings)
    matches = [_NUMBER.match(building.desc or "") for building in listed]
    numbers = [int(match[1]) for match in matches if match]
    return set(numbers) if len(numbers) == len(listed) else set(range(1, len(listed) + 1))


def _heading(table: Element) -> str | None:
    """The legend of the fieldset around it: `Building 1 : Section 1`."""
    frame = next(table.iterancestors("fieldset"), None)
    legend = next(frame.iterchildren("legend"), None) if frame is not None else None
    return values.text_or_none(text_of(legend)) if legend is not None else None


def _beside(document: Document, within: Element, name: str) -> str | None:
    """None if the row has a third cell: nobody knows which one is the value."""
    piece = next(iter(Label(name).find(document, within)), None)
    row = piece.element.getparent() if piece is not None and piece.element is not None else None
    if row is not None and row.tag == "tr" and len(row) % 2:
        return None
    return piece.text if piece is not None else None


def _take_buildings(record: Record, extractor: Extractor) -> None:
    record.buildings = list(_buildings(extractor.document, extractor.values(SECTIONS)))
    if record.building_count == 0 and not record.buildings:
        extractor.selector_results.drop(SECTIONS.name)
    elif _numbers(record.buildings) != set(range(1, (record.building_count or 0) + 1)):
        extractor.problems.note("buildings", "not every building that the page counts has a section")
    record.building_area_sqft = total_area(record.buildings)
    record.year_built = record.buildings[0].year_built if record.buildings else None


_BEDROOMS = ("Total Bedrooms",)
_BATHROOMS = ("Total Bthrms", "Total Baths", "Full Bathrooms")
_HALF_BATHROOMS = ("Total Half Baths", "Half Bathrooms")


def _take_rooms(record: Record, document: Document, problems: Problems) -> None:
    """Over all buildings; a half bathroom has no bath."""
    record.bedrooms = _rooms(document, _BEDROOMS)
    record.bathrooms = _rooms(document, _BATHROOMS)
    half = _rooms(document, _HALF_BATHROOMS)
    details = len([element for element in document.labelled("Style") if element.tag in ("td", "th")])
    shown = {len(_room_texts(document, names)) for names in (_BEDROOMS, _BATHROOMS, _HALF_BATHROOMS)}
    count = len(record.buildings)
    if details not in (0, count) or not shown <= {0, count}:
        problems.note("bedrooms", "the details of some buildings are missing or repeated")
        problems.note("bathrooms", "the details of some buildings are missing or repeated")
        record.bedrooms = record.bathrooms = None
    elif record.bathrooms is not None and half is not None:
        record.bathrooms += half / 2


def _room_texts(document: Document, names: Sequence[str]) -> list[str]:
    """Beside the first of these labels that the page has."""
    by_name = (
        [piece.text for piece in Label(name).find(document, None) if values.text_or_none(piece.text)] for name in names
    )
    return next((texts for texts in by_name if texts), [])


def _rooms(document: Document, names: Sequence[str]) -> Decimal | None:
    """`7 Bedrooms` or `5`, summed under the first matching name; None if a building has another kind of value."""
    texts = _room_texts(document, names)
    matches = [_ROOMS.fullmatch(values.clean(text)) for text in texts]
    return sum((Decimal(match[1]) for match in matches if match), Decimal(0)) if texts and all(matches) else None


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """The site of an entry is that of one town; the parcel is the site's own number for it."""
    url = target_url(target, county)
    if not url:
        known = require_county(county, target)
        url = f"{known.base}/Parcel.aspx?Pid={quote_part(parcel_number(target, known))}"
    return await fetcher.get(url)


PAGE_SECTIONS = (
    PageSection("ownership history", (IdEnd("grdSales"), Says("Ownership History"))),
    PageSection("land", (IdEnd("tblLand"), IdEnd("tblLandUse"), Says("Land"))),
    page_end("vision government solutions, inc", "vision appraisal tech"),
)
PLATFORM = CountyPlatform(name="vgsi", version=8, read=read, fetch=fetch, sections=PAGE_SECTIONS)
