"""`collier_pa`: the property appraiser of Collier County, Florida."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import takewhile
from typing import Any

from lxml import etree
from msgspec import Struct

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.addresses import owners_and_mailing
from parcelpost.scrapers.html.document import Document, Element, Piece, label, says_no_parcel, text_of
from parcelpost.scrapers.html.extract import Extractor, Field, section
from parcelpost.scrapers.html.selectors import IN_ONE_LINE, Id, Label, Says, XPath
from parcelpost.scrapers.html.tables import Below, Columns, Headed, Numbered, Row
from parcelpost.scrapers.platform import CountyPlatform, PageReader, PageSection, ReadResult, page_end
from parcelpost.scrapers.records.problems import VALUES
from parcelpost.scrapers.records.record import Building, Record, Sale, Valuation, take_last_sale, take_values

_ROLL = re.compile(r"(\d{4})\b(.*)", re.ASCII)
_AMOUNT = re.compile(r"(?<![(\d-])\$[\d,]+(?:\.\d+)?(?![\w)]|[.,]\d|\s?[KMB]\b)", re.ASCII)
_TEXT = etree.XPath("string()")
_NOT_ZERO = re.compile(r"[1-9]", re.ASCII)
_MOST_YEARS = 20
_HISTORY = {
    "land_value": "LandJustValue",
    "building_value": "ImprovementsJustValue",
    "market_value": "TotalJustValue",
    "assessed_value": "CountyAssessedValue",
    "taxable_value": "CountyTaxableValue",
    "taxable_value_school": "SchoolTaxableValue",
    "tax_amount": "TotalTaxes",
}


def amount(piece: Piece) -> Decimal | None:
    """The only amount in the text; other text is ignored."""
    if (whole := values.money(piece.text)) is not None:
        return whole
    amounts = _AMOUNT.findall(piece.text)
    return values.money(amounts[0]) if amounts and piece.text.count("$") == 1 else None


def _roll(piece: Piece) -> tuple[int, str] | None:
    match = _ROLL.match(values.clean(piece.text))
    if not match or values.year(match[1]) is None:
        return None
    return int(match[1]), values.roll_status(match[2])


def _row(name: str, words: str) -> tuple[Id, Id, XPath]:
    """An amount by its own id, else the last cell of the row with that id or label.

    A row with several amounts covers several years or authorities.
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
_CAPS = ("SohBenefit", "NonSchool10PctBenefit")
"""Save Our Homes, and the limit of 10 % for others."""
MILLAGE = Field("millage_rate", (Id("TdDetailTotalMillage"),), lambda piece: values.millage(piece.text))
TAX = Field("tax_amount", _row("TotalTaxes", "(=) Total Tax"), amount)


def valuation(
    extractor: Extractor, document: Document, year: int, status: str, tax_amount: Decimal | None
) -> Valuation:
    exemptions, exemption_value = _exempt(document)
    assessed, taxable = extractor.value(ASSESSED), extractor.value(TAXABLE)
    parts = exemption_value, taxable
    if assessed is not None and sum(part for part in parts if part is not None) != assessed and None not in parts:
        extractor.problems.note("exemptions", "they are not the difference of the assessed and the taxable value")
        exemptions = exemption_value = None
    return Valuation(
        year=year,
        status=status,
        land_value=extractor.value(LAND),
        building_value=extractor.value(BUILDING),
        market_value=extractor.value(JUST),
        assessment_cap_value=_sum(_money(document.by_id(name)) for name in _CAPS),
        assessed_value=assessed,
        exemptions=exemptions,
        exemption_value=exemption_value,
        taxable_value=taxable,
        taxable_value_school=extractor.value(SCHOOL),
        tax_amount=tax_amount,
    )


