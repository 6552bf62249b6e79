"""Profiles that people have saved (`parcelpost browser open`), and cookies that sites gave us."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from parcelpost.model import Site
from parcelpost.scrapers.fetch_errors import NoBrowser

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
MOST_BYTES = 4 * 1024**2
_MOST_SITES = 1_000
_LOOK_AGAIN_SECONDS = 60.0

State = Mapping[str, Any]
"""As Playwright writes it: cookies, and what origins have stored."""


class _Cookie(Struct, frozen=True):
    name: str
    value: str
    domain: Annotated[str, Meta(min_length=1)]
    path: Annotated[str, Meta(pattern="^/")] = "/"
    expires: float = -1
    httpOnly: bool = False
    secure: bool = False
    sameSite: Literal["Strict", "Lax", "None"] = "Lax"


class _Entry(Struct, frozen=True):
    name: str
    value: str


class _Origin(Struct, frozen=True):
    origin: Annotated[str, Meta(pattern=r"^https?://[\w.:\[\]-]+$")]
    localStorage: tuple[_Entry, ...] = ()

    def __post_init__(self) -> None:
        _ = urlsplit(self.origin).port  # raises ValueError, which is told as one of the file


class _Saved(Struct, frozen=True):
    """All that is taken from the file."""

    cookies: tuple[_Cookie, ...] = ()
    origins: tuple[_Origin, ...] = ()


def is_name(text: str) -> bool:
    """Whether it can be a profile's: letters, digits, _ and -, so that no path is one."""
    return _NAME.fullmatch(text) is not None


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def saved(folder: Path | None, name: str) -> State:
    """Raises NoBrowser: the task waits until somebody makes one."""
    if folder is None or not is_name(name):
        raise unusable(name, "there is none of that name")
    try:
        with path_of(folder, name).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise unusable(name, f"it is larger than {MOST_BYTES:,} bytes")
        found = msgspec.json.decode(text, type=_Saved)
    except OSError as error:
        raise unusable(name, (error.strerror or str(error)).lower()) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unusable(name, f"it cannot be read: {error}"[:200]) from None
    state: State = msgspec.to_builtins(found)
    return state


def unusable(name: str, why: str) -> NoBrowser:
    """The task waits until somebody has made it anew."""
    how = f"make it with 'parcelpost browser open --profile {name} URL'" if is_name(name) else "name another"
    return NoBrowser(f"the browser profile {name!r:.80} cannot be used: {why}", _LOOK_AGAIN_SECONDS, how)


class KeptCookies:
    """Of sites whose platforms ask for it, in memory, for the next task."""

    def __init__(self) -> None:
        self._of: dict[Site, Sequence[Any]] = {}

    def keep(self, site: Site, cookies: Sequence[Any]) -> None:
        self._of.pop(site, None)
        if len(self._of) >= _MOST_SITES:
            del self._of[next(iter(self._of))]
        self._of[site] = cookies

    def forget(self, site: Site) -> None:
        self._of.pop(site, None)

    def added_to(self, state: State, site: Site) -> State:
        """The newest of each counts, and that is what the site gave us."""
        kept = self._of.get(site, ())
        known = {(one.get("name"), one.get("domain"), one.get("path")) for one in kept}
        others = [
            one
            for one in state.get("cookies", ())
            if (one.get("name"), one.get("domain"), one.get("path")) not in known
        ]
        return {"cookies": [*others, *kept], "origins": state.get("origins", [])}
