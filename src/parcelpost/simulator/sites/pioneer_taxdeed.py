"""A site of `pioneer_taxdeed`: a grid of tax deed cases whose cells name their column."""

from __future__ import annotations

from html import escape

from parcelpost.simulator.parcels import AUCTION_DAY, AuctionCase, World, auction_cases, page_number
from parcelpost.simulator.web import Layout, Request, Response, cents, html_page, us_date

COLUMNS = (
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


def respond(request: Request, world: World, looks: Layout) -> Response:
    grid = looks.name("TaxDeed")
    cases = list(auction_cases(world, page_number(request.query.get("page", "1"))))
    rows = "".join(_row(case, grid) for case in cases)
    shown = f"View 1 - {len(cases)} of {len(cases)}" if cases else "No records to view"
    heads = "".join(f'<th id="{grid}_{name}" role="columnheader"><div>{name}</div></th>' for name in COLUMNS)
    return html_page(f"""<!DOCTYPE html><html><head><title>Tax Deeds</title></head><body><header><p>Clerk</p></header>
<div id="body"><section class="content-wrapper"><form action="/" method="post"><div id="tabs"><div id="tabs-2">
<label for="Search_For:">Search For:</label><input id="SearchForCase" name="SearchForCase"></div></div></form>
<div class="ui-jqgrid" id="gbox_{grid}"><table class="ui-jqgrid-htable"><thead><tr>{heads}</tr></thead></table>
<table id="{grid}" class="ui-jqgrid-btable"><tbody><tr class="jqgfirstrow">{"<td></td>" * len(COLUMNS)}</tr>{rows}
</tbody></table><div class="ui-paging-info">{shown}</div></div></section></div>
<footer>Invented Clerk. All Rights Reserved.</footer></body></html>""")


def _row(case: AuctionCase, grid: str) -> str:
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
        for name, text in zip(COLUMNS, texts, strict=True)
    )
    return f'<tr role="row" id="{case.parcel.number}" class="ui-widget-content jqgrow ui-row-ltr">{cells}</tr>'
