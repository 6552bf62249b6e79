"""The tax module of `qpublic`, which some states have: a row for each bill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.document import Element
from parcelpost.scrapers.record import Record, TaxBill

TAX_TITLES = ("tax history", "taxes", "tax information", "tax collector", "property tax")
_BILLS: Mapping[str, tuple[str, ...]] = {
    "tax_year": ("Tax Year", "Year", "Payable Year"),
    "bill_number": ("Bill Number", "Bill #", "Bill", "Receipt", "Receipt #", "Invoice"),
    "tax_amount": (
        "Amount",
        "Tax Amount",
        "Total Tax",
        "Amount Billed",
        "Net Tax",
        "Tax Billed",
        "Total Billed",
        "Taxes",
    ),
    "paid_amount": ("Amount Paid", "Paid", "Total Paid", "Paid Amount"),
    "paid_date": ("Date Paid", "Paid Date", "Payment Date", "Last Paid"),
    "tax_due": ("Amount Due", "Balance Due", "Balance", "Total Due", "Due"),
}


def bills(module: Element | None) -> Iterator[TaxBill]:
    """Of a module that has one of these titles."""
    for table in module.iter("table") if module is not None else ():
        for row in tables.records(table, _BILLS):
            year, amount = values.year(tables.text(row, "tax_year")), values.money(tables.text(row, "tax_amount"))
            if year is None or (amount is None and not tables.text(row, "tax_due")):
                continue
            yield TaxBill(
                tax_year=year,
                bill_number=values.words(tables.text(row, "bill_number")),
                tax_amount=amount,
                tax_due=values.money(tables.text(row, "tax_due")),
                paid_amount=values.money(tables.text(row, "paid_amount")),
                paid_date=values.day(tables.text(row, "paid_date")),
            )


def take_taxes(record: Record) -> None:
    """The newest year's, if that has one bill; what is due, if every bill says it."""
    years = [bill.tax_year for bill in record.tax_bills if bill.tax_year is not None]
    newest = [bill for bill in record.tax_bills if years and bill.tax_year == max(years)]
    if len(newest) == 1:
        record.tax_year, record.tax_amount = newest[0].tax_year, newest[0].tax_amount
    due = [bill.tax_due for bill in record.tax_bills if bill.tax_due is not None]
    record.tax_due = sum(due, Decimal(0)) if due and len(due) == len(record.tax_bills) else None
