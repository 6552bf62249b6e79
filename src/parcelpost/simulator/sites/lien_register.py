"""The file of `lien_register`: one line per tax that a certificate covers, generated while it is sent."""

from __future__ import annotations

from parcelpost.simulator.parcels import Parcel, World
from parcelpost.simulator.web import CSV, NOT_FOUND, Layout, Request, Response

MOST_PARCELS = 20_000
_HEADING = (
    "SCHEDULE_NUMBER,CERTIFICATE_NUMBER,ISSUE_DATE,SUBTAX,REDEMPTION_DATE,TAX_YEAR,PRINCIPAL,INTEREST,"
    "PREMIUMBIDFEE,TREASURERDEEDFEE"
)


def respond(request: Request, world: World, looks: Layout) -> Response:
    """Of the first parcels only, where there are more than a county has."""
    if not request.path.lower().endswith(".csv"):
        return NOT_FOUND
    lines = (line for parcel in world.page(0, MOST_PARCELS) for line in _lines(parcel))
    return Response(body="\r\n".join((_HEADING, *lines, "")).encode(), content_type=CSV)


def _lines(parcel: Parcel) -> list[str]:
    return [
        f"{parcel.parcel_id},{certificate.number},{certificate.sold_on:%m/%d/%y},N,"
        f"{f'{certificate.redeemed_on:%m/%d/%y}' if certificate.redeemed_on else ''},{certificate.tax_year},"
        f"{certificate.face_cents // 100}.{certificate.face_cents % 100:02},0,0,0"
        for certificate in parcel.certificates
    ]
