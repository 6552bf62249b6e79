"""`mygov_due`: tax collectors' bills, payments and tax certificates; one JSON object an account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from parcelpost.model import Json, NotFound, Page, Retry, Target
from parcelpost.scrapers import values
from parcelpost.scrapers.addressing import given_url, needed, parcel_of, quoted
from parcelpost.scrapers.counties import County
from parcelpost.scrapers.county_platform import CountyPlatform, Fetcher, Found, Reading
from parcelpost.scrapers.json_values import at, day, money, objects, some, words, year
from parcelpost.scrapers.record import Lien, Record, TaxBill

Bill = Mapping[str, Json]

_SITUS = re.compile(r"(.*?),\s*([A-Z]{2})\s+(\d{5}(?:-\d{4})?)", re.ASCII)


def read(reading: Reading) -> Found:
    found = reading.json
    bills = objects(found, "due", "PPT", "bills")
    if not bills:
        if at(found, "due") is not None or at(found, "status") is not None:
            return NotFound("the site has no such account, or no bill of it")
        return Retry("the answer holds no bills")
    bills = sorted(bills, key=lambda bill: year(bill.get("taxYear")) or 0, reverse=True)
    newest = bills[0]
    account = words(newest.get("account_number"))
    if account is None:
        return Retry("the answer came only in part: its account is missing")
    owner = words(newest.get("owner"))
    record = Record(
        parcel_id=account,
        owner_names=[owner] if owner else [],
        tax_bills=[_bill(bill) for bill in bills],
        liens=list(_liens(bills)),
    )
    _take_parcel(record, objects(found, "due", "PPT", "parcels"), newest)
    _take_values(record, newest)
    _take_taxes(record)
    return record


def _take_parcel(record: Record, parcels: Sequence[Bill], newest: Bill) -> None:
    """The parcel is listed once for every bill."""
    of_bill = (one for one in parcels if words(one.get("parcel_id")) == words(newest.get("parcelId")))
    parcel = next(of_bill, next(iter(parcels), None))
    if parcel is None:
        return
    lines = (words(parcel.get(name)) for name in ("parcel_address_1", "parcel_address_2"))
    record.mailing_lines = [line for line in lines if line]
    record.mailing_city, record.mailing_state = words(parcel.get("parcel_city")), words(parcel.get("parcel_state"))
    record.mailing_zip = words(parcel.get("parcel_zip"))
    details = at(parcel, "parcel_details")
    record.legal_description = words(at(details, "parcel_legal"))
    record.latitude = some(at(parcel, "parcel_coordinates", "latitude"))
    record.longitude = some(at(parcel, "parcel_coordinates", "longitude"))
    situs = words(at(details, "situs"))
    found = _SITUS.fullmatch(situs or "")
    record.situs_address = found[1] if found else situs  # where the street ends and the city begins, it does not say
    record.situs_zip = found[3] if found else None


def _take_values(record: Record, newest: Bill) -> None:
    """Each taxing authority has a line of its own, and schools know no cap on what is assessed."""
    charges = objects(newest, "charges", "adValorem", "charges")
    schools = [one for one in charges if "school" in (words(one.get("description")) or "").lower()]
    county = next((one for one in charges if one not in schools and _is_county(one)), None)
    county = county or next((one for one in charges if one not in schools), None)
    record.value_year, record.value_status = year(newest.get("taxYear")), "billed"
    if county is not None:
        record.market_value, record.assessed_value = money(county.get("just")), money(county.get("assessed"))
        record.exemption_value, record.taxable_value = money(county.get("exempt")), money(county.get("taxable"))
    if schools:
        record.taxable_value_school = money(schools[0].get("taxable"))


def _is_county(charge: Bill) -> bool:
    return "county" in (words(charge.get("description")) or "").lower()


def _take_taxes(record: Record) -> None:
    newest = record.tax_bills[0]
    record.tax_year, record.tax_amount = newest.tax_year, newest.tax_amount
    due = [bill.tax_due for bill in record.tax_bills if bill.tax_due is not None]
    record.tax_due = sum(due, Decimal(0)) if due else None
    late = [bill for bill in record.tax_bills if bill.delinquent]
    record.delinquent = bool(late) if any(bill.delinquent is not None for bill in record.tax_bills) else None
    record.delinquent_years = sorted({bill.tax_year for bill in late if bill.tax_year}) if late else []


def _bill(bill: Bill) -> TaxBill:
    paid = _payments(bill)
    return TaxBill(
        tax_year=year(bill.get("taxYear")),
        bill_number=words(bill.get("bill_number")),
        tax_amount=money(bill.get("amount")),
        tax_due=money(bill.get("due")),
        status=_status(bill),
        delinquent=_flag(bill.get("delinquent")),
        paid_date=max((date for date, _ in paid), default=None),
        paid_amount=sum((amount for _, amount in paid), Decimal(0)) if paid else None,
    )


def _status(bill: Bill) -> str | None:
    if _flag(bill.get("paid")):
        return "paid"
    if _flag(bill.get("delinquent")):
        return "delinquent"
    return "unpaid" if _flag(bill.get("paid")) is False else None


def _payments(bill: Bill) -> list[tuple[str, Decimal]]:
    """Old ones have no status; one that failed or was taken back counts for nothing."""
    found = []
    for one in objects(bill, "payments"):
        status = (words(one.get("status")) or "completed").lower()
        date, amount = day(one.get("date")), money(one.get("amount"))
        if status == "completed" and date and amount is not None:
            found.append((date, amount))
    return found


def _liens(bills: Sequence[Bill]) -> Iterator[Lien]:
    """A certificate is sold for one bill, the year after; it is redeemed when that bill is paid."""
    for bill in bills:
        info = at(bill, "certificate", "info")
        number = words(at(info, "number"))
        if number is None:
            continue
        paid = _payments(bill)
        is_paid = _flag(bill.get("paid")) is True
        face, rate = values.whole(words(at(info, "face"))), values.whole(words(at(info, "bidPercentage")))
        yield Lien(
            certificate_number=number,
            certificate_year=year(at(info, "year")),
            tax_year=year(bill.get("taxYear")),
            face_amount=Decimal(face) / 100 if face is not None else None,
            interest_rate_pct=Decimal(rate) / 100 if rate is not None else None,
            sale_date=day(at(info, "sold")),
            holder_name=words(at(bill, "certificate", "holder", "name")),
            status="redeemed" if is_paid else "outstanding",
            redemption_date=max((date for date, _ in paid), default=None) if is_paid else None,
            redemption_amount=sum((amount for _, amount in paid), Decimal(0)) if is_paid and paid else None,
        )


def _flag(given: Json) -> bool | None:
    return given if isinstance(given, bool) else None


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """`ids.token`: the public one of the county's web application, where that wants one."""
    url = given_url(target, county)
    if not url:
        known = needed(county, target)
        url = f"{known.base}/api/v2/due/PPT/{quoted(parcel_of(target, known))}?detail_level=public"
    token = county.ids.get("token") if county is not None else None
    return await fetcher.get(url, headers={"Authorization": f"Basic {token}"} if token else {})


PLATFORM = CountyPlatform(name="mygov_due", version=1, read=read, fetch=fetch)
