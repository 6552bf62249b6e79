"""Registers of liens as treasurers write them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parcelpost.model import Done, NotFound, Retry
from parcelpost.search_fields import search_fields
from tests.scrapers.reading import outcome

HEADING = "PARCEL_ID,CERTIFICATE_NUMBER,ISSUE_DATE,SUBTAX,REDEMPTION_DATE,TAX_YEAR,PRINCIPAL"


def liens(*lines: str) -> list[dict[str, Any]]:
    found = outcome("lien_register", "\n".join(lines))
    assert isinstance(found, Done), found
    records = [dict(one) for one in (found.data, *found.additional_records)]  # type: ignore[arg-type]
    return [{"parcel_id": one["parcel_id"], **one["liens"][0]} for one in records]


def test_a_later_tax_is_a_payment_on_its_certificate_and_costs_are_kept() -> None:
    heading = f"{HEADING},INTEREST,TREASURERDEEDFEE"
    sold, paid = liens(heading, "77,400,11/14/07,N,,2006,100,12.5,0", "77,400,08/07/08,Y,,2007,90,3,350")
    assert (sold["subsequent_tax"], sold["certificate_sale_date"], sold["interest_amount"]) == (
        False,
        "2007-11-14",
        12.5,
    )
    assert (paid["subsequent_tax"], paid["certificate_sale_date"], paid["fees"]) == (True, "2007-11-14", 350)
    record = {"liens": [sold, paid]}
    listed = search_fields(record, msgspec.json.encode(record)).liens
    assert [lien.tax_year for lien in listed] == [2006], "it is not a lien of its own"


@pytest.mark.parametrize("odd", ["78,401,11/14/07,N,,2006", "78,401,N,11/14/07,,2006,90", ",401,11/14/07,N,,2006,90"])
def test_a_line_that_does_not_fit_its_headings_makes_the_register_incomplete(odd: str) -> None:
    found = outcome("lien_register", "\n".join([HEADING, "77,400,11/14/07,N,,2006,100", odd, ""]))
    assert isinstance(found, Retry)
    assert found.partial is not None
    assert found.partial.additional_records == ()


def test_lines_that_share_a_certificate_and_a_parcel_stay_separate() -> None:
    found = liens(
        HEADING,
        "77,400,11/14/07,N,,2006,100.10",
        "77,400,08/07/08,Y,,2007,90.20",
        "77,400,08/07/09,Y,,2008,80.30",
        "78,400,11/14/07,N,,2006,70.40",
    )
    assert [(one["parcel_id"], one["tax_year"], one["face_amount"]) for one in found] == [
        ("77", 2006, 100.1),
        ("77", 2007, 90.2),
        ("77", 2008, 80.3),
        ("78", 2006, 70.4),
    ]
    assert [one["sale_date"] for one in found] == ["2007-11-14", "2008-08-07", "2009-08-07", "2007-11-14"]


def test_a_later_tax_does_not_make_its_certificate_younger() -> None:
    found = liens(HEADING, "77,400,08/07/08,Y,,2007,90", "77,400,11/14/06,N,,2005,80", "79,401,08/07/08,Y,,2007,90")
    assert [one["certificate_year"] for one in found] == [2006, 2006, None]


def test_a_certificate_s_year_is_none_where_two_sales_contradict() -> None:
    found = liens(HEADING, "77,400,11/14/06,N,,2005,80", "77,400,11/14/09,N,,2008,80")
    assert [one["certificate_year"] for one in found] == [None, None]


@pytest.mark.parametrize(
    ("heading", "cell", "status"),
    [
        ("REDEMPTION_DATE", "05/20/2004", "redeemed"),
        ("REDEMPTION_DATE", "", "outstanding"),
        ("REDEMPTION_DATE", "PENDING", None),
        ("REDEEMED", "Y", "redeemed"),
        ("REDEEMED", "N", "outstanding"),
        ("STATUS", "Canceled", "canceled"),
        ("REMARKS", "", None),
    ],
)
def test_a_lien_is_outstanding_only_if_the_register_would_say_otherwise(
    heading: str, cell: str, status: str | None
) -> None:
    (found,) = liens(f"Parcel,Cert No,{heading}", f"77,400,{cell}")
    assert found["status"] == status


def test_a_lone_year_may_be_of_the_tax_or_of_the_sale() -> None:
    (found,) = liens("Parcel,Cert No,Year,Face Amount", '77,400,2019,"$1,234.50"')
    assert (found["tax_year"], found["certificate_year"], found["face_amount"]) == (None, None, 1234.5)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_columns_are_found_below_a_title_and_whatever_is_between_them(delimiter: str) -> None:
    (found,) = liens(
        "Tax Liens of Marigold County",
        "",
        delimiter.join(("Certificate Number", "Buyer", "Parcel Number", "Interest Rate", "Face Value")),
        delimiter.join(("400", "OAK BANK", "77-1", "5.25 %", "$100.00")),
        delimiter.join(("", "", "TOTAL", "", "$100.00")),
    )
    assert (found["parcel_id"], found["certificate_number"], found["holder_name"]) == ("77-1", "400", "OAK BANK")
    assert (found["interest_rate_pct"], found["face_amount"]) == (5.25, 100)


def test_a_lien_without_a_certificate_is_kept_with_its_amount() -> None:
    found = liens(HEADING, "77,,11/14/07,N,,2006,100", "78,,,,,,")
    assert [(one["parcel_id"], one["certificate_number"]) for one in found] == [("77", None)]


def test_what_is_no_register_is_no_record() -> None:
    assert isinstance(outcome("lien_register", "a,b\n1,2\n"), Retry)
    assert isinstance(outcome("lien_register", HEADING), NotFound)


@pytest.mark.parametrize("rows", [40, 21_000])
@pytest.mark.parametrize("stray", ['9,"9,11/14/07,N,,2006,1', '"9,9,11/14/07,N,,2006,1', '9,9,11/14/07,N,,2006,"1'])
def test_a_stray_quote_does_not_end_the_register_early(rows: int, stray: str) -> None:
    lines = [f"{number},{number},11/14/07,N,,2006,100.10" for number in range(rows)]
    page = "\n".join([HEADING, *lines[:20], stray, *lines[20:], ""])
    assert isinstance(outcome("lien_register", page), Retry)
    closed = page.replace(f"\n{lines[30]}\n", f'\n{lines[30]}"\n')
    assert isinstance(outcome("lien_register", closed), Retry)


def test_quotes_around_cells_and_inside_of_them_are_read() -> None:
    heading = f"{HEADING},OWNER"
    found = outcome("lien_register", f'{heading}\n"77","400",11/14/07,N,,2006,1,"BLOOM ""BIL""\nAND CO, AMES, IA"')
    assert isinstance(found, Done)
    assert isinstance(found.data, dict)
    assert (found.data["parcel_id"], found.additional_records) == ("77", ())


def test_a_number_that_goes_over_several_lines_is_none() -> None:
    assert isinstance(outcome("lien_register", 'PARCEL,CERT,FACE\n1,"2\n3,4",5\n'), Retry)


@pytest.mark.parametrize("total", ["Total 2024", "TOTALS: 2", "Grand Total 2024", "Subtotal 7"])
def test_a_total_is_no_parcel(total: str) -> None:
    (found,) = liens(HEADING, "77,400,11/14/07,N,,2006,100.10", f"{total},,,,,,99999")
    assert found["parcel_id"] == "77"


@pytest.mark.parametrize(
    ("heading", "flags", "is_read"),
    [
        ("SUBTAX", ("N", "Y"), True),
        ("ENDORSED", ("N", "Y"), True),
        ("LATER", ("N", "Y"), False),
        ("SUBTAX", ("0", "1"), False),
        ("SUBTAX", ("", "X"), False),
        ("SUBTAX", ("", ""), False),
    ],
)
def test_payments_on_a_certificate_do_not_count_as_liens(
    heading: str, flags: tuple[str, str], *, is_read: bool
) -> None:
    lines = [f"77,400,11/14/07,{flags[0]},2006,100", f"77,400,08/07/08,{flags[1]},2007,90", ""]
    heads = f"PARCEL_ID,CERTIFICATE_NUMBER,ISSUE_DATE,{heading},TAX_YEAR,PRINCIPAL"
    found = outcome("lien_register", "\n".join([heads, *lines]))
    assert isinstance(found, Done if is_read else Retry)


def test_a_register_with_one_line_a_certificate_needs_no_column_of_later_taxes() -> None:
    assert len(liens("PARCEL_ID,CERTIFICATE_NUMBER,PRINCIPAL", "77,400,100", "78,400,100", "78,401,90")) == 3
