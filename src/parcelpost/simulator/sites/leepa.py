"""The site of `leepa`: one page per parcel, with all its sections expanded."""

from __future__ import annotations

import re
from html import escape

from parcelpost.simulator.parcels import Parcel, Sale, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, html_page, us_date

YEARS = 4
_FIRST_FOLIO = 10_000_000
_NAMED = re.compile(r'(id|class)="(\w+)"')


def parcel_id(number: int) -> str:
    return f"{number % 36 + 1:02}-43-24-C4-{number // 1000:05}.{number % 1000:03}0"


def folio(number: int) -> str:
    return str(_FIRST_FOLIO + number)


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not request.path.lower().endswith("/displayparcel.aspx"):
        return NOT_FOUND
    query = {name.lower(): value for name, value in request.query.items()}
    parcel = _find(query.get("folioid", ""), query.get("strap", ""), world)
    return html_page(_record(parcel, looks) if parcel else _frame("<p>No records were found: invalid Folio ID.</p>"))


def _find(given: str, strap: str, world: World) -> Parcel | None:
    if given.isascii() and given.isdecimal() and len(given) < 12:
        return world.number(int(given) - _FIRST_FOLIO)
    plain = "".join(sign for sign in strap if sign.isalnum())
    if len(plain) < 17 or not plain[8:].isdecimal():
        return None
    number = int(plain[8:-4]) * 1000 + int(plain[-4:-1])
    return world.number(number) if parcel_id(number).replace("-", "").replace(".", "") == plain else None


def _record(parcel: Parcel, looks: Layout) -> str:
    blocks = [
        *(_owner(parcel), _values(parcel), _buildings(parcel), _land(parcel)),
        *(_authorities(), _sales(parcel), _permits(parcel)),
    ]
    content = f"""<div class="box"><div class="sectionTitle">Property Data</div><div class="sectionTitleSmaller">
<span id="parcelLabel">STRAP: {parcel_id(parcel.number)} Folio ID: {folio(parcel.number)}</span>
<span id="deletedLabel" class="lightRed"></span></div>{looks.order(blocks)}</div>"""
    return _frame(_NAMED.sub(lambda match: f'{match[1]}="{looks.name(match[2])}"', content))


def _frame(content: str) -> str:
    return f"""<!DOCTYPE html><html><head><title>Parcel</title></head><body><div id="header"><div id="headerLogo">
Invented County Property Appraiser</div><div id="headerTaxYear">Tax Year <select id="selectTaxYear">
<option>2024</option>
</select></div></div><form id="Form1" method="post"><div id="content">{content}</div></form>
<div id="footer"><a>New Query</a> <a>Search Results</a> <a>Home</a></div></body></html>"""


def _owner(parcel: Parcel) -> str:
    names = "".join(f"<div>{escape(name)} +</div>" for name in parcel.owners[:-1])
    names += f"<div>{escape(parcel.owners[-1])}</div>"
    site = f"{parcel.situs}<br>{parcel.situs_city}, {parcel.state} {parcel.zip_code}" if parcel.situs else ""
    number = parcel.number
    return f"""<div id="divDisplayParcelOwner"><div class="columnLeft"><div><div class="sectionSubTitle">
Owner Of Record - Sole Owner<div class="underline"><a href="#">[Change Mailing Address]</a></div></div>
<div class="textPanel">{names}<div>{parcel.street}</div><div>{parcel.city}, {parcel.state} {parcel.zip_code}</div></div>
</div><div><div class="sectionSubTitle">Site Address</div><div class="textPanel">{site}<br>
Site Address maintained by <a href="#">E911 Program Addressing</a></div></div>
<div><div class="sectionSubTitle">Property Description<br>
<span class="lightRed">Do not use for legal documents!</span></div>
<div class="textPanel">{parcel.legal}<br></div></div></div>
<div>Attributes and Location Details</div><table class="appraisalDetails"><tr><th>Total Bedrooms / Bathrooms</th>
<td>0</td></tr><tr><th>Historic Designation</th><td>No</td></tr></table>
<table class="appraisalDetailsLocation"><tr><th>Township</th><th>Range</th><th>Section</th><th>Block</th><th>Lot</th>
</tr>
<tr><td>43</td><td>24E</td><td>18</td><td>1</td><td>{number}</td></tr>
<tr><th colspan="2">Municipality</th><th>Latitude</th><th colspan="2">Longitude</th></tr>
<tr><td colspan="2">Invented</td><td>{latitude(number)}</td><td colspan="2">{longitude(number)}</td></tr></table>
</div>"""


def latitude(number: int) -> str:
    return f"26.{10_000 + number % 80_000}"


def longitude(number: int) -> str:
    return f"-81.{10_000 + number % 70_000}"


