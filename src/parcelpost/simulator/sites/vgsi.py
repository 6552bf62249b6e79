"""A site of `vgsi`: one page per parcel, addressed by its number in the assessor's database."""

from __future__ import annotations

import re
from html import escape

from parcelpost.simulator.parcels import Building, Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, dollars, html_page, us_date

TOWN = "INVENTED"
_IDENT = re.compile(r'id="(\w+)"')


def parcel_id(number: int) -> str:
    return str(number)


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not request.path.lower().endswith("/parcel.aspx"):
        return NOT_FOUND
    given = request.query.get("Pid") or request.query.get("pid") or ""
    parcel = world.number(int(given)) if given.isascii() and given.isdecimal() and len(given) < 10 else None
    return html_page(_record(parcel, looks) if parcel else _frame("<h3>There was no data found: no such parcel.</h3>"))


def _record(parcel: Parcel, looks: Layout) -> str:
    blocks = [_general(parcel), _current(parcel), _owner(parcel), _buildings(parcel), _land(parcel), _history(parcel)]
    return _frame(_IDENT.sub(lambda match: f'id="{looks.name(match[1])}"', looks.order(blocks)))


def _frame(content: str) -> str:
    return f"""<!DOCTYPE html><html><head><title>Vision Government Solutions</title></head><body class="page front">
<form id="form1" method="post"><div class="inner-page"><div class="header-images hideMeInPrint">
<table><tr><td><span class="myoutercontainer"><span id="lblTownName" class="myinnercontainer">{TOWN},NH</span></span>
</td></tr></table></div><div class="page clientservices-appraisal"><div class="main-content">{content}</div></div>
</div></form><div id="footer">(c) Vision Government Solutions, Inc. All rights reserved.</div></body></html>"""


def _general(parcel: Parcel) -> str:
    rows = [
        ("Location", "Location", parcel.situs or parcel.street),
        ("Mblu", "Mblu", f"{parcel.number}/ 1/ / /"),
        ("Acct#", "AcctNum", parcel.account),
        ("Owner", "GenOwner", parcel.owners[0]),
        ("Assessment", "GenAssessment", dollars(parcel.assessed)),
        ("Appraisal", "GenAppraisal", dollars(parcel.market)),
        ("PID", "Pid", parcel_id(parcel.number)),
        ("Building Count", "BldCount", str(len(parcel.buildings))),
    ]
    items = "".join(
        f'<dl class="dl-horizontal fLeft"><dt><span id="MainContent_lbl{ident}Label">{name}</span></dt>'
        f'<dd><span id="MainContent_lbl{ident}">{escape(value)}</span></dd></dl>'
        for name, ident, value in rows
    )
    return f"""<div id="tabs1"><fieldset><legend>
<span id="MainContent_lblTab1Title">{parcel.situs or parcel.street}</span>
</legend><div class="row-fluid">{items}</div></fieldset></div>"""


def _current(parcel: Parcel) -> str:
    return f"""<div id="MainContent_currentVal"><fieldset><legend>Current Value</legend>
{_values("MainContent_grdCurrentValueAppr", "Appraisal", parcel, parcel.market, (parcel.year,))}
{_values("MainContent_grdCurrentValueAsmt", "Assessment", parcel, parcel.assessed, (parcel.year,))}</fieldset></div>"""


def _history(parcel: Parcel) -> str:
    years = (parcel.year - 1, parcel.year - 2)
    return f"""<div id="MainContent_panHistory"><fieldset><legend>Valuation History</legend>
{_values("MainContent_grdHistoryValuesAppr", "Appraisal", parcel, parcel.market, years)}
{_values("MainContent_grdHistoryValuesAsmt", "Assessment", parcel, parcel.assessed, years)}</fieldset></div>"""


def _values(ident: str, caption: str, parcel: Parcel, total: int, years: tuple[int, ...]) -> str:
    rows = "".join(
        f'<tr class="RowStyle"><td>{year}</td><td>{dollars(parcel.building + parcel.extra)}</td>'
        f"<td>{dollars(parcel.land)}</td><td>{dollars(total)}</td></tr>"
        for year in years
    )
    return f"""<table class="GridViewStyle" id="{ident}"><caption>{caption}</caption><tr class="HeaderStyle">
<th>Valuation Year</th><th>Improvements</th><th>Land</th><th>Total</th></tr>{rows}</table>"""


