"""Sites that show lists of tax sales: `deedauction`, `govease`, `lien_register` and `pioneer_taxdeed`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from parcelpost.simulator.parcels import AUCTION_DAY, AuctionCase, Parcel, World, auction_cases, page_number
from parcelpost.simulator.web import CSV, NOT_FOUND, Layout, Request, Response, cents, html_page, us_date


def _cases(request: Request, world: World) -> Iterator[AuctionCase]:
    return auction_cases(world, page_number(request.query.get("page", "1")))


_AUCTION = re.compile(r"/auction/\d+/?")


def deedauction(request: Request, world: World, looks: Layout) -> Response:
    """The items of an auction, without their parcels."""
    if not _AUCTION.fullmatch(request.path):
        return NOT_FOUND
    rows = "".join(_deedauction_item(case) for case in _cases(request, world))
    day = us_date(AUCTION_DAY)
    heads = "".join(
        f'<td><a class="sort_header" href="#">{name}</a></td>'
        for name in ("Tax Deed #", "Opening Bid", "Best Bid", "Close(EDT)")
    )
    return html_page(f"""<!DOCTYPE html><html><head><title>Auction</title></head><body><table><tr><td id="right_column">
<div id="body"><div id="content_header"><h1 id="title">View Auction</h1><div class="subtitle">
<span class="subtitle">{day} Tax Deed Sale</span><span class="headline">{day}</span></div></div>
<div class="items_container"><table class="basic" id="{looks.name("results")}"><thead><tr class="title">
<th colspan="100"><div>Bidding starts at: {day} 9:00 AM EDT</div><div id="clock"></div></th></tr>
<tr class="title"><td>&nbsp;</td>{heads}<td>Status</td></tr></thead><tbody>{rows}</tbody></table></div></div></td></tr>
</table><div id="footer">Copyright \u00a9 2026. All rights reserved.</div></body></html>""")


def _deedauction_item(case: AuctionCase) -> str:
    number = case.parcel.number
    return f"""<tr id="{number}.summary" class=""><td><a id="{number}.expand" href="#"></a></td>
<td id="item_id.{number}">{case.number}</td><td class="highlightable">{cents(case.opening_cents)}</td>
<td class="highlightable" id="best_bid.{number}">-</td><td id="time.{number}" class="ticker"><span>11:01 AM</span></td>
<td id="link.{number}" class="bold">Upcoming</td></tr><tr id="{number}.message" class="message">
<td colspan="6" class="bold">
<div id="special_message.{number}" class="message"></div></td></tr>
<tr class="details" id="{number}.details"><td colspan="2"></td><td colspan="4"></td></tr>"""


_LONGEST_NAME = 20


def govease(request: Request, world: World, looks: Layout) -> Response:
    """The rows of an auction's table, without its headings."""
    cases = list(_cases(request, world))
    rows = "".join(map(_govease_row, cases))
    return html_page(f"""<!DOCTYPE html><html><head><title>Live Auction</title></head><body>
<table id="{looks.name("auctionTable")}"><tbody>{rows}</tbody></table>
<div>Showing 1 to {len(cases)} of {len(cases)} entries</div><footer>All rights reserved.</footer></body></html>""")


def _govease_row(case: AuctionCase) -> str:
    parcel, number = case.parcel, case.parcel.number
    return f"""<tr class="odd nobid" role="row"><td class="dtr-control"></td><td></td>
<td><a href="/fl/flinvented/1348/openstandardparcel/{number}/{parcel.parcel_id}" target="_blank">{number}</a></td>
<td> {parcel.parcel_id}</td><td>{_owner(parcel.owners[0])}</td><td class="alignDollar">{cents(case.opening_cents)}</td>
<td class="no-translate" style="display: none;"><p>Tax Rate Area: 001-001</p><p>Use Code: {parcel.use_code}</p>
<p>A transfer tax of $0.55 per $500 will be added.</p></td>
<td class="no-translate" style="display: none;">{parcel.situs}</td>
<td class="no-translate-auctionname"><span>Invented Tax Deed Auction</span></td><td><span>Tax Deed</span></td>
<td>09d 13h</td><td><div data-col-name="tot_bids"><span id="tot-bids-{number}"></span></div></td><td></td></tr>"""


