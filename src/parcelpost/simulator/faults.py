"""Faults of a simulated site, on demand: for a share of the requests, or for chosen parcels."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from urllib.parse import quote, unquote_plus

import msgspec
from msgspec import Struct
from msgspec.json import encode

from parcelpost.errors import InvalidInput
from parcelpost.simulator.web import HTML, Request, Response, html_page

FAULT_NAMES = (
    "slow",
    "500",
    "429",
    "challenge",
    "truncated",
    "redesign",
    "charset",
    "missing",
    "reset",
    "script",
    "terms",
)
_PERSISTENT = frozenset({"redesign", "missing", "script", "terms"})
"""Asked again for the same page, these strike again."""

CHALLENGE = Response(
    status=403,
    body=b"""<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>
<script>window._cf_chl_opt={};</script>
<noscript>Enable JavaScript and cookies to continue</noscript></body></html>""",
)
ERROR = Response(status=500, body=b"<html><head><title>Runtime Error</title></head><body>Server Error</body></html>")
BUSY = Response(status=429, body=b"Too many requests", headers={"Retry-After": "2"})


class Fault(Struct, frozen=True, kw_only=True):
    rate: float = 0.0
    """0 to 1, of all requests."""
    parcels: tuple[str, ...] = ()
    """However they are punctuated."""


class Faults:
    """May be changed while the server runs."""

    def __init__(self, seed: int = 1, slow_seconds: float = 3.0) -> None:
        self.slow_seconds = slow_seconds
        self.now: dict[str, Fault] = {}
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 - no secrets

    def set(self, name: str, rate: float = 0.0, parcels: Iterable[str] = ()) -> None:
        """A rate of 0 and no parcels end it. Raises InvalidInput."""
        if name not in FAULT_NAMES:
            raise InvalidInput(f"unknown fault {name!r}", hint=f"known faults: {', '.join(FAULT_NAMES)}")
        if not 0 <= rate <= 1:
            raise InvalidInput(f"the rate of {name} is {rate}", hint="it must be between 0 and 1")
        self.now.pop(name, None)
        fault = Fault(rate=rate, parcels=tuple(filter(None, map(_plain, parcels))))
        if fault.rate or fault.parcels:
            self.now[name] = fault

    def strikes(self, name: str, request: Request) -> bool:
        fault = self.now.get(name)
        if fault is None:
            return False
        asked = _plain(unquote_plus(request.target) + request.body.decode("latin-1"))
        if any(parcel in asked for parcel in fault.parcels):
            return True
        if name in _PERSISTENT:
            return zlib.crc32(f"{self._seed}{name}{asked}".encode()) < fault.rate * 2**32
        return self._chance.random() < fault.rate

    def as_json(self) -> bytes:
        return msgspec.json.encode(self.now)


def error_response(faults: Faults, request: Request) -> Response | None:
    """What the site answers without looking at what it was asked. None: nothing is wrong."""
    for name, response in (("500", ERROR), ("429", BUSY), ("challenge", CHALLENGE)):
        if faults.strikes(name, request):
            return response
    return None


def corrupted(response: Response, faults: Faults, request: Request) -> Response:
    """An answer as it comes through: cut in the middle, or not in the charset that it says."""
    body = response.body
    if response.content_type == HTML and faults.strikes("charset", request):
        body = body.decode().encode("windows-1252", "replace")
    if faults.strikes("truncated", request):
        body = body[: len(body) // 2]
    return msgspec.structs.replace(response, body=body)


def _plain(text: str) -> str:
    return "".join(sign for sign in text.upper() if sign.isalnum())


_SCRIPT_HEADER = "x-written-by-script"
_SUBMITS = b".submit()"
"""Marks a page that is already a shell: its script loads the record into a frame."""


def script_shell(request: Request, response: Response) -> Response:
    """The shell of a page, unless it is its own script that asks."""
    if (
        response.status != 200
        or response.content_type != HTML
        or _SCRIPT_HEADER in request.headers
        or _SUBMITS in response.body
    ):
        return response
    form = request.body.decode("latin-1") if request.method == "POST" else None
    how = {
        "method": request.method,
        "headers": {
            _SCRIPT_HEADER: "1",
            **({"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}),
        },
        **({"body": form} if form is not None else {}),
    }
    asked = encode(how).decode().replace("<", r"\u003c")
    return html_page(f"""<!DOCTYPE html><html><head><title>Loading</title></head><body><div id="app">Loading ...</div>
<noscript>This page needs JavaScript.</noscript><script>
fetch(location.href, {asked}).then(answer => answer.text()).then(text => {{
  document.open(); document.write(text); document.close(); }});
</script></body></html>""")


TERMS_COOKIE = "terms"
_TERMS_PATH = "/Disclaimer"


def terms_response(request: Request) -> Response | None:
    """None: they are accepted."""
    if request.path == _TERMS_PATH:
        return _terms_accepted(request) if request.method == "POST" else _terms_page()
    if request.cookies.get(TERMS_COOKIE) == "accepted":
        return None
    return Response(
        status=302, headers={"Location": f"{request.base}{_TERMS_PATH}?back={quote(request.target, safe='')}"}
    )


def _terms_page() -> Response:
    return html_page("""<!DOCTYPE html><html><head><title>Terms of use</title></head><body>
<p>All data on this site is invented; use it as you like.</p>
<form method="post"><button id="accept">I accept</button></form></body></html>""")


def _terms_accepted(request: Request) -> Response:
    back = request.query.get("back", "")
    place = back if back.startswith(f"{request.base}/") and not back.startswith("//") else f"{request.base}/"
    headers = {"Location": place, "Set-Cookie": f"{TERMS_COOKIE}=accepted; Path={request.base}; Max-Age=86400"}
    return Response(status=303, headers=headers)
