"""`mygov_due`: tax collectors' bills, payments and tax certificates; one JSON object per account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from parcelpost.model import Json, NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, parcel_number, quote_part, require_county, target_url
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.values import (
    has_key,
    json_at,
    json_date,
    json_money,
    json_nonzero,
    json_objects,
    json_text,
    json_year,
)
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, PageSection, ReadResult
from parcelpost.scrapers.records.identity import is_same_parcel
from parcelpost.scrapers.records.problems import VALUES, Problems
from parcelpost.scrapers.records.record import Lien, Record, TaxBill
from parcelpost.scrapers.records.validation import is_parcel_number

Bill = Mapping[str, Json]

_SITUS = re.compile(r"(.*?),\s*([A-Z]{2})\s+(\d{5}(?:-\d{4})?)", re.ASCII)

_DIGIT = re.compile("[0-9]")
_BILL_KEYS = ("account_number", "taxYear", "amount", "due", "paid", "delinquent", "certificate")
_LIEN_STATUSES = {True: "redeemed", False: "outstanding", None: None}
_FLAGS = {"true": True, "1": True, "y": True, "yes": True, "false": False, "0": False, "n": False, "no": False}


def read(reader: PageReader) -> ReadResult:
    response = reader.json
    bills = reader.objects("tax_bills", "due", "PPT", "bills", keys=_BILL_KEYS)
    listed = json_at(response, "due", "PPT", "bills")
    if isinstance(listed, list) and len(bills) < len(listed):
        return Retry("the response is incomplete: a bill cannot be read")
    if "tax_bills" in reader.problems.unreadable:
        reader.problems.note("liens", reader.problems.unreadable["tax_bills"])
    if not bills:
        is_answer = json_at(response, "due") is not None and json_text(json_at(response, "status")) in (None, "0", "1")
        part = json_at(response, "due", "PPT")
        is_empty = not has_key(response, "due", "PPT") or part in ({}, None, []) or json_at(part, "bills") == []
        is_empty = is_empty and (isinstance(json_at(response, "due"), Mapping) or json_at(response, "due") == [])
        if is_answer and is_empty and json_at(response, "error") is None:
            return NotFound("the site has no such account, or no bills for it")
        return Retry("the response has no bills")
    bills = sorted(bills, key=lambda bill: json_year(bill.get("taxYear")) or 0, reverse=True)
    if any(json_text(bill.get("account_number")) is None for bill in bills):
        return Retry("the response is incomplete: its account is missing")
    if any(json_year(bill.get("taxYear")) is None for bill in bills):
        return Retry("the response is incomplete: the year of a bill is missing")
    if not all(is_parcel_number(json_text(bill.get("account_number")) or "") for bill in bills):
        return Retry("the response cannot be read: an account is no number")
    account = _account(bills, reader.target)
    if account is None:
        return Retry("the response is for a different account")
    if {_form(json_text(bill.get("account_number")) or "") for bill in bills} != {_form(account)}:
        return Retry("the response cannot be read: the accounts of its bills have different forms")
    bills = [bill for bill in bills if json_text(bill.get("account_number")) == account]
    newest = next((bill for bill in bills if not _flag(bill.get("isPreliminary"))), bills[0])
    owner = json_text(newest.get("owner"))
    record = Record(
        parcel_id=account,
        owner_names=[owner] if owner else [],
        tax_bills=[_bill(bill) for bill in bills],
        liens=list(_liens(bills, reader.problems)),
    )
    _check_payments(bills, reader.problems)
    _take_parcel(record, json_objects(response, "due", "PPT", "parcels"), newest)
    _take_values(record, newest, reader.problems)
    _take_taxes(record, bills, newest)
    return record


def _form(account: str) -> str:
    return _DIGIT.sub("0", account)


def _account(bills: Sequence[Bill], target: Target) -> str | None:
    """The target's account, or one whose number contains it; for a target without a number, the newest."""
    accounts = [account for bill in bills if (account := json_text(bill.get("account_number")))]
    wanted = values.parcel_norm(target.parcel_id)
    if not wanted:
        return accounts[0]
    norms = {account: norm for account in accounts if (norm := values.parcel_norm(account))}
    exact = (account for account in norms if is_same_parcel(target.parcel_id, account))
    longer = (account for account, norm in norms.items() if norm in wanted or wanted in norm)
    return next(exact, next(longer, None))


