"""Who may do what: tokens of workers, readers and admins, from the environment and from files that may change."""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings
from parcelpost.events import Emit, TokensNotRead, TokensRead
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
        self._given = _entries(given.split(","), "environment", kind)
        self._file = Path(file) if file else None
        self._from_file: Sequence[_Entry] = ()
        self._seen: object = None
        self._looked_at = clock.monotonic()
        if self._file:
            self._seen = _mark(self._file)
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
        mark = _mark(self._file)
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
        entries = _entries(content.decode("latin-1").splitlines(), "line", name)
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


def _mark(file: Path) -> object:
    """Changes when the file does."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _entries(lines: Sequence[str], place: str, where: str) -> Sequence[_Entry]:
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
