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
_RETRY_SECONDS = 60.0

StorageState = Mapping[str, Any]
"""Playwright's storage state: cookies, and local storage by origin."""


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
        _ = urlsplit(self.origin).port  # raises ValueError, which msgspec reports


class _Saved(Struct, frozen=True):
    cookies: tuple[_Cookie, ...] = ()
    origins: tuple[_Origin, ...] = ()


def is_profile_name(text: str) -> bool:
    """Only letters, digits, _ and -, so that it cannot be a path."""
    return _NAME.fullmatch(text) is not None


def profile_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def load_profile(folder: Path | None, name: str) -> StorageState:
    """Raises BrowserUnavailable: the task waits until the operator has saved one."""
    if folder is None or not is_profile_name(name):
        raise unusable_profile(name, "there is no such profile")
    try:
        with profile_path(folder, name).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise unusable_profile(name, f"it is larger than {MOST_BYTES:,} bytes")
        state: StorageState = msgspec.to_builtins(msgspec.json.decode(text, type=_Saved))
    except OSError as error:
        raise unusable_profile(name, (error.strerror or str(error)).lower()) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unusable_profile(name, f"it cannot be read: {error}"[:200]) from None
    return state


def unusable_profile(name: str, reason: str) -> BrowserUnavailable:
    fix = f"save it with 'parcelpost browser open --profile {name} URL'" if is_profile_name(name) else "name another"
    return BrowserUnavailable(f"the browser profile {name!r:.80} cannot be used: {reason}", _RETRY_SECONDS, fix)


class CookieJars:
    """Keeps cookies in memory for a site's next task, for platforms that ask for it."""

    def __init__(self) -> None:
        self._jars: dict[Site, Sequence[Any]] = {}

    def keep(self, site: Site, cookies: Sequence[Any]) -> None:
        self._jars[site] = cookies

    def forget(self, site: Site) -> None:
        self._jars.pop(site, None)

    def added_to(self, state: StorageState, site: Site) -> StorageState:
        """Returns the profile's state with the site's newer cookies added."""
        kept = self._jars.get(site, ())
        known = {_key(cookie) for cookie in kept}
        others = [cookie for cookie in state.get("cookies", ()) if _key(cookie) not in known]
        return {"cookies": [*others, *kept], "origins": state.get("origins", [])}


def _key(cookie: Mapping[str, Any]) -> tuple[Any, ...]:
    return cookie.get("name"), cookie.get("domain"), cookie.get("path")
