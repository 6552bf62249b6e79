"""The site of `collier_pa`: one page per folio, each value in its own element."""

from __future__ import annotations

import re
from html import escape

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import NOT_FOUND, Layout, Request, Response, cents, dollars, html_page

_FIRST_FOLIO = 15_955_000_000
YEARS = 3
_NAMED = re.compile(r'(id|class)="(\w+)"')


def parcel_id(number: int) -> str:
    return str(_FIRST_FOLIO + number)


def respond(request: Request, world: World, looks: Layout) -> Response:
    if not request.path.lower().endswith("/recorddetail.html"):
        return NOT_FOUND
    query = {name.lower(): value for name, value in request.query.items()}
    given = query.get("folioid") or query.get("map") or ""
    parcel = world.number(int(given) - _FIRST_FOLIO) if given.isascii() and given.isdecimal() else None
    return html_page(_record(parcel, looks) if parcel else _frame("<p>No Records Found</p>"))


def _record(parcel: Parcel, looks: Layout) -> str:
    blocks = [
        *(_head(parcel), _legal(parcel), _sales(parcel), _values(parcel), _permits(parcel)),
        *(_buildings(parcel), _history(parcel)),
    ]
    return _frame(_NAMED.sub(lambda match: f'{match[1]}="{looks.name(match[2])}"', looks.order(blocks)))


def _frame(content: str) -> str:
    return f"""<!DOCTYPE html><html><head><title>Property Summary</title></head><body><div id="tabs"><ul><li>
<a id="ui-id-1">Property Summary</a></li></ul><div id="Tab1"><div id="PropSum">{content}</div></div></div>
<div id="pagefooter">Copyright &copy; Invented County Property Appraiser. All rights reserved.</div></body></html>"""


def _head(parcel: Parcel) -> str:
    site = f"{parcel.situs}, {parcel.situs_city} {parcel.zip_code}" if parcel.situs else ""
    lines = [*parcel.owners, parcel.street, "", "", "", ""][:5]
    first, *others = (
        f'<span id="OwnerLine{at}" class="clsFields">{escape(line)}</span>' for at, line in enumerate(lines, 1)
    )
    below = "".join(f"<tr><td></td><td>{line}</td></tr>" for line in others)
    return f"""<table class="clsWide"><tr><td class="clsLabel">Parcel ID</td><td><span id="ParcelID" class="clsFields">
{parcel_id(parcel.number)}</span></td><td class="clsLabel">Site Location <label title="primary">*Note</label></td>
<td><span id="FullAddressUnit" class="clsFields">{site}</span></td></tr></table>
<table class="clsWide"><tr><td id="TdName" class="clsLabel">Name / Address</td><td>{first}</td></tr>{below}
<tr><td class="clsLabel"><span id="CityCountry">City</span></td><td><span id="OwnerCity">{parcel.city}</span></td>
<td id="TdStateProv"><span id="StateProv">State</span></td><td><span id="OwnerState">{parcel.state}</span></td>
<td class="clsLabel"><span id="ZipCode">Zip</span></td><td><span id="OwnerZip">{parcel.zip_code}</span></td></tr>
</table>"""


def _legal(parcel: Parcel) -> str:
    return f"""<table class="clsWide"><tr><td class="clsLabel">Legal</td><td><span id="Legal">{parcel.legal}</span>
</td></tr>
<tr><td class="clsLabel">Sub./Condo</td><td><span id="SCDescription">112000 - INVENTED ESTATES</span></td></tr>
<tr><td class="clsLabel">Use Code</td><td><span id="UCDescription">{parcel.use_code} - {parcel.use}</span></td>
<td class="clsLabel">Millage Area</td><td><span id="MillageArea">4</span></td></tr></table>
<table class="clsWide"><tr><td class="clsLabel">Map No.</td><td class="clsLabel">Strap No.</td>
<td class="clsLabel">Section</td>
<td class="clsLabel">Township</td><td class="clsLabel">Range</td>
<td class="clsLabel">Acres <label title="estimate">*Estimated</label></td></tr>
<tr><td><span id="MapNumber">4A16</span></td><td><span id="StrapNumber">112000 8 54A16</span></td>
<td><span id="Section">16</span></td><td><span id="Township">49</span></td><td><span id="Range">25</span></td>
<td><span id="TotalAcres">{parcel.acres}</span></td></tr></table>"""


def _sales(parcel: Parcel) -> str:
    rows = "".join(
        f"""<tr id="TrSale{at}"><td><span id="SaleDate{at}" class="clsFieldC">{sale.on:%m/%d/%y}</span></td>
<td><a href="#">{sale.book}-{sale.page}</a></td>
<td><span id="SaleAmount{at}" class="clsFieldR">{dollars(sale.price)}</span></td></tr>"""
        for at, sale in enumerate(parcel.sales, 1)
    )
    return f"""<table class="clsWide"><tbody><tr><td colspan="3" class="clsHeading2">Latest Sales History</td></tr>
<tr><td class="clsLabelC">Date</td><td class="clsLabelC">Book-Page</td><td class="clsLabelR">Amount</td></tr></tbody>
<tfoot id="SalesAdditional">{rows}</tfoot></table>"""