def history(extractor: Extractor) -> Iterator[Valuation]:
    """One per year, by numbered ids; cells without ids are assigned by position."""
    document = extractor.document
    extractor.selector_results.note("valuations", FIRST_YEAR, document.by_id(FIRST_YEAR.name) is not None)
    headings = [document.by_id(f"HistoryTaxYear{number}") for number in range(1, _MOST_YEARS)]
    years = sum(1 for heading in headings if heading is not None)
    exemptions = _history_exemptions(document)
    shown = sum(1 for number in range(1, _MOST_YEARS) if document.by_id(f"HistoryTotalJustValue{number}") is not None)
    if shown > years or None in headings[:years]:
        extractor.problems.note("valuations", "a year has no heading of its own")
    for column, heading in enumerate(headings, 1):
        if heading is None:
            return
        roll = _roll(Piece(heading))
        if roll is None:
            if text_of(heading):
                extractor.problems.note("valuations", "the heading of a year cannot be read")
            continue
        of_column = partial(_of_column, document, column, years)
        amounts: dict[str, Any] = {field: of_column(name) for field, name in _HISTORY.items()}
        exempt = [(title, of_column(name)) for title, name in exemptions or ()]
        exempted = _sum(amount for _, amount in exempt)
        assessed, taxable = amounts["assessed_value"], amounts["taxable_value"]
        is_readable = exemptions is not None and exempted is not None
        if (assessed or 0) - (taxable or 0) > (exempted or 0) + 1:
            is_readable = False  # the row of an exemption is missing
        yield Valuation(
            year=roll[0],
            status=roll[1],
            assessment_cap_value=_sum(of_column(name) for name in _CAPS),
            exemptions=_names(title for title, amount in exempt if amount) if is_readable else None,
            **amounts,
        )


def _history_exemptions(document: Document) -> list[tuple[str, str]] | None:
    """The names of exemptions with an amount in some year, and the ids of their rows without `TrHistory`.

    Returns None if none is listed, not even without an amount.
    """
    first = document.by_id("TrHistoryHmstdExemptAmount")
    table = first.getparent() if first is not None else None
    if table is None:
        return None
    named = [(row, (row.get("id") or "").removeprefix("TrHistory")) for row in table.iterchildren("tr")]
    if not named:
        return None
    rows = [(row, name) for row, name in named if name.endswith("ExemptAmount")]
    if any(text_of(row).startswith("(-)") and "exempt" in text_of(row).lower() for row, name in named if not name):
        return None  # the row of an exemption has no id
    listed = [(_exemption_name(row), name) for row, name in rows if _NOT_ZERO.search(_behind_name(row))]
    return listed if all(map(_is_exemption, (title for title, _ in listed))) else None


def _is_exemption(title: str) -> bool:
    return "$" not in title and any(map(str.isalpha, title))


def _behind_name(row: Element) -> str:
    return " ".join(str(_TEXT(cell)) for cell in list(row)[1:])


def _of_column(document: Document, column: int, years: int, name: str) -> Decimal | None:
    cell = document.by_id(f"History{name}{column}")
    if cell is None:
        row = document.by_id(f"TrHistory{name}")
        shown = [td for td in row.iterchildren("td") if "$" in text_of(td)] if row is not None else []
        cell = shown[column - 1] if len(shown) == years else None
    return _money(cell)


def _money(cell: Element | None) -> Decimal | None:
    return values.money(text_of(cell)) if cell is not None else None


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """None if one of them is not known."""
    known = list(amounts)
    return sum((amount for amount in known if amount is not None), Decimal(0)) if None not in known else None


def homestead(document: Document) -> bool | None:
    """Whether there is a homestead exemption."""
    exempt = _money(document.by_id("HmstdExemptAmount"))
    return exempt > 0 if exempt is not None else None


def _exemption_name(row: Element) -> str:
    return text_of(next(row.iter("td", "th"), row)).removeprefix("(-)").strip()


def _names(names: Iterable[str]) -> list[str]:
    """Each once: an exemption has a row for each group of authorities that it applies to."""
    return list(dict.fromkeys(filter(None, names)))


def _exempt(document: Document) -> tuple[list[str] | None, Decimal | None]:
    """The names of all exemptions with an amount, and the amount of those that apply to the county."""
    rows = _exempt_rows(document)
    names, amounts, is_readable = [], [], True
    for row in rows:
        cells = [text_of(cell) for cell in row.iter("td", "th")]
        applies = cells[1].lower() if len(cells) > 2 else ""
        exempt = values.money(cells[-1]) if cells else None
        has_amount = len(cells) > 2  # otherwise it is an exemption of other property
        is_readable = is_readable and (exempt is not None or not has_amount) and _is_exemption(_exemption_name(row))
        if exempt:
            names.append(_exemption_name(row))
        if exempt is not None and not applies.startswith(("school", "municipal", "other")):
            amounts.append(exempt)
    return _names(names) if rows and is_readable else None, sum(amounts, Decimal(0)) if amounts else None


