"""Lists of auctions and deeds as other counties show them."""

from __future__ import annotations

from typing import Any

import pytest

from parcelpost.model import Done, NotFound, Retry
from tests.scrapers.reading import grid, outcome


def records(platform: str, page: str | dict[str, Any]) -> list[dict[str, Any]]:
    found = outcome(platform, page)
    assert isinstance(found, Done), found
    return [dict(one) for one in (found.data, *found.additional_records)]  # type: ignore[arg-type]


FOOTER = "<footer>All rights reserved</footer>"


def pioneer(**cells: str) -> str:
    row = "".join(
        f'<td aria-describedby="TaxDeed_{name}" title="{text}">{text[:9]}</td>' for name, text in cells.items()
    )
    return f"<html><body><table><tr>{row}</tr></table><div>View 1 - 1 of 1</div>{FOOTER}</body></html>"


@pytest.mark.parametrize(
    ("text", "number", "year"),
    [
        ("07174-2016", "07174", 2016),
        ("2016-07174", "07174", 2016),
        ("2019-0048", "0048", 2019),
        ("1234/2016", "1234", 2016),
        ("07174", "07174", None),
        ("1-2016, 2-2017", "1-2016, 2-2017", None),
    ],
)
def test_a_certificate_is_a_number_and_a_year(text: str, number: str, year: int | None) -> None:
    (found,) = records("pioneer_taxdeed", pioneer(CaseNumber="2023-0308TD", CertificateNumber=text))
    assert (found["certificate_number"], found["certificate_year"]) == (number, year)


def test_columns_of_a_deed_list_have_other_names() -> None:
    cells = {"TaxDeedNumber": "2023-1", "ParcelNumber": "16-7", "AuctionDate": "06/14/2023", "MinimumBid": "$1,131.91"}
    (found,) = records("pioneer_taxdeed", pioneer(**cells, Status="SOLD", PropertyOwner="BLOOM CLARA~~BLOOM CLARA"))
    assert (found["case_number"], found["parcel_id"], found["auction_date"]) == ("2023-1", "16-7", "2023-06-14")
    assert (found["opening_bid"], found["is_otc"], found["owner_names"]) == (1131.91, False, ["BLOOM CLARA"])


def auction(*rows: str, title: str = '<span class="subtitle">9/17/2025 Tax Deed Sale</span>') -> str:
    heads = "<tr><td></td><td>Tax Deed #</td><td>Opening Bid</td><td>Best Bid</td><td>Close</td><td>Status</td></tr>"
    return f'<html><body>{title}<table id="results">{heads}{"".join(rows)}</table>{FOOTER}</body></html>'


def item(number: int, case: str, bid: str, status: str, details: str = "") -> str:
    cells = (case, bid, "$9", "-", status)
    return f"""<tr id="{number}.summary"><td></td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>
<tr id="{number}.details"><td></td><td colspan=100><div id="item_details.{number}">{details}</div></td></tr>"""


def test_an_item_without_an_opening_bid_is_listed_and_its_best_bid_is_none() -> None:
    found = records("deedauction", auction(item(1, "51640", "$100", "Upcoming"), item(2, "51641", "-", "Canceled")))
    assert [(one["case_number"], one["opening_bid"], one["status"]) for one in found] == [
        ("51640", 100, "upcoming"),
        ("51641", None, "canceled"),
    ]
    assert found[0]["auction_date"] == "2025-09-17"


def test_details_that_were_opened_name_the_parcel() -> None:
    details = grid(("Parcel ID:", "5042-1"), ("Certificate #:", "77"), ("Property Address:", "12 ELM ST"))
    first, second = records("deedauction", auction(item(1, "5", "$1", "Sold", details), item(2, "6", "$2", "Sold")))
    assert (first["parcel_id"], first["certificate_number"], first["situs_address"]) == ("5042-1", "77", "12 ELM ST")
    assert (second["parcel_id"], second["certificate_number"], second["situs_address"]) == (None, None, None)


