"""`miamidade_pa`: the property appraiser of Miami-Dade County, Florida; one JSON object per parcel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.model import Json, NotFound, Retry
from parcelpost.scrapers.html.values import (
    json_at,
    json_date,
    json_money,
    json_nonzero,
    json_number,
    json_objects,
    json_text,
    json_year,
    party,
    short_code,
)
from parcelpost.scrapers.platform import CountyPlatform, PageReader, PageSection, ReadResult
from parcelpost.scrapers.records.problems import VALUES, Problems
from parcelpost.scrapers.records.record import Building, Record, Sale, Valuation, take_last_sale, take_values
from parcelpost.scrapers.records.validation import is_withheld

_BENEFIT_KEYS = ("TaxYear", "Type", "Description")
_SALE_KEYS = (
    *("DateOfSale", "SalePrice", "OfficialRecordBook", "OfficialRecordPage", "SaleInstrument", "QualifiedFlag"),
    *("GrantorName1", "GrantorName2", "GranteeName1", "GranteeName2"),
)
_SQUARE_FEET = 43_560
"""Of an acre."""
_FOLIO = re.compile(r"\d{2}-?\d{4}-?\d{3}-?\d{4}", re.ASCII)
_TROUBLE = ("error", "exception", "try again", "timeout", "timed out", "unavailable", "busy")
"""Words in messages about errors of the site."""


def read(reader: PageReader) -> ReadResult:
    response = reader.json
    folio = json_text(json_at(response, "PropertyInfo", "FolioNumber"))
    if folio is not None and _FOLIO.fullmatch(folio) is None:
        return Retry(f"the response cannot be read: its folio is {folio!r:.60}")
    if folio is None:
        message = json_text(json_at(response, "Message"))
        if (
            json_at(response, "Completed") is True
            and _is_empty(response)
            and not any(word in (message or "").lower() for word in _TROUBLE)
        ):
            return NotFound(f"the site has no such parcel: {message}" if message else "the site has no such parcel")
        return Retry(f"the response has no parcel: {message}" if message else "the response has no parcel")
    columns = list(_valuations(reader))
    info = json_at(response, "PropertyInfo")
    if not columns and "delet" in (json_text(json_at(info, "Status")) or "").lower():
        return NotFound("the folio was deleted")
    if not columns and json_at(response, "Completed") is not True:
        return Retry("the response is incomplete: its values are missing")
    record = Record(
        parcel_id=folio,
        owner_names=_owners(reader),  # before the type, which depends on them
        ownership_type=_ownership(reader),
        legal_description=_legal(json_at(response, "LegalDescription", "Description")),
        subdivision=json_text(json_at(info, "SubdivisionDescription")),
        land_use_code=json_text(json_at(info, "DORCode")),
        land_use_desc=json_text(json_at(info, "DORDescription")),
        zoning=_zone(reader, json_at(info, "PrimaryZone")),
        land_area_acres=_acres(json_nonzero(json_at(info, "LotSize"))),
        building_area_sqft=json_nonzero(json_at(info, "BuildingHeatedArea")),
        year_built=json_year(json_at(info, "YearBuilt")),
        bedrooms=json_nonzero(json_at(info, "BedroomCount")),
        bathrooms=_bathrooms(info),
        valuations=columns,
        sales=_sales(reader),
    )
    _take_buildings(record, reader)
    _take_addresses(record, reader)
    take_values(record)
    _take_homestead(record, response)
    take_last_sale(record)
    return record


def _ownership(reader: PageReader) -> str | None:
    """How the owners hold it; a life estate comes with its remainder. None if an owner cannot be read."""
    named = [json_text(owner.get("Description")) for owner in json_objects(reader.json, "OwnerInfos")]
    if "owner_names" in reader.problems.unreadable:
        return None
    return ", ".join(dict.fromkeys(text for text in named if text)) or None


def _is_empty(response: Json) -> bool:
    """Whether nothing is said about an owner or a value: the answer for a folio that does not exist."""
    return not json_at(response, "OwnerInfos") and not json_at(response, "Assessment", "AssessmentInfos")


def _owners(reader: PageReader) -> list[str]:
    names = [json_text(owner.get("Name")) for owner in reader.objects("owner_names", "OwnerInfos", keys=("Name",))]
    if None in names:
        reader.problems.note("owner_names", "an owner has no name")
    return [name for name in names if name]


def _legal(given: Json) -> str | None:
    return json_text(given.replace("|", " ")) if isinstance(given, str) else None


def _acres(square_feet: Decimal | None) -> Decimal | None:
    """The site measures lots in square feet."""
    return round(square_feet / _SQUARE_FEET, 4) if square_feet is not None else None


def _bathrooms(info: Json) -> Decimal | None:
    whole, half = json_money(json_at(info, "BathroomCount")), json_money(json_at(info, "HalfBathroomCount"))
    return (whole + (half or Decimal(0)) / 2) or None if whole is not None else None


def _take_addresses(record: Record, reader: PageReader) -> None:
    """The parcel's address is that of its first building."""
    response = reader.json
    mailing = json_at(response, "MailingAddress")
    lines = (json_text(json_at(mailing, name)) for name in ("Address1", "Address2", "Address3"))
    record.mailing_lines = [line for line in lines if line]
    record.mailing_city, record.mailing_state = (
        json_text(json_at(mailing, "City")),
        json_text(json_at(mailing, "State")),
    )
    record.mailing_zip, record.mailing_country = (
        json_text(json_at(mailing, "ZipCode")),
        json_text(json_at(mailing, "Country")),
    )
    sites = {json_number(site.get("BuildingNumber")): site for site in json_objects(response, "SiteAddress")[::-1]}
    listed = json_objects(response, "SiteAddress")
    if len(sites) < len({json_text(site.get("Address")) for site in listed}) or (len(sites) > 1 and 1 not in sites):
        reader.problems.note("situs_address", "the response has several addresses of one building")
        return
    for site in [sites.get(Decimal(1)) or site for site in listed[:1]]:
        address = json_text(site.get("Address"))
        record.situs_address = json_text(address.split(",")[0]) if address else None
        record.situs_city, record.situs_zip = json_text(site.get("City")), json_text(site.get("Zip"))