def _exempt_rows(document: Document) -> list[Element]:
    """The rows by id, else those below the exemptions heading."""
    table = document.by_id("PropertyTaxTable")
    named = [] if table is None else [row for row in table.iter("tr") if (row.get("id") or "").endswith("ExemptAmount")]
    if named:
        return named
    headings = (element for element in document.labelled("Exemptions") if element.tag == "td")
    row = next((element.getparent() for element in headings), None)
    following = row.itersiblings("tr") if row is not None else iter(())
    return list(takewhile(lambda element: text_of(element).startswith("(-)"), following))


_COLUMNS = Columns(
    {
        "year": ("Year Built",),
        "desc": ("Description",),
        "area": ("Area",),
        "adjusted": ("Adj Area", "Adj. Area"),
    },
    *("area", "adjusted"),
)
_IDS = {"desc": "BLDGCLASS", "year": "YRBUILT", "area": "BASEAREA", "adjusted": "TYADJAREA"}
_KINDS = {"year": values.whole_number, "area": values.number, "adjusted": values.number}
BUILDINGS = section("buildings", _COLUMNS, Numbered(_IDS), Headed(_COLUMNS), kinds=_KINDS)
_NO_BUILDING = re.compile(
    r"\b(POOL|SPA|DECK\w*|PATIO|SCREEN\w*|ENCLOSURE|FENC\w*|WALLS?|SEAWALL|DOCK\w*|BOAT\w*|LIFT|DRIVE\w*|PAV\w*|ASPHALT|"
    r"CONCRETE|BRICK|TILE|FOUNTAIN|LIGHT\w*|TENNIS|COURT|SHED|CARPORT|CANOPY|GAZEBO|CHICKEE|TIKI|SIGN\w*|GATE\w*|"
    r"PUMP\w*|TANK\w*|ELEVATOR|GENERATOR|KITCHEN|FIREPLACE|BAR|BARBECUE|SIDEWALK|WALK\w*|CURB\w*|BRIDGE|TERRACE|"
    r"UTILITY|TRELLIS|PERGOLA|SPRINKLER\w*|GOLF|HEATER|PIER|POND|BULKHEAD|RIP\s?RAP)\b"
)
_BUILDING = re.compile(
    r"\b(RESIDEN\w*|FAMILY|CONDO\w*|HOUSE|HOME|DUPLEX|TRIPLEX|FOURPLEX|QUADRUPLEX|TOWN\s?HOU\w*|VILLA|APARTMENT\w*|"
    r"COOPERATIVE|OFFICE\w*|STORE\w*|RETAIL|WAREHOUSE\w*|HOTEL|MOTEL|RESTAURANT\w*|CHURCH\w*|SCHOOL\w*|BANK\w*|CLUB\w*|"
    r"HOSPITAL|SHOPPING|MEDICAL|INDUSTRIAL|MANUFACTUR\w*|COMMERCIAL|GARAGE|BUILDING|BLDG)\b"
)


def take_buildings(record: Record, extractor: Extractor) -> None:
    """Only rows that describe a building are counted and measured."""
    record.buildings = [building for row in extractor.rows(BUILDINGS) or () if (building := _building(row)) is not None]
    areas = [building.base_sqft for building in record.buildings if building.base_sqft]
    record.building_count = len(record.buildings) or None
    record.building_area_sqft = sum(areas, Decimal(0)) if areas else None
    record.year_built = next((building.year_built for building in record.buildings if building.year_built), None)


def _building(row: Row) -> Building | None:
    desc = values.text_or_none(tables.text(row, "desc"))
    upper = (desc or "").upper()
    if _NO_BUILDING.search(upper) or not _BUILDING.search(upper):
        return None
    return Building(
        desc=desc,
        year_built=values.year(tables.text(row, "year")),
        base_sqft=values.number(tables.text(row, "area")),
        actual_sqft=values.number(tables.text(row, "adjusted")),
    )