def test_the_day_of_an_auction_may_stand_where_bidding_starts() -> None:
    title = "<div>Registration ends 9/1/2025</div><div>Bidding starts at: 9/17/2025 9:00 AM EDT</div>"
    (found,) = records("deedauction", auction(item(1, "5", "$1", "Sold"), title=title))
    assert found["auction_date"] == "2025-09-17"


def live(*cells: str, link: str = "/al/county/12/openlienparcel/34/01-02-03") -> str:
    row = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
    items = f'<table id="auctionTable"><tr><td></td><td><a href="{link}">3</a></td>{row}</tr></table>'
    return f"<html><body>{items}<div>Showing 1 to 1 of 1 entries</div>{FOOTER}</body></html>"


AUCTION = '<td class="no-translate-auctionname">2024 Tax Lien Auction</td>'


def test_a_live_item_with_more_cells_before_its_parcel() -> None:
    (found,) = records(
        "govease", live("MAP 7", "01-02-03", "BLOOM CLARA", "$50.00", "<p>Lot 1</p>", "9 ELM ST", AUCTION)
    )
    assert (found["parcel_id"], found["owner_names"], found["opening_bid"]) == ("01-02-03", ["BLOOM CLARA"], 50)
    assert found["situs_address"] == "9 ELM ST"


def test_a_live_item_without_owner_and_address_takes_nothing_else_for_them() -> None:
    (found,) = records("govease", live("01-02-03", "$50.00", "<p>Use Code: 103</p>", AUCTION, "Tax Lien"))
    assert (found["owner_names"], found["situs_address"], found["land_use_code"]) == ([], None, "103")


def test_the_link_names_the_parcel_where_no_cell_does() -> None:
    (found,) = records("govease", live("$50.00", link="/al/county/12/openlienparcel/34/01%2002-03"))
    assert (found["parcel_id"], found["owner_names"]) == ("01 02-03", [])


def test_empty_lists_are_not_found_and_other_pages_come_again() -> None:
    empty = '<table id="auctionTable"><tr><td>No data available</td></tr></table>'
    assert isinstance(outcome("govease", f"<html><body>{empty}{FOOTER}</body></html>"), NotFound)
    assert isinstance(outcome("govease", empty), Retry)
    assert isinstance(outcome("deedauction", auction()), NotFound)
    for platform in ("govease", "deedauction", "pioneer_taxdeed"):
        assert isinstance(outcome(platform, "<html><body>Please sign in</body></html>"), Retry)


def test_a_city_s_own_letters_are_no_state(subtests: pytest.Subtests) -> None:
    for line, city, zip_code in [
        ("OCALA, FL- 34470", "OCALA", "34470"),
        ("OCALA, 34470", "OCALA", "34470"),
        ("OCALA", "OCALA", None),
        ("PORT ST LUCIE 34952-1234", "PORT ST LUCIE", "34952-1234"),
        ("FL- 34470", None, "34470"),
        ("UNIT 4", None, None),
    ]:
        for cells in ['@H@CAD_LBL">{}@F @CAD_DTA">{}@G', '@AAD_LBL">{}@B@AAD_DTA">{}@B']:
            with subtests.test(line=line, city=city, zip_code=zip_code, cells=cells):
                rows = [
                    ("Case #:", "<a>2024-7</a>"),
                    ("Parcel ID:", "<a>12-3</a>"),
                    ("Property Address:", "9 ELM ST"),
                    ("", line),
                ]
                text = f'<div id="AITEM_1"><table>{"".join(cells.format(*row) for row in rows)}</table></div>'
                (found,) = records("realauction", {"retHTML": text, "rlist": "1"})
                assert (found["case_number"], found["parcel_id"], found["situs_address"]) == (
                    "2024-7",
                    "12-3",
                    "9 ELM ST",
                )
                assert (found["situs_city"], found["situs_zip"]) == (city, zip_code)


