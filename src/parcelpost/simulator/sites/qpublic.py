"""A site of `qpublic` or `beacon`: one section per module. The numbers in its element ids differ between counties."""

from __future__ import annotations

import zlib
from html import escape

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, dollars, html_page, us_date

YEARS = 3
GRANTOR = "TWO OAKS TRUST"


def respond(request: Request, world: World, looks: Layout) -> Response:
    query = request.query
    if not request.path.lower().endswith("/application.aspx") or query.get("PageTypeID") != "4":
        return NOT_FOUND
    parcel = world.find(query.get("KeyValue", ""))
    return html_page(_record(parcel, world, looks) if parcel else _frame("<p>No results found.</p>"))


def _record(parcel: Parcel, world: World, looks: Layout) -> str:
    first = zlib.crc32(f"{world.county}{looks.redesigned}".encode()) % 5
    modules = [
        ("Summary", _summary(parcel, looks)),
        ("Owners", _owners(parcel)),
        ("Valuation", _valuation(parcel)),
        *([("Building Information", _buildings(parcel))] if parcel.buildings else []),
        ("Land", _land(parcel)),
        *([("Sales", _sales(parcel))] if parcel.sales else []),
        *([("Permits", _permits(parcel))] if parcel.buildings else []),
    ]
    blocks = [_module(first + at, title, content, looks) for at, (title, content) in enumerate(modules)]
    missing = "" if parcel.buildings else "Building Information, Permits, "
    return _frame(
        looks.order(blocks)
        + f"""<div id="ctlBodyPane_noDataList_pnlNoDataForModules" class="nodata-modulelist">
<strong>No data available for the following modules:</strong> {missing}Photos, Sketches.</div>"""
    )


def _frame(content: str) -> str:
    return f"""<!DOCTYPE html><html lang="en"><head><title>qPublic.net - Invented County</title></head><body>
<form method="post" id="form1"><input type="hidden" name="__VIEWSTATE" id="__VIEWSTATE" value="">
<div class="container-fluid"><div class="row"><div class="col-md-10 page-center-pane">{content}</div>
<div class="col-md-2 page-right-pane"><section><header class="module-header"><a class="toggle-collapse">
<div class="title">Contact Information</div></a></header><div class="right-pane-block">
<span id="InfoPane2_txtLine1">Invented County</span><span id="InfoPane2_txtLine3">Marigold, FL 32099</span>
</div></section></div></div></div><a id="hlkLastUpdated" href="#">Last Data Upload: 8/7/2024, 7:32:05 AM</a></form>
<footer><a>Contact Us</a></footer></body></html>"""


def _module(number: int, title: str, content: str, looks: Layout) -> str:
    ident = looks.name(f"ctlBodyPane_ctl{number:02}")
    return f"""<section id="{ident}_mSection" class="avoid-page-break">
<header id="{ident}_divHeader" class="module-header"><a id="{ident}_btnHeaderToggle" class="toggle-collapse">
<span id="{ident}_btnToggleVis" class="toggle-collapse-icon"></span>
<div id="{ident}_lblName" class="title">{title}</div></a></header>
<div class="module-content">{content.replace("ctlModule", f"{ident}_ctl01")}</div></section>"""


def _summary(parcel: Parcel, looks: Layout) -> str:
    rows = [
        ("Parcel ID", "lblParcelID", parcel.parcel_id),
        ("Account Number", "lblAccountNumber", parcel.account),
        ("Property Address", "lblPropertyAddress", parcel.situs),
        ("Sec/Twp/Rng", "lblSecTwpRng", parcel.section),
        ("Legal Description", "lblLegalDescription", parcel.legal),
        ("Acres", "lblGrossAcres", parcel.acres),
        ("Land Use", "lblLandUse", parcel.use),
        ("Millage Group", "lblDistrict", "UNINCORPORATED (01)"),
        ("Millage Rate", "lblMillageRate", "19.2923"),
        ("Homestead", "lblHomestead", "Y" if parcel.exemptions else "N"),
    ]
    cells = "".join(
        f'<tr><th>{name}</th><td><span id="ctlModule_{looks.name(ident)}">{escape(value)}</span></td></tr>'
        for name, ident, value in rows
    )
    note = '<tr><td></td><td><span class="important-note">(Note: Not to be used on legal documents)</span></td></tr>'
    return f'<table class="tabular-data-two-column"><tbody>{cells}{note}</tbody></table>'


