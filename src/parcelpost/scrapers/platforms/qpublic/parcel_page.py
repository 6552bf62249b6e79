"""`qpublic` and `beacon`: one engine, hundreds of counties. A page is a list of modules, each with a title."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import zip_longest

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, parcel_number, quote_part, require_county, required_id, target_url
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.addresses import (
    is_country,
    is_street,
    is_unit,
    is_whole_address,
    owners_and_mailing,
    take_mailing,
)
from parcelpost.scrapers.html.document import Document, Element, Piece, label, lines_of, says_no_parcel, text_of
from parcelpost.scrapers.html.extract import Field, section
from parcelpost.scrapers.html.selectors import Beginning, IdEnd, Label, Titled
from parcelpost.scrapers.html.tables import SALE_KINDS, Columns, read_sales
from parcelpost.scrapers.platform import (
    CountyPlatform,
    Fetcher,
    PageReader,
    PageSection,
    ReadResult,
    fetch_or_render,
    page_end,
)
from parcelpost.scrapers.platforms.qpublic.buildings import says_none, take_buildings
from parcelpost.scrapers.platforms.qpublic.tax_bills import bills, take_taxes
from parcelpost.scrapers.platforms.qpublic.valuations import valuations
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import Record, take_last_sale, take_values

_HEADINGS = frozenset(
    {
        "owner",
        "owners",
        "owner name",
        "owner information",
        "primary owner",
        "secondary owner",
        "other owner",
        "current owner",
        "name",
        "names",
        "deed holder",
        "contract holder",
        "contract buyer",
        "contract owner",
        "title holder",
        "taxpayer",
        "tax payer",
        "address",
        "owner address",
        "mailing address",
        "mailing name & address",
        "mail to",
    }
)
_MAIL_ONLY = frozenset({"mailing address", "mailing name & address", "mail to", "taxpayer", "tax payer"})
"""Headings of the mailing address; the owner is under another one."""
_SUB_HEADING = re.compile(
    r"(?:(?:current|primary|secondary|other|legal|joint|deed|contract|title|property|record|mailing|tax|fee|first|second)"
    r"[ -])?(?:co[ -]?)?(?:owners?|holders?|taxpayers?|buyers?|titleholders?)"
    r"(?: of record| names?| information| address)?(?: ?#?\d)?"
)
_OF_OTHERS = re.compile(
    r"(?=.*\b(?:previous|prior|former|past|agent|lessee|lessor|tenant|landlord|occupant|mortgagee?|lender|servicer|escrow"
    r"|lien ?holder|applicant|manager|management|contact|beneficiary|interested|billing|grantor|grantee|seller)s?\b)"
    r"(?:(?:previous|prior|former|past|registered|property|managing|mortgagee?|lien|loan|tax|mailing|billing|escrow"
    r"|interested|contact|owner|agent|lessee|lessor|tenant|landlord|occupant|lender|servicer|holder|applicant|manager"
    r"|management|beneficiary|party|parties|grantor|grantee|seller|company|co|name|information|address|of record)"
    r"s?[ /&()-]*)++"
)
"""Headings of people who are not the owner, and of no others."""
_OTHER, _UNKNOWN = "other", "?"
"""Headings of names that are no owners, and of which it is not known; such a one is in the markup of a heading, or the
only line below an address that is not all in capitals."""
_MOST_LINES = 60
_Block = tuple[str, list[str], tuple[list[str], list[str], values.CityStateZip | None]]
"""A heading, the lines below it, and their meaning."""
_NOBODY: _Block = ("", [], ([], [], None))


def take_owner(record: Record, module: Element, problems: Problems) -> None:
    """All names, and the mailing address, else the first owner's address. Names below an unknown heading are no owners,
    unless there are no others.
    """
    listed = _blocks(module)
    if any(heading == _UNKNOWN for heading, _ in listed):
        problems.note("owner_names", "there is an unknown heading above the names")
    known = [(heading, lines) for heading, lines in listed if lines and heading not in (_OTHER, _UNKNOWN)]
    known = known or [(heading, lines) for heading, lines in listed if lines and heading != _OTHER]
    blocks = [(heading, lines, owners_and_mailing(lines)) for heading, lines in known]
    names = [name for heading, _, read in blocks if heading not in _MAIL_ONLY for name in read[0]]
    record.owner_names = list(dict.fromkeys(names)) or [name for _, _, read in blocks for name in read[0]][:1]
    mail = next((block for block in blocks if block[0] in _MAIL_ONLY and block[2][2]), None)
    _, _, (_, below, place) = mail or (blocks[0] if blocks else _NOBODY)
    take_mailing(record, below, place)
    record.owner_lines = [line for _, lines in listed for line in lines]


def _blocks(module: Element) -> list[tuple[str, list[str]]]:
    """Splits the lines at each line with city and state, and adds the heading above."""
    content = next((e for e in module.iter("div") if "module-content" in (e.get("class") or "")), module)
    set_off = {text_of(e) for e in content.iter("b", "strong", "th", "h3", "h4", "label")}
    blocks: list[tuple[str, list[str]]] = [("", [])]
    shown = lines_of(content)[:_MOST_LINES]
    for line, following in zip_longest(shown, shown[1:], fillvalue=""):
        above = blocks[-1][1]
        is_below_address = is_whole_address(above)
        is_above_name = bool(following) and following not in set_off and not is_street(following)
        if label(line) in _HEADINGS or _SUB_HEADING.fullmatch(label(line)):
            blocks.append((label(line), []))
        elif _OF_OTHERS.fullmatch(label(line)):
            blocks.append((_OTHER, []))
        elif is_above_name and (line in set_off or (is_below_address and _is_label_below(line, above))):
            blocks.append((_UNKNOWN, []))
        elif is_below_address and not is_country(line):
            blocks.append((blocks[-1][0], [line]))
        else:
            above.append(line)
    return blocks


def _is_label_below(line: str, address: list[str]) -> bool:
    """Whether a line below an address in capitals is not in capitals."""
    return line != line.upper() and all(text == text.upper() for text in address)


_USE = re.compile(r"(.{0,200}?)\s*\((?=[^)]{0,8}\d)([0-9A-Z-]{1,8})\)\s*", re.ASCII)
_CODE_FIRST = re.compile(r"(\d{2,6})\s*-\s*(\D.*)", re.ASCII)
_FLOOD_ZONE = re.compile(r"[ABCDVX]|[AV][EHOR]|[AV]\d{1,2}|X500", re.ASCII)
_UPLOADED = re.compile(r"Last Data Upload:\s*(\d{1,2}/\d{1,2}/\d{4})\b.*", re.ASCII)
_ONLY_CODE = re.compile(r"[A-Z]\d{0,3}\.?|\d{1,5}", re.ASCII)
"""`H.`, `R3` or `510`."""
_NOTE = re.compile(
    r"\s*\((?:note|not)\b[^()]{0,300}\)|\s*\*?\s*(?:note:|the (?:brief |tax |legal )*description (?:above|shown)\b).*$",
    re.IGNORECASE,
)
_MOST_CHARS_WITH_A_NOTE = 20_000
_OTHERS = ("area", "search", "comparable", "nearby", "neighborhood", "tax", "personal")
"""Words in titles of modules with sales of other parcels, or about debts."""
_OTHER_PARCELS = (*_OTHERS, "sale", "related", "adjoin", "parent", "child", "permit", "history", "list")
_MODULES = "section .module-content, [id$='lblParcelID']"


def _words(piece: Piece) -> str | None:
    text = piece.text
    return values.text_or_none(_NOTE.sub("", text) if len(text) <= _MOST_CHARS_WITH_A_NOTE else text)


def _element(piece: Piece) -> Element | None:
    return piece.element if piece.text else None


def _lines(piece: Piece) -> list[str] | None:
    return [line for line in piece.lines if values.text_or_none(line)] or None


def _acres(piece: Piece) -> Decimal | None:
    return values.acres(piece.text)


def _flag(piece: Piece) -> bool | None:
    return values.yes_no(piece.text.split("(")[0])


def _flood_zone(piece: Piece) -> str | None:
    """A zone of the federal flood maps: `AE`, `X`, `A13`."""
    return piece.text if _FLOOD_ZONE.fullmatch(piece.text) else None


def _uploaded(piece: Piece) -> str | None:
    """`Last Data Upload: 8/7/2024, 7:32:05 AM`."""
    day = _UPLOADED.fullmatch(piece.text)
    return values.iso_date(day[1]) if day else None


def _parcel(piece: Piece) -> str | None:
    text = _words(piece)
    return text if text and len(text) <= 60 and any(sign.isdigit() for sign in text) else None


UPLOADED = Field("data_date", (Beginning("Last Data Upload"),), _uploaded)
PARCEL = Field(
    "parcel_id",
    (
        IdEnd("lblParcelID"),
        Label("Parcel ID"),
        Label("Parcel Number"),
        Label("Parcel No"),
        Label("Property ID"),
        Label("PIN"),
        Label("Parcel"),
        Label("Map/Parcel"),
        Label("Parcel ID Number"),
        Label("Parcel Identification Number"),
        Label("PID"),
        Label("Tax Map ID"),
    ),
    _parcel,
)
ACCOUNT = Field(
    "tax_account",
    (
        IdEnd("lblAccountNumber"),
        Label("Account Number"),
        Label("Account"),
        Label("Prop ID"),
        Label("Alternate ID"),
        Label("Tax ID"),
        Label("Account #"),
        Label("Alternate Parcel ID"),
        Label("Real Key"),
    ),
    _words,
)
SITUS = Field(
    "situs_address",
    (
        IdEnd("lblPropertyAddress"),
        Label("Property Address"),
        Label("Location Address"),
        IdEnd("lblLocationAddress"),
        Label("Physical Address"),
        Label("Site Address"),
        Label("Situs Address"),
        Label("Property Location"),
        Label("911 Address"),
        Label("Location"),
    ),
    _lines,
)
CITY = Field("situs_city", (Label("Property City"), Label("Location City"), Label("City")), _words)
LEGAL = Field(
    "legal_description",
    (Label("Legal Description"), Label("Brief Tax Description"), Label("Brief Legal Description"), Label("Legal")),
    _words,
)
ACRES = Field(
    "land_area_acres",
    (
        Label("Acres"),
        Label("Acreage"),
        Label("Gross Acres"),
        Label("Total Acres"),
        Label("GIS Acres"),
        Label("Net Acres"),
        Label("Deed Acres"),
        Label("Deeded Acres"),
        Label("Calculated Acres"),
        Label("Land Area"),
    ),
    _acres,
)
SECTION = Field("sec_twp_rng", (IdEnd("lblSecTwpRng"), Label("Sec/Twp/Rng"), Label("Section/Township/Range")), _words)
USE = Field(
    "land_use_desc",
    (
        Label("Land Use"),
        Label("Property Use Code"),
        Label("Use Code"),
        Label("Property Class"),
        Label("Property Class Code"),
        Label("Tax Class"),
        Label("Class"),
        Label("Property Usage"),
        Label("Property Type"),
    ),
    _words,
)
_OWNERS = Titled(
    ("owners", "owner", "owner information", "current owner", "ownership", "deed holder"),
    exclude=("list", "previous", "prior", "former", "past", "history"),
)
OWNER = Field(
    "owner_names",
    (
        _OWNERS,
        Label("Owner"),
        Label("Owner Name"),
        Label("Primary Owner"),
    ),
    _element,
)
DISTRICT = Field("tax_district", (Label("Millage Group"), Label("Tax District"), Label("Taxing District")), _words)
MILLAGE = Field(
    "millage_rate", (IdEnd("lblMillageRate"), Label("Millage Rate")), lambda piece: values.millage(piece.text)
)
FLOOD_ZONE = Field("flood_zone", (Label("Flood Zone"), Label("FEMA Flood Zone")), _flood_zone)
ZONING = Field("zoning", (Label("Zoning"),), _words)
SUBDIVISION = Field("subdivision", (Label("Subdivision"), Label("Subdivision Name")), _words)
HOMESTEAD = Field("homestead", (Label("Homestead"), Label("Homestead Exemption"), Label("Homesteaded")), _flag)

_SALES = Columns(
    {
        "date": ("Sale Date", "Date", "Date of Sale", "Transfer Date", "Deed Date"),
        "price": ("Sale Price", "Price", "Amount", "Sale Amount", "Consideration", "Sale Price ($)"),
        "book_page": ("Legal Reference", "Book/Page", "Deed Book / Page", "Deed Book/Page", "Book / Page", "Recording"),
        "instrument": ("Deed Type", "Instrument", "Instrument Type", "Type"),
        "qualified": (
            "Qualification",
            "Qualification (Codes)",
            "Sale Qualification",
            "Qualified",
            "Sale Validity",
            "Qualified (Q/U)",
            "Sale Condition - NUTC",
            "Reason",
        ),
        "reason_code": ("N.A.L. Code", "NAL Code", "Reason Code"),
        "multi_parcel": ("Multi Parcel", "Multi-Parcel", "Multiple Parcels"),
        "vacant_improved": ("Vacant/Improved", "Vacant or Improved"),
        "grantor": ("Grantor", "Seller"),
        "grantee": ("Grantee", "Buyer"),
    }
)
SALES = section(
    "sales",
    _SALES,
    Titled(("sales", "sale information", "sales history", "recent sales"), exclude=_OTHERS),
    is_named_empty=partial(says_none, words=("sale",)),
    kinds=SALE_KINDS,
    has_rows=True,
)
_PERMITS = Columns(
    {
        "number": ("Permit Number", "Permit #", "Permit No", "Permit"),
        "date": ("Permit Date", "Date", "Issue Date", "Issued"),
        "type": ("Permit Type", "Type", "Description", "Permit Description"),
    },
    "number",
)
PERMITS = section(
    "permits",
    _PERMITS,
    Titled(("permits", "permit", "building permits", "permit information")),
    is_named_empty=partial(says_none, words=("permit",)),
)


def read(reader: PageReader) -> ReadResult:
    document = reader.document
    modules = document.sections
    summary = _summary(modules, document)
    if summary is None:
        return _no_record(document)
    if _shows_several(modules, document, summary):
        return Retry("the page shows several parcels")
    extractor = reader.extractor
    parcel_id = extractor.value(PARCEL, summary)
    if parcel_id is None or len(modules) < 2:
        return Retry("the page is incomplete: its summary lacks a parcel number, or is all there is")
    record = Record(
        parcel_id=parcel_id,
        tax_account=extractor.value(ACCOUNT, summary),
        data_date=extractor.value(UPLOADED),
        situs_city=extractor.value(CITY, summary),
        legal_description=extractor.value(LEGAL, summary),
        land_area_acres=extractor.value(ACRES, summary),
        sec_twp_rng=extractor.value(SECTION, summary),
        land_use_desc=extractor.value(USE, summary),
        zoning=extractor.value(ZONING, summary),
        flood_zone=extractor.value(FLOOD_ZONE, summary),
        tax_district=extractor.value(DISTRICT, summary),
        millage_rate=extractor.value(MILLAGE, summary),
        subdivision=extractor.value(SUBDIVISION, summary),
        homestead=extractor.value(HOMESTEAD, summary),
        valuations=valuations(extractor),
        sales=list(read_sales(extractor.rows(SALES) or (), extractor.problems)),
        tax_bills=bills(extractor),
    )
    _split_use(record, modules, reader.problems)
    _take_situs(record, extractor.value(SITUS, summary) or [])
    owners = extractor.value(OWNER, summary)
    if owners is not None:
        take_owner(record, owners, reader.problems)
    elif next(iter(_OWNERS.find(document, None)), None) is not None:
        reader.problems.note("owner_names", "the section of the owners is empty")
    take_buildings(record, extractor)
    take_values(record)
    take_last_sale(record)
    take_taxes(record)
    record.permit_count = extractor.count(PERMITS)
    if not record.owner_names and record.market_value is None and record.assessed_value is None:
        return Retry("the page is incomplete: its owner and its values are missing")
    return record


def _no_record(document: Document) -> ReadResult:
    if says_no_parcel(document):
        return NotFound("the site has no such parcel")
    return Retry("the page shows no parcel: its summary is missing")


def _summary(modules: Mapping[str, Element], document: Document) -> Element | None:
    """The module by title, else the first one that shows a parcel number and is not about other parcels."""
    own = {title: module for title, module in modules.items() if not any(word in title for word in _OTHER_PARCELS)}
    titled = _module(own, "summary", "parcel information", "parcel summary", "property information")
    if titled is not None and _has_number(document, titled):
        return titled
    return next((module for module in own.values() if _has_number(document, module)), titled)


def _shows_several(modules: Mapping[str, Element], document: Document, summary: Element) -> bool:
    """Whether a second module with the title of the summary has another parcel number."""
    title = next((name for name, one in modules.items() if one is summary), "")
    alike = [one for name, one in modules.items() if one is summary or name.startswith(f"{title} (")]
    numbers = (next(_numbers(document, one), None) for one in alike)
    return len({number for number in numbers if number}) > 1


def _numbers(document: Document, module: Element) -> Iterator[str]:
    pieces = (piece for selector in PARCEL.selectors for piece in selector.find(document, module))
    return (number for piece in pieces if (number := _parcel(piece)))


def _has_number(document: Document, module: Element) -> bool:
    return next(_numbers(document, module), None) is not None


def _module(modules: Mapping[str, Element], *names: str) -> Element | None:
    exact = (modules[name] for name in names if name in modules)
    similar = (module for name in names for title, module in modules.items() if name in title)
    return next(exact, None) if any(name in modules for name in names) else next(similar, None)


def _take_situs(record: Record, lines: list[str]) -> None:
    """The street and, in some counties, below it the city, with or without state and zip."""
    place = values.city_state_zip(lines[-1]) if len(lines) > 1 else None
    if place is not None:
        record.situs_city, record.situs_zip = place.city, place.zip
        lines = lines[:-1]
    elif (
        len(lines) == 2 and record.situs_city is None and not any(map(str.isdigit, lines[1])) and not is_unit(lines[1])
    ):
        record.situs_city = lines.pop()
    record.situs_address = values.text_or_none(" ".join(lines))


def _split_use(record: Record, modules: Mapping[str, Element], problems: Problems) -> None:
    """`SINGLE FAMILY (0100)` or `510 - House`; if the summary has no code, the land rows with that use have it."""
    if match := _USE.fullmatch(record.land_use_desc or ""):
        record.land_use_desc, record.land_use_code = values.text_or_none(match[1]), match[2]
        return
    if match := _CODE_FIRST.fullmatch(record.land_use_desc or ""):
        record.land_use_code, record.land_use_desc = match[1], values.text_or_none(match[2])
        return
    if _ONLY_CODE.fullmatch(record.land_use_desc or ""):
        record.land_use_code, record.land_use_desc = record.land_use_desc, None
        return
    land = _module(modules, "land", "land information")
    codes = set()
    for cell in land.iter("td", "th") if land is not None and record.land_use_desc else ():
        match = _USE.fullmatch(text_of(cell))
        if match and label(match[1]) == label(record.land_use_desc or ""):
            codes.add(match[2])
    if len(codes) > 1:
        problems.note("land_use_code", "the land has several codes for one use")
    record.land_use_code = codes.pop() if len(codes) == 1 else None


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """The site often shows a robot check, which is Blocked; a browser profile that passed it before is used."""
    url = target_url(target, county)
    if not url:
        known = require_county(county, target)
        ids = "&".join(f"{name}={quote_part(required_id(known, name))}" for name in ("AppID", "LayerID"))
        page = f"PageTypeID=4&PageID={quote_part(required_id(known, 'PageID'))}"
        url = f"{known.base}/Application.aspx?{ids}&{page}&KeyValue={quote_part(parcel_number(target, known))}"
    return await fetch_or_render(fetcher, url, county=county, until=_MODULES)


PAGE_SECTIONS = (
    PageSection("owners", OWNER.selectors),
    page_end("last data upload", "schneider", "developed by"),
)
PLATFORM = CountyPlatform(name="qpublic", version=8, read=read, fetch=fetch, sections=PAGE_SECTIONS)
BEACON = CountyPlatform(name="beacon", version=8, read=read, fetch=fetch, sections=PAGE_SECTIONS)