def test_which_of_several_amounts_is_the_opening_bid_is_not_guessed() -> None:
    (found,) = records("govease", live("01-02-03", "BLOOM CLARA", "$700.00", "$50.00", AUCTION))
    assert (found["parcel_id"], found["liens"][0]["opening_bid"]) == ("01-02-03", None)
    (found,) = records("govease", live("01-02-03", "BLOOM CLARA", "$50.00", AUCTION, "$700.00"))
    assert found["liens"][0]["opening_bid"] == 50


def test_a_list_whose_rows_cannot_be_read_is_not_empty() -> None:
    assert isinstance(outcome("deedauction", auction(item(1, "", "$100", "Upcoming"))), Retry)
    assert isinstance(outcome("govease", live("01-02-03", "BLOOM CLARA", AUCTION)), Retry)
    assert isinstance(outcome("govease", live("01-02-03", "$50.00", AUCTION, link="/elsewhere")), Retry)


def auction_item(number: int, **rows: str) -> str:
    cells = "".join(f'@H@CAD_LBL">{name}:@F @CAD_DTA">{text}@G' for name, text in rows.items())
    return f'<div id="AITEM_{number}"><table>{cells}</table></div>'


SOUND = auction_item(1, **{"Case #": "2024-7", "Opening Bid": "$5.00"})


@pytest.mark.parametrize(
    ("items", "listed", "missing"),
    [
        (SOUND + auction_item(2, **{"Opening Bid": "$9.00"}), "1,2", "no case and no parcel"),
        (SOUND, "1,2", "1 of 2"),
        (auction_item(1, **{"Case #": "2024-7", "Base Bid": "$5.00"}), "1", "liens.opening_bid"),
        (auction_item(1, **{"Case #": "2024-7", "Opening Bid": "soon"}), "1", "liens.opening_bid"),
    ],
)
def test_items_of_an_auction_do_not_vanish(items: str, listed: str, missing: str) -> None:
    assert isinstance(outcome("realauction", {"retHTML": SOUND, "rlist": "1"}), Done)
    found = outcome("realauction", {"retHTML": items, "rlist": listed})
    assert isinstance(found, Retry)
    assert missing in found.reason
    assert found.partial is not None


def test_a_response_without_items_among_others_is_not_passed_over() -> None:
    found = outcome("realauction", {"answers": [{"retHTML": SOUND, "rlist": "1"}, {"rlist": "2"}]})
    assert isinstance(found, Retry)
    assert found.partial is not None


@pytest.mark.parametrize(
    ("status", "is_otc"),
    [
        ("Lands Available", True),
        ("Lands Available for Sale", True),
        ("LAND AVAILABLE LIST", True),
        ("Redeemed", False),
        ("Ready for Review", None),
        ("Lands Available - Redeemed", None),
        ("LAFT - Sold", None),
        ("Not on List of Lands Available", None),
    ],
)
def test_what_can_be_bought_at_once_is_known_only_by_a_known_status(status: str, *, is_otc: bool | None) -> None:
    (found,) = records("pioneer_taxdeed", pioneer(CaseNumber="2023-0308TD", Status=status))
    assert found["is_otc"] is is_otc


def test_rows_without_the_page_around_them_are_not_the_list() -> None:
    whole = live("01-02-03", "$50.00", AUCTION)
    assert isinstance(outcome("govease", whole), Done)
    for part in (whole.replace("Showing 1 to 1 of 1 entries", ""), whole.replace(FOOTER, "")):
        found = outcome("govease", part)
        assert isinstance(found, Retry)
        assert found.partial is not None


def test_the_current_bid_of_an_item_is_its_high_bid() -> None:
    bid = "<td>09d 13h</td>", '<td><span data-control-id="current-bid">{}</span></td>'
    for text, amount in [("$75.00", 75), ("", None)]:
        (found,) = records("govease", live("01-02-03", "$50.00", AUCTION, bid[0], bid[1].format(text)))
        assert (found["liens"][0]["opening_bid"], found["liens"][0]["high_bid"]) == (50, amount)
