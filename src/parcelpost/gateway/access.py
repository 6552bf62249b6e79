"""Who may ask for what. Every route begins here."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import OrderedDict
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from parcelpost.clock import Clock
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.refusals import Refusal
from parcelpost.gateway.tokens import TokenBook, Tokens
from parcelpost.settings.schema import ServerSettings

_WORKER_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_UNKNOWN = "unknown"
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_CHECK_AGAIN_SECONDS = 300.0
_IDLE_AFTER = timedelta(hours=1)
_MOST_CHECKED = 20_000
_BEARER = {"WWW-Authenticate": 'Bearer realm="parcelpost"'}


class Caller(NamedTuple):
    worker_id: str
    token: str
    """Its name, or its place where it was given none; '' without a token."""
    owner: str
    """The name under which the worker's id is kept: the token's, or '' where it was given none."""


class Access:
    """Three doors: for workers, for readers, for admins. Each raises Refusal (401, 403) for a stranger.

    Where no tokens are configured at all and the gateway listens on a loopback address only, every door is open to this
    machine: to a request that comes from it, that names it as its host (a page elsewhere may have its own name point
    here), that carries no word of a proxy and that no other site's page has made. `server.open_read` opens the readers'
    door in spite of tokens: to this machine, or, where we listen elsewhere, to whoever reaches it.
    """

    def __init__(self, settings: ServerSettings, tokens: Tokens) -> None:
        self._tokens = tokens
        self._on_loopback = is_loopback(settings.host)
        self._open_read = settings.open_read

    def worker(self, request: Request) -> Caller:
        """Its id is `unknown` where it gives none, as the public gateways have it."""
        given = request.headers.get("x-worker-token")
        token = self._check([self._tokens.worker], given, request)
        owner = token if token in self._tokens.worker.given_names else ""
        unknown = f"{_UNKNOWN}:{owner}" if owner else _UNKNOWN  # one id cannot belong to several tokens
        worker_id = request.headers.get("x-worker-id", unknown)
        if not _WORKER_ID.fullmatch(worker_id):
            raise Refusal(400, "X-Worker-ID must be 1 to 200 visible ASCII characters without spaces")
        return Caller(worker_id, token, owner)

    def reader(self, request: Request) -> None:
        """A read or an admin token."""
        books = [self._tokens.read, self._tokens.admin]
        self._check(books, _bearer(request), request, is_open=self._open_read)

    def admin(self, request: Request) -> None:
        """An admin token."""
        book, given = self._tokens.admin, _bearer(request)
        if book.configured and given and book.name_of(given) is None and self._tokens.read.name_of(given) is not None:
            raise Refusal(403, "this needs an admin token, and the token given is a read token")
        self._check([book], given, request)

    def _check(self, books: list[TokenBook], given: str | None, request: Request, *, is_open: bool = False) -> str:
        """The token's name; '' for none, where none is needed."""
        names = [book.name_of(given) for book in books] if given else []
        for name in names:
            if name is not None:
                return name
        if is_open and not self._on_loopback:
            return ""
        if not is_open and (self._tokens.configured or not self._on_loopback):
            what = "the token is not known here" if given else "a token is needed"
            if not any(book.configured for book in books):
                what = f"no {books[0].kind} tokens are set here, and other tokens are"
            header = "X-Worker-Token" if books[0] is self._tokens.worker else "Authorization: Bearer"
            raise Refusal(401, f"{what} ({header})", headers=None if books[0] is self._tokens.worker else _BEARER)
        if problem := _foreign(request):
            raise Refusal(403, f"{problem}: without a token this gateway serves its own machine only")
        return ""


class WorkerIds:
    """Which token a worker's id belongs to: the one that used it first, so that no worker speaks for another's.

    Tokens without a name are one owner together, and a token that was removed or renamed leaves its ids to the next.
    """

    def __init__(self, ledger: Ledger, tokens: TokenBook, most: int, clock: Clock) -> None:
        self._ledger = ledger
        self._tokens = tokens
        self._most = most
        self._clock = clock
        self._checked: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """By id: its owner, and when the ledger said so."""

    async def check(self, caller: Caller) -> None:
        """Raises Refusal (403) for an id of another token, or one too many of this one; LedgerUnavailable."""
        worker_id, now = caller.worker_id, self._clock.monotonic()
        owner, at = self._checked.get(worker_id, ("", -math.inf))
        if owner == caller.owner and now - at < _CHECK_AGAIN_SECONDS:
            return
        names = {*self._tokens.given_names, ""} if self._tokens.has_unnamed else self._tokens.given_names
        today = self._clock.now()
        found = await self._ledger.claim_worker_id(
            worker_id, caller.owner, names, self._most, today, today - _IDLE_AFTER
        )
        if found is None:
            what = f"the token is in use by {self._most:,} workers already (server.workers_per_token)"
            raise Refusal(403, what)
        if found != caller.owner:
            what = f"worker id {worker_id} was first used with another token"
            remedy = (
                "list the new token under the same name as the old one, give this worker another worker.id, "
                f"or free the id with 'parcelpost gateway release {worker_id}'"
            )
            raise Refusal(403, f"{what}; {remedy}")
        self._checked[worker_id] = (found, now)
        self._checked.move_to_end(worker_id)
        if len(self._checked) > _MOST_CHECKED:
            self._checked.popitem(last=False)


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
