"""`miamidade_pa`: the property appraiser of Miami-Dade County, Florida; one JSON object a parcel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.model import Json, NotFound, Retry
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.json_values import at, day, money, objects, some, words, year
from parcelpost.scrapers.record import Building, Record, Sale, Valuation, take_last_sale, take_values

_TROUBLE = ("error", "exception", "try again", "timeout", "timed out", "unavailable", "busy")
"""In a message: the site could not look."""


def read(reading: Reading) -> Found:
    found = reading.json
    folio = words(at(found, "PropertyInfo", "FolioNumber"))
    if folio is None:
        message = words(at(found, "Message"))
        if at(found, "Completed") is True and not any(word in (message or "").lower() for word in _TROUBLE):
            return NotFound(f"the site has no such parcel: {message}" if message else "the site has no such parcel")
        return Retry(f"the answer holds no parcel: {message}" if message else "the answer holds no parcel")
    columns = list(_valuations(found))
    info = at(found, "PropertyInfo")
    if not columns and "delet" in (words(at(info, "Status")) or "").lower():
        return NotFound("the folio was deleted")
    if not columns and at(found, "Completed") is not True:
        return Retry("the answer came only in part: its values are missing")
    record = Record(
        parcel_id=folio,
        owner_names=[name for owner in objects(found, "OwnerInfos") if (name := words(owner.get("Name")))],
        legal_description=_legal(at(found, "LegalDescription", "Description")),
        subdivision=words(at(info, "SubdivisionDescription")),
        land_use_code=words(at(info, "DORCode")),
        land_use_desc=words(at(info, "DORDescription")),
        zoning=words(at(info, "PrimaryZone")),
        building_area_sqft=some(at(info, "BuildingHeatedArea")),
        year_built=year(at(info, "YearBuilt")),
        bedrooms=some(at(info, "BedroomCount")),
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
    return words(given.replace("|", " ")) if isinstance(given, str) else None


def _bathrooms(info: Json) -> Decimal | None:
    whole, half = money(at(info, "BathroomCount")), money(at(info, "HalfBathroomCount"))
    return (whole + (half or Decimal(0)) / 2) or None if whole is not None else None


def _take_addresses(record: Record, found: Json) -> None:
    mailing = at(found, "MailingAddress")
    lines = (words(at(mailing, name)) for name in ("Address1", "Address2", "Address3"))
    record.mailing_lines = [line for line in lines if line]
    record.mailing_city, record.mailing_state = words(at(mailing, "City")), words(at(mailing, "State"))
    record.mailing_zip, record.mailing_country = words(at(mailing, "ZipCode")), words(at(mailing, "Country"))
    for site in objects(found, "SiteAddress")[:1]:
        address = words(site.get("Address"))
        record.situs_address = words(address.split(",")[0]) if address else None
        record.situs_city, record.situs_zip = words(site.get("City")), words(site.get("Zip"))


def _valuations(found: Json) -> Iterator[Valuation]:
    taxable = {year(one.get("Year")): one for one in objects(found, "Taxable", "TaxableInfos")}
    for one in objects(found, "Assessment", "AssessmentInfos"):
        if (of_year := year(one.get("Year"))) is None or not _is_valued(one, found):
            continue
        taxed: Mapping[str, Json] = taxable.get(of_year, {})
        yield Valuation(
            year=of_year,
            status="preliminary" if "preliminary" in _notes(one, found).lower() else "certified",
            land_value=money(one.get("LandValue")),
            building_value=money(one.get("BuildingOnlyValue")),
            extra_feature_value=money(one.get("ExtraFeatureValue")),
            market_value=money(one.get("TotalValue")),
            assessed_value=money(one.get("AssessedValue")),
            exemptions=_exemptions(found, of_year),
            exemption_value=money(taxed.get("CountyExemptionValue")),
            taxable_value=money(taxed.get("CountyTaxableValue")),
            taxable_value_school=money(taxed.get("SchoolTaxableValue")),
        )


def _is_valued(one: Mapping[str, Json], found: Json) -> bool:
    """Zeros stand for a year whose values are not out yet, which a note or a flag tells."""
    total = money(one.get("TotalValue"))
    if total or any(money(one.get(name)) for name in ("LandValue", "AssessedValue")):
        return total is not None
    is_hidden = words(at(found, "PropertyInfo", "ShowCurrentValuesFlag")) == "N"
    return total is not None and not is_hidden and not _notes(one, found)


def _notes(one: Mapping[str, Json], found: Json) -> str:
    """What is said of that year."""
    notes = (
        note for note in objects(found, "Assessment", "Messages") if year(note.get("Year")) == year(one.get("Year"))
    )
    return " ".join(message for note in (one, *notes) if (message := words(note.get("Message"))))


def _exemptions(found: Json, of_year: int) -> list[str] | None:
    """A cap on the assessment is among the benefits, and is no exemption. None: the answer lists no benefits."""
    if not isinstance(at(found, "Benefit", "BenefitInfos"), list):
        return None
    benefits = (one for one in objects(found, "Benefit", "BenefitInfos") if year(one.get("TaxYear")) == of_year)
    named = (words(one.get("Description")) for one in benefits if "exemption" in (words(one.get("Type")) or "").lower())
    return [name for name in named if name]


def _take_homestead(record: Record, found: Json) -> None:
    if record.exemptions is not None:
        record.homestead = any("homestead" in name.lower() for name in record.exemptions)


def _sales(found: Json) -> Iterator[Sale]:
    """Newest first, which the site does not promise."""
    listed = [_sale(one) for one in objects(found, "SalesInfos")]
    yield from sorted((sale for sale in listed if sale.date), key=lambda sale: sale.date or "", reverse=True)


def _sale(one: Mapping[str, Json]) -> Sale:
    book, page = words(one.get("OfficialRecordBook")), words(one.get("OfficialRecordPage"))
    return Sale(
        date=day(one.get("DateOfSale")),
        price=money(one.get("SalePrice")),
        book_page=f"{book}/{page}" if book and page else None,
        instrument=words(one.get("SaleInstrument")),
        qualified=words(one.get("QualifiedFlag")),
        vacant_improved=words(one.get("VacantFlag")),
    )


def _take_buildings(record: Record, found: Json) -> None:
    """Of the newest roll, as the same building is listed again for every year; some are listed in segments."""
    listed = objects(found, "Building", "BuildingInfos")
    newest = year(at(found, "RollYear1")) or max((one.year or 0 for one in record.valuations), default=None)
    now = [one for one in listed if year(one.get("RollYear")) == newest]
    record.buildings = [_building(one) for one in now]
    record.building_count = len({words(one.get("BuildingNo")) for one in now}) or None


def _building(one: Mapping[str, Json]) -> Building:
    return Building(
        desc=f"{words(one.get('improvementModelDesc')) or 'building'} ({words(one.get('BuildingNo')) or ''})",
        year_built=year(one.get("Actual")),
        base_sqft=some(one.get("HeatedArea")),
        actual_sqft=some(one.get("ActualArea")),
        value=money(one.get("DepreciatedValue")),
    )


PLATFORM = CountyPlatform(name="miamidade_pa", version=4, read=read)