def _valuations(reader: PageReader) -> Iterator[Valuation]:
    response = reader.json
    taxable = {
        json_year(assessment.get("Year")): assessment
        for assessment in json_objects(response, "Taxable", "TaxableInfos")
    }
    for assessment in reader.objects(VALUES, "Assessment", "AssessmentInfos", keys=("Year", "TotalValue")):
        of_year, total = json_year(assessment.get("Year")), json_money(assessment.get("TotalValue"))
        if of_year is None or total is None:
            reader.problems.lacks("the year or value of an assessment")
            continue
        if not _is_valued(assessment, response):
            continue
        taxed: Mapping[str, Json] = taxable.get(of_year, {})
        yield Valuation(
            year=of_year,
            status="preliminary" if "preliminary" in _notes(assessment, response).lower() else "certified",
            land_value=json_money(assessment.get("LandValue")),
            building_value=json_money(assessment.get("BuildingOnlyValue")),
            extra_feature_value=json_money(assessment.get("ExtraFeatureValue")),
            market_value=json_money(assessment.get("TotalValue")),
            assessment_cap_value=_cap(reader, of_year),
            assessed_value=json_money(assessment.get("AssessedValue")),
            exemptions=_exemptions(reader, of_year),
            exemption_value=json_money(taxed.get("CountyExemptionValue")),
            taxable_value=json_money(taxed.get("CountyTaxableValue")),
            taxable_value_school=json_money(taxed.get("SchoolTaxableValue")),
        )


def _is_valued(assessment: Mapping[str, Json], response: Json) -> bool:
    """Zeros mean that the values of the year are not published yet; a note or a flag says so."""
    if any(json_money(assessment.get(name)) for name in ("TotalValue", "LandValue", "AssessedValue")):
        return True
    is_hidden = json_text(json_at(response, "PropertyInfo", "ShowCurrentValuesFlag")) == "N"
    return not is_hidden and not _notes(assessment, response)


def _notes(assessment: Mapping[str, Json], response: Json) -> str:
    """The notes on that year."""
    notes = (
        note
        for note in json_objects(response, "Assessment", "Messages")
        if json_year(note.get("Year")) == json_year(assessment.get("Year"))
    )
    return " ".join(message for note in (assessment, *notes) if (message := json_text(note.get("Message"))))


def _exemptions(reader: PageReader, of_year: int) -> list[str] | None:
    """An assessment cap is listed as a benefit but is not an exemption. None if no benefits can be read."""
    benefits = [
        (json_year(item.get("TaxYear")), json_text(item.get("Type")), json_text(item.get("Description")))
        for item in reader.objects("exemptions", "Benefit", "BenefitInfos", keys=_BENEFIT_KEYS)
    ]
    if any(None in benefit or not any(map(str.isalpha, benefit[2] or "")) for benefit in benefits):
        reader.problems.note("exemptions", "a benefit has no year, type or description")
    if "exemptions" in reader.problems.unreadable:
        return None
    named = (name for year, kind, name in benefits if year == of_year and kind and name and "exemption" in kind.lower())
    return list(dict.fromkeys(named))


def _cap(reader: PageReader, of_year: int) -> Decimal | None:
    """What the caps of a year take off; None if none is listed."""
    caps = [
        json_money(benefit.get("Value"))
        for benefit in _benefits(reader, of_year, "assessment reduction")
        if (json_text(benefit.get("Description")) or "").lower().endswith(" cap")
    ]
    known = [amount for amount in caps if amount is not None]
    is_known = 0 < len(known) == len(caps) and "exemptions" not in reader.problems.unreadable
    return sum(known, Decimal(0)) if is_known else None


