"""Which tokens a gateway must have before it listens."""

from __future__ import annotations

from itertools import combinations

from parcelpost.errors import InvalidSettings
from parcelpost.gateway.access import is_loopback
from parcelpost.gateway.tokens import LEAST_CHARS, TokenBook, Tokens
from parcelpost.settings.schema import ServerSettings
from parcelpost.settings.secrets import ADMIN_TOKENS_VARIABLE, READ_TOKENS_VARIABLE, WORKER_TOKENS_VARIABLE

_VARIABLES = {"worker": WORKER_TOKENS_VARIABLE, "read": READ_TOKENS_VARIABLE, "admin": ADMIN_TOKENS_VARIABLE}
_MAKE = "make one with 'parcelpost gateway token'"


def check_listening(settings: ServerSettings, tokens: Tokens) -> None:
    """Raises InvalidSettings where a token opens a door that is not its own, or strangers could reach an open one."""
    _refuse_shared(tokens)
    if is_loopback(settings.host):
        return
    place = f"server.host is {settings.host}, which other machines can reach"
    _refuse_missing(place, [book for book in (tokens.worker, tokens.admin) if not book.configured])
    for book in (tokens.worker, tokens.read, tokens.admin):
        if book.short:
            what = f"{place}, and a token that can be guessed is set for {_named([book])}: {', '.join(book.short)}"
            raise InvalidSettings(what, hint=f"a token has at least {LEAST_CHARS} characters; {_MAKE}")


def _refuse_missing(place: str, missing: list[TokenBook]) -> None:
    if missing:
        places = " and ".join(f"{_VARIABLES[book.kind]} or server.{book.kind}_tokens_file" for book in missing)
        raise InvalidSettings(
            f"{place}, and no tokens are set for {_named(missing)}",
            hint=f"set {places} ({_MAKE}), or listen on 127.0.0.1",
        )


def _refuse_shared(tokens: Tokens) -> None:
    for one, other in combinations((tokens.worker, tokens.read, tokens.admin), 2):
        if one.shares_with(other):
            raise InvalidSettings(
                f"one token is set for {_named([one])} and for {_named([other])}: whoever has it may do what both may",
                hint=f"give each a token of its own; {_MAKE}",
            )


def _named(books: list[TokenBook]) -> str:
    return " and ".join({"worker": "workers", "read": "readers", "admin": "admins"}[book.kind] for book in books)
