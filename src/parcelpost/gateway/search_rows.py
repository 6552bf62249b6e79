"""What the search index holds of a parcel and of each of its liens, and the words they are found by. No I/O."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.gateway.models import Scope, SearchFreshness
from parcelpost.search_fields import cents, text_or_number

Json = Any

MAX_WORDS = 400
"""Of a parcel or lien."""
MAX_WORD = 60
MAX_ASKED = 16
"""Words of a question that are looked for."""
_MAX_TEXT = 200
_MAX_SHORT = 60
_MAX_CENTS = 10**15
_MAX_ACRES = 1e7
_WORD = re.compile(r"[^\W_]+")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_UNMARKED = {"Mn", "Mc", "Me"}


class RecordFacts(Struct, frozen=True, gc=False):
    """What the index takes from a record that the ledger's own columns do not have. Foreign data: anything may be
    anything.
    """

    market_value: Json = None
    land_area_acres: Json = None
    land_use_desc: Json = None
    land_use_code: Json = None
    tax_year: Json = None
    tax_status: Json = None
    last_sale_date: Json = None
    latitude: Json = None
    longitude: Json = None


_read_facts = msgspec.json.Decoder(RecordFacts).decode


def read_facts(data: bytes | str) -> RecordFacts:
    try:
        return _read_facts(data)
    except (ValueError, RecursionError):
        return RecordFacts()


class Merged(Struct, frozen=True, kw_only=True, gc=False):
    """The facts of a parcel: each from the first record that has it."""

    market_value: int | None
    acres: float | None
    land_use: str | None
    tax_year: int | None
    status: str | None
    sold_on: str | None
    longitude: int | None
    latitude: int | None


def merge(records: Sequence[RecordFacts]) -> Merged:
    """`records`: those that go first come first."""
    longitude, latitude = next(filter(None, map(_point, records)), (None, None))
    return Merged(
        market_value=_first(money(record.market_value) for record in records),
        acres=_first(_acres(record.land_area_acres) for record in records),
        land_use=_first(_short(record.land_use_desc) or _short(record.land_use_code) for record in records),
        tax_year=_first(_year(record.tax_year) for record in records),
        status=_first(_status(record.tax_status) for record in records),
        sold_on=_first(day(record.last_sale_date) for record in records),
        longitude=longitude,
        latitude=latitude,
    )


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def money(value: Json) -> int | None:
    amount = cents(value)
    return amount if amount is not None and abs(amount) <= _MAX_CENTS else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _acres(value: Json) -> float | None:
    number = _number(value)
    return round(number, 4) if number is not None and 0 <= number <= _MAX_ACRES else None


def _short(value: Json) -> str | None:
    text = text_or_number(value)
    return None if text is None else text[:_MAX_SHORT].strip() or None


def _status(value: Json) -> str | None:
    text = _short(value)
    return None if text is None else text.lower()


def _year(value: Json) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 1000 <= number <= 9999 else None


def day(value: Json) -> str | None:
    if not isinstance(value, str) or not _DATE.fullmatch(value[:10]):
        return None
    try:
        return date.fromisoformat(value[:10]).isoformat()
    except ValueError:
        return None


def _point(record: RecordFacts) -> tuple[int, int] | None:
    """In millionths of a degree. 0/0 is in the sea, and how sites write that they know none."""
    x, y = _number(record.longitude), _number(record.latitude)
    if x is None or y is None or abs(x) > 180 or abs(y) > 90 or (not x and not y):
        return None
    return round(x * 1e6), round(y * 1e6)


def shown(text: str | None) -> str | None:
    return (text or "")[:_MAX_TEXT] or None


def words(text: str) -> list[str]:
    """Returns the words of a text, without case, accents and punctuation."""
    return [word[:MAX_WORD] for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text[: MAX_WORDS * MAX_WORD]).casefold()
    return "".join(letter for letter in decomposed if unicodedata.category(letter) not in _UNMARKED)


_PLACE = "·"
"""In no word that is asked for."""


def state_word(state: str) -> str:
    return _place_word("s", state)


def county_word(county: str) -> str:
    return _place_word("c", county)


def _place_word(kind: str, name: str) -> str:
    return _PLACE + _PLACE.join((kind, *words(name)))[:MAX_WORD]


def index_words(texts: Iterable[str | None], numbers: Iterable[str | None], state: str, county: str) -> str:
    """Returns the words that a row is found by, each once. `numbers`, of parcels and certificates, are also found when
    they are written without punctuation. Its place is among them, so that a county's rows are found without the others.
    """
    found: dict[str, None] = {}
    for text in texts:
        found |= dict.fromkeys(words(text or ""))
    for number in numbers:
        parts = words(number or "")
        found |= dict.fromkeys(parts)
        if len(parts) > 1:
            found["".join(parts)[:MAX_WORD]] = None
    return " ".join([*list(found)[:MAX_WORDS], state_word(state), county_word(county)])


class Asked(Struct, frozen=True):
    """A part of what is searched for: all of the words, or their letters and digits as one word."""

    words: tuple[str, ...]
    is_prefix: bool
    """Whether the last word may go on."""

    @property
    def joined(self) -> str:
        return "".join(self.words)[:MAX_WORD]


def asked(text: str) -> list[Asked]:
    """Reads what a person types: any text. The last word may be the beginning of one, unless it is a single letter or a
    space follows.

    At most 16 words count.
    """
    parts: list[Asked] = []
    left = MAX_ASKED
    plain = _plain(text[:4_000].replace("\0", " "))
    chunks = plain.split()
    is_open = bool(plain) and not plain[-1].isspace()
    for place, chunk in enumerate(chunks, 1):
        found = tuple(word[:MAX_WORD] for word in _WORD.findall(chunk))[:left]
        if found:
            is_last = is_open and place == len(chunks)
            parts.append(Asked(found, is_prefix=is_last and len(found[-1]) > 1))
            left -= len(found)
        if left <= 0:
            break
    return parts


class Coverage(Struct, frozen=True):
    """A schedule, as far as a parcel's freshness depends on it."""

    platform: str
    scope: Scope
    norms: frozenset[str]
    """The parcels of a file."""
    fresh_for: timedelta

    def covers(self, platforms: Sequence[str], delinquent: bool | None, norm: str) -> bool:
        if self.platform not in platforms:
            return False
        if self.scope is Scope.DELINQUENT:
            return delinquent is True
        return self.scope is not Scope.FILE or norm in self.norms


def freshness(
    covering: Iterable[Coverage], scraped_at: datetime, now: datetime
) -> tuple[SearchFreshness, datetime | None]:
    """Returns a parcel's freshness by the shortest of these schedules, and when that ends.

    Fresh: scraped within the interval and the window. Due: its next scrape is late by less than that again.
    """
    longest = min((schedule.fresh_for for schedule in covering), default=None)
    if longest is None:
        return SearchFreshness.UNSCHEDULED, None
    if now <= scraped_at + longest:
        return SearchFreshness.FRESH, scraped_at + longest
    if now <= scraped_at + 2 * longest:
        return SearchFreshness.DUE, scraped_at + 2 * longest
    return SearchFreshness.OVERDUE, None
