"""What looks like a value and is none becomes null, and is named: a record is never silently wrong."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from parcelpost.model import Done, Page, Retry
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, text_of
from parcelpost.scrapers.html.extract import Extractor, Field, Section, section
from parcelpost.scrapers.html.selectors import Id, Label
from parcelpost.scrapers.html.tables import SALE_KINDS, Columns
from parcelpost.scrapers.records.problems import Problems, drop_repeated
from parcelpost.scrapers.records.record import Building, Lien, Record, Sale, TaxBill, Valuation
from parcelpost.scrapers.records.validation import check_shapes
from tests.scrapers import test_grizzly_gis as grizzly
from tests.scrapers.reading import grid, outcome, qpublic, record, two_columns

COLUMNS = Columns({"date": ("Sale Date",), "price": ("Price",), "book_page": ("Book/Page",), "deed": ("Deed",)})
SALES = section("sales", COLUMNS, Id("sales"), kinds=SALE_KINDS)
HEADINGS, SALE, OLDER = (
    ("Sale Date", "Price", "Book/Page", "Deed"),
    ("1/2/2020", "$5,000", "10/20", "WD"),
    ("3/4/1999", "$700", "30/40", "QC"),
)


def read(table: str, part: Section = SALES) -> tuple[list[str], dict[str, str]]:
    """The dates of the sales, and what could not be read."""
    document = Document.of(Page(body=f"<html><body><div id=sales>{table}</div></body></html>".encode()))
    assert document is not None
    extractor = Extractor(document)
    rows = extractor.rows(part)
    return [row["date"].text for row in rows or () if "date" in row], extractor.problems.unreadable


def test_a_sound_table_has_no_problems() -> None:
    assert read(grid(HEADINGS, SALE, OLDER)) == (["1/2/2020", "3/4/1999"], {})


@pytest.mark.parametrize(
    ("table", "dates", "unreadable"),
    [
        (grid(HEADINGS, ("1/2/2020", "10/20", "$5,000", "WD")), [], "sales"),  # swapped below their headings
        (grid(HEADINGS, ("1/2/2020", "WD", "10/20", "$5,000")), [], "sales"),
        (grid(HEADINGS, SALE, ("Total", "$1", "$2", "$3")), ["1/2/2020"], "sales"),
        (grid(HEADINGS, SALE, ("3/4/1999", "sold", "1/2", "WD")), ["1/2/2020", "3/4/1999"], "sales.price"),
        (grid((*HEADINGS, "Price"), (*SALE, "$9")), ["1/2/2020"], "sales.price"),
        (grid(HEADINGS, SALE) + grid(OLDER), ["1/2/2020"], "sales"),
        (
            grid(HEADINGS, SALE, OLDER).replace("<td>30/40</td><td>QC</td>", "<td colspan=2>30/40 QC</td>"),
            ["1/2/2020"],
            "sales",
        ),
    ],
)
def test_rows_and_columns_that_shifted_are_named(table: str, dates: list[str], unreadable: str) -> None:
    found, problems = read(table)
    assert (found, unreadable in problems) == (dates, True), problems


def test_an_amount_with_a_point_between_the_thousands_is_none() -> None:
    assert [values.money(text) for text in ("245.900", "1.234.567", "USD 1,234", "US$5", "$1,234.50")] == [
        *(None, None),
        *(Decimal(1234), Decimal(5), Decimal("1234.50")),
    ]
    assert (values.json_nonzero("0.125"), values.json_date(1_041_465_600)) == (Decimal("0.125"), None)
    assert values.json_date("1041465600000") == "2003-01-02"


def test_texts_that_a_site_did_not_fill_in_or_withholds_are_null_and_named() -> None:
    texts = (
        "<b>12 ELM</b>",
        "12 ELM: use this link",
        "{{ address }}",
        "12 ELM STR...",
        "Confidential",
        "See deed",
        "Contact the office",
        "12",
    )
    for text in texts:
        found = Record(parcel_id="1", situs_address=text)
        check_shapes(found)
        assert (found.situs_address, found.unreadable) == (None, ["situs_address"]), text
    found = Record(
        parcel_id="1",
        owner_names=["BLOOM CLARA", "Restricted"],
        mailing_lines=["PO BOX 1", "${line2}"],
        exemptions=["Homestea..."],
        lot="Pending",
        sales=[Sale(date="2020-01-02", instrument="123/456", vacant_improved="Q", qualified="V", grantor="ELM $5...")],
    )
    check_shapes(found)
    assert (found.owner_names, found.mailing_lines, found.exemptions) == (["BLOOM CLARA"], ["PO BOX 1"], None)
    assert found.sales == [Sale(date="2020-01-02")]
    assert found.unreadable == [
        *("exemptions", "lot", "mailing_lines", "owner_names"),
        *("sales.grantor", "sales.instrument", "sales.qualified", "sales.vacant_improved"),
    ]
    protected = Record(parcel_id="1", owner_names=["CONFIDENTIAL"], sales=[Sale(vacant_improved="Improved")])
    check_shapes(protected)
    assert protected.unreadable == []


def test_what_a_page_lists_twice_is_listed_once_and_contradictions_are_named() -> None:
    sale, lien = Sale(date="2020-01-02", book_page="1/2"), Lien(certificate_number="7")
    found = Record(parcel_id="1", owner_names=["A", "A"], sales=[sale, sale], liens=[lien, lien])
    found.valuations = [Valuation(year=2020, market_value=Decimal(5))] * 2
    problems = Problems()
    drop_repeated(found, problems)
    assert (found.owner_names, found.sales, found.liens) == (["A"], [sale], [lien])
    assert (len(found.valuations), problems.unreadable) == (1, {})
    found.valuations.append(Valuation(year=2020, market_value=Decimal(6)))
    found.tax_bills = [TaxBill(bill_number="1", tax_due=Decimal(5))] * 2
    drop_repeated(found, problems)
    assert list(problems.unreadable) == ["values", "tax_bills"]


ROW = {"PIN": "12-34-567", "OWNER": "BLOOM CLARA", "LANDVAL": 5_000, "MKTVAL": 9_000, "SALEDATE": 1_041_465_600_000}


def layer(*attributes: Any, fields: tuple[str, ...] = tuple(ROW)) -> Any:
    return outcome(
        "arcgis",
        {
            "fields": [{"name": name, "type": "esriFieldTypeDate" if name == "SALEDATE" else ""} for name in fields],
            "features": [{"attributes": one} if isinstance(one, dict) else one for one in attributes],
        },
    )


@pytest.mark.parametrize(
    "broken",
    [
        {**ROW, "PIN": "*****"},
        {**ROW, "PIN": "PENDING"},
        {**ROW, "PIN": "SubdivisionName BONE LAKE ADD Lot 9"},
        [{"attributes": ROW}],
        {name: value for name, value in ROW.items() if name != "SALEDATE"},
        {**ROW, "PIN": "2", "LANDVAL": "LAND", "MKTVAL": "TOTAL", "SALEDATE": "DATE"},
    ],
)
def test_rows_of_a_layer_that_cannot_be_read_make_it_incomplete(broken: Any) -> None:
    sound = [{**ROW, "PIN": f"12-34-5{number}", "MKTVAL": 9_000 + number} for number in range(10, 19)]
    whole = layer(*sound)
    assert isinstance(whole, Done)
    assert len(whole.additional_records) == 8
    found = layer(*sound, broken)
    assert isinstance(found, Retry)
    assert found.partial is not None


def test_a_value_of_a_layer_that_its_field_cannot_have_is_named() -> None:
    found = layer({**ROW, "LANDVAL": "5.000"}, {**ROW, "PIN": "12-34-568"})
    assert isinstance(found, Done)
    assert isinstance(found.data, dict)
    assert (found.data["land_value"], found.data["unreadable"]) == (None, ["land_value"])


def test_a_table_without_columns_or_end_is_no_empty_table() -> None:
    for body in ("", "error\r\ntimeout\r\n", "BORO,BLOCK,LOT,OW"):
        assert isinstance(outcome("socrata", body), Retry), body


def test_a_register_with_two_columns_of_one_name_or_no_fitting_line_is_incomplete() -> None:
    twice = outcome("lien_register", "PARCEL,CERTIFICATE,PRINCIPAL,PRINCIPAL,TAX_YEAR\n77,400,5,6,2006\n")
    assert isinstance(twice, Retry)
    assert twice.partial is not None
    none = outcome("lien_register", "PARCEL,CERTIFICATE,ISSUE_DATE\n77,400,14.11.2007\n")
    assert isinstance(none, Retry)
    assert none.partial is None


def test_a_response_that_says_that_a_part_failed_is_incomplete() -> None:
    valued = {"Year": 2024, "LandValue": 5, "TotalValue": 12, "AssessedValue": 10}
    answer = {
        "Completed": True,
        "PropertyInfo": {"FolioNumber": "01-2345-006-0070"},
        "OwnerInfos": [{"Name": "BLOOM CLARA"}],
        "Assessment": {"AssessmentInfos": [valued]},
    }
    assert record("miamidade_pa", answer)["owner_names"] == ["BLOOM CLARA"]
    found = outcome("miamidade_pa", {**answer, "error": "timeout"})
    assert isinstance(found, Retry)
    assert "timeout" in found.reason


def test_a_page_with_two_parcels_has_no_record() -> None:
    module = "<section><header><div class=title>{}</div></header><div class=module-content>{}</div></section>"
    summary = module.format("Summary", grid(("Parcel ID", "{}"), ("Acres", "2")))
    owner = module.format("Owner", "BLOOM CLARA<br>9 OAK ST<br>MARIGOLD FL 33909")
    values_of = module.format("Valuation", grid(("", "2024 Certified"), ("Just Value", "$5")))
    end = "</body></html>"
    one = outcome("qpublic", f"<html><body>{summary.format('1-2')}{owner}{values_of}{end}")
    two = outcome("qpublic", f"<html><body>{summary.format('1-2')}{owner}{values_of}{summary.format('7-8')}{end}")
    assert getattr(one, "partial", one) != two
    assert two == Retry("the page shows several parcels")


HIDDEN = 'style="display: none"'
OWNER = "<table><tr><td>Owner</td><td id=owner>{}</td></tr><tr><td>Acres</td><td>{}</td></tr></table>"


def shown(page: str, name: str = "owner") -> str | None:
    document = Document.of(Page(body=f"<html><body>{page}</body></html>".encode()))
    assert document is not None
    element = document.by_id(name)
    return text_of(element) if element is not None else None


@pytest.mark.parametrize(
    ("page", "owner"),
    [
        (f"<div {HIDDEN}>{OWNER.format('OLD', 9)}</div>{OWNER.format('BLOOM', 2)}", "BLOOM"),
        (f"{OWNER.format('BLOOM', 2)}<div hidden>{OWNER.format('OLD', 9)}</div>", "BLOOM"),
        (f"<div {HIDDEN}>{OWNER.format('BLOOM', 2)}</div>", "BLOOM"),  # until somebody opens it
        (OWNER.format("<s>OLD</s> BLOOM", 2), "BLOOM"),
        (OWNER.format(f"BLOOM<span {HIDDEN}>as of 2019</span>", 2), "BLOOM"),
        (OWNER.format("BLOOM <i class=sr-only>the owner</i>", 2), "BLOOM"),
        (OWNER.format(f"<span {HIDDEN}>BLOOM</span>", 2), "BLOOM"),  # the only value
        (OWNER.format("BLOOM &amp;amp; SONS", 2), "BLOOM & SONS"),
        (OWNER.format("OLD", 9) + OWNER.format("BLOOM", 2), None),  # nothing says which of them holds
    ],
)
def test_only_what_a_browser_shows_counts_where_a_page_has_something_twice(page: str, owner: str | None) -> None:
    assert shown(page) == owner


@pytest.mark.parametrize(
    ("label", "owner", "unreadable"),
    [
        ("Owner", "BLOOM", {}),
        ("Previous Owner", None, {"owner": "its label has another meaning"}),
        ("Owner of 1998", None, {"owner": "its label has another meaning"}),
    ],
)
def test_a_label_that_means_something_else_overrules_the_id(
    label: str, owner: str | None, unreadable: dict[str, str]
) -> None:
    document = Document.of(Page(body=f"<table><tr><td>{label}</td><td id=owner>BLOOM</td></tr></table>".encode()))
    assert document is not None
    extractor = Extractor(document)
    field = Field("owner", (Id("owner"), Label("Owner")), lambda piece: values.text_or_none(piece.text))
    assert (extractor.value(field), extractor.problems.unreadable) == (owner, unreadable)


@pytest.mark.parametrize(
    "more", ["Showing 1 to 2 of 12 entries", "1 - 2 of 12", "Page 1 of 3", "View all 12", "Show more"]
)
def test_a_list_with_more_rows_elsewhere_is_named(more: str) -> None:
    assert "sales" in read(grid(HEADINGS, SALE, OLDER) + f"<div>{more}</div>")[1]


@pytest.mark.parametrize("note", ["Showing 1 to 2 of 2 entries", "Page 1 of 1", "Show map", "1 of 5 parcels"])
def test_a_list_that_is_all_there_is_has_no_problems(note: str) -> None:
    assert read(grid(HEADINGS, SALE, OLDER) + f"<div>{note}</div>")[1] == {}


@pytest.mark.parametrize(
    ("dates", "read_as"),
    [
        (("3/4/2020", "12/25/1999"), ["2020-03-04", "1999-12-25"]),
        (("3/4/2020", "25/12/1999"), [None]),  # so the other one is not of March either
    ],
)
def test_on_a_page_that_writes_the_day_first_no_date_is_known(
    dates: tuple[str, str], read_as: list[str | None]
) -> None:
    rows = "".join(f"<tr><td>{day}</td><td>$5</td><td>1/{at}</td></tr>" for at, day in enumerate(dates, 100))
    table = f"<table><tr><th>Sale Date</th><th>Sale Price</th><th>Book/Page</th></tr>{rows}</table>"
    page = qpublic(
        summary=two_columns(parcel_id="1-2-3"),
        owner="BLOOM CLARA<br>9 ELM ST<br>MARIGOLD, FL 32099",
        sales=table,
    )
    found = record("qpublic", page)
    assert [sale["date"] for sale in found["sales"]] == read_as
    assert ("day before the month" in found["completeness"]) is (None in read_as)


def test_a_part_that_is_larger_than_the_whole_makes_the_values_unreadable() -> None:
    for one in (
        Valuation(year=2024, market_value=Decimal(5), land_value=Decimal(9)),
        Valuation(year=2024, market_value=Decimal(5), assessed_value=Decimal(9)),
        Valuation(year=2024, assessed_value=Decimal(5), exemption_value=Decimal(4), taxable_value=Decimal(3)),
    ):
        problems = Problems()
        drop_repeated(Record(parcel_id="1", valuations=[one]), problems)
        assert problems.unreadable, one


def test_in_florida_schools_tax_no_less_than_others() -> None:
    one = Valuation(year=2024, taxable_value=Decimal(9), taxable_value_school=Decimal(5))
    sound = Valuation(year=2023, taxable_value=Decimal(5), taxable_value_school=Decimal(9))
    problems = Problems()
    drop_repeated(Record(parcel_id="1", valuations=[one, sound]), problems)
    assert (one.taxable_value, dict(problems.unreadable)) == (Decimal(9), {})  # a law of Florida
    drop_repeated(Record(parcel_id="1", state="FL", valuations=[one, sound]), problems)
    assert [one.taxable_value, one.taxable_value_school, sound.taxable_value] == [None, None, 5]
    assert set(problems.unreadable) == {"valuations.taxable_value", "valuations.taxable_value_school"}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("tax_account", "0.1377"),
        ("tax_account", "Springfield"),
        ("alternate_id", "136,577 acres"),
        ("alternate_id", "308 ELM ST"),
        ("legal_description", "24140"),
        ("legal_description", "Acres"),
        ("situs_address", "3368 358100 CT"),
        ("situs_address", "2280 QUEENS 1702821210015"),
        ("lot", "308 ELM ST"),
        ("lot", "$5"),
        ("lot", "Parcel ID"),
        ("land_use_desc", "UNINCORPORATED"),
        ("tax_district", "VAC RES"),
        ("subdivision", "11"),
        ("ownership_type", "1, Trustee"),
        ("land_use_desc", "2.500"),
        ("zoning", "1.00001E+09"),
    ],
)
def test_a_value_of_another_kind_is_null_and_named(field: str, text: str) -> None:
    found = Record(parcel_id="1")
    setattr(found, field, text)
    check_shapes(found)
    assert (getattr(found, field), found.unreadable) == (None, [field])


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("lot", ("A-B", "A & B", "COMMONS", "OPEN SPACE", "ROAD", "DRAINAGE", "WEST HALF", "REMAINDER", "3-4-05")),
        ("lot", ("IN", "PA", "ME", "AL", "1 THRU 12 INCL & 15 THRU 20 & W 10 FT OF 21")),
        ("block", ("A-B", "COMMONS", "IN", "12-1-34")),
        ("tax_account", ("5-12-45", "1-2-2034", "12-1-34", "10-12-0045")),
        ("alternate_id", ("5-12-45", "1/2/34")),
        ("land_use_desc", ("Agricultural Land Use", "VACANT LAND VALUE", "CENTRALLY ASSESSED VALUE")),
        ("land_use_desc", ("ALL OTHER PROPERTY TYPE", "VACANT RESIDENTIAL-UNINCORPORATED")),
        ("legal_description", ("UNPLATTED", "ACREAGE", "LEASEHOLD", "IMPROVEMENT-ONLY")),
        (
            "situs_address",
            ("1234 E BAY DR UNIT 120304", "2000 N OCEAN BLVD 100203", "123 MAIN ST NAPLES FL 341021234 USA"),
        ),
        ("situs_address", ("9 ELM ST # 1234567890", "UNIT 120304 OCEAN DR", "123 MAIN ST NAPLES FL 34102-1234")),
    ],
)
def test_an_unusual_value_stays(field: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        found = Record(parcel_id="1", state="FL", county="lee", situs_city="NAPLES", land_use_code="5000")
        setattr(found, field, text)
        check_shapes(found)
        assert (getattr(found, field), found.land_use_code, found.unreadable) == (text, "5000", []), text


def test_the_code_of_a_use_stays_without_its_description() -> None:
    found = Record(parcel_id="1", land_use_code="5000", land_use_desc="UNINCORPORATED")
    check_shapes(found)
    assert (found.land_use_code, found.unreadable) == ("5000", ["land_use_desc"])


@pytest.mark.parametrize(
    ("found", "unreadable"),
    [
        (Record(parcel_id="1", block="Springfield", situs_city="3"), ["block", "situs_city"]),
        (Record(parcel_id="1", block="Springfield", situs_city="SPRINGFIELD"), ["block"]),
        (Record(parcel_id="1", lot="FL", state="FL"), ["lot"]),
        (Record(parcel_id="1", legal_description="Naples", mailing_city="NAPLES"), ["legal_description"]),
        (
            Record(parcel_id="1", land_use_code="01", land_use_desc="UNINCORPORATED", tax_district="VAC RES"),
            ["land_use_code", "land_use_desc", "tax_district"],
        ),
        (
            Record(parcel_id="1", land_use_desc="UNINCORPORATED WEST", tax_district="VAC RES"),
            ["land_use_desc", "tax_district"],
        ),
        (
            Record(parcel_id="1", lot="ELM ACRES 5TH ADD LOT 15 BLOCK 3 PB 12 PG 34", legal_description="15"),
            ["legal_description", "lot"],
        ),
        (
            Record(parcel_id="1", sales=[Sale(instrument="100", book_page="WD")], last_sale_instrument="100"),
            ["last_sale_instrument", "sales.book_page", "sales.instrument"],
        ),
    ],
)
def test_values_that_changed_places_are_both_null(found: Record, unreadable: list[str]) -> None:
    check_shapes(found)
    assert found.unreadable == unreadable


def test_what_a_county_says_of_a_sale_may_be_a_code_or_the_name_of_the_column() -> None:
    sales = [Sale(qualified=text) for text in ("Qualified", "Unqualified", "001", "100")]
    sales += [Sale(instrument="103"), Sale(instrument="2019123456")]
    check_shapes(found := Record(parcel_id="1", sales=sales))
    assert [sale.qualified or sale.instrument for sale in found.sales] == [
        *("Qualified", "Unqualified", "001", "100", "103", None),
    ]
    assert found.unreadable == ["sales.instrument"]


@pytest.mark.parametrize(
    ("found", "unreadable"),
    [
        (Record(parcel_id="1", sales=[Sale(price=Decimal(-225_000))]), {"sales.price"}),
        (Record(parcel_id="1", land_value=Decimal(-18_000)), {"land_value"}),
        (Record(parcel_id="1", valuations=[Valuation(land_value=Decimal(-18_000))]), {"valuations.land_value"}),
        (
            Record(parcel_id="1", building_area_sqft=Decimal(244), buildings=[Building(base_sqft=Decimal(-1_756))]),
            {"buildings.base_sqft", "building_area_sqft"},
        ),
        (Record(parcel_id="1", liens=[Lien(face_amount=Decimal("-2104.88"))]), {"liens.face_amount"}),
        (Record(parcel_id="1", liens=[Lien(opening_bid=Decimal(-34_400))]), {"liens.opening_bid"}),
        (Record(parcel_id="1", liens=[Lien(interest_rate_pct=Decimal(180))]), {"liens.interest_rate_pct"}),
        (Record(parcel_id="1", liens=[Lien(interest_rate_pct=Decimal(-1))]), {"liens.interest_rate_pct"}),
        (Record(parcel_id="1", liens=[Lien(sale_date="2099-01-02")]), {"liens.sale_date"}),
        (Record(parcel_id="1", market_value=Decimal(10) ** 12), {"market_value"}),
        (Record(parcel_id="1", year_built=2099), {"year_built"}),
        (
            Record(parcel_id="1", latitude=Decimal("712345.1"), longitude=Decimal(-81)),
            {"latitude", "longitude"},
        ),
        (Record(parcel_id="1", latitude=Decimal(-81), longitude=Decimal(28)), {"latitude", "longitude"}),
    ],
)
def test_a_number_that_its_field_cannot_have_is_null_and_named(found: Record, unreadable: set[str]) -> None:
    check_shapes(found)
    assert set(found.unreadable) == unreadable
    for path in unreadable:
        of, _, name = path.rpartition(".")
        assert all(getattr(item, name) is None for item in (getattr(found, of) if of else [found])), path


@pytest.mark.parametrize("longitude", ["144.8", "145.75", "179.5", "-179.9", "-66"])
def test_a_parcel_may_be_on_either_side_of_the_date_line(longitude: str) -> None:
    found = Record(parcel_id="1", latitude=Decimal("13.5"), longitude=Decimal(longitude))
    check_shapes(found)
    assert (found.longitude, found.unreadable) == (Decimal(longitude), [])


def test_a_balance_in_favor_of_the_taxpayer_is_negative() -> None:
    found = Record(parcel_id="1", tax_due=Decimal(-5), tax_bills=[TaxBill(tax_due=Decimal(-5))])
    check_shapes(found)
    assert (found.tax_due, found.unreadable) == (Decimal(-5), [])


@pytest.mark.parametrize(
    ("date", "status", "is_read"),
    [
        ("2026-12-31", "certified", True),
        ("2027-01-01", "certified", False),
        ("2035-10-12", "certified", False),
        ("2099-01-02", "current", False),
        ("2029-01-02", "current", True),  # the values of a town are as old as its last revaluation
    ],
)
def test_a_sale_long_after_the_newest_values_has_no_date(date: str, status: str, *, is_read: bool) -> None:
    found = Record(parcel_id="1", value_status=status, last_sale_date=date, last_sale_price=Decimal(5))
    found.valuations = [Valuation(year=2024, status=status)]
    found.sales = [Sale(date=date, price=Decimal(5)), Sale(date="2001-02-03", price=Decimal(4))]
    check_shapes(found)
    assert (found.last_sale_date, found.last_sale_price) == ((date, 5) if is_read else (None, None))
    assert [sale.date for sale in found.sales] == [date if is_read else None, "2001-02-03"]
    assert ({"sales.date", "last_sale_date", "last_sale_price"} <= set(found.unreadable)) is not is_read


def test_a_year_of_two_digits_is_none_far_ahead() -> None:
    assert values.iso_date("10/12/35") == "1935-10-12"
    assert values.iso_date("10/12/25") == "2025-10-12"


def test_a_text_that_is_no_such_value_is_named() -> None:
    found = record("grizzly_gis", grizzly.page(area="1.012 HA"))
    assert (found["land_area_acres"], found["unreadable"]) == (None, ["land_area_acres"])
    found = record("grizzly_gis", grizzly.page(area="N/A"))
    assert (found["land_area_acres"], found["unreadable"]) == (None, [])