def _owner(parcel: Parcel) -> str:
    co_owner = parcel.owners[1] if len(parcel.owners) > 1 else ""
    last = parcel.sales[0] if parcel.sales else None
    rows = "".join(
        f"""<tr><td>{escape(parcel.owners[0])}</td><td>{dollars(sale.price)}</td><td></td><td>{sale.book}/{sale.page}</td>
<td>{sale.deed}</td><td>{us_date(sale.on, zeros=True)}</td></tr>"""
        for sale in parcel.sales
    )
    return f"""<div id="MainContent_panCurOwn"><fieldset><legend>Owner of Record</legend><table>
<tr><td class="plabel">Owner</td><td class="data"><span id="MainContent_lblOwner">{escape(parcel.owners[0])}</span>
</td></tr>
<tr><td class="plabel"><span id="MainContent_lblLabelCoOwner">Co-Owner</span></td>
<td class="data"><span id="MainContent_lblCoOwner">{escape(co_owner)}</span></td></tr>
<tr><td class="plabel">Address</td><td class="data"><span id="MainContent_lblAddr1">{parcel.street}<br>
{parcel.city}, {parcel.state} {parcel.zip_code}</span></td></tr></table>
<table id="MainContent_Table1"><tr><td class="plabel">Sale Price</td>
<td class="data"><span id="MainContent_lblPrice">{dollars(last.price) if last else ""}</span></td></tr>
<tr><td class="plabel">Sale Date</td>
<td class="data"><span id="MainContent_lblSaleDate">{us_date(last.on, zeros=True) if last else ""}</span></td></tr>
</table>
<table class="GridViewStyle" id="MainContent_grdSales"><caption>Ownership History</caption><tr class="HeaderStyle">
<th>Owner</th><th>Sale Price</th><th>Certificate</th><th>Book &amp; Page</th><th>Instrument</th><th>Sale Date</th></tr>
{rows}</table></fieldset></div>"""


def _buildings(parcel: Parcel) -> str:
    blocks = "".join(_building(number, building) for number, building in enumerate(parcel.buildings, 1))
    return f'<div id="MainContent_panBldg"><fieldset><legend>Building Information</legend></fieldset>{blocks}</div>'


def _building(number: int, b: Building) -> str:
    ident = f"MainContent_ctl{number:02}"
    return f"""<fieldset><legend><span id="{ident}_lblHeading">Building {number} : Section 1</span></legend>
<table id="{ident}_tblBldg"><tr><td class="plabel">Year Built:</td>
<td class="data"><span id="{ident}_lblYearBuilt">{b.year}</span></td></tr><tr><td class="plabel">Living Area:</td>
<td class="data"><span id="{ident}_lblBldArea">{b.living_sqft:,}</span></td></tr>
<tr><td class="plabel">Replacement Cost:</td>
<td class="data"><span id="{ident}_lblRcn">{dollars(b.value * 2)}</span></td></tr>
<tr><td class="plabel">Replacement Cost<br>Less Depreciation:</td>
<td class="data"><span id="{ident}_lblRcnld">{dollars(b.value)}</span></td></tr></table>
<table class="GridViewStyle" id="{ident}_grdCns"><caption>Building Attributes</caption><tr class="HeaderStyle">
<th>Field</th><th>Description</th></tr><tr class="RowStyle"><td>Style:</td><td>Ranch</td></tr></table></fieldset>"""


def _land(parcel: Parcel) -> str:
    rows = [
        ("Use Code", "UseCode", parcel.use_code),
        ("Description", "UseCodeDescription", parcel.use),
        ("Zone", "Zone", "RD"),
    ]
    cells = "".join(
        f'<tr><td class="plabel">{name}</td><td class="data"><span id="MainContent_lbl{ident}">{value}</span></td></tr>'
        for name, ident, value in rows
    )
    return f"""<div id="MainContent_panLand"><fieldset><legend>Land</legend><fieldset><legend>Land Use</legend>
<table id="MainContent_tblLandUse">{cells}</table></fieldset><fieldset><legend>Land Line Valuation</legend><table>
<tr><td class="plabel">Size (Acres)</td>
<td class="data"><span id="MainContent_lblLndAcres">{parcel.acres}</span></td></tr></table></fieldset></fieldset>
</div>"""