def _take_parcel(record: Record, parcels: Sequence[Bill], newest: Bill) -> None:
    """The parcel is listed once per bill, with the address at that time."""
    wanted = json_text(newest.get("parcelId"))
    of_bill = (candidate for candidate in parcels if wanted and json_text(candidate.get("parcel_id")) == wanted)
    of_account = (candidate for candidate in parcels if json_text(candidate.get("account_number")) == record.parcel_id)
    parcel = next(of_bill, next(of_account, None))
    if parcel is None:
        return
    lines = (json_text(parcel.get(name)) for name in ("parcel_address_1", "parcel_address_2"))
    record.mailing_lines = [line for line in lines if line]
    record.mailing_city, record.mailing_state = (
        json_text(parcel.get("parcel_city")),
        json_text(parcel.get("parcel_state")),
    )
    record.mailing_zip = json_text(parcel.get("parcel_zip"))
    details = json_at(parcel, "parcel_details")
    record.legal_description = json_text(json_at(details, "parcel_legal"))
    record.latitude = json_nonzero(json_at(parcel, "parcel_coordinates", "latitude"))
    record.longitude = json_nonzero(json_at(parcel, "parcel_coordinates", "longitude"))
    situs = json_text(json_at(details, "situs"))
    match = _SITUS.fullmatch(situs or "")
    record.situs_address = match[1] if match else situs  # the boundary between street and city is unknown
    record.situs_zip = match[3] if match else None


def _take_values(record: Record, newest: Bill, problems: Problems) -> None:
    """Each taxing authority has its own line, and there is no assessment cap for schools.

    Exemptions differ between authorities: only a county line has those of the county.
    """
    charges = json_objects(newest, "charges", "adValorem", "charges")
    listed = json_at(newest, "charges", "adValorem", "charges")
    if isinstance(listed, list) and (len(listed) > len(charges) or not all(map(_description, charges))):
        problems.note(VALUES, "a charge of the newest bill cannot be read")
    schools = [charge for charge in charges if "school" in _description(charge)]
    others = [charge for charge in charges if charge not in schools]
    county = next((charge for charge in sorted(others, key=_is_special) if "county" in _description(charge)), None)
    record.value_year = json_year(newest.get("taxYear"))
    record.value_status = "preliminary" if _flag(newest.get("isPreliminary")) else "billed"
    for charge in [county] if county is not None else others[:1]:
        record.market_value, record.assessed_value = json_money(charge.get("just")), json_money(charge.get("assessed"))
    if county is not None:
        record.exemption_value, record.taxable_value = (
            json_money(county.get("exempt")),
            json_money(county.get("taxable")),
        )
    if schools:
        record.taxable_value_school = json_money(schools[0].get("taxable"))


def _description(charge: Bill) -> str:
    return (json_text(charge.get("description")) or "").lower()


def _is_special(charge: Bill) -> bool:
    """Whether the line belongs to a fund that not everybody pays into."""
    return "general" not in _description(charge)


def _take_taxes(record: Record, bills: Sequence[Bill], newest: Bill) -> None:
    """The tax of a year may be billed in parts."""
    record.tax_year = json_year(newest.get("taxYear"))
    of_year = [json_money(bill.get("amount")) for bill in bills if json_year(bill.get("taxYear")) == record.tax_year]
    known = [amount for amount in of_year if amount is not None]
    record.tax_amount = sum(known, Decimal(0)) if known and len(known) == len(of_year) else None
    due = [bill.tax_due for bill in record.tax_bills if bill.tax_due is not None]
    record.tax_due = sum(due, Decimal(0)) if due and len(due) == len(record.tax_bills) else None
    late = [bill for bill in record.tax_bills if bill.delinquent]
    if any(bill.delinquent is None for bill in record.tax_bills):
        record.delinquent, record.delinquent_years = True if late else None, None
    else:
        record.delinquent = bool(late)
        record.delinquent_years = sorted({bill.tax_year for bill in late if bill.tax_year})


