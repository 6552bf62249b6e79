"""Tokens of workers, readers and admins, and what each may do. Every route starts here."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import stat
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import Request

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings
from parcelpost.events import Emit, TokensNotRead, TokensRead
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.settings.schema import ServerSettings
from parcelpost.settings.secrets import ADMIN_TOKENS_VARIABLE, READ_TOKENS_VARIABLE, WORKER_TOKENS_VARIABLE

LEAST_CHARS = 16
"""Of a token that nobody guesses."""

_LOOK_AGAIN_SECONDS = 1.0
_MOST_BYTES = 1024 * 1024
_ENTRY = re.compile(r"(?:([\w.@-]{1,64}):\s*)?([\x21-\x39\x3b-\x7e]{1,8192})", re.ASCII)
_FORM = "write one token a line, or 'name: token'; a token is printable ASCII without spaces and colons"


class _Entry(Struct, frozen=True):
    name: str
    digest: bytes
    is_named: bool
    is_short: bool


class TokenBook:
    """The tokens of one kind. They are kept as hashes only, and never shown.

    A file is looked at again at most once a second. When it cannot be read or understood any more, what it held last
    stays good, and an event says so; a file that is emptied revokes all it held. Raises InvalidSettings when made.
    """

    def __init__(self, kind: str, given: str, file: str, clock: Clock, emit: Emit) -> None:
        self.kind = kind
        self._clock = clock
        self._emit = emit
        self._given = _parse_entries(given.split(","), "environment", kind)
        self._file = Path(file) if file else None
        self._from_file: Sequence[_Entry] = ()
        self._seen: object = None
        self._looked_at = clock.monotonic()
        if self._file:
            self._seen = _file_version(self._file)
            self._from_file = self._read(self._file)

    @property
    def configured(self) -> bool:
        """Whether such tokens are asked for: also where a file names none any more."""
        return bool(self._given) or self._file is not None

    @property
    def given_names(self) -> frozenset[str]:
        """Of those that were given a name; the others are called by their place, which changes."""
        self._look_again()
        return frozenset(entry.name for entry in self._entries if entry.is_named)

    @property
    def has_unnamed(self) -> bool:
        """Whether somebody may come in under no name: with a token that has none, or without one."""
        return not self.configured or not all(entry.is_named for entry in self._entries)

    @property
    def short(self) -> Sequence[str]:
        """The names of those that can be guessed."""
        return [entry.name for entry in self._entries if entry.is_short]

    def shares_with(self, other: TokenBook) -> bool:
        """Whether one token is in both."""
        return not {entry.digest for entry in self._entries}.isdisjoint(entry.digest for entry in other._entries)

    @property
    def _entries(self) -> Sequence[_Entry]:
        return (*self._given, *self._from_file)

    def name_of(self, given: str) -> str | None:
        """The name of that token; None if it is none of ours. Takes as long for each of them."""
        self._look_again()
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.name
        return found

    def _look_again(self) -> None:
        now = self._clock.monotonic()
        if self._file is None or now - self._looked_at < _LOOK_AGAIN_SECONDS:
            return
        self._looked_at = now
        mark = _file_version(self._file)
        if mark == self._seen:
            return
        self._seen = mark
        try:
            self._from_file = self._read(self._file)
        except InvalidSettings as error:
            self._emit(TokensNotRead(kind=self.kind, file=str(self._file), problem=str(error)))

    def _read(self, file: Path) -> Sequence[_Entry]:
        name = f"server.{self.kind}_tokens_file {file}"
        try:
            with file.open("rb") as opened:
                content = opened.read(_MOST_BYTES + 1)
            mode = file.stat().st_mode
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InvalidSettings(f"{name} cannot be read: {reason}", hint="check the path and its owner") from None
        if len(content) > _MOST_BYTES:
            raise InvalidSettings(f"{name} is longer than 1 MiB", hint="is it the right file?")
        entries = _parse_entries(content.decode("latin-1").splitlines(), "line", name)
        open_to_all = bool(stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH))
        names = [entry.name for entry in entries]
        self._emit(TokensRead(kind=self.kind, file=str(file), names=names, open_to_all=open_to_all))
        return entries


class Tokens(Struct, frozen=True, kw_only=True):
    worker: TokenBook
    read: TokenBook
    admin: TokenBook

    @property
    def configured(self) -> bool:
        """Whether there are any: then nobody is let in without one."""
        return self.worker.configured or self.read.configured or self.admin.configured


def read_tokens(settings: ServerSettings, environment: Mapping[str, str], clock: Clock, emit: Emit) -> Tokens:
    """Raises InvalidSettings, without a token in it."""

    def book(kind: str, variable: str, file: str) -> TokenBook:
        return TokenBook(kind, environment.get(variable, ""), file, clock, emit)

    return Tokens(
        worker=book("worker", WORKER_TOKENS_VARIABLE, settings.worker_tokens_file),
        read=book("read", READ_TOKENS_VARIABLE, settings.read_tokens_file),
        admin=book("admin", ADMIN_TOKENS_VARIABLE, settings.admin_tokens_file),
    )


def _file_version(file: Path) -> object:
    """Changes when the file does."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _parse_entries(lines: Sequence[str], place: str, where: str) -> Sequence[_Entry]:
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        entry = _ENTRY.fullmatch(text)
        if entry is None:
            raise InvalidSettings(f"{where}: number {number} is no token", hint=_FORM)
        digest, is_short = hashlib.sha256(entry[2].encode()).digest(), len(entry[2]) < LEAST_CHARS
        found.append(_Entry(entry[1] or f"{place} {number}", digest, bool(entry[1]), is_short))
    return found


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
    """Three doors: for workers, for readers, for admins. Each raises ApiError (401, 403) for a stranger.

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
            raise ApiError(400, "X-Worker-ID must be 1 to 200 visible ASCII characters without spaces")
        return Caller(worker_id, token, owner)

    def reader(self, request: Request) -> None:
        """A read or an admin token."""
        books = [self._tokens.read, self._tokens.admin]
        self._check(books, _bearer(request), request, is_open=self._open_read)

    def admin(self, request: Request) -> None:
        """An admin token."""
        book, given = self._tokens.admin, _bearer(request)
        if book.configured and given and book.name_of(given) is None and self._tokens.read.name_of(given) is not None:
            raise ApiError(403, "this needs an admin token, and the token given is a read token")
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
            raise ApiError(401, f"{what} ({header})", headers=None if books[0] is self._tokens.worker else _BEARER)
        if problem := _foreign_reason(request):
            raise ApiError(403, f"{problem}: without a token this gateway serves its own machine only")
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
        """Raises ApiError (403) for an id of another token, or one too many of this one; LedgerUnavailable."""
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
            raise ApiError(403, what)
        if found != caller.owner:
            what = f"worker id {worker_id} was first used with another token"
            remedy = (
                "list the new token under the same name as the old one, give this worker another worker.id, "
                f"or free the id with 'parcelpost gateway release {worker_id}'"
            )
            raise ApiError(403, f"{what}; {remedy}")
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


def _foreign_reason(request: Request) -> str:
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


_VARIABLES = {"worker": WORKER_TOKENS_VARIABLE, "read": READ_TOKENS_VARIABLE, "admin": ADMIN_TOKENS_VARIABLE}
_MAKE_HINT = "make one with 'parcelpost gateway token'"


def check_tokens(settings: ServerSettings, tokens: Tokens) -> None:
    """Raises InvalidSettings where a token opens a door that is not its own, or strangers could reach an open one."""
    _refuse_shared(tokens)
    if is_loopback(settings.host):
        return
    place = f"server.host is {settings.host}, which other machines can reach"
    _refuse_missing(place, [book for book in (tokens.worker, tokens.admin) if not book.configured])
    for book in (tokens.worker, tokens.read, tokens.admin):
        if book.short:
            what = f"{place}, and a token that can be guessed is set for {_named([book])}: {', '.join(book.short)}"
            raise InvalidSettings(what, hint=f"a token has at least {LEAST_CHARS} characters; {_MAKE_HINT}")


def _refuse_missing(place: str, missing: list[TokenBook]) -> None:
    if missing:
        places = " and ".join(f"{_VARIABLES[book.kind]} or server.{book.kind}_tokens_file" for book in missing)
        raise InvalidSettings(
            f"{place}, and no tokens are set for {_named(missing)}",
            hint=f"set {places} ({_MAKE_HINT}), or listen on 127.0.0.1",
        )


def _refuse_shared(tokens: Tokens) -> None:
    for one, other in combinations((tokens.worker, tokens.read, tokens.admin), 2):
        if one.shares_with(other):
            raise InvalidSettings(
                f"one token is set for {_named([one])} and for {_named([other])}: whoever has it may do what both may",
                hint=f"give each a token of its own; {_MAKE_HINT}",
            )


def _named(books: list[TokenBook]) -> str:
    return " and ".join({"worker": "workers", "read": "readers", "admin": "admins"}[book.kind] for book in books)
