"""A site's terms: who has not accepted them is sent to where a person can."""

from __future__ import annotations

from urllib.parse import quote

from parcelpost.simulator.web import Request, Response, page

COOKIE = "terms"
_PLACE = "/Disclaimer"


def before(request: Request) -> Response | None:
    """None: they are accepted."""
    if request.path == _PLACE:
        return _accepted(request) if request.method == "POST" else _asked()
    if request.cookies.get(COOKIE) == "accepted":
        return None
    return Response(status=302, headers={"Location": f"{request.base}{_PLACE}?back={quote(request.target, safe='')}"})


def _asked() -> Response:
    return page("""<!DOCTYPE html><html><head><title>Terms of use</title></head><body>
<p>The data of this site are invented, and you may do with them what you like.</p>
<form method="post"><button id="accept">I accept</button></form></body></html>""")


def _accepted(request: Request) -> Response:
    back = request.query.get("back", "")
    place = back if back.startswith(f"{request.base}/") and not back.startswith("//") else f"{request.base}/"
    headers = {"Location": place, "Set-Cookie": f"{COOKIE}=accepted; Path={request.base}; Max-Age=86400"}
    return Response(status=303, headers=headers)
