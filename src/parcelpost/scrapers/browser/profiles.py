"""Browser profiles saved with `parcelpost browser open`, and cookies kept between tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from parcelpost.model import Site
from parcelpost.scrapers.fetch.errors import BrowserUnavailable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
MOST_BYTES = 4 * 1024**2
_MOST_SITES = 1_000
_LOOK_AGAIN_SECONDS = 60.0

StorageState = Mapping[str, Any]
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


def is_profile_name(text: str) -> bool:
    """Whether it can be a profile's: letters, digits, _ and -, so that no path is one."""
    return _NAME.fullmatch(text) is not None


def profile_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def load_profile(folder: Path | None, name: str) -> StorageState:
    """Raises NoBrowser: the task waits until somebody makes one."""
    if folder is None or not is_profile_name(name):
        raise unusable_profile(name, "there is none of that name")
    try:
        with profile_path(folder, name).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise unusable_profile(name, f"it is larger than {MOST_BYTES:,} bytes")
        found = msgspec.json.decode(text, type=_Saved)
    except OSError as error:
        raise unusable_profile(name, (error.strerror or str(error)).lower()) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unusable_profile(name, f"it cannot be read: {error}"[:200]) from None
    state: StorageState = msgspec.to_builtins(found)
    return state


def unusable_profile(name: str, why: str) -> BrowserUnavailable:
    """The task waits until somebody has made it anew."""
    how = f"make it with 'parcelpost browser open --profile {name} URL'" if is_profile_name(name) else "name another"
    return BrowserUnavailable(f"the browser profile {name!r:.80} cannot be used: {why}", _LOOK_AGAIN_SECONDS, how)


class CookieJars:
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

    def added_to(self, state: StorageState, site: Site) -> StorageState:
        """The newest of each counts, and that is what the site gave us."""
        kept = self._of.get(site, ())
        known = {(one.get("name"), one.get("domain"), one.get("path")) for one in kept}
        others = [
            one
            for one in state.get("cookies", ())
            if (one.get("name"), one.get("domain"), one.get("path")) not in known
        ]
        return {"cookies": [*others, *kept], "origins": state.get("origins", [])}
