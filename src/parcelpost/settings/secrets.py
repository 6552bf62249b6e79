"""Secrets: read from the environment or a file, never from settings, and never displayed."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import GatewaySettings

TOKEN_VARIABLE = "PARCELPOST_GATEWAY_TOKEN"  # noqa: S105 - the variable's name
WORKER_TOKENS_VARIABLE = "PARCELPOST_WORKER_TOKENS"
READ_TOKENS_VARIABLE = "PARCELPOST_READ_TOKENS"
ADMIN_TOKENS_VARIABLE = "PARCELPOST_ADMIN_TOKENS"

WEBHOOK_SECRET_VARIABLE = "PARCELPOST_WEBHOOK_SECRET"  # noqa: S105 - the variable's name
"""The secret of webhooks that name no variable. The names of all others begin with it."""

PROXY_LOGIN_VARIABLE = "PARCELPOST_FETCH_PROXY_LOGIN"

_MAX_BYTES = 8 * 1024
_USER = re.compile(r"[\w.%-]*", re.ASCII)
_WELL_FORMED = re.compile(r"[\x21-\x7e]+")
_FORM = "a token is printable ASCII without spaces"


class Secret:
    """Text that cannot leak into a message, a log line, a traceback or a pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")


class Token(Struct, frozen=True, kw_only=True):
    secret: Secret | None = None
    """None if it is not set, which some gateways allow."""
    origin: str = ""
    """`environment` or `file PATH`."""
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """`set (environment)`, `set (file PATH)` or `not set`."""
        return f"set ({self.origin})" if self.secret else "not set"


def without_password(address: str) -> str:
    """Returns an address without its password: `postgresql://user:***@host/db`. Also hides parameters."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not _USER.fullmatch(user) or (at and "?" in login):
        return f"{scheme}://***"  # it is unclear where the password ends
    place, mark, _ = place.partition("?")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{place}{'?***' if mark else ''}"


def read_token(gateway: GatewaySettings, environment: Mapping[str, str]) -> Token:
    """Reads PARCELPOST_GATEWAY_TOKEN, else `token_file`. Raises InvalidSettings, which never quotes the token."""
    if text := environment.get(TOKEN_VARIABLE, "").strip():
        return Token(secret=_secret(text, TOKEN_VARIABLE), origin="environment")
    if not gateway.token_file:
        return Token()
    return _from_file(Path(gateway.token_file))


def _from_file(path: Path) -> Token:
    name = f"gateway.token_file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
            mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidSettings(f"{name} cannot be read: {reason}", hint="check the path and its permissions") from None
    text = content.decode("latin-1").strip()
    if not text:
        raise InvalidSettings(f"{name} is empty", hint=f"write the token into it, or use {TOKEN_VARIABLE}")
    warning = f"{name} is readable or writable by every user of this machine: run 'chmod 600' on it"
    return Token(secret=_secret(text, name), origin=f"file {path}", warnings=(warning,) if is_open_to_all(mode) else ())


def is_open_to_all(mode: int) -> bool:
    """Whether every user of the machine can read or write the file."""
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IROTH | stat.S_IWOTH))


def _secret(text: str, name: str) -> Secret:
    if len(text) > _MAX_BYTES:
        raise InvalidSettings(
            f"{name} is longer than 8 KiB", hint="is it the right file? it must contain the token and nothing else"
        )
    if not _WELL_FORMED.fullmatch(text):
        raise InvalidSettings(f"{name} contains a space, a line break or a non-ASCII character", hint=_FORM)
    return Secret(text)
