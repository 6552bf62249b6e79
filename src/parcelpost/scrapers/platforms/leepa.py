"""`leepa`: the property appraiser of Lee County, Florida."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TypeVar

from msgspec import Struct

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.addresses import country_of, owners_and_mailing
from parcelpost.scrapers.html.document import Document, Element, Piece, is_in, says_no_parcel, text_of
from parcelpost.scrapers.html.extract import Extractor, Field, section
from parcelpost.scrapers.html.selectors import IN_ONE_LINE, Css, Id, Label, XPath
from parcelpost.scrapers.html.tables import Columns, Headed, read_sales
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import Building, Record, Valuation, take_last_sale, take_values

T = TypeVar("T")

_PARCEL = re.compile(r"STRAP:?\s*([0-9A-Z.-]{10,40})(?:\s+Folio ID:?\s*(\d{4,12}))?", re.IGNORECASE)
_YEAR = re.compile(r"(\d{4})\s*(?:\((.*?)\))?", re.ASCII)
_ROLL_TITLE = re.compile(r"property details \(\d{4} tax roll\)", re.ASCII)
_CURRENT_TITLE = "property details (current"
_NO_OWNER = re.compile(r"owner of record|\[.*\]$", re.IGNORECASE)
_NOTE = re.compile(r"Do not use for legal documents!?|Site Address maintained by.*", re.IGNORECASE)


def _parcel(piece: Piece) -> tuple[str, str | None] | None:
    found = _PARCEL.search(piece.text)
    return (found[1], found[2]) if found else None


def _lines(piece: Piece) -> list[str] | None:
    return piece.lines or None


def _owner_lines(piece: Piece) -> list[str] | None:
    """Without the title, links, and the text after the address."""
    lines = [line for line in piece.lines if not _NO_OWNER.match(line)]
    places = [number for number, line in enumerate(lines, 1) if values.city_state_zip(line) is not None]
    return lines[: places[0]] if places else lines or None


def _words(piece: Piece) -> str | None:
    return values.text_or_none(_NOTE.sub("", piece.text))


def _after(title: str) -> XPath:
    """The block after one that begins with these words."""
    return XPath(f".//div[starts-with({IN_ONE_LINE}, '{title}')]/following-sibling::div[1]")


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
                yield Piece(element)


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
                heading = None
                if is_in(element, within):
                    yield Piece(element)


PARCEL = Field(
    "parcel_id", (Id("parcelLabel"), Css(".sectionTitleSmaller"), XPath(".//*[contains(text(), 'STRAP')]")), _parcel
)
OWNER = Field(
    "owner_names",
    (PanelIn("divDisplayParcelOwner"), Under("Owner Of Record"), _after("Owner Of Record")),
    _owner_lines,
)
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
_SALES = Columns(
    {
        "price": ("Sale Price",),
        "date": ("Date",),
        "instrument": ("Clerk File Number",),
        "qualified": ("Type",),
        "vacant_improved": ("Vacant/ Improved", "Vacant / Improved", "Vacant/Improved"),
    },
    *("price", "instrument"),
)
LAND = section("land", _LAND, Headed(_LAND))
VALUES = section("valuations", _VALUES, Id("valueGrid"), Headed(_VALUES))
SALES = section("sales", _SALES, Id("SalesDetails"), Headed(_SALES))
YEAR_BUILT = Label("Year Built")


def read(reader: PageReader) -> ReadResult:
    document, extractor = reader.document, reader.extractor
    parcel = extractor.value(PARCEL)
    if parcel is None:
        return _no_record(document)
    lines = extractor.value(OWNER)
    columns = list(_valuations(extractor))
    if lines is None or not columns:
        return Retry("the page is incomplete: its owner or its values are missing")
    names, mailing, place = owners_and_mailing([line.rstrip("+ ") for line in lines], at_least=_names(lines))
    record = Record(
        parcel_id=parcel[0],
        tax_account=parcel[1],
        owner_names=names,
        mailing_lines=mailing,
        mailing_city=place.city if place else None,
        mailing_state=place.state if place else None,
        mailing_zip=place.zip if place else None,
        mailing_country=country_of(mailing),
        legal_description=extractor.value(LEGAL),
        valuations=columns,
        sales=list(read_sales(extractor.rows(SALES) or ())),
    )
    _take_site(record, extractor.value(SITE) or [])
    _take_location(record, document)
    _take_land(record, extractor)
    _take_buildings(record, extractor)
    take_values(record)
    take_last_sale(record)
    return record


def _no_record(document: Document) -> ReadResult:
    if says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: its STRAP is missing")


def _names(lines: list[str]) -> int:
    """How many lines are certainly names: a plus means that another one follows."""
    return max((number + 2 for number, line in enumerate(lines) if line.rstrip().endswith("+")), default=1)


def _take_site(record: Record, lines: list[str]) -> None:
    _, street, place = owners_and_mailing([line for line in lines if _words(Piece(None, line))], names=0)
    record.situs_address = values.text_or_none(" ".join(street))
    if place is not None:
        record.situs_city, record.situs_zip = place.city, place.zip


def _take_location(record: Record, document: Document) -> None:
    north = (values.number(piece.text) for piece in tables.below(document, "Latitude"))
    east = (values.number(piece.text) for piece in tables.below(document, "Longitude"))
    record.latitude = _first(one if one is not None and 0 < one <= 90 else None for one in north)
    record.longitude = _first(one if one is not None and -180 <= one < 0 else None for one in east)


def _first(found: Iterable[T | None]) -> T | None:
    return next((one for one in found if one is not None), None)


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
    known = [one for one in acres if one is not None]
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
    found = tables.below(document, heading)
    return [one for one in found if roll is None or one.element is None or not is_in(one.element, roll)]


def _roll_section(document: Document) -> Element | None:
    """The section with the details of the last roll, inside that of the current details."""
    if not any(text.startswith(_CURRENT_TITLE) for text in document.labels()):
        return None
    if (named := document.by_id("PropertyDetails")) is not None:
        return named
    titles = [one for text in document.labels() if _ROLL_TITLE.fullmatch(text) for one in document.labelled(text)]
    above = [one for title in titles[:1] for one in title.iterancestors("div")]
    return above[1] if len(above) > 1 else None


def _rooms(text: str) -> tuple[Decimal, Decimal] | None:
    """`3 / 2.0`; a single 0 means none."""
    bedrooms, _, bathrooms = text.partition("/")
    found = values.number(bedrooms), values.number(bathrooms)
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _living_area(document: Document, roll: Element | None) -> Decimal | None:
    for name in ("Gross Living Area", "Total Living Area", "Living Area"):
        for piece in Label(name).find(document, None):
            if (area := values.leading_number(piece.text)) is not None:
                return area or None
    areas = [values.leading_number(piece.text) for piece in _current(document, "Heated Area", roll)]
    known = [area for area in areas if area is not None]
    return sum(known, Decimal(0)) if known else None


def _valuations(extractor: Extractor) -> Iterator[Valuation]:
    for row in extractor.rows(VALUES) or ():
        found = _YEAR.fullmatch(tables.text(row, "year"))
        if not found or values.year(found[1]) is None:
            continue
        yield Valuation(
            year=int(found[1]),
            status=_status(found[2] or ""),
            land_value=values.money(tables.text(row, "land_value")),
            market_value=values.money(tables.text(row, "market_value")),
            assessed_value=values.money(tables.text(row, "assessed_value")),
            exemption_value=values.money(tables.text(row, "exemption_value")),
            taxable_value=values.money(tables.text(row, "taxable_value")),
        )


def _status(words: str) -> str:
    lower = words.lower()
    return "preliminary" if "proposed" in lower or "preliminary" in lower or "trim" in lower else "certified"


PLATFORM = CountyPlatform(name="leepa", version=4, read=read)
