"""Authentication and authorization: the tokens of workers, readers and admins, and what each may do."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
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
from parcelpost.private_addresses import is_loopback
from parcelpost.settings.schema import ServerSettings
from parcelpost.settings.secrets import (
    ADMIN_TOKENS_VARIABLE,
    READ_TOKENS_VARIABLE,
    WORKER_TOKENS_VARIABLE,
    is_open_to_all,
)

MIN_TOKEN_CHARS = 16
"""A shorter token could be guessed."""

_RELOAD_SECONDS = 1.0
_MAX_BYTES = 1024 * 1024
_ENTRY = re.compile(r"(?:([\w.@-]{1,64}):\s*)?([\x21-\x39\x3b-\x7e]{1,8192})", re.ASCII)
_FORM = "write one token per line, or 'name: token'; a token is printable ASCII without spaces or colons"


class _Entry(Struct, frozen=True):
    name: str
    digest: bytes
    is_named: bool
    is_short: bool


class TokenBook:
    """The tokens of one kind, kept as hashes only and never shown.

    A changed file is read again, at most once a second. If it can no longer be read or parsed, the previous tokens stay
    valid and an event is emitted; an empty file revokes all tokens. The constructor raises InvalidSettings.
    """

    def __init__(self, kind: str, given: str, file: str, clock: Clock, emit: Emit) -> None:
        self.kind = kind
        self._clock = clock
        self._emit = emit
        self._given = _parse_entries(given.split(","), "environment", kind)
        self._file = Path(file) if file else None
        self._from_file: Sequence[_Entry] = ()
        self._seen: object = None
        self._loaded_at = clock.monotonic()
        if self._file:
            self._seen = _file_version(self._file)
            self._from_file = self._read(self._file)

    @property
    def configured(self) -> bool:
        """Whether such tokens are required. A file that lists none still counts."""
        return bool(self._given) or self._file is not None

    @property
    def given_names(self) -> frozenset[str]:
        """The names of tokens that have one; the others go by their position, which may change."""
        self._reload()
        return frozenset(entry.name for entry in self._entries if entry.is_named)

    @property
    def has_unnamed(self) -> bool:
        """Whether a caller may have no name: with an unnamed token, or where no token is required."""
        return not self.configured or not all(entry.is_named for entry in self._entries)

    @property
    def short(self) -> Sequence[str]:
        """The names of tokens that are too short."""
        return [entry.name for entry in self._entries if entry.is_short]

    def shares_with(self, other: TokenBook) -> bool:
        """Whether both books contain the same token."""
        return not {entry.digest for entry in self._entries}.isdisjoint(entry.digest for entry in other._entries)

    @property
    def _entries(self) -> Sequence[_Entry]:
        return (*self._given, *self._from_file)

    def name_of(self, given: str) -> str | None:
        """Returns the name of a token, None if it is unknown. Takes constant time."""
        self._reload()
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        name = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                name = entry.name
        return name

    def _reload(self) -> None:
        now = self._clock.monotonic()
        if self._file is None or now - self._loaded_at < _RELOAD_SECONDS:
            return
        self._loaded_at = now
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
                content = opened.read(_MAX_BYTES + 1)
            mode = file.stat().st_mode
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InvalidSettings(f"{name} cannot be read: {reason}", hint="check the path and its owner") from None
        if len(content) > _MAX_BYTES:
            raise InvalidSettings(f"{name} is longer than 1 MiB", hint="is it the right file?")
        entries = _parse_entries(content.decode("latin-1").splitlines(), "line", name)
        open_to_all = is_open_to_all(mode)
        names = [entry.name for entry in entries]
        self._emit(TokensRead(kind=self.kind, file=str(file), names=names, open_to_all=open_to_all))
        return entries


class Tokens(Struct, frozen=True, kw_only=True):
    worker: TokenBook
    read: TokenBook
    admin: TokenBook

    @property
    def configured(self) -> bool:
        """Whether any tokens are set: then every request needs one."""
        return self.worker.configured or self.read.configured or self.admin.configured


def read_tokens(settings: ServerSettings, environment: Mapping[str, str], clock: Clock, emit: Emit) -> Tokens:
    """Raises InvalidSettings; the message never contains a token."""

    def book(kind: str, variable: str, file: str) -> TokenBook:
        return TokenBook(kind, environment.get(variable, ""), file, clock, emit)

    return Tokens(
        worker=book("worker", WORKER_TOKENS_VARIABLE, settings.worker_tokens_file),
        read=book("read", READ_TOKENS_VARIABLE, settings.read_tokens_file),
        admin=book("admin", ADMIN_TOKENS_VARIABLE, settings.admin_tokens_file),
    )


def _file_version(file: Path) -> object:
    """Returns a value that changes when the file does."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _parse_entries(lines: Sequence[str], place: str, where: str) -> Sequence[_Entry]:
    entries = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        entry = _ENTRY.fullmatch(text)
        if entry is None:
            raise InvalidSettings(f"{where}: entry {number} is not a valid token", hint=_FORM)
        digest, is_short = hashlib.sha256(entry[2].encode()).digest(), len(entry[2]) < MIN_TOKEN_CHARS
        entries.append(_Entry(entry[1] or f"{place} {number}", digest, bool(entry[1]), is_short))
    return entries


