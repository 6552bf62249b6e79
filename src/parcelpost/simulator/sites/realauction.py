"""A site of `realauction`: a calendar, an auction's preview, and its items, which require the preview's cookie.

The items are JSON whose HTML is shortened by macros. Without the preview's cookie the answer is 200 and empty.
"""

from __future__ import annotations

from html import escape

from parcelpost.simulator.parcels import AUCTION_DAY, AuctionCase, World, auction_cases, page_count, page_number
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, cents, html_page, json_response, us_date

MACROS = {
    "@A": '<div class="',
    "@B": "</div>",
    "@C": 'class="',
    "@D": "<div>",
    "@E": "AUCTION",
    "@F": "</td><td",
    "@G": "</td></tr>",
    "@H": "<tr><td ",
    "@I": "table",
    "@J": 'p_back="NextCheck=',
    "@K": 'style="Display:none"',
    "@L": "/index.cfm?zaction=auction&zmethod=details&AID=",
}
_SESSION = "auctionsession"


def respond(request: Request, world: World, looks: Layout) -> Response:
    query = {name.lower(): value.upper() for name, value in request.query.items()}
    if not request.path.lower().endswith("/index.cfm"):
        return NOT_FOUND
    match query.get("zaction"), query.get("zmethod"):
        case "USER", "CALENDAR":
            return html_page(_calendar())
        case "AUCTION", "PREVIEW":
            preview = html_page(_preview())
            return Response(body=preview.body, headers={"Set-Cookie": f"{_SESSION}=1; Path={request.base}/; HttpOnly"})
        case "AUCTION", "UPDATE" if query.get("fnc") == "LOAD":
            return (
                json_response(_items(world, _page(query.get("bypasspage", "1"), world)))
                if _SESSION in request.cookies
                else Response()
            )
    return NOT_FOUND


def _page(given: str, world: World) -> int:
    """Past the last one the site gives the last one again."""
    return min(page_number(given), page_count(world))


def _calendar() -> str:
    day = us_date(AUCTION_DAY, zeros=True)
    return f"""<!DOCTYPE html><html><head><title>Calendar</title></head><body><div class="CALDAYBOX">
<div class="CALBOX CALW5 CALSELT" dayid="{day}"><span class="CALNUM">{AUCTION_DAY.day}</span>
<span class="CALTEXT">Tax Deed<br><span class="CALACT">5</span> / <span class="CALSCH">9</span> TD<br>
<span class="CALTIME"> 10:00 AM ET</span></span></div></div></body></html>"""


def _preview() -> str:
    return f"""<!DOCTYPE html><html><head><title>Preview</title></head><body><div class="BLHeaderDateDisplay">
{AUCTION_DAY:%A %B %d, %Y}</div><div class="Head_W"><div class="Sub_Title">Auctions Waiting</div><div id="Area_W"></div>
</div></body></html>"""


def _items(world: World, number: int) -> dict[str, str]:
    listed = list(auction_cases(world, number))
    text = "".join(map(_item, listed))
    for macro, words in MACROS.items():
        text = text.replace(words, macro)
    return {"retHTML": text, "rlist": ",".join(str(case.parcel.number) for case in listed)}


def _item(case: AuctionCase) -> str:
    parcel = case.parcel
    rows = [
        ("Auction Type:", "TAXDEED"),
        ("Case #:", f'<a href="/index.cfm?zaction=auction&zmethod=details&AID={parcel.number}">{case.number}</a>'),
        ("Certificate #:", case.certificate.number),
        ("Opening Bid:", cents(case.opening_cents)),
        ("Parcel ID:", f'<a href="#">{parcel.parcel_id}</a>'),
        ("Property Address:", escape(parcel.situs)),
        ("", f"{parcel.situs_city}, {parcel.zip_code}" if parcel.situs else ""),
        ("Assessed Value:", f"${parcel.assessed:,}.00"),
    ]
    cells = "".join(
        f'<tr><td class="AD_LBL" scope="row">{name}</td><td class="AD_DTA">{text}</td></tr>' for name, text in rows
    )
    return f"""<div id="AITEM_{parcel.number}" aid="{parcel.number}" class="AUCTION_ITEM PREVIEW">
<div class="AUCTION_STATS">
<div class="ASTAT_MSGA ASTAT_LBL">Auction Starts</div><div class="ASTAT_MSGB Astat_DATA">10:00 AM ET</div></div>
<div class="AUCTION_DETAILS"><table class="ad_tab" tabindex="0"><tbody>{cells}</tbody></table></div></div>"""