def _owner(name: str) -> str:
    """A long one is cut and shown whole when one points at it."""
    if len(name) <= _LONGEST_NAME:
        return f'<span class="no-translate">{escape(name)}</span>'
    return f"""<span class="no-translate" data-content="{escape(name)}" data-toggle="popover" title="">
{escape(name[:_LONGEST_NAME])}...</span>"""


_MOST_LIEN_PARCELS = 20_000
_LIEN_HEADING = (
    "SCHEDULE_NUMBER,CERTIFICATE_NUMBER,ISSUE_DATE,SUBTAX,REDEMPTION_DATE,TAX_YEAR,PRINCIPAL,INTEREST,"
    "PREMIUMBIDFEE,TREASURERDEEDFEE"
)


def lien_register(request: Request, world: World, looks: Layout) -> Response:
    """Of the first parcels only, where there are more than a county has."""
    if not request.path.lower().endswith(".csv"):
        return NOT_FOUND
    lines = (line for parcel in world.register.page(0, _MOST_LIEN_PARCELS) for line in _lien_lines(parcel))
    return Response(body="\r\n".join((_LIEN_HEADING, *lines, "")).encode(), content_type=CSV)


def _lien_lines(parcel: Parcel) -> list[str]:
    return [
        f"{parcel.parcel_id},{certificate.number},{certificate.sold_on:%m/%d/%y},N,"
        f"{f'{certificate.redeemed_on:%m/%d/%y}' if certificate.redeemed_on else ''},{certificate.tax_year},"
        f"{certificate.face_cents // 100}.{certificate.face_cents % 100:02},0,0,0"
        for certificate in parcel.certificates
    ]


_COLUMNS = (
    "Applicant",
    "CaseNumber",
    "CertificateNumber",
    "ParcelID",
    "SaleDate",
    "Status",
    "OpeningBid",
    "HighBid",
    "Surplus",
    "PropertyOwners",
)


def pioneer_taxdeed(request: Request, world: World, looks: Layout) -> Response:
    """A grid of tax deed cases whose cells name their column."""
    grid = looks.name("TaxDeed")
    cases = list(_cases(request, world))
    rows = "".join(_pioneer_row(case, grid) for case in cases)
    shown = f"View 1 - {len(cases)} of {len(cases)}" if cases else "No records to view"
    heads = "".join(f'<th id="{grid}_{name}" role="columnheader"><div>{name}</div></th>' for name in _COLUMNS)
    return html_page(f"""<!DOCTYPE html><html><head><title>Tax Deeds</title></head><body><header><p>Clerk</p></header>
<div id="body"><section class="content-wrapper"><form action="/" method="post"><div id="tabs"><div id="tabs-2">
<label for="Search_For:">Search For:</label><input id="SearchForCase" name="SearchForCase"></div></div></form>
<div class="ui-jqgrid" id="gbox_{grid}"><table class="ui-jqgrid-htable"><thead><tr>{heads}</tr></thead></table>
<table id="{grid}" class="ui-jqgrid-btable"><tbody><tr class="jqgfirstrow">{"<td></td>" * len(_COLUMNS)}</tr>{rows}
</tbody></table><div class="ui-paging-info">{shown}</div></div></section></div>
<footer>Invented Clerk. All Rights Reserved.</footer></body></html>""")


def _pioneer_row(case: AuctionCase, grid: str) -> str:
    texts = (
        case.certificate.holder,
        case.number,
        f"{case.certificate.number}-{case.certificate.tax_year}",
        case.parcel.parcel_id,
        us_date(AUCTION_DAY),
        "LANDS AVAILABLE",
        cents(case.opening_cents),
        cents(case.high_cents),
        cents(case.high_cents - case.opening_cents),
        "".join(f"~{name}~~{name}" for name in case.parcel.owners),
    )
    cells = "".join(
        f'<td role="gridcell" title="{escape(text)}" aria-describedby="{grid}_{name}">{escape(text)}</td>'
        for name, text in zip(_COLUMNS, texts, strict=True)
    )
    return f'<tr role="row" id="{case.parcel.number}" class="ui-widget-content jqgrow ui-row-ltr">{cells}</tr>'