_WORKER_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_UNKNOWN = "unknown"
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_RECHECK_SECONDS = 300.0
_IDLE_AFTER = timedelta(hours=1)
_MAX_CHECKED = 20_000
_BEARER = {"WWW-Authenticate": 'Bearer realm="parcelpost"'}


class Caller(NamedTuple):
    worker_id: str
    token: str
    """Name of the token, or its position if it has no name; '' without a token."""
    owner: str
    """Owner of the worker ID: the token's name, or '' if it has none."""


class Access:
    """Decides who is a worker, a reader or an admin. Each method raises ApiError (401, 403) for anyone else.

    Without any tokens, and only on a loopback address, local requests are admitted: they come from this machine, name
    it in their Host header (against DNS rebinding), and were not forwarded by a proxy or made by another site's page.
    `server.open_read` lets readers in without a token: local requests on a loopback address, any request elsewhere.
    """

    def __init__(self, settings: ServerSettings, tokens: Tokens) -> None:
        self._tokens = tokens
        self._on_loopback = is_loopback(settings.host)
        self._open_read = settings.open_read

    def worker(self, request: Request) -> Caller:
        """Returns the calling worker. Its id is `unknown` if it sends none, as in the public gateways."""
        given = request.headers.get("x-worker-token")
        token = self._check([self._tokens.worker], given, request)
        owner = token if token in self._tokens.worker.given_names else ""
        unknown = f"{_UNKNOWN}:{owner}" if owner else _UNKNOWN  # one id cannot belong to several tokens
        worker_id = request.headers.get("x-worker-id", unknown)
        if not _WORKER_ID.fullmatch(worker_id):
            raise ApiError(400, "X-Worker-ID must be 1 to 200 printable ASCII characters without spaces")
        return Caller(worker_id, token, owner)

    def reader(self, request: Request) -> None:
        """Requires a read or admin token."""
        books = [self._tokens.read, self._tokens.admin]
        self._check(books, _bearer(request), request, is_open=self._open_read)

    def admin(self, request: Request) -> None:
        """Requires an admin token."""
        book, given = self._tokens.admin, _bearer(request)
        if book.configured and given and book.name_of(given) is None and self._tokens.read.name_of(given) is not None:
            raise ApiError(403, "an admin token is required; this is a read token")
        self._check([book], given, request)

    def _check(self, books: list[TokenBook], given: str | None, request: Request, *, is_open: bool = False) -> str:
        """Returns the token's name, '' where no token is required."""
        names = [book.name_of(given) for book in books] if given else []
        for name in names:
            if name is not None:
                return name
        if is_open and not self._on_loopback:
            return ""
        if not is_open and (self._tokens.configured or not self._on_loopback):
            problem = "the token is unknown" if given else "a token is required"
            if not any(book.configured for book in books):
                problem = f"this gateway has no {books[0].kind} tokens, only tokens of other kinds"
            header = "X-Worker-Token" if books[0] is self._tokens.worker else "Authorization: Bearer"
            raise ApiError(401, f"{problem} ({header})", headers=None if books[0] is self._tokens.worker else _BEARER)
        if problem := _foreign_reason(request):
            raise ApiError(403, f"{problem}: without tokens this gateway accepts local requests only")
        return ""


