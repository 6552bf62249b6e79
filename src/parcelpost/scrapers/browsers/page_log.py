"""What a page said and did, for whoever wants to know later why it failed. No secrets, and not much of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_LINES = 300
_MOST_CHARS = 500
_MOST_RAW_CHARS = 4_000
_SHORTEST_SECRET = 6
_GONE = "***"
_SECRETS = (  # each in linear time, whatever a page writes
    re.compile(
        r"(?i)((?:token|secret|passw|pwd|auth|session|sid|api[_-]?key|signature|\bsig|\bcode|jwt)[\w.-]{0,40}"
        r"[\"']?\s?[=:]\s?[\"']?)[^&\s\"',;}]+"
    ),
    re.compile(r"(?i)((?:set-)?cookie\s?:\s?)\S.*"),
    re.compile(r"(?i)((?:proxy-)?authorization\s?:\s?)\S.*"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s)[\w.~+/=-]{8,}"),
    re.compile(r"()\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"),
    re.compile(r"(//)[^/\s@]{1,200}(?=@)"),
)


class PageLog:
    """At most 300 lines; the first and the last of them are the ones that tell."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: list[str] = []
        self._left_out = 0

    def add(self, what: str, text: str) -> None:
        line = f"{what}: {' '.join(text[:_MOST_RAW_CHARS].split())}"
        if len(self._first) < _MOST_LINES // 2:
            self._first.append(line)
            return
        self._last.append(line)
        if len(self._last) > _MOST_LINES // 2:
            del self._last[0]
            self._left_out += 1

    def text(self, secrets: Iterable[str] = ()) -> str:
        """`secrets`: what must not be in it wherever it stands, such as the values of cookies."""
        left_out = [f"({self._left_out} lines left out)"] if self._left_out else []
        found = "\n".join([*self._first, *left_out, *self._last, ""])
        for secret in sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True):
            found = found.replace(secret, _GONE)
        return "\n".join(map(_without_secrets, found.split("\n")))


def _without_secrets(line: str) -> str:
    for pattern in _SECRETS:
        line = pattern.sub(rf"\g<1>{_GONE}", line)
    return line[:_MOST_CHARS]
