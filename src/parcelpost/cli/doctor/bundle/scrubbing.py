"""Texts from elsewhere, as they may stand in a bundle."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Collection
from pathlib import Path

from parcelpost.cli.doctor.bundle.words import vocabulary

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
        """Only words that this program knows; what lies between is one mark."""
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
    """Of what only this machine knows; where there is nothing of the kind, of this bundle alone."""
    try:
        own = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        node = uuid.getnode()
        own = "" if node >> 40 & 1 else str(node)  # a made-up one is another each time
    return hashlib.sha256(f"parcelpost bundle {own or secrets.token_hex(16)}".encode()).digest()
