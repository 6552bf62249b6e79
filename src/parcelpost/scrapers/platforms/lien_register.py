"""`lien_register`: a treasurer's register of tax liens as a CSV file, one line per tax of a certificate."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.encoding import decode
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import LIEN, Lien, Record
from parcelpost.scrapers.tabular import plain_heading, read_csv

# What registers call their columns, in capitals without blanks and underscores. A lone `YEAR` is not among them: it is
# the year of the tax in some and that of the sale in others.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "parcel": (
        *("SCHEDULENUMBER", "SCHEDULE", "PARCELNUMBER", "PARCELID", "PARCELNO", "PARCEL", "ACCOUNTNUMBER"),
        *("ACCOUNTNO", "ACCOUNT", "PIN", "APN"),
    ),
    "certificate": (
        *("CERTIFICATENUMBER", "CERTIFICATENO", "CERTIFICATE", "CERTNUMBER", "CERTNO", "CERT", "CERTIFICATEID"),
        *("TAXCERTIFICATENUMBER", "LIENNUMBER", "LIENID"),
    ),
    "certificate_year": ("CERTIFICATEYEAR", "CERTYEAR", "SALEYEAR", "YEARSOLD"),
    "sale_date": ("ISSUEDATE", "ISSUEDDATE", "SALEDATE", "DATEISSUED", "CERTIFICATEDATE", "DATESOLD", "SOLDDATE"),
    "subsequent": ("SUBTAX", "SUBSEQUENTTAX", "SUBSEQUENT", "ENDORSEMENT", "ENDORSED", "ENDORSEDTAX"),
    "redemption_date": ("REDEMPTIONDATE", "REDEEMEDDATE", "DATEREDEEMED", "REDEEMDATE", "REDEEMED"),
    "tax_year": ("TAXYEAR", "YEAROFTAX"),
    "face_amount": ("PRINCIPAL", "FACEAMOUNT", "FACEVALUE", "FACE", "LIENAMOUNT", "CERTIFICATEAMOUNT", "AMOUNT"),
    "interest_amount": ("INTEREST", "INTERESTAMOUNT", "ACCRUEDINTEREST"),
    "fees": ("TREASURERDEEDFEE", "DEEDFEE", "FEES", "FEE", "COSTS"),
    "premium": ("PREMIUMBIDFEE", "PREMIUM", "PREMIUMBID", "PREMIUMAMOUNT"),
    "interest_rate": ("INTERESTRATE", "RATE", "BIDRATE"),
    "holder": ("HOLDER", "HOLDERNAME", "CERTIFICATEHOLDER", "BUYER", "BUYERNAME", "INVESTOR", "INVESTORNAME"),
    "status": ("STATUS", "CERTIFICATESTATUS", "LIENSTATUS"),
    "owner": ("OWNER", "OWNERNAME"),
}
_DECIMAL = re.compile(r"[$]?[\d,]*\.\d\d?", re.ASCII)


def _number(text: str) -> str | None:
    """None for an amount and for a date."""
    return None if _DECIMAL.fullmatch(text.strip()) or values.written_date(text) else text


_KINDS: Mapping[str, Callable[[str], object | None]] = {
    "parcel": _number,
    "certificate": _number,
    "certificate_year": values.year,
    "sale_date": values.iso_date,
    "subsequent": values.yes_no,
    "tax_year": values.year,
    "face_amount": values.money,
    "interest_amount": values.money,
    "premium": values.money,
    "fees": values.money,
}
_NEEDED = ("parcel", "certificate")
_TOTAL = re.compile(r"(?:grand[\s-]*|sub[\s-]*)?totals?\b", re.IGNORECASE)
Row = Mapping[str, str]


def read(reader: PageReader) -> ReadResult:
    try:
        table = read_csv(decode(reader.page.body, reader.page.content_type), _COLUMNS)
        listed = list(table or ())
    except csv.Error as error:
        return Retry(f"the register cannot be read: {error}")
    columns = table.columns if table is not None else {}
    reader.selector_results.note_columns("liens", _COLUMNS, columns)
    if table is None or any(name not in columns for name in _NEEDED):
        return Retry("the file is not a lien register: it has no parcel and certificate columns")
    if any("\n" in row.get(name, "").strip() for row in listed for name in _NEEDED):
        return Retry("the register cannot be read: a parcel or certificate spans several lines")
    if table.is_cut_off:
        return Retry("the register is incomplete: its last line is cut off")
    for name in sorted(table.unclear):
        reader.problems.note(f"liens.{name}", "two columns have this heading")
    if table.dropped:
        reader.problems.note("liens", f"{table.dropped} lines have more or fewer cells than the header")
    fitting = [row for row in listed if _fits(row)]
    if len(fitting) < len(listed):
        reader.problems.note("liens", f"{len(listed) - len(fitting)} lines have values that do not fit their columns")
    keys = Counter(_key(row) for row in fitting if all(_key(row)))
    if any(keys[_key(row)] > 1 and values.yes_no(row.get("subsequent")) is None for row in fitting):
        reader.problems.note(
            "liens.subsequent_tax", "of the lines of one certificate, it is not known which are later taxes"
        )
    sold = _sale_dates(fitting)
    records = [record for row in fitting if (record := _record(row, sold)) is not None]
    if not records and (listed or table.dropped):
        return Retry("the register cannot be read: no line fits its headings")
    return records or NotFound("the register is empty")


def _fits(row: Row) -> bool:
    """Whether its values are of the kinds that the headings say, and it names its parcel. Totals and notes fit."""
    if sum(1 for cell in row.values() if values.text_or_none(cell)) < 2 or _TOTAL.match(row["parcel"].strip()):
        return True
    parcel = values.text_or_none(row["parcel"])
    if parcel is None or not any(sign.isdigit() for sign in parcel):
        return plain_heading(row["parcel"]) in _COLUMNS["parcel"]
    return all(
        convert(row[name]) is not None or values.text_or_none(row[name]) is None
        for name, convert in _KINDS.items()
        if name in row
    )


def _sale_dates(listed: Sequence[Row]) -> dict[tuple[str, str], str | None]:
    """By certificate and parcel; None if two lines contradict each other.

    Subsequent taxes are listed under the certificate with their own payment date.
    """
    dates: dict[tuple[str, str], str | None] = {}
    for row in listed:
        day = values.iso_date(row.get("sale_date"))
        if day and values.yes_no(row.get("subsequent")) is False:
            dates[_key(row)] = day if dates.get(_key(row), day) == day else None
    return dates


def _key(row: Row) -> tuple[str, str]:
    return values.clean(row.get("certificate")), values.clean(row.get("parcel"))


def _record(row: Row, sold: Mapping[tuple[str, str], str | None]) -> Record | None:
    """A lien, or a later tax that its holder paid. Returns None for a line without a parcel, and for totals."""
    parcel, number = values.text_or_none(row.get("parcel")), values.text_or_none(row.get("certificate"))
    face_amount, tax_year = values.money(row.get("face_amount")), values.year(row.get("tax_year"))
    if parcel is None or not any(sign.isdigit() for sign in parcel) or (number is None and face_amount is None):
        return None
    if _TOTAL.match(parcel):
        return None
    owner = values.text_or_none(row.get("owner"))
    day = sold.get(_key(row))
    lien = Lien(
        certificate_number=number,
        certificate_year=values.year(row.get("certificate_year")) or (int(day[:4]) if day else None),
        tax_year=tax_year,
        face_amount=face_amount,
        interest_rate_pct=values.percent(row.get("interest_rate")),
        premium=values.money(row.get("premium")),
        interest_amount=values.money(row.get("interest_amount")),
        fees=values.money(row.get("fees")),
        sale_date=values.iso_date(row.get("sale_date")),
        certificate_sale_date=day,
        subsequent_tax=values.yes_no(row.get("subsequent")),
        holder_name=values.text_or_none(row.get("holder")),
        status=_status(row),
        redemption_date=values.iso_date(row.get("redemption_date")),
    )
    return Record(
        parcel_id=parcel, record_kind=LIEN, tax_year=tax_year, owner_names=[owner] if owner else [], liens=[lien]
    )


def _status(row: Row) -> str | None:
    """The status as written, else derived from the redemption date."""
    if status := values.text_or_none(row.get("status")):
        return status.lower()
    redeemed = row.get("redemption_date")
    if redeemed is None:
        return None
    if values.iso_date(redeemed) or values.yes_no(redeemed):
        return "redeemed"
    return "outstanding" if not values.clean(redeemed).strip("-") or values.yes_no(redeemed) is False else None


PLATFORM = CountyPlatform(name="lien_register", version=7, is_list=True, read=read)
