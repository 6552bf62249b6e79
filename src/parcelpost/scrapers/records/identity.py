"""Whether a page shows the parcel that was requested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from parcelpost.model import Json
from parcelpost.scrapers.html.document import Document, beside
from parcelpost.scrapers.html.values import json_text, parcel_norm

_SEGMENT = re.compile("[A-Z0-9]+")
_DIGITS, _LETTERS = re.compile("[0-9]"), re.compile("[A-Z]")
_MAX_SERIAL_DIGITS = 9
_MIN_SEGMENTS, _MAX_SEGMENTS = 4, 10
_MIN_LONG_CHARS = 10
_MIN_TELLING_CHARS = 6
"""A shorter number may be an area or a count."""
_NUMBER_OF_PARCEL = re.compile(
    r"parcel|folio|strap|account|acct|schedule|pin\b|pid\b|\bid\b|_id\b|key\b|mblu|map\b|number|apn\b|alt",
    re.IGNORECASE,
)
_OF_ANOTHER = re.compile(r"parent|child|adjoin|adjacent|neighbo|master|related|next\b|prev", re.IGNORECASE)


def is_other_parcel(requested: str, shown: Iterable[str | None]) -> bool:
    """Whether one of the shown numbers contradicts the requested one, and none matches it."""
    numbers = [number for number in shown if number]
    return any(_are_alike(requested, number) for number in numbers) and not any(
        is_same_parcel(requested, number) for number in numbers
    )


def is_same_parcel(requested: str, shown: str) -> bool:
    """Ignores punctuation, leading zeros of parts, and the order of the parts."""
    first, second = parcel_norm(requested), parcel_norm(shown)
    if first == second or first.lstrip("0") == second.lstrip("0"):
        return True
    parts, others = _segments(requested), _segments(shown)
    if sorted(part.lstrip("0") for part in parts) == sorted(part.lstrip("0") for part in others):
        return True
    return _is_made_of(first, others) or _is_made_of(second, parts) or _swaps_its_head(first, second)


def shown_parcel_ids(document: Document) -> Iterator[str]:
    """The values of all labels that look like a parcel number."""
    for text in document.labels():
        if _NUMBER_OF_PARCEL.search(text) and not _OF_ANOTHER.search(text):
            for element in document.labelled(text):
                if (piece := beside(element, document)) is not None:
                    yield piece.text


def json_parcel_ids(record: Json) -> Iterator[str]:
    """All values that may be a parcel number."""
    left: list[tuple[str, Json]] = [("", record)]
    while left:
        name, value = left.pop()
        if isinstance(value, Mapping):
            left += [(str(key), item) for key, item in value.items() if not _OF_ANOTHER.search(str(key))]
        elif isinstance(value, list):
            left += [(name, item) for item in value]
        elif (text := json_text(value)) and (len(text) >= _MIN_TELLING_CHARS or _NUMBER_OF_PARCEL.search(name)):
            yield text


def _are_alike(requested: str, shown: str) -> bool:
    """Whether both are numbers of the same kind: same length, both serial, or long with no part in common."""
    first, second = parcel_norm(requested), parcel_norm(shown)
    if not any(sign.isdigit() for sign in first):
        return False  # a name
    if len(first) == len(second) and (len(first) >= _MIN_LONG_CHARS or _shape(first) == _shape(second)):
        return True
    return (_is_serial(requested) and _is_serial(shown)) or _share_nothing(_segments(requested), _segments(shown))


def _share_nothing(parts: list[str], others: list[str]) -> bool:
    is_long = min(len(parts), len(others)) >= _MIN_SEGMENTS
    return is_long and not {part.lstrip("0") for part in parts} & {part.lstrip("0") for part in others} - {""}


def _shape(norm: str) -> str:
    return _LETTERS.sub("A", _DIGITS.sub("0", norm))


def _is_serial(number: str) -> bool:
    digits = number.strip()
    return digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MAX_SERIAL_DIGITS


def _segments(number: str) -> list[str]:
    return _SEGMENT.findall(number.upper())


def _is_made_of(norm: str, segments: list[str]) -> bool:
    """Whether it consists of these segments in any order."""
    if not 1 < len(segments) <= _MAX_SEGMENTS or len(norm) != sum(map(len, segments)):
        return False
    return _begins_with_one_of(norm, tuple(sorted(segments)))


def _begins_with_one_of(norm: str, segments: tuple[str, ...]) -> bool:
    if not norm:
        return True
    left = {part: segments[:at] + segments[at + 1 :] for at, part in enumerate(segments) if norm.startswith(part)}
    return any(_begins_with_one_of(norm[len(part) :], rest) for part, rest in left.items())


def _swaps_its_head(first: str, second: str) -> bool:
    """Whether only section, township and range, without separators, are in another order."""
    half = len(first) // 2
    return len(first) == len(second) and first[half:] == second[half:] and sorted(first) == sorted(second)
