"""`lien_register`: a treasurer's register of tax liens as a CSV file, a line for each tax that a certificate covers."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers import values
from parcelpost.scrapers.charset import decoded
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.csv_rows import rows
from parcelpost.scrapers.record import LIEN, Lien, Record

# What registers call their columns, in capitals without blanks and underscores.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "parcel": ("SCHEDULENUMBER", "SCHEDULE", "PARCELNUMBER", "PARCELID", "PARCEL", "ACCOUNT", "ACCOUNTNUMBER", "PIN"),
    "certificate": ("CERTIFICATENUMBER", "CERTIFICATE", "CERTNUMBER", "CERTNO", "CERT"),
    "sale_date": ("ISSUEDATE", "SALEDATE", "DATEISSUED", "CERTIFICATEDATE", "DATESOLD"),
    "redemption_date": ("REDEMPTIONDATE", "REDEEMEDDATE", "DATEREDEEMED", "REDEEMED"),
    "tax_year": ("TAXYEAR", "YEAR"),
    "face_amount": ("PRINCIPAL", "FACEAMOUNT", "FACE", "AMOUNT", "LIENAMOUNT"),
    "premium": ("PREMIUMBIDFEE", "PREMIUM", "PREMIUMBID"),
    "interest_rate": ("INTERESTRATE", "RATE"),
    "holder": ("HOLDER", "HOLDERNAME", "BUYER", "BUYERNAME", "INVESTOR"),
    "owner": ("OWNER", "OWNERNAME"),
}
_NEEDED = ("parcel", "certificate")


def read(reading: Reading) -> Found:
    table = rows(decoded(reading.page.body, reading.page.content_type), _COLUMNS)
    if table is None or any(name not in table.columns for name in _NEEDED):
        return Retry("the file is no register of liens: it has no column of parcels and certificates")
    found = [record for row in table if (record := _record(row)) is not None]
    return found or NotFound("the register is empty")


def _record(row: Mapping[str, str]) -> Record | None:
    parcel, number = values.words(row.get("parcel")), values.words(row.get("certificate"))
    if parcel is None or number is None:
        return None
    redeemed = values.day(row.get("redemption_date"))
    owner = values.words(row.get("owner"))
    tax_year = values.year(row.get("tax_year"))
    sold = values.day(row.get("sale_date"))
    lien = Lien(
        certificate_number=number,
        certificate_year=int(sold[:4]) if sold else None,
        tax_year=tax_year,
        face_amount=values.money(row.get("face_amount")),
        interest_rate_pct=values.percent(row.get("interest_rate")),
        premium=values.money(row.get("premium")),
        sale_date=sold,
        holder_name=values.words(row.get("holder")),
        status="redeemed" if redeemed else "outstanding",
        redemption_date=redeemed,
    )
    return Record(
        parcel_id=parcel, record_kind=LIEN, tax_year=tax_year, owner_names=[owner] if owner else [], liens=[lien]
    )


PLATFORM = CountyPlatform(name="lien_register", version=1, read=read)
