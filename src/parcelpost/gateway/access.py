"""Who may ask for what. Every route begins here."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from parcelpost.gateway.refusals import Refusal
from parcelpost.gateway.tokens import TokenBook, Tokens
from parcelpost.settings.keys import ServerSettings

_WORKER_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_UNKNOWN = "unknown"
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_BEARER = {"WWW-Authenticate": 'Bearer realm="parcelpost"'}


class Caller(NamedTuple):
    worker_id: str
    token: str
    """Its name; '' for none."""


class Access:
    """Three doors: for workers, for readers, for admins. Each raises Refusal (401, 403) for a stranger.

    Where the gateway listens on a loopback address only, a door without tokens is open to this machine: to a request
    that comes from it, that names it as its host (a page elsewhere may have its own name point here), that carries no
    word of a proxy and that no other site's page has made.
    """

    def __init__(self, settings: ServerSettings, tokens: Tokens) -> None:
        self._tokens = tokens
        self._on_loopback = is_loopback(settings.host)

    def worker(self, request: Request) -> Caller:
        """Its id is `unknown` where it gives none, as the public gateways have it."""
        given = request.headers.get("x-worker-token")
        token = self._check([self._tokens.worker], given, needed=self._tokens.worker.configured, request=request)
        worker_id = request.headers.get("x-worker-id", _UNKNOWN)
        if not _WORKER_ID.fullmatch(worker_id):
            raise Refusal(400, "X-Worker-ID must be 1 to 200 visible ASCII characters without spaces")
        return Caller(worker_id, token)

    def reader(self, request: Request) -> None:
        """A read or an admin token. Without read tokens, this machine may read where we listen on loopback only."""
        books = [self._tokens.read, self._tokens.admin]
        self._check(books, _bearer(request), needed=self._tokens.read.configured, request=request)

    def admin(self, request: Request) -> None:
        """An admin token."""
        book, given = self._tokens.admin, _bearer(request)
        if book.configured and given and book.name_of(given) is None and self._tokens.read.name_of(given) is not None:
            raise Refusal(403, "this needs an admin token, and the token given is a read token")
        self._check([book], given, needed=book.configured, request=request)

    def _check(self, books: list[TokenBook], given: str | None, *, needed: bool, request: Request) -> str:
        """The token's name."""
        names = [book.name_of(given) for book in books] if given else []
        for name in names:
            if name is not None:
                return name
        if needed or not self._on_loopback:
            what = "the token is not known here" if given else "a token is needed"
            header = "X-Worker-Token" if books[0] is self._tokens.worker else "Authorization: Bearer"
            raise Refusal(401, f"{what} ({header})", headers=None if books[0] is self._tokens.worker else _BEARER)
        if problem := _foreign(request):
            raise Refusal(403, f"{problem}: without tokens this gateway serves its own machine only")
        return ""


def is_loopback(host: str) -> bool:
    """Whether that is this machine's name for itself."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _foreign(request: Request) -> str:
    """Why the request is not of this machine's own; '' if it is."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return "it comes from another machine"
    if not is_loopback(_host_of(f"//{headers.get('host', '')}")):
        return "its Host header names another machine"
    if any(name in headers for name in _FORWARDED):
        return "a proxy has passed it on"
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return "another site's page has made it"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return "another site's page has made it"
    return ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
