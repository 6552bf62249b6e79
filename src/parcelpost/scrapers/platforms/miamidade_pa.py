"""`miamidade_pa`: the property appraiser of Miami-Dade County, Florida; one JSON object per parcel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.model import Json, NotFound, Retry
from parcelpost.scrapers.html.values import (
    json_at,
    json_date,
    json_money,
    json_nonzero,
    json_objects,
    json_text,
    json_year,
)
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import Building, Record, Sale, Valuation, take_last_sale, take_values

_TROUBLE = ("error", "exception", "try again", "timeout", "timed out", "unavailable", "busy")
"""Words in messages about errors of the site."""


def read(reader: PageReader) -> ReadResult:
    found = reader.json
    folio = json_text(json_at(found, "PropertyInfo", "FolioNumber"))
    if folio is None:
        message = json_text(json_at(found, "Message"))
        if json_at(found, "Completed") is True and not any(word in (message or "").lower() for word in _TROUBLE):
            return NotFound(f"the site has no such parcel: {message}" if message else "the site has no such parcel")
        return Retry(f"the response has no parcel: {message}" if message else "the response has no parcel")
    columns = list(_valuations(found))
    info = json_at(found, "PropertyInfo")
    if not columns and "delet" in (json_text(json_at(info, "Status")) or "").lower():
        return NotFound("the folio was deleted")
    if not columns and json_at(found, "Completed") is not True:
        return Retry("the response is incomplete: its values are missing")
    record = Record(
        parcel_id=folio,
        owner_names=[name for owner in json_objects(found, "OwnerInfos") if (name := json_text(owner.get("Name")))],
        legal_description=_legal(json_at(found, "LegalDescription", "Description")),
        subdivision=json_text(json_at(info, "SubdivisionDescription")),
        land_use_code=json_text(json_at(info, "DORCode")),
        land_use_desc=json_text(json_at(info, "DORDescription")),
        zoning=json_text(json_at(info, "PrimaryZone")),
        building_area_sqft=json_nonzero(json_at(info, "BuildingHeatedArea")),
        year_built=json_year(json_at(info, "YearBuilt")),
        bedrooms=json_nonzero(json_at(info, "BedroomCount")),
        bathrooms=_bathrooms(info),
        valuations=columns,
        sales=list(_sales(found)),
    )
    _take_buildings(record, found)
    _take_addresses(record, found)
    take_values(record)
    _take_homestead(record, found)
    take_last_sale(record)
    return record


def _legal(given: Json) -> str | None:
    return json_text(given.replace("|", " ")) if isinstance(given, str) else None


def _bathrooms(info: Json) -> Decimal | None:
    whole, half = json_money(json_at(info, "BathroomCount")), json_money(json_at(info, "HalfBathroomCount"))
    return (whole + (half or Decimal(0)) / 2) or None if whole is not None else None


def _take_addresses(record: Record, found: Json) -> None:
    mailing = json_at(found, "MailingAddress")
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
    for site in json_objects(found, "SiteAddress")[:1]:
        address = json_text(site.get("Address"))
        record.situs_address = json_text(address.split(",")[0]) if address else None
        record.situs_city, record.situs_zip = json_text(site.get("City")), json_text(site.get("Zip"))


def _valuations(found: Json) -> Iterator[Valuation]:
    taxable = {json_year(one.get("Year")): one for one in json_objects(found, "Taxable", "TaxableInfos")}
    for one in json_objects(found, "Assessment", "AssessmentInfos"):
        if (of_year := json_year(one.get("Year"))) is None or not _is_valued(one, found):
            continue
        taxed: Mapping[str, Json] = taxable.get(of_year, {})
        yield Valuation(
            year=of_year,
            status="preliminary" if "preliminary" in _notes(one, found).lower() else "certified",
            land_value=json_money(one.get("LandValue")),
            building_value=json_money(one.get("BuildingOnlyValue")),
            extra_feature_value=json_money(one.get("ExtraFeatureValue")),
            market_value=json_money(one.get("TotalValue")),
            assessed_value=json_money(one.get("AssessedValue")),
            exemptions=_exemptions(found, of_year),
            exemption_value=json_money(taxed.get("CountyExemptionValue")),
            taxable_value=json_money(taxed.get("CountyTaxableValue")),
            taxable_value_school=json_money(taxed.get("SchoolTaxableValue")),
        )


def _is_valued(one: Mapping[str, Json], found: Json) -> bool:
    """Zeros mean that the values of the year are not published yet; a note or a flag says so."""
    total = json_money(one.get("TotalValue"))
    if total or any(json_money(one.get(name)) for name in ("LandValue", "AssessedValue")):
        return total is not None
    is_hidden = json_text(json_at(found, "PropertyInfo", "ShowCurrentValuesFlag")) == "N"
    return total is not None and not is_hidden and not _notes(one, found)


def _notes(one: Mapping[str, Json], found: Json) -> str:
    """The notes on that year."""
    notes = (
        note
        for note in json_objects(found, "Assessment", "Messages")
        if json_year(note.get("Year")) == json_year(one.get("Year"))
    )
    return " ".join(message for note in (one, *notes) if (message := json_text(note.get("Message"))))


def _exemptions(found: Json, of_year: int) -> list[str] | None:
    """An assessment cap is listed as a benefit but is not an exemption. None if no benefits are listed."""
    if not isinstance(json_at(found, "Benefit", "BenefitInfos"), list):
        return None
    benefits = (
        one for one in json_objects(found, "Benefit", "BenefitInfos") if json_year(one.get("TaxYear")) == of_year
    )
    named = (
        json_text(one.get("Description"))
        for one in benefits
        if "exemption" in (json_text(one.get("Type")) or "").lower()
    )
    return [name for name in named if name]


def _take_homestead(record: Record, found: Json) -> None:
    if record.exemptions is not None:
        record.homestead = any("homestead" in name.lower() for name in record.exemptions)


def _sales(found: Json) -> Iterator[Sale]:
    """Newest first; the site does not guarantee an order."""
    listed = [_sale(one) for one in json_objects(found, "SalesInfos")]
    yield from sorted((sale for sale in listed if sale.date), key=lambda sale: sale.date or "", reverse=True)


def _sale(one: Mapping[str, Json]) -> Sale:
    book, page = json_text(one.get("OfficialRecordBook")), json_text(one.get("OfficialRecordPage"))
    return Sale(
        date=json_date(one.get("DateOfSale")),
        price=json_money(one.get("SalePrice")),
        book_page=f"{book}/{page}" if book and page else None,
        instrument=json_text(one.get("SaleInstrument")),
        qualified=json_text(one.get("QualifiedFlag")),
        vacant_improved=json_text(one.get("VacantFlag")),
    )


def _take_buildings(record: Record, found: Json) -> None:
    """The buildings of the newest roll: each is listed again for every year, some in segments."""
    listed = json_objects(found, "Building", "BuildingInfos")
    newest = json_year(json_at(found, "RollYear1")) or max((one.year or 0 for one in record.valuations), default=None)
    now = [one for one in listed if json_year(one.get("RollYear")) == newest]
    record.buildings = [_building(one) for one in now]
    record.building_count = len({json_text(one.get("BuildingNo")) for one in now}) or None


def _building(one: Mapping[str, Json]) -> Building:
    return Building(
        desc=f"{json_text(one.get('improvementModelDesc')) or 'building'} ({json_text(one.get('BuildingNo')) or ''})",
        year_built=json_year(one.get("Actual")),
        base_sqft=json_nonzero(one.get("HeatedArea")),
        actual_sqft=json_nonzero(one.get("ActualArea")),
        value=json_money(one.get("DepreciatedValue")),
    )


PLATFORM = CountyPlatform(name="miamidade_pa", version=4, read=read)
