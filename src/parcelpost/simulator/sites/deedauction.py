"""A site of `deedauction`: the items of an auction, without their parcels."""

from __future__ import annotations

import re

from parcelpost.simulator.parcels import AUCTION_DAY, AuctionCase, World, auction_cases, page_number
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, cents, html_page, us_date

_AUCTION = re.compile(r"/auction/\d+/?")


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not _AUCTION.fullmatch(request.path):
        return NOT_FOUND
    rows = "".join(_item(case) for case in auction_cases(world, page_number(request.query.get("page", "1"))))
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


def _item(case: AuctionCase) -> str:
    number = case.parcel.number
    return f"""<tr id="{number}.summary" class=""><td><a id="{number}.expand" href="#"></a></td>
<td id="item_id.{number}">{case.number}</td><td class="highlightable">{cents(case.opening_cents)}</td>
<td class="highlightable" id="best_bid.{number}">-</td><td id="time.{number}" class="ticker"><span>11:01 AM</span></td>
<td id="link.{number}" class="bold">Upcoming</td></tr><tr id="{number}.message" class="message">
<td colspan="6" class="bold">
<div id="special_message.{number}" class="message"></div></td></tr>
<tr class="details" id="{number}.details"><td colspan="2"></td><td colspan="4"></td></tr>"""
