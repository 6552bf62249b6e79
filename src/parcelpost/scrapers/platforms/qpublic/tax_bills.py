"""The tax module of `qpublic`, which some states have: one row per bill, or one column per year."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Element, Piece, label, text_of
from parcelpost.scrapers.html.extract import Extractor, shown_fields
from parcelpost.scrapers.html.selectors import Titled
from parcelpost.scrapers.html.tables import Columns, Row, lists_nothing
from parcelpost.scrapers.platforms.qpublic.buildings import says_none
from parcelpost.scrapers.records.record import Record, TaxBill

_TITLES = ("tax history", "taxes", "tax information", "tax collector", "property tax", "taxation")
_OTHER_TAXES = ("personal", "special", "sale", "vehicle")
MODULES = Titled(_TITLES, exclude=_OTHER_TAXES)
_YEAR = re.compile(r"(\d{4})\b(?:\s*(?:pay(?:able)?|p|/|-)?\s*\d{4}(?:\s*-\s*\d{4})?)?", re.IGNORECASE | re.ASCII)
"""The first year is that of the tax: `2023 Pay 2024-2025`."""
_SIGN = re.compile(r"^[\s+=x\u2013-]+(?=[A-Z])")
_MOST_HEADING_ROWS = 3
_BILLS = Columns(
    {
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
        "installment": ("Due Date", "Installment"),
    }
)
_ROWS: Mapping[str, tuple[str, ...]] = {
    "tax_amount": (
        *("net annual taxes", "total taxes due", "total tax due", "net taxes due", "net tax due", "total net tax"),
        *("total tax", "total taxes", "net tax", "net taxes", "total property tax"),
    ),
    "tax_due": ("balance due", "total balance", "amount due", "balance"),
    "paid_amount": ("amount paid", "total paid", "paid"),
}
_STATUSES = {True: "paid", False: "unpaid", None: None}

_Listed = tuple[list[TaxBill], Container[str]]
"""The bills, and the columns they have."""


def bills(extractor: Extractor) -> list[TaxBill]:
    """The bills of the first matching module, one per row, else one per column."""
    sections = extractor.document.sections
    own = [title for title in sections if not any(word in title for word in _OTHER_TAXES)]
    modules = dict.fromkeys(sections[title] for name in _TITLES for title in own if name in title)
    inside = [table for module in modules for table in module.iter("table")]
    listed = (of_table(table) for of_table in (_by_row, _by_column) for table in inside)
    bills_, columns = next((module for module in listed if module[0]), ([], ()))
    if bills_:
        extractor.selector_results.note("tax_bills", MODULES, success=True)
        extractor.selector_results.note_columns("tax_bills", _BILLS.headings, columns)
    elif not says_none(extractor.document, ("tax",)) and not any(lists_nothing(Piece(module)) for module in modules):
        extractor.selector_results.note("tax_bills", MODULES, success=False)
        if modules:
            extractor.problems.note("tax_bills", "the tax history cannot be read")
    return bills_


def _by_row(table: Element) -> _Listed:
    parsed = _BILLS.table(table)
    return (list(_of_rows(parsed.rows)), parsed.columns) if parsed is not None else ([], ())


def _of_rows(rows: Iterable[Row]) -> Iterator[TaxBill]:
    """The halves of a year may share a row, one line each."""
    for row in rows:
        year = _year(tables.text(row, "tax_year"))
        amounts = row["tax_amount"].lines if "tax_amount" in row else []
        if year is None or (
            not any(values.money(amount) is not None for amount in amounts) and not tables.text(row, "tax_due")
        ):
            continue
        for at in range(max(1, len(amounts))):
            yield _bill(year, {name: _part(piece, at, len(amounts)) for name, piece in row.items()})


def _part(piece: Piece, at: int, parts: int) -> str:
    """The line of one part; a single line belongs to the whole, not to one of several parts."""
    lines = piece.lines
    if parts < 2:
        return piece.text
    return lines[at] if len(lines) == parts else ""


def _bill(year: int, row: Mapping[str, str]) -> TaxBill:
    return TaxBill(
        tax_year=year,
        bill_number=values.text_or_none(row.get("bill_number")),
        installment=values.text_or_none(row.get("installment")),
        tax_amount=values.money(row.get("tax_amount")),
        tax_due=values.money(row.get("tax_due")),
        status=_STATUSES[values.yes_no(row.get("paid_amount"))],
        paid_amount=values.money(row.get("paid_amount")),
        paid_date=values.iso_date(row.get("paid_date")),
    )


def _year(text: str) -> int | None:
    match = _YEAR.fullmatch(values.clean(text))
    return values.year(match[1]) if match else None


def _by_column(table: Element) -> _Listed:
    bills_ = list(_of_columns(table))
    return bills_, shown_fields(bills_, _ROWS)


def _of_columns(table: Element) -> Iterator[TaxBill]:
    grid = [[text_of(cell) for cell in cells] for cells in tables.rows_of(table)]
    for at, cells in enumerate(grid[:_MOST_HEADING_ROWS]):
        years = {len(cells) - number: year for number, cell in enumerate(cells) if number and (year := _year(cell))}
        if years:
            named = {label(_SIGN.sub("", row[0] or row[min(1, len(row) - 1)])): row for row in grid[at + 1 :]}
            rows = [(name, named[text]) for name, texts in _ROWS.items() for text in texts[::-1] if text in named]
            for behind, year in years.items():
                texts = {name: row[-behind] for name, row in rows if len(row) > behind}
                if values.money(texts.get("tax_amount")) is not None:
                    yield _bill(year, texts)
            return


def take_taxes(record: Record) -> None:
    """Of the newest year, if it has one bill or one per due date; the amount due, if every bill has it."""
    years = [bill.tax_year for bill in record.tax_bills if bill.tax_year is not None]
    newest = [bill for bill in record.tax_bills if years and bill.tax_year == max(years)]
    if len(newest) == 1:
        record.tax_year, record.tax_amount = newest[0].tax_year, newest[0].tax_amount
    elif _are_halves(newest):
        record.tax_year = newest[0].tax_year
        record.tax_amount = sum((bill.tax_amount for bill in newest if bill.tax_amount is not None), Decimal(0))
    due = [bill.tax_due for bill in record.tax_bills if bill.tax_due is not None]
    record.tax_due = sum(due, Decimal(0)) if due and len(due) == len(record.tax_bills) else None


def _are_halves(bills: Sequence[TaxBill]) -> bool:
    days = {bill.installment for bill in bills}
    return 0 < len(days) == len(bills) and None not in days and all(bill.tax_amount is not None for bill in bills)