def _owners(parcel: Parcel) -> str:
    first, *others = (escape(name) for name in parcel.owners)
    lines = [*others, parcel.street, f"{parcel.city}, {parcel.state} {parcel.zip_code}"]
    below = "".join(f"<div>{line}</div>" for line in lines)
    return f"""<span id="ctlModule_lstOwner_ctl00_s"><strong>Owner</strong></span><br>
<span id="ctlModule_lstOwner_ctl01_s">{first}</span><br><span id="ctlModule_lstOwner_ctl01_l">{below}</span>"""


def _valuation(parcel: Parcel) -> str:
    heads = "".join(f'<th class="value-column">{parcel.year - ago}</th>' for ago in range(YEARS))
    rows = [
        ("Land Value Market Value", parcel.land),
        ("Building Value", parcel.building),
        ("Yard Items", parcel.extra),
        ("Agricultural Credit", 0),
        ("Total Just or Market Value", parcel.market),
        ("Classified Use or Assessed Value", parcel.assessed),
        ("Capped Differential", parcel.cap),
        ("Exempt Value", parcel.exempt),
        ("Total Non School Taxable Value", parcel.taxable),
        ("School Taxable Value", parcel.taxable_school),
    ]
    cells = "".join(
        f'<tr><td><a class="footable-toggle"></a></td><th>{name}</th>'
        + f'<td class="value-column">{dollars(value)}</td>' * YEARS
        + "</tr>"
        for name, value in rows
    )
    return f"""<table class="tabular-data footable" id="ctlModule_grdValuation"><thead><tr><td></td><td>
</td>{heads}</tr>
</thead><tbody>{cells}</tbody></table>"""


def _buildings(parcel: Parcel) -> str:
    return "".join(
        f"""<table class="tabular-data-two-column"><tbody><tr><th>Type</th><td>SINGLE FAMILY</td></tr>
<tr><th>Heated Area</th><td>{b.living_sqft:,}</td></tr><tr><th>Total Area</th><td>{b.actual_sqft:,}</td></tr>
<tr><th>Actual Year Built</th><td>{b.year}</td></tr></tbody></table>"""
        for b in parcel.buildings
    )


def _land(parcel: Parcel) -> str:
    return f"""<table class="tabular-data footable" id="ctlModule_gvwList"><caption class="sr-only">Land</caption>
<thead>
<tr><th>Land Use</th><th>Number of Units</th><th>Unit Type</th></tr></thead><tbody>
<tr><th>{parcel.use} ({parcel.use_code})</th><td>{parcel.acres}</td><td>ACRES</td></tr></tbody></table>"""


def _sales(parcel: Parcel) -> str:
    rows = "".join(
        f"""<tr><th><a class="footable-toggle"></a>{us_date(sale.on)}</th><td>{dollars(sale.price)}.00</td>
<td><span>{sale.book}/{sale.page}</span></td><td><span>{GRANTOR} ,</span></td><td></td>
<td>{sale.deed}</td><td>01</td></tr>"""
        for sale in parcel.sales
    )
    heads = ("Sale Date", "Sale Price", "Legal Reference", "Grantor", "LUC at Sale", "Deed Type", "N.A.L. Code")
    return f"""<table class="tabular-data footable" id="ctlModule_gvwSales"><caption class="sr-only">Sales</caption>
<thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>{rows}</tbody></table>"""


def _permits(parcel: Parcel) -> str:
    """One for each building."""
    rows = "".join(
        f"<tr><th>{building.year}-{number}</th><td>1/2/{building.year}</td><td>Residence</td></tr>"
        for number, building in enumerate(parcel.buildings, 1)
    )
    return f"""<table class="tabular-data footable" id="ctlModule_grdPermits"><thead><tr><th>Permit Number</th>
<th>Permit Date</th><th>Type</th></tr></thead><tbody>{rows}</tbody></table>"""