def _benefits(reader: PageReader, of_year: int, kind: str) -> Iterator[Mapping[str, Json]]:
    listed = reader.objects("exemptions", "Benefit", "BenefitInfos", keys=_BENEFIT_KEYS)
    for benefit in {repr(one): one for one in listed}.values():
        if json_year(benefit.get("TaxYear")) == of_year and kind in (json_text(benefit.get("Type")) or "").lower():
            yield benefit


def _take_homestead(record: Record, response: Json) -> None:
    if record.exemptions is not None:
        record.homestead = any("homestead" in name.lower() for name in record.exemptions)


def _sales(reader: PageReader) -> list[Sale]:
    """Newest first; the site does not guarantee an order."""
    listed = [_sale(item) for item in reader.objects("sales", "SalesInfos", keys=_SALE_KEYS)]
    if any(sale.date is None for sale in listed):
        reader.problems.note("sales", "a sale has no date")
    return sorted((sale for sale in listed if sale.date), key=lambda sale: sale.date or "", reverse=True)


def _sale(item: Mapping[str, Json]) -> Sale:
    book, page = json_text(item.get("OfficialRecordBook")), json_text(item.get("OfficialRecordPage"))
    reason = json_text(item.get("QualificationDescription"))
    return Sale(
        date=json_date(item.get("DateOfSale")),
        price=json_money(item.get("SalePrice")),
        book_page=f"{book}/{page}" if _is_place(book) and _is_place(page) else None,
        instrument=json_text(item.get("SaleInstrument")),
        qualified=json_text(item.get("QualifiedFlag")),
        reason_code=short_code(json_text(item.get("ReasonCode"))),
        reason_desc=reason,
        multi_parcel=True if "more than one parcel" in (reason or "").lower() else None,
        vacant_improved=json_text(item.get("VacantFlag")),
        grantor=_parties(item, "GrantorName1", "GrantorName2"),
        grantee=_parties(item, "GranteeName1", "GranteeName2"),
    )


def _is_place(text: str | None) -> bool:
    return text is not None and text.isalnum() and any(map(str.isdigit, text))


def _parties(sale: Mapping[str, Json], *names: str) -> str | None:
    listed = [sale.get(member) for member in names]
    shown = [json_text(item) for item in listed]
    if any(item and (text is None or is_withheld(text)) for item, text in zip(listed, shown, strict=True)):
        return None  # the names of some are not known
    return "; ".join(name for text in shown if (name := party(text))) or None


def _take_buildings(record: Record, reader: PageReader) -> None:
    """The buildings of the newest roll: each is listed again for every year, some in segments."""
    listed = reader.objects("buildings", "Building", "BuildingInfos", keys=("RollYear", "BuildingNo"))
    if any(json_year(item.get("RollYear")) is None or not json_text(item.get("BuildingNo")) for item in listed):
        reader.problems.note("buildings", "a building has no number or roll year")
    newest = json_year(json_at(reader.json, "RollYear1")) or max(
        (item.year or 0 for item in record.valuations), default=None
    )
    now = [item for item in listed if json_year(item.get("RollYear")) == newest]
    record.buildings = [_building(item, reader.problems) for item in {repr(item): item for item in now}.values()]
    record.building_count = len({json_text(item.get("BuildingNo")) for item in now}) or None


def _zone(reader: PageReader, given: Json) -> str | None:
    """The county's zones are numbers."""
    zone = json_text(given)
    if zone is not None and not zone.isdigit():
        reader.problems.note("zoning", "it is not a number")
        return None
    return zone


def _building(item: Mapping[str, Json], problems: Problems) -> Building:
    kind = json_text(item.get("improvementModelDesc")) or "building"
    if not any(map(str.isalpha, kind)):
        problems.note("buildings.desc", "it has no words")
    return Building(
        desc=f"{kind} ({json_text(item.get('BuildingNo')) or ''})" if any(map(str.isalpha, kind)) else None,
        year_built=json_year(item.get("Actual")),
        base_sqft=json_nonzero(item.get("HeatedArea")),
        actual_sqft=json_nonzero(item.get("ActualArea")),
        value=json_money(item.get("DepreciatedValue")),
    )


_PARTS = (
    *("Assessment", "Benefit", "Building", "LegalDescription", "MailingAddress", "OwnerInfos", "PropertyInfo"),
    *("RollYear1", "SalesInfos", "SiteAddress", "Taxable"),
)
PLATFORM = CountyPlatform(
    name="miamidade_pa", version=9, read=read, sections=tuple(PageSection(name, keys=(name,)) for name in _PARTS)
)
