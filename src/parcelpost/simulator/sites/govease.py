"""A site of `govease`: the rows of an auction's table, without its headings."""

from __future__ import annotations

from html import escape

from parcelpost.simulator.parcels import AuctionCase, World, auction_cases, page_number
from parcelpost.simulator.web import Layout, Request, Response, cents, html_page

_LONGEST_NAME = 20


def respond(request: Request, world: World, looks: Layout) -> Response:
    rows = "".join(_row(case) for case in auction_cases(world, page_number(request.query.get("page", "1"))))
    return html_page(f'<table id="{looks.name("auctionTable")}"><tbody>{rows}</tbody></table>')


def _row(case: AuctionCase) -> str:
    parcel, number = case.parcel, case.parcel.number
    return f"""<tr class="odd nobid" role="row"><td class="dtr-control"></td><td></td>
<td><a href="/fl/flinvented/1348/openstandardparcel/{number}/{parcel.parcel_id}" target="_blank">{number}</a></td>
<td> {parcel.parcel_id}</td><td>{_name(parcel.owners[0])}</td><td class="alignDollar">{cents(case.opening_cents)}</td>
<td class="no-translate" style="display: none;"><p>Tax Rate Area: 001-001</p><p>Use Code: {parcel.use_code}</p>
<p>A transfer tax of $0.55 per $500 will be added.</p></td>
<td class="no-translate" style="display: none;">{parcel.situs}</td>
<td class="no-translate-auctionname"><span>Invented Tax Deed Auction</span></td><td><span>Tax Deed</span></td>
<td>09d 13h</td><td><div data-col-name="tot_bids"><span id="tot-bids-{number}"></span></div></td><td></td></tr>"""


def _name(name: str) -> str:
    """A long one is cut and shown whole when one points at it."""
    if len(name) <= _LONGEST_NAME:
        return f'<span class="no-translate">{escape(name)}</span>'
    return f"""<span class="no-translate" data-content="{escape(name)}" data-toggle="popover" title="">
{escape(name[:_LONGEST_NAME])}...</span>"""
