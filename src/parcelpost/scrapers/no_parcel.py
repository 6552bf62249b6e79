"""Whether a page that shows no parcel says that there is none."""

from __future__ import annotations

import re

from parcelpost.scrapers.document import Document, lines_of

_MOST_LINES, _MOST_LINE_CHARS = 2_000, 1_000
_WHAT = r"(?:records?|results?|parcels?|propert(?:y|ies)|accounts?|folios?|straps?|pins?|pids?)"
_NONE = re.compile(
    rf"\bno (?:such|matching) {_WHAT}\b|\bno match(?:es|ing)?\b|(?<![,.\d])\b0 (?:{_WHAT}|matches)\b"
    rf"|\binvalid {_WHAT}\b"
    rf"|\bno (?:\w+ )?{_WHAT}(?: (?:that|which|was|were|is|are|has|have|been|could|be|to))*"
    r" (?:found|match\w*|met|exist\w*|available|returned|display|displayed|located|fits?)\b"
    rf"|\bno data (?:\w+ )?for th(?:is|at) {_WHAT}\b"
    rf"|\b{_WHAT}\b[^.!?]{{0,60}} (?:not|cannot|can't|doesn't|no longer)(?: be)?(?: an?)?"
    r" (?:found|exists?|located|valid)\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"\$\s?\d|\b\d{1,3},\d{3}\b", re.ASCII)


def is_said_to_be_none(document: Document) -> bool:
    """In one line. Not where amounts are shown: that is a record, one of whose sections has nothing."""
    lines = [line[:_MOST_LINE_CHARS] for line in lines_of(document.root)[:_MOST_LINES]]
    return any(map(_NONE.search, lines)) and not any(map(_AMOUNT.search, lines))
