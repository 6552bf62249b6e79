"""The gateway's address and who we are, checked before the first call."""

from __future__ import annotations

import re

import httpx2

from parcelpost.errors import InvalidSettings
from parcelpost.settings.keys import GatewaySettings

_MOST_HEADER_CHARS = 4_096
_BASE_PATH = re.compile(r"[A-Za-z0-9._~/-]*", re.ASCII)
_FORM = "gateway.url must look like https://gateway.example.com"


def base_url(settings: GatewaySettings) -> str:
    """Where every path of the contract is appended, without a slash at the end.

    Raises InvalidSettings, which never quotes the address: somebody may have put a password in it.
    """
    try:
        url = httpx2.URL(settings.url)
        url.raw_host.decode("ascii").encode("idna")  # as the resolver will
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise InvalidSettings(f"{_FORM}: {_reason(error)}") from None
    if url.scheme not in {"http", "https"}:
        raise InvalidSettings(f"{_FORM}, with http or https")
    if not url.host or "%" in url.host or url.port == 0 or (url.port or 0) > 65_535:
        raise InvalidSettings(f"{_FORM}: it has no usable host and port")
    if url.userinfo:
        raise InvalidSettings("gateway.url must not hold a user name or password; the token has its own setting")
    if url.query or url.fragment or "?" in settings.url or "#" in settings.url:
        raise InvalidSettings(f"{_FORM}, without a query or fragment")
    path = settings.base_path
    if not _BASE_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")) or "//" in path:
        raise InvalidSettings("gateway.base_path must look like /internal")
    return "/".join(part for part in (str(url).rstrip("/"), path.strip("/")) if part)


def header_value(setting: str, value: str) -> str:
    """The value itself, if it can stand in a header. Raises InvalidSettings, which does not quote it."""
    if not value:
        raise InvalidSettings(f"{setting} is not set")
    if len(value) > _MOST_HEADER_CHARS or not all("!" <= sign <= "~" for sign in value):
        raise InvalidSettings(f"{setting} must be visible ASCII characters without spaces")
    return value


def _reason(error: Exception) -> str:
    return "its host is not a name" if isinstance(error, UnicodeError) else "it is not an address"