_PERMITS = Columns({"number": ("Permit #",), "year": ("Tax Yr",), "issuer": ("Issuer",)}, "number")
PERMITS = section("permits", _PERMITS, Headed(_PERMITS))
_CODED = re.compile(r"([0-9A-Z]{1,8})\s*-\s*(.+)", re.ASCII)
_SITE = re.compile(r"(.*),\s*([^,\d]+?)\s+(\d{5}(?:-\d{4})?)", re.ASCII)
_OWNER_LINES = 5
_SECTION = ("Section", "Township", "Range")
_STATE = re.compile(r"[A-Z]{2}", re.ASCII)
_SALES = Columns({"date": ("Date",), "book_page": ("Book-Page",), "price": ("Amount",)}, "book_page")
SALES = section(
    "sales",
    _SALES,
    Numbered({"date": "SaleDate", "price": "SaleAmount", "book_page": "TrSale"}),  # only its row has an id
    Headed(_SALES),
    kinds={"date": values.written_date, "price": lambda text: amount(Piece(None, text))},
)


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


def _line(piece: Piece) -> str | None:
    return piece.text or None


def _acres(piece: Piece) -> Decimal | None:
    return values.acres(piece.text)


def _state(piece: Piece) -> str | None:
    text = values.clean(piece.text)
    return text if _STATE.fullmatch(text) else None


def _parcel(piece: Piece) -> str | None:
    text = values.clean(piece.text)
    return text if len(text) >= 6 and text.replace("-", "").isalnum() and any(sign.isdigit() for sign in text) else None


def _coded(piece: Piece) -> tuple[str, str] | None:
    match = _CODED.fullmatch(values.clean(piece.text))
    return (match[1], match[2]) if match else None


class OwnerLines(Struct, frozen=True):
    """Names and street, one line per numbered element; the rest has its own labels."""

    type = "css"
    expression = "#OwnerLine1"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        lines = [document.by_id(f"OwnerLine{number}") for number in range(1, _OWNER_LINES + 1)]
        if lines[0] is None:
            return iter(())  # the next line may be the street
        return (Piece(line) for line in lines if line is not None)


class BelowName(Struct, frozen=True):
    """The same, in the rows below that label."""

    type = "label"
    expression = "Name / Address"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for name in document.labelled(self.expression):
            first = next(name.iterancestors("tr"), None)
            for row in (first, *first.itersiblings("tr")) if first is not None else ():
                cells = list(row.iterchildren("td"))
                if len(cells) < 2 or (row is not first and text_of(cells[0])):
                    return
                yield Piece(cells[1])


OWNER = Field("owner_names", (OwnerLines(), BelowName()), _line)
PARCEL = Field("parcel_id", (Id("ParcelID"), Label("Parcel ID")), _parcel)
SITE = Field("situs_address", (Id("FullAddressUnit"), Label("Site Location"), Label("Site Address")), _words)
LEGAL = Field("legal_description", (Id("Legal"), Label("Legal")), _words)
SUBDIVISION = Field("subdivision", (Id("SCDescription"), Label("Sub./Condo")), _coded)
USE = Field("land_use_code", (Id("UCDescription"), Label("Use Code")), _coded)
ACRES = Field(
    "land_area_acres",
    (
        Id("TotalAcres"),
        XPath(f".//tr[td[starts-with({IN_ONE_LINE}, 'Acres')]]/following-sibling::tr[1]/td[last()]"),
    ),
    _acres,
)
STRAP = Field("alternate_id", (Id("StrapNumber"), Below("Strap No.")), _words)
MAP = Field("map_block_lot", (Id("MapNumber"), Below("Map No.")), _words)
DISTRICT = Field("tax_district", (Id("MillageArea"), Label("Millage Area")), _words)
CITY = Field("mailing_city", (Id("OwnerCity"), Label("City")), _words)
STATE = Field("mailing_state", (Id("OwnerState"), Label("State")), _state)
ZIP = Field("mailing_zip", (Id("OwnerZip"), Label("Zip")), _words)


