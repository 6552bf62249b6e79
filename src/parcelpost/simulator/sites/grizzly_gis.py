"""A site of `grizzly_gis`: a frame whose form loads the record into an inner page."""

from __future__ import annotations

from html import escape

from parcelpost.simulator.parcels import Parcel, Sale, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, html_page

_RESULTS = "/gis/recordSearch_2_Results/"


def respond(request: Request, world: World, looks: Layout) -> Response:
    if request.path == "/gis/" and request.method == "GET":
        return html_page(_frame(request.query.get("pin", ""), request.base))
    if request.path == _RESULTS and request.method == "POST":
        parcel = world.find(request.form.get("bHandoff_PIN", ""))
        return html_page(_record(parcel, looks) if parcel else _nothing())
    return NOT_FOUND


def _frame(pin: str, base: str) -> str:
    return f"""<!DOCTYPE html><html><head><title>GIS</title></head><body>
<form name="parentForm" id="parentForm" method="post" action="{base}{_RESULTS}" target="recordSearchContent_1_iframe">
<input type="hidden" name="bHandoff_PIN" value="{escape(pin)}"><input type="hidden" name="bHandoff" value="1"></form>
<iframe id="recordSearchContent_1_iframe" name="recordSearchContent_1_iframe"></iframe>
<script>document.forms.parentForm.submit()</script></body></html>"""


def _nothing() -> str:
    return "<html><body><p>No records found matching your search.</p></body></html>"


def _record(parcel: Parcel, looks: Layout) -> str:
    blocks = [_owner(parcel, looks), _values(parcel), _sales(parcel, looks), _buildings(parcel, looks)]
    return f"""<!DOCTYPE html><html><head><title>Parcel</title>
<script>function OpenTaxLink() {{ Win1 = open("/gis/linkTax/?PIN={parcel.account}&random=1"); }}</script></head><body>
<table class="mainTitleTable"><tr><td>Invented County Property Appraiser</td>
<td><u>{parcel.year} Working Values</u></td>
<td class="dbEffDate">updated: 7/25/{parcel.year}</td></tr></table>
{looks.order(blocks)}<div>This website was last updated: 1/2/2026. by: GrizzlyLogic.com</div></body></html>"""


def _owner(parcel: Parcel, looks: Layout) -> str:
    names = "<br>".join(escape(name) for name in parcel.owners)
    codes = " ".join(parcel.exemptions)
    situs = f"{parcel.situs}, {parcel.situs_city}" if parcel.situs else ""
    return f"""<div id="{looks.name("ownerDiv")}"><table class="{looks.name("parcelIDtable")}">
<tr><td>Parcel: <b>{parcel.parcel_id} ({parcel.number}) {codes}</b></td></tr></table>
<table><tr><td><b>Owner &amp; Property Info</b></td></tr></table><table>
<tr><td>Owner</td><td><b>{names}</b><br>{parcel.street}<br>{parcel.city}, {parcel.state} {parcel.zip_code}</td></tr>
<tr><td>Site</td><td>{situs}</td></tr>
<tr><td>Description<font>*</font></td><td><table id="{looks.name("Blegal")}" class="legalTable">
<tr><td>{parcel.legal[:30]}
<a href="#">...more&gt;&gt;&gt;</a></td></tr></table><table id="{looks.name("Flegal")}" class="legalTable">
<tr><td>{parcel.legal} <a href="#">&lt;&lt;&lt;less</a></td></tr></table></td></tr>
<tr><td>Area</td><td>{parcel.acres} AC</td><td>S/T/R</td><td>{parcel.section}</td></tr>
<tr><td>Use Code<font>**</font></td><td>{parcel.use} ({parcel.use_code})</td><td>Tax District</td><td>3</td></tr>
</table></div>"""


def _values(parcel: Parcel) -> str:
    columns = "".join(f"<td>{_column(parcel, year, kind)}</td>" for year, kind in _years(parcel))
    return f"""<table><tr><td colspan="2"><b>Property &amp; Assessment Values</b></td></tr><tr>{columns}</tr></table>"""


def _years(parcel: Parcel) -> list[tuple[int, str]]:
    return [(parcel.year - 1, "Certified"), (parcel.year, "Working")]


def _column(parcel: Parcel, year: int, kind: str) -> str:
    rows = [
        ("Mkt Land", parcel.land),
        ("Ag Land", 0),
        ("Building", parcel.building),
        ("XFOB", parcel.extra),
        ("Just", parcel.market),
        ("Class", 0),
        ("Appraised", parcel.market),
        ('SOH Cap <a href="#"><font>[?]</font></a>', parcel.cap),
        ("Assessed", parcel.assessed),
    ]
    cells = "".join(f"<tr><td>{name}</td><td>${value:,}</td></tr>" for name, value in rows)
    codes = " ".join(parcel.exemptions)
    return f"""<table class="parcelDetails_insideTable"><tr><td colspan="2"><b>{year} {kind} Values</b></td></tr>{cells}
<tr><td>Exempt</td><td><table class="exemptTable"><tr><td><font size="1">{codes}</font></td>
<td>${parcel.exempt:,}</td></tr></table></td></tr>
<tr><td>Total<br>Taxable</td><td><b class="TaxableValue_labels">county:</b>${parcel.taxable:,}
<b class="TaxableValue_labels">city:</b>$0<br><b class="TaxableValue_labels">other:</b>$0
<b class="TaxableValue_labels">school:</b>${parcel.taxable_school:,}</td></tr></table>"""


def _sales(parcel: Parcel, looks: Layout) -> str:
    rows = "".join(
        f"<tr><td>{sale.on.month}/{sale.on.day}/{sale.on.year}</td><td>${sale.price:,}</td>"
        f'<td><a href="#">{sale.book} / {sale.page}</a></td><td>{sale.deed}</td><td>V</td><td>Q</td>'
        f"<td>{_reason(sale)}</td></tr>"
        for sale in parcel.sales
    )
    none = '<tr><td colspan="7">N O N E</td></tr>'
    return f"""<table><tr><td><b>Sales History</b></td></tr></table>
<div id="{looks.name("parcelDetails_SalesTable")}"><table>
<tr><td>Sale Date</td><td>Sale Price</td><td>Book/Page</td><td>Deed</td><td>V/I</td>
<td>Qualification <a href="#"><font>(Codes)</font></a></td><td>RCode</td></tr>{rows or none}</table></div>"""


def _reason(sale: Sale) -> str:
    return '05 (Multi-Parcel Sale) - <a href="#">show</a>' if sale.is_of_several else "01"


def _buildings(parcel: Parcel, looks: Layout) -> str:
    rows = "".join(
        f"<tr><td>Sketch</td><td>{parcel.use} ({parcel.use_code})</td><td>{b.year}</td><td>{b.living_sqft}</td>"
        f"<td>{b.actual_sqft}</td><td>${b.value:,}</td></tr>"
        for b in parcel.buildings
    )
    none = '<tr><td colspan="6">N O N E</td></tr>'
    return f"""<table><tr><td><b>Building Characteristics</b></td></tr></table>
<div id="{looks.name("parcelDetails_BldgTable")}"><table>
<tr><td>Bldg Sketch</td><td>Description<font>*</font></td><td>Year Blt</td><td>Base SF</td><td>Actual SF</td>
<td>Bldg Value</td></tr>{rows or none}</table></div>
<table><tr><td><b>Extra Features &amp; Out Buildings</b></td></tr><tr><td><b>Land Breakdown</b></td></tr></table>"""
