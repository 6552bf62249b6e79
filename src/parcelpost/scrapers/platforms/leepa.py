"""`leepa`: the property appraiser of Lee County, Florida."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import TypeVar

from msgspec import Struct

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.addresses import owners_and_mailing, take_mailing
from parcelpost.scrapers.html.document import Document, Element, Piece, is_in, says_no_parcel, text_of
from parcelpost.scrapers.html.extract import Extractor, Field, section
from parcelpost.scrapers.html.selectors import IN_ONE_LINE, Beginning, Css, Id, Label, Says, XPath
from parcelpost.scrapers.html.tables import SALE_KINDS, Columns, Headed, read_sales
from parcelpost.scrapers.platform import CountyPlatform, PageReader, PageSection, ReadResult, page_end
from parcelpost.scrapers.records.problems import VALUES, Problems
from parcelpost.scrapers.records.record import Building, Record, Sale, Valuation, take_last_sale, take_values

T = TypeVar("T")

_PARCEL = re.compile(r"STRAP:?\s*([0-9A-Z.-]{10,40})(?:\s+Folio ID:?\s*(\d{4,12}))?", re.IGNORECASE)
_YEAR = re.compile(r"(\d{4})\s*(?:\((.*?)\))?", re.ASCII)
_ROLL_TITLE = re.compile(r"property details \(\d{4} tax roll\)", re.ASCII)
_CURRENT_TITLE = "property details (current"
_CURRENT_AS_OF = re.compile(r"Property Details \(Current as of (\d{1,2}/\d{1,2}/\d{4})\)", re.ASCII)
_OWNERSHIP = re.compile(
    r"Owner Of Record\s*-\s*([A-Z][a-z]+(?: (?:[A-Z][a-z]+|by|for|in|of|the)){0,5})(?: \[.*)?", re.ASCII
)
"""Matches labels, which are not all capitals, unlike names."""
_DISTRICT = re.compile(r"[^/]{2,80} / \d{1,5}", re.ASCII)
_PART = re.compile(r"[0-9A-Z]{1,8}", re.ASCII)
_NO_EXEMPTIONS = "No existing exemptions found for this property."
_NUMBERED_STREET = re.compile(
    r"\d+\s+(?:[NSEW]{1,2}\s+)?\w+(?:\s+\w+)?\s+(?:AVE?|ST|RD|DR|LN|CT|BLVD|WAY|TER|PL|CIR|PKWY)\b"
)
_BOOK_PAGE = re.compile(r"\d{1,5}/\d{1,5}", re.ASCII)
_CLERK_NUMBER = re.compile(r"\d{8,16}", re.ASCII)
_NO_OWNER = re.compile(r"owner of record|\[.*\]$", re.IGNORECASE)
_NOTE = re.compile(r"Do not use for legal documents!?|Site Address maintained by.*", re.IGNORECASE)


def _parcel(piece: Piece) -> tuple[str, str | None] | None:
    match = _PARCEL.search(piece.text)
    return (match[1], match[2]) if match else None


def _lines(piece: Piece) -> list[str] | None:
    return piece.lines or None


def _owner_lines(piece: Piece) -> list[str] | None:
    """Without the title, links, and the text after the address."""
    lines = [line for line in piece.lines if not _NO_OWNER.match(line)]
    places = [number for number, line in enumerate(lines, 1) if values.city_state_zip(line) is not None]
    if lines and _NUMBERED_STREET.match(lines[0]):
        return None  # the panel of the site address
    return lines[: places[0]] if places else lines or None


def _words(piece: Piece) -> str | None:
    return values.text_or_none(_NOTE.sub("", piece.text))


def _ownership(piece: Piece) -> str | None:
    """`Owner Of Record - Sole Owner`, before links."""
    title = _OWNERSHIP.fullmatch(piece.text)
    return title[1] if title else None


def _current_as_of(piece: Piece) -> str | None:
    title = _CURRENT_AS_OF.fullmatch(piece.text)
    return values.iso_date(title[1]) if title else None


def _district(piece: Piece) -> str | None:
    """`CITY OF MARIGOLD / 057`."""
    return piece.text if _DISTRICT.fullmatch(piece.text) else None


def _after(title: str) -> XPath:
    """The block after one that begins with these words."""
    return XPath(f".//div[starts-with({IN_ONE_LINE}, '{title}')]/following-sibling::*[1][self::div and not(@id)]")


class PanelIn(Struct, frozen=True):
    """The text in the element with that id."""

    name: str
    type = "css"

    @property
    def expression(self) -> str:
        return f"#{self.name} .textPanel"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        frame = document.by_id(self.name)
        for element in frame.iter() if frame is not None else ():
            if "textPanel" in (element.get("class") or "").split() and is_in(element, within):
                title = next(element.itersiblings(preceding=True), None)
                if title is None or "owner" in text_of(title).lower():
                    yield Piece(element)


class Title(Struct, frozen=True):
    """Titles of sections that begin with these words."""

    start: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"title {self.start}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        titles = (Piece(element) for element, kinds in document.classed if "sectionSubTitle" in kinds.split())
        return (title for title in titles if title.text.startswith(self.start))


class TitleAbove(Struct, frozen=True):
    """The title before the table with this heading."""

    heading: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"above {self.heading}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for element in document.labelled(self.heading):
            table = next(element.iterancestors("table"), None)
            title = table.getprevious() if table is not None else None
            if title is not None and is_in(title, within):
                yield Piece(title)


class Under(Struct, frozen=True):
    """The text between a heading and the next one."""

    title: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"under {self.title}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        heading: Element | None = None
        for element, kinds in document.classed:
            if "sectionSubTitle" in kinds.split():
                heading = element if self.title in text_of(element) else None
            elif heading is not None and "textPanel" in kinds.split() and not is_in(element, heading):
                is_beside = element.getparent() is heading.getparent()
                heading = None
                if is_beside and is_in(element, within):
                    yield Piece(element)


PARCEL = Field(
    "parcel_id", (Id("parcelLabel"), Css(".sectionTitleSmaller"), XPath(".//*[contains(text(), 'STRAP')]")), _parcel
)
OWNER = Field(
    "owner_names",
    (PanelIn("divDisplayParcelOwner"), Under("Owner Of Record"), _after("Owner Of Record")),
    _owner_lines,
)
_OF_OWNER = f"div[starts-with({IN_ONE_LINE}, 'Owner Of Record')]"
_INNERMOST_TITLE = XPath(f".//{_OF_OWNER}[not(.//{_OF_OWNER})]")
OWNERSHIP = Field("ownership_type", (Title("Owner Of Record"), _INNERMOST_TITLE), _ownership)
UPDATED = Field("data_date", (Beginning("Property Details (Current as of"),), _current_as_of)
DISTRICT = Field("tax_district", (TitleAbove("Name / Code"),), _district)
SITE = Field("situs_address", (Under("Site Address"), _after("Site Address"), Label("Site Address")), _lines)
LEGAL = Field(
    "legal_description",
    (Under("Property Description"), Under("Legal Description"), _after("Property Description")),
    _words,
)

_LAND = Columns(
    {
        "code": ("Use Code",),
        "desc": ("Use Code Description",),
        "units": ("Number of Units",),
        "measure": ("Unit of Measure",),
    }
)
_VALUES = Columns(
    {
        "year": ("Tax Year",),
        "market_value": ("Just",),
        "land_value": ("Land",),
        "assessed_value": ("Capped Assessed",),
        "exemption_value": ("Exemptions",),
        "taxable_value": ("Taxable",),
    }
)
_AMOUNTS = {name: values.money for name in _VALUES.headings if name != "year"} | {"year": _YEAR.fullmatch}
_SALES = Columns(
    {
        "price": ("Sale Price",),
        "date": ("Date",),
        "document": ("Clerk File Number",),
        "reason_code": ("Type",),
        "multi_parcel": ("Notes",),
        "vacant_improved": ("Vacant/ Improved", "Vacant / Improved", "Vacant/Improved"),
    },
    *("price", "document"),
)
LAND = section("land", _LAND, Headed(_LAND), kinds={"units": values.number})
GRID = section("valuations", _VALUES, Id("valueGrid"), Headed(_VALUES), kinds=_AMOUNTS)
SALES = section("sales", _SALES, Id("SalesDetails"), Headed(_SALES), kinds=SALE_KINDS)
_PERMITS = Columns({"number": ("Permit Number",), "type": ("Permit Type",), "date": ("Date",)}, "number")
PERMITS = section("permits", _PERMITS, Headed(_PERMITS))
YEAR_BUILT = Label("Year Built")


def read(reader: PageReader) -> ReadResult:
    document, extractor = reader.document, reader.extractor
    parcel = extractor.parcel(PARCEL)
    if parcel is None:
        return _no_record(document)
    lines = extractor.value(OWNER)
    columns = list(_valuations(extractor))
    if (why := reader.problems.unreadable.get("valuations")) is not None:
        reader.problems.note(VALUES, why)
    if lines is None or not columns:
        return Retry("the page is incomplete: its owner or its values are missing")
    names, mailing, place = owners_and_mailing([line.rstrip("+ ") for line in lines], at_least=_names(lines))
    record = Record(
        parcel_id=parcel[0],
        tax_account=parcel[1],
        data_date=extractor.value(UPDATED),
        owner_names=names,
        ownership_type=extractor.value(OWNERSHIP),
        owner_lines=lines,
        legal_description=extractor.value(LEGAL),
        tax_district=extractor.value(DISTRICT),
        valuations=columns,
        sales=list(_sales(extractor)),
    )
    take_mailing(record, mailing, place)
    _take_site(record, extractor.value(SITE) or [])
    _take_location(record, document, reader.problems)
    _take_land(record, extractor)
    _take_buildings(record, extractor)
    take_values(record)
    _take_exemptions(record, document)
    take_last_sale(record)
    record.permit_count = extractor.count(PERMITS)
    return record


def _no_record(document: Document) -> ReadResult:
    if says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: its STRAP is missing")


def _take_exemptions(record: Record, document: Document) -> None:
    """The page says whether there are none; how it lists them is not known."""
    if document.labelled(_NO_EXEMPTIONS):
        record.exemptions, record.homestead = [], False


def _names(lines: list[str]) -> int:
    """How many lines are certainly names: a plus means that another one follows."""
    return max((number + 2 for number, line in enumerate(lines) if line.rstrip().endswith("+")), default=1)


def _take_site(record: Record, lines: list[str]) -> None:
    _, street, place = owners_and_mailing([line for line in lines if _words(Piece(None, line))], names=0)
    record.situs_address = values.text_or_none(" ".join(street))
    if place is not None:
        record.situs_city, record.situs_zip = place.city, place.zip


def _take_location(record: Record, document: Document, problems: Problems) -> None:
    for heading, field, convert in _LOCATION:
        found = {convert(piece.text) for piece in tables.below(document, heading)} - {None}
        if len(found) > 1:
            problems.note(field, f"the page has several values below {heading}")
        elif found:
            setattr(record, field, found.pop())


def _part(text: str) -> str | None:
    return text if _PART.fullmatch(text) else None


def _north(text: str) -> Decimal | None:
    degrees = values.number(text)
    return degrees if degrees is not None and 0 < degrees <= 90 else None


def _east(text: str) -> Decimal | None:
    degrees = values.number(text)
    return degrees if degrees is not None and -180 <= degrees < 0 else None


_LOCATION: tuple[tuple[str, str, Callable[[str], object | None]], ...] = (
    *(("Block", "block", _part), ("Lot", "lot", _part)),
    *(("Latitude", "latitude", _north), ("Longitude", "longitude", _east)),
)


def _first(values_: Iterable[T | None]) -> T | None:
    return next((value for value in values_ if value is not None), None)


def _take_land(record: Record, extractor: Extractor) -> None:
    """The use is that of the first tract; the area is known if all tracts are measured in acres."""
    rows = extractor.rows(LAND) or []
    for row in rows[:1]:
        record.land_use_code, record.land_use_desc = (
            values.text_or_none(tables.text(row, "code")),
            values.text_or_none(tables.text(row, "desc")),
        )
    acres = [
        values.number(tables.text(row, "units")) if tables.text(row, "measure").lower().startswith("acre") else None
        for row in rows
    ]
    known = [area for area in acres if area is not None]
    record.land_area_acres = sum(known, Decimal(0)) if known and len(known) == len(acres) else None


def _take_buildings(record: Record, extractor: Extractor) -> None:
    """Each building has a row of headings with its year below; without buildings the page says N/A."""
    document, roll = extractor.document, _roll_section(extractor.document)
    years = [values.year(piece.text) for piece in _current(document, YEAR_BUILT.expression, roll)]
    extractor.selector_results.note("buildings", YEAR_BUILT, bool(years))
    shown = [year for year in years if year]
    record.buildings = [Building(year_built=year) for year in shown]
    record.year_built = (
        shown[0]
        if shown
        else _first(values.year(piece.text) for piece in Label("1st Year Building on Tax Roll").find(document, None))
    )
    record.building_count = len(shown) or None
    record.building_area_sqft = _living_area(document, roll)
    rooms = _first(_rooms(piece.text) for piece in Label("Total Bedrooms / Bathrooms").find(document, None))
    record.bedrooms, record.bathrooms = rooms or (None, None)


def _current(document: Document, heading: str, roll: Element | None) -> list[Piece]:
    """The cells below that heading, except those of the last roll."""
    pieces = tables.below(document, heading)
    return [piece for piece in pieces if roll is None or piece.element is None or not is_in(piece.element, roll)]


def _roll_section(document: Document) -> Element | None:
    """The section with the details of the last roll, inside that of the current details."""
    if not any(text.startswith(_CURRENT_TITLE) for text in document.labels()):
        return None
    if (named := document.by_id("PropertyDetails")) is not None:
        return named
    titles = [e for text in document.labels() if _ROLL_TITLE.fullmatch(text) for e in document.labelled(text)]
    above = [e for title in titles[:1] for e in title.iterancestors("div")]
    return above[1] if len(above) > 1 else None


def _rooms(text: str) -> tuple[Decimal, Decimal] | None:
    """`3 / 2.0`; a single 0 means none."""
    bedrooms, _, bathrooms = text.partition("/")
    rooms = values.number(bedrooms), values.number(bathrooms)
    return (rooms[0], rooms[1]) if rooms[0] is not None and rooms[1] is not None else None


def _living_area(document: Document, roll: Element | None) -> Decimal | None:
    for name in ("Gross Living Area", "Total Living Area", "Living Area"):
        for piece in Label(name).find(document, None):
            if (area := values.leading_number(piece.text)) is not None:
                return area or None
    areas = [values.leading_number(piece.text) for piece in _current(document, "Heated Area", roll)]
    known = [area for area in areas if area is not None]
    return sum(known, Decimal(0)) if known else None


def _valuations(extractor: Extractor) -> Iterator[Valuation]:
    rows = extractor.rows(GRID) or ()
    for row in rows:
        match = _YEAR.fullmatch(tables.text(row, "year"))
        if not match or values.year(match[1]) is None:
            if tables.is_row_of_values(row):
                extractor.problems.note("valuations", "a row has no year")
            continue
        yield Valuation(
            year=int(match[1]),
            status=values.roll_status(match[2] or ""),
            land_value=values.money(tables.text(row, "land_value")),
            market_value=values.money(tables.text(row, "market_value")),
            assessed_value=values.money(tables.text(row, "assessed_value")),
            exemption_value=values.money(tables.text(row, "exemption_value")),
            taxable_value=values.money(tables.text(row, "taxable_value")),
        )


def _sales(extractor: Extractor) -> Iterator[Sale]:
    """A document has a book and page or, since 2005, a clerk's number; other text in that cell is a remark."""
    rows = extractor.rows(SALES) or ()
    dated = [row for row in rows if values.iso_date(tables.text(row, "date"))]
    for row, sale in zip(dated, read_sales(rows, extractor.problems), strict=True):
        for word in tables.text(row, "document").split():
            if _BOOK_PAGE.fullmatch(word):
                sale.book_page = sale.book_page or word
            elif _CLERK_NUMBER.fullmatch(word):
                sale.clerk_number = sale.clerk_number or word
        yield sale


PAGE_SECTIONS = (
    PageSection("values", (Id("PropertyValueHistory"), Id("valueGrid"), Headed(_VALUES))),
    PageSection("land", (Id("PropertyDetailsCurrent"), Says("Land Tracts"))),
    PageSection("sales", (Id("SalesDetails"), Headed(_SALES))),
    page_end("new query", "alternate address"),
)
PLATFORM = CountyPlatform(name="leepa", version=8, read=read, sections=PAGE_SECTIONS)