def _values(parcel: Parcel) -> str:
    names = ("Just", "Land", "Market Assessed", "Capped Assessed", "Exemptions", "Classified Use", "Taxable")
    heads = "".join(f'<th scope="col"><font>{name}</font></th>' for name in names)
    amounts = (parcel.market, parcel.land, parcel.market, parcel.assessed, parcel.exempt, 0, parcel.taxable)
    cells = "".join(f'<td align="right">{amount:,}</td>' for amount in amounts)
    rows = "".join(
        f'<tr><td><a href="#">{year}</a></td><td>{year} (Final Value)</td>{cells}</tr>'
        for year in range(parcel.year, parcel.year - YEARS, -1)
    )
    none = "" if parcel.exempt else '<div id="noExemptionNotice">No existing exemptions found for this property.</div>'
    return f"""<div id="PropertyValues">{none}<table id="valueGrid"><tr><th scope="col"><font>TRIM Notices</font></th>
<th scope="col"><font><a href="#"><font>Tax Year</font></a></font></th>{heads}</tr>{rows}</table></div>"""


def _buildings(parcel: Parcel) -> str:
    blocks = "".join(
        f"""<div class="sectionSubTitle">Building {number} of {len(parcel.buildings)}</div>
<table class="appraisalAttributes"><tr><th colspan="5" class="subheader">Building Characteristics</th></tr>
<tr><th>Improvement Type</th><th>Model Type</th><th>Stories</th><th>Bedrooms</th><th>Bathrooms</th></tr>
<tr><td>100 - Ranch</td><td>1 - single family residential</td><td>1.0</td><td>3</td><td>2.0</td></tr>
<tr><th>Year Built</th><th colspan="3">Effective Year Built</th><th>Heated Area</th></tr>
<tr><td>{building.year}</td><td colspan="3">{building.year}</td><td>{building.living_sqft:,}</td></tr></table>"""
        for number, building in enumerate(parcel.buildings, 1)
    )
    title = '<div class="sectionTitle"><a class="nonLinkLinks">Property Details ({})</a></div>'
    roll = f'<div class="box" id="PropertyDetails">{title.format(f"{parcel.year} Tax Roll")}{blocks}</div>'
    return f"""<div class="box" id="PropertyDetailsCurrent">{title.format("Current as of 4/10/2025")}
<div class="innerBox">{blocks}</div>{roll}</div>"""


def _land(parcel: Parcel) -> str:
    return f"""<div><div class="sectionSubTitle">Land</div><table class="appraisalAttributes"><tr>
<th colspan="4" class="subheader">Land Tracts</th></tr><tr><th>Use Code</th><th>Use Code Description</th>
<th>Number of Units</th><th>Unit of Measure</th></tr><tr><td>{parcel.use_code}</td><td>{parcel.use}</td>
<td>1.00</td><td>Units</td></tr></table></div>"""


def _sales(parcel: Parcel) -> str:
    rows = "".join(
        f"""<tr class="even"><td>{sale.price:,}.00</td><td>{us_date(sale.on, zeros=True)}</td><td><div>
<a href="#">{sale.book}/{sale.page}</a></div></td><td><a href="#">06</a></td><td>{_note(sale)}</td><td>V</td></tr>"""
        for sale in parcel.sales
    )
    return f"""<div id="SalesDetails"><table class="detailsTable"><tr><th>Sale Price</th><th>Date</th>
<th>Clerk<br>File Number</th><th>Type</th><th>Notes</th><th>Vacant/<br>Improved</th></tr>{rows}</table></div>"""


def _note(sale: Sale) -> str:
    return "<div>There are 37 additional parcel(s) with this document ...</div>" if sale.is_of_several else ""


def _authorities() -> str:
    return """<div class="box"><div class="sectionTitle">Taxing Authorities</div><div class="overFlowDiv">
<div class="sectionSubTitle">CITY OF MARIGOLD / 057</div><table class="detailsTable"><tr><th>Name / Code</th>
<th>Category</th><th>Mailing Address</th></tr><tr class="even"><td>INVENTED CO GENERAL REVENUE / 044</td><td>County</td>
<td>PO BOX 1</td></tr></table></div></div>"""


def _permits(parcel: Parcel) -> str:
    """One for each building."""
    rows = "".join(
        f"<tr><td>{building.year}-{number}</td><td>Residence</td><td>1/2/{building.year}</td></tr>"
        for number, building in enumerate(parcel.buildings, 1)
    )
    return f"""<div class="box" id="PermitDetails"><table class="detailsTable"><tr><th>Permit Number</th>
<th>Permit Type</th><th>Date</th></tr>{rows}</table></div>"""