def _bill(bill: Bill) -> TaxBill:
    paid = _payments(bill)
    return TaxBill(
        tax_year=json_year(bill.get("taxYear")),
        bill_number=json_text(bill.get("bill_number")),
        installment=json_text(bill.get("installment")) or json_text(bill.get("installmentNumber")),
        tax_amount=json_money(bill.get("amount")),
        tax_due=json_money(bill.get("due")),
        status=_status(bill),
        delinquent=_flag(bill.get("delinquent")),
        paid_date=max((date for date, _ in paid), default=None),
        paid_amount=sum((amount for _, amount in paid), Decimal(0)) if paid else None,
        flags=_flags(bill.get("flags")),
    )


def _flags(given: Json) -> list[str] | None:
    """`LITIGATION`, `WARN LETTER(DEL)`; None if the response has no list of them."""
    if not isinstance(given, list) or any(flag != "" and json_text(flag) is None for flag in given):
        return None
    return list(dict.fromkeys(text for flag in given if (text := json_text(flag))))


def _status(bill: Bill) -> str | None:
    paid, delinquent = _flag(bill.get("paid")), _flag(bill.get("delinquent"))
    if paid:
        return "paid"
    return "delinquent" if delinquent else "unpaid" if paid is False else None


def _payments(bill: Bill) -> list[tuple[str, Decimal]]:
    """Old payments have no status; failed and reversed ones are ignored."""
    payments = []
    for payment in json_objects(bill, "payments"):
        status = (json_text(payment.get("status")) or "completed").lower()
        date, amount = json_date(payment.get("date")), json_money(payment.get("amount"))
        if status == "completed" and date and amount is not None:
            payments.append((date, amount))
    return payments


def _check_payments(bills: Sequence[Bill], problems: Problems) -> None:
    """A payment that cannot be read would make the sum of the others wrong."""
    for bill in bills:
        payments = bill.get("payments")
        items = payments if isinstance(payments, list) else []
        are_known = all(
            json_date(json_at(item, "date")) and json_money(json_at(item, "amount")) is not None for item in items
        )
        are_known = are_known and len({repr(one) for one in items}) == len(items)
        if not are_known or not (payments is None or isinstance(payments, list)):
            problems.note("tax_bills", "a payment cannot be read")
            problems.note("liens", "a payment cannot be read")


def _liens(bills: Sequence[Bill], problems: Problems) -> Iterator[Lien]:
    """A certificate is sold for one bill, the year after; it is redeemed when that bill is paid."""
    for bill in bills:
        certificate = bill.get("certificate")
        info = json_at(certificate, "info")
        number = json_text(json_at(info, "number"))
        if number is None:
            if certificate not in (None, {}, []) or "certificate" not in bill:
                problems.note("liens", "a certificate has no number")
            continue
        paid = _payments(bill)
        is_paid = _flag(bill.get("paid"))
        face, rate = (
            values.whole_number(json_text(json_at(info, "face"))),
            values.whole_number(json_text(json_at(info, "bidPercentage"))),
        )
        yield Lien(
            certificate_number=number,
            certificate_year=json_year(json_at(info, "year")),
            tax_year=json_year(bill.get("taxYear")),
            face_amount=Decimal(face) / 100 if face is not None else None,
            interest_rate_pct=Decimal(rate) / 100 if rate is not None else None,
            sale_date=json_date(json_at(info, "sold")),
            holder_name=json_text(json_at(bill, "certificate", "holder", "name")),
            status=_LIEN_STATUSES[is_paid],
            redemption_date=max((date for date, _ in paid), default=None) if is_paid else None,
            redemption_amount=sum((amount for _, amount in paid), Decimal(0)) if is_paid and paid else None,
        )


def _flag(given: Json) -> bool | None:
    return given if isinstance(given, bool) else _FLAGS.get((json_text(given) or "").lower())


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """`ids.token`: the public token of the county's web application, if it needs one."""
    url = target_url(target, county)
    if not url:
        known = require_county(county, target)
        url = f"{known.base}/api/v2/due/PPT/{quote_part(parcel_number(target, known))}?detail_level=public"
    token = county.ids.get("token") if county is not None else None
    return await fetcher.get(url, headers={"Authorization": f"Basic {token}"} if token else {})


PAGE_SECTIONS = tuple(PageSection(name, keys=("due", "PPT", name)) for name in ("parcels", "accounts"))
PLATFORM = CountyPlatform(name="mygov_due", version=8, read=read, fetch=fetch, sections=PAGE_SECTIONS)