def read(reader: PageReader) -> ReadResult:
    document, extractor = reader.document, reader.extractor
    parcel_id = extractor.parcel(PARCEL)
    if parcel_id is None:
        return _no_record(document)
    names = list(extractor.values(OWNER))
    roll = extractor.value(ROLL)
    titled = document.by_id("RollType")
    if titled is not None and text_of(titled) and _roll(Piece(titled)) is None:
        extractor.problems.note(VALUES, "the year of the values cannot be read")
    if not names or roll is None:
        return Retry("the page is incomplete: its owner or its values are missing")
    use, subdivision = extractor.value(USE) or (None, None), extractor.value(SUBDIVISION) or (None, None)
    tax = extractor.value(TAX)
    record = Record(
        parcel_id=parcel_id,
        alternate_id=extractor.value(STRAP),
        map_block_lot=extractor.value(MAP),
        sec_twp_rng=_section(document),
        legal_description=extractor.value(LEGAL),
        land_area_acres=extractor.value(ACRES),
        land_use_code=use[0],
        land_use_desc=use[1],
        subdivision=subdivision[1],
        mailing_city=extractor.value(CITY),
        mailing_state=extractor.value(STATE),
        mailing_zip=extractor.value(ZIP),
        homestead=homestead(document),
        tax_district=extractor.value(DISTRICT),
        millage_rate=extractor.value(MILLAGE),
        tax_year=roll[0],
        tax_amount=tax,
        tax_status="proposed" if roll[1] == "preliminary" else "billed",
        valuations=[valuation(extractor, document, *roll, tax)],
        sales=list(_sales(extractor, roll[0])),
    )
    _take_owner(record, document, names)
    _take_site(record, extractor.value(SITE))
    take_buildings(record, extractor)
    take_values(record)
    past = list(history(extractor))
    if not past:
        extractor.problems.note("valuations", "the values of earlier years are missing")
    record.valuations += [earlier for earlier in past if earlier.year != roll[0]]
    record.permit_count = extractor.count(PERMITS)
    take_last_sale(record)
    return record


def _take_owner(record: Record, document: Document, lines: list[str]) -> None:
    """For foreign addresses, the country is in the place of the city, under another label, and the city in a line."""
    named = document.by_id("CityCountry")
    if named is not None and label(text_of(named)) == "country":
        record.mailing_country, record.mailing_city = record.mailing_city, None
    record.owner_lines = lines
    record.owner_names, record.mailing_lines, place = owners_and_mailing(lines, country=record.mailing_country)
    if place is not None and record.mailing_city is None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip
        record.mailing_country = record.mailing_country or place.country


def _section(document: Document) -> str | None:
    """`16-49-25`, from three cells."""
    cells = [(Piece(document.by_id(name)), *tables.below(document, name)) for name in _SECTION]
    parts = [next((text for piece in pieces if (text := values.text_or_none(piece.text))), None) for pieces in cells]
    return "-".join(filter(None, parts)) if None not in parts else None


def _no_record(document: Document) -> ReadResult:
    if says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: its number is missing")


def _take_site(record: Record, site: str | None) -> None:
    match = _SITE.fullmatch(site or "")
    record.situs_address = values.text_or_none(match[1] if match else site)
    if match:
        record.situs_city, record.situs_zip = match[2], match[3]


def _sales(extractor: Extractor, roll: int) -> Iterator[Sale]:
    """Years have two digits, and are at most one year after the roll."""
    for row in extractor.rows(SALES) or ():
        sold = values.iso_date(tables.text(row, "date"), newest=date(roll + 1, 12, 31))
        if sold is None:
            if tables.is_row_of_values(row):
                extractor.problems.note("sales", "a row has no date")
        else:
            book_page = row["book_page"].element if "book_page" in row else None
            yield Sale(
                date=sold,
                price=amount(row["price"]) if "price" in row else None,
                book_page=_book_page(book_page) if book_page is not None else None,
            )


def _book_page(cell: Element) -> str | None:
    """The second cell of a row."""
    cells = list(cell.iter("td")) if cell.tag == "tr" else [cell, cell, cell]
    return values.text_or_none(text_of(cells[1])) if len(cells) == 3 else None


PAGE_SECTIONS = (
    PageSection("sales", (Id("SaleDate1"), Headed(_SALES), Says("Latest Sales History"))),
    page_end("collierappraiser"),
)
PLATFORM = CountyPlatform(name="collier_pa", version=8, read=read, sections=PAGE_SECTIONS)