def _values(parcel: Parcel) -> str:
    half = parcel.exempt // 2
    return f"""<table id="PropertyTaxTable" class="clsWide"><tr><td colspan="3" class="clsHeading2">
<div id="RollType">{parcel.year} Certified Tax Roll</div></td></tr>
<tr><td class="clsLabel">Just Values</td><td></td><td class="clsLabelR">Amount</td></tr>
{_row("LandJustValue", "Land", "", parcel.land)}{_row("ImprovementsJustValue", "(+) Improvements", "", parcel.improved)}
{_row("TotalJustValue", "(=) Total Just", "", parcel.market)}
<tr id="TrAssessedValues2"><td class="clsLabel">Assessed Values</td><td></td><td></td></tr>
<tr id="TrCountyAssessedValue"><td colspan="2">(=) Assessed</td><td class="clsFieldR">{dollars(parcel.assessed)}</td>
</tr>
{_row("SohBenefit", "(-) Save our Homes", "All", parcel.cap)}
{_row("NonSchool10PctBenefit", "(-) Non-Homestead 10%", "Non-School", 0)}
{_row("SchoolAssessedValue", "(=) School Assessed", "", parcel.assessed)}
<tr id="TrExemptions2"><td class="clsLabel">Exemptions</td><td class="clsLabel">Applies To</td><td></td></tr>
{_row("HmstdExemptAmount", "(-) Homestead", "All", half)}
{_row("NonSchoolAddHmstdExemptAmount", "(-) Additional Homestead", "Non-School", parcel.exempt - half)}
{_row("SchoolWhollyExemptAmount", "(-) Wholly Exempt", "School", 0)}
<tr id="TrTaxableValues2"><td class="clsLabel">Taxable Values</td><td></td><td></td></tr>
<tr id="TrCountyTaxableValue"><td>(=) Taxable</td><td id="TdDetailTotalMillage">18.5000</td>
<td class="clsFieldR">{dollars(parcel.taxable)}</td></tr>
{_row("SchoolTaxableValue", "(=) School Taxable", "", parcel.taxable_school)}
<tr id="TrTotalTaxes"><td colspan="2">(=) Total Tax</td>
<td><span id="TotalTaxes">{cents(parcel.tax_cents)}</span></td></tr></table>"""


def _history(parcel: Parcel) -> str:
    years = range(parcel.year, parcel.year - YEARS, -1)
    heads = "".join(f'<td id="HistoryTaxYear{at}">{year} Certified</td>' for at, year in enumerate(years, 1))
    amounts = {
        "LandJustValue": parcel.land,
        "ImprovementsJustValue": parcel.improved,
        "TotalJustValue": parcel.market,
        "CountyAssessedValue": parcel.assessed,
        "CountyTaxableValue": parcel.taxable,
        "SchoolTaxableValue": parcel.taxable_school,
    }
    rows = "".join(
        f'<tr id="TrHistory{name}"><td>{name}</td>'
        + "".join(f'<td id="History{name}{at}">{dollars(amount)}</td>' for at, _ in enumerate(years, 1))
        + "</tr>"
        for name, amount in amounts.items()
    )
    return f'<table id="HistoryPropertyTaxTable"><tr><td></td>{heads}</tr>{rows}</table>'


def _buildings(parcel: Parcel) -> str:
    """With a pool beside each: it is listed as they are."""
    listed = [
        (building.year, name, area, adjusted)
        for building in parcel.buildings
        for name, area, adjusted in (
            ("SINGLE FAMILY RESIDENCE", building.living_sqft, building.actual_sqft),
            ("SWIMMING POOL", 400, 400),
        )
    ]
    rows = "".join(
        f"""<tr id="TrBuilding{at}"><td><span id="SEQNO{at}">{at * 10}</span></td>
<td><span id="YRBUILT{at}">{year}</span></td><td><span id="BLDGCLASS{at}">{name}</span></td>
<td><span id="BASEAREA{at}">{area}</span></td><td><span id="TYADJAREA{at}">{adjusted}</span></td></tr>"""
        for at, (year, name, area, adjusted) in enumerate(listed, 1)
    )
    return f"""<table class="clsWide"><tbody><tr><td colspan="5" class="clsHeading2">Building/Extra Features</td></tr>
<tr><td>#</td><td>Year Built</td><td>Description</td><td>Area</td><td>Adj Area</td></tr></tbody>
<tfoot id="BuildingAdditional">{rows}</tfoot></table>"""


def _permits(parcel: Parcel) -> str:
    """One for each building."""
    rows = "".join(
        f"""<tr id="TrPermit{at}"><td><span id="taxyear{at}">{building.year}</span></td>
<td><span id="issuer{at}">MARIGOLD</span></td><td><span id="permitno{at}">{building.year}-{at}</span></td></tr>"""
        for at, building in enumerate(parcel.buildings, 1)
    )
    return f"""<table class="clsWide"><tbody><tr><td colspan="3" class="clsHeading2">Permits</td></tr>
<tr><td>Tax Yr</td><td>Issuer</td><td>Permit #</td></tr></tbody><tfoot id="PermitAdditional">{rows}</tfoot></table>"""


def _row(ident: str, name: str, applies: str, amount: int) -> str:
    cells = f"<td>{name}</td><td>{applies}</td>" if applies else f'<td colspan="2">{name}</td>'
    return f"""<tr id="Tr{ident}">{cells}<td class="clsFieldR"><span id="{ident}">{dollars(amount)}</span></td></tr>"""
