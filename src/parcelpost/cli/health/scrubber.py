"""Removes names and secrets: only words of this program and of the systems it calls remain in a text.

A text from elsewhere (an error, a log line) may hold a name, an address or a token. Only known words are kept;
the rest is replaced by pseudonyms or left out.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import hmac
import os
import re
import secrets
import uuid
from collections.abc import Collection
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from parcelpost import errors

_OWN_SOURCES = (
    "errors.py",
    "log_lines.py",
    "settings",
    "storage",
    "upstream",
    "protocol",
    "worker",
    "scrapers/browser",
)
_SCRAPER_SOURCES = ("fetch", "html/document.py", "plugin_adapter.py", "tabular.py")
_LOWER = re.compile(r"\b[a-z]{1,20}\b")
_COMMANDS = """
parcelpost doctor init run status store backup restore migrate clean check tasks results requeue gateway serve command
resume config show browser chmod chown sudo timedatectl the is are was not with all and
certificate verify failed self signed expired hostname mismatch malformed disk image locked refused reset peer
ConnectError ConnectTimeout ReadError ReadTimeout RemoteProtocolError ProxyError OperationalError DatabaseError
TimeoutException TimeoutError HTTP HTTPS TLS SSL DNS JSON UTC SQLite WAL
"""


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    root = files("parcelpost")
    own = (
        root.joinpath(*name.split("/")) for name in (*_OWN_SOURCES, *(f"scrapers/{name}" for name in _SCRAPER_SOURCES))
    )
    texts = [text for place in own for text in source_texts(place)]
    systems = [*(os.strerror(number) for number in errno.errorcode), *(status.phrase for status in HTTPStatus)]
    return frozenset(
        {
            *(word for text in texts for word in _LOWER.findall(text)),
            *(word for text in (*systems, _COMMANDS) for word in re.findall(r"[A-Za-z]+", text)),
            *(name for name in (*vars(builtins), *vars(errors)) if name[0].isupper()),
            *(str(status.value) for status in HTTPStatus),
        }
    )


def source_texts(place: Traversable) -> list[str]:
    if place.name == "__pycache__":  # may be another user's, and not ours to read
        return []
    if place.is_dir():
        return [text for below in place.iterdir() for text in source_texts(below)]
    return [place.read_text(encoding="utf-8")] if place.name.endswith(".py") else []


LEFT_OUT = "\N{HORIZONTAL ELLIPSIS}"

_MOST_CHARS = 2_000
_EDGES = ".,:;!?()[]'\"`<>="
_STATES = (
    "AL AK AZ AR CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR "
    "PA PR RI SC SD TN TX UT VT VA WA WV WI WY"
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


class Scrubber:
    """Pseudonyms are the same in every bundle of a machine, and cannot be turned back by trying parcel numbers."""

    def __init__(self, platforms: Collection[str], counties: Collection[str]) -> None:
        self._platforms = frozenset(platforms)
        self._counties = frozenset(counties)
        self._key = _machine_key()
        self._words = vocabulary()
        self._states = frozenset(_STATES.split())

    def words(self, text: str | None) -> str:
        """Keeps words that this program knows; everything between them becomes one mark."""
        kept: list[str] = []
        for given in (text or "")[:_MOST_CHARS].split():
            word = given if given.strip(_EDGES) in self._words else LEFT_OUT
            if word != LEFT_OUT or kept[-1:] != [LEFT_OUT]:
                kept.append(word)
        return " ".join(kept)

    def pseudonym(self, kind: str, text: str) -> str:
        """`task-3f9a61c0d2`: always the same for the same text."""
        digest = hmac.new(self._key, f"{kind}\0{text}".encode("utf-8", "replace"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:10]}"

    def platform(self, name: str) -> str:
        return name if name in self._platforms else self.pseudonym("platform", name)

    def county(self, name: str) -> str:
        return name if name in self._counties else self.pseudonym("county", name)

    def state(self, name: str) -> str:
        return name if name in self._states else self.pseudonym("state", name)

    def moment(self, text: str | None) -> str | None:
        return text if text and _MOMENT.fullmatch(text) else None


def _machine_key() -> bytes:
    """A key derived from this machine's id; if it has none, a random one for this bundle."""
    try:
        own = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        node = uuid.getnode()
        own = "" if node >> 40 & 1 else str(node)  # a made-up one is another each time
    return hashlib.sha256(f"parcelpost bundle {own or secrets.token_hex(16)}".encode()).digest()