class WorkerIds:
    """Which token owns a worker id: the first that used it, so that no worker can act for another token's worker.

    All unnamed tokens are one owner. The ids of a removed or renamed token go to the next token that uses them.
    """

    def __init__(self, ledger: Ledger, tokens: TokenBook, most: int, clock: Clock) -> None:
        self._ledger = ledger
        self._tokens = tokens
        self._most = most
        self._clock = clock
        self._checked: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Worker ID -> its owner, and when the ledger was last asked."""

    async def check(self, caller: Caller) -> None:
        """Raises ApiError (403) for another token's id, or if this token has too many; LedgerUnavailable."""
        worker_id, now = caller.worker_id, self._clock.monotonic()
        owner, at = self._checked.get(worker_id, ("", -math.inf))
        if owner == caller.owner and now - at < _RECHECK_SECONDS:
            return
        names = {*self._tokens.given_names, ""} if self._tokens.has_unnamed else self._tokens.given_names
        today = self._clock.now()
        holder = await self._ledger.claim_worker_id(
            worker_id, caller.owner, names, self._most, today, today - _IDLE_AFTER
        )
        if holder is None:
            problem = f"this token already has {self._most:,} workers (server.workers_per_token)"
            raise ApiError(403, problem)
        if holder != caller.owner:
            problem = f"worker ID {worker_id} belongs to another token"
            remedy = (
                "list the new token under the same name as the old one, give this worker another worker.id, "
                f"or release the ID with 'parcelpost gateway release {worker_id}'"
            )
            raise ApiError(403, f"{problem}; {remedy}")
        self._checked[worker_id] = (holder, now)
        self._checked.move_to_end(worker_id)
        if len(self._checked) > _MAX_CHECKED:
            self._checked.popitem(last=False)


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _foreign_reason(request: Request) -> str:
    """Returns why the request is not local, '' if it is."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return "the request comes from another machine"
    if not is_loopback(_host_of(f"//{headers.get('host', '')}")):
        return "the Host header names another machine"
    if any(name in headers for name in _FORWARDED):
        return "the request was forwarded by a proxy"
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return "the request was made by another site's page"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return "the request was made by another site's page"
    return ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


_VARIABLES = {"worker": WORKER_TOKENS_VARIABLE, "read": READ_TOKENS_VARIABLE, "admin": ADMIN_TOKENS_VARIABLE}
_MAKE_HINT = "create one with 'parcelpost gateway token'"


def check_tokens(settings: ServerSettings, tokens: Tokens) -> None:
    """Raises InvalidSettings if a token has two roles, or if other machines could connect without a strong token."""
    _refuse_shared(tokens)
    if is_loopback(settings.host):
        return
    place = f"server.host is {settings.host}, which other machines can reach"
    _refuse_missing(place, [book for book in (tokens.worker, tokens.admin) if not book.configured])
    for book in (tokens.worker, tokens.read, tokens.admin):
        if book.short:
            problem = f"{place}, and a token for {_named([book])} is too short: {', '.join(book.short)}"
            raise InvalidSettings(problem, hint=f"tokens need at least {MIN_TOKEN_CHARS} characters; {_MAKE_HINT}")


def _refuse_missing(place: str, missing: list[TokenBook]) -> None:
    if missing:
        places = " and ".join(f"{_VARIABLES[book.kind]} or server.{book.kind}_tokens_file" for book in missing)
        raise InvalidSettings(
            f"{place}, and no tokens are set for {_named(missing)}",
            hint=f"set {places} ({_MAKE_HINT}), or listen on 127.0.0.1",
        )


def _refuse_shared(tokens: Tokens) -> None:
    for book, other in combinations((tokens.worker, tokens.read, tokens.admin), 2):
        if book.shares_with(other):
            raise InvalidSettings(
                f"{_named([book])} and {_named([other])} share a token, which would give it both roles",
                hint=f"use separate tokens; {_MAKE_HINT}",
            )


def _named(books: list[TokenBook]) -> str:
    return " and ".join({"worker": "workers", "read": "readers", "admin": "admins"}[book.kind] for book in books)
