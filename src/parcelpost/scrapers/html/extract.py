"""Field extraction: tries a field's selectors in the order that worked best lately and records every result."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from parcelpost.scrapers.html.document import Document, Element, Piece, label
from parcelpost.scrapers.html.selectors import Label, Selector
from parcelpost.scrapers.html.tables import Columns, Row, Table, lists_nothing

T = TypeVar("T")
R = TypeVar("R")

_SIMILAR = 0.6
_NEVER_GUESSED = "parcel_id"
"""A record of the wrong parcel is worse than none."""
_WORD = re.compile("[a-z]+")
_CHANGING = frozenset(
    _WORD.findall(
        "owner owners co mailing billing previous prior old former past parent child new next alternate secondary other"
        " exempt exemption exemptions taxable assessed appraised deferred market land building buildings improvement"
        " improvements school city county state zip effective neighbor adjacent grantor grantee buyer seller"
    )
)
"""With one of these words a label means something else than without."""


class Field(Struct, Generic[T], frozen=True):
    """Something that a platform's page shows.

    `shape` makes a value of what was found, or None if that cannot be one: a way that leads elsewhere has failed.
    """

    name: str
    ways: tuple[Selector, ...]
    shape: Callable[[Piece], T | None]


class Section(Struct, frozen=True):
    """What a page lists in tables, found as a field is. Each of its columns counts as a field of its own."""

    field: Field[Table]
    columns: Columns
    is_named_empty: Callable[[Document], bool]
    """Whether the page says elsewhere that it has none."""


def section(
    name: str, columns: Columns, *ways: Selector, is_named_empty: Callable[[Document], bool] = lambda _: False
) -> Section:
    return Section(Field(name, ways, columns.read), columns, is_named_empty)


class SelectorResult(Struct, frozen=True):
    field: str
    way: Selector
    success: bool
    guess: bool = False
    """Nobody wrote this way down: it is a label that resembles the field's own, found on this page or before."""


class SelectorResults(list[SelectorResult]):
    """Of one page, as they are made."""

    def note(self, field: str, way: Selector, success: bool) -> None:
        """Of something that a platform finds by means of its own."""
        self.append(_selector_result(field, way, success))

    def note_columns(self, field: str, headings: Mapping[str, Sequence[str]], found: Container[str]) -> None:
        """`sales.price` and so on: whether it is among those found. It is named after its surest heading."""
        self.extend([_column_result(field, name, texts[0], name in found) for name, texts in headings.items()])

    def drop(self, field: str) -> None:
        """The page says itself that it has none: no way has failed."""
        self[:] = [one for one in self if one.field != field]


class SelectorOrder(Protocol):
    def ways(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        """The ways to try: those known, best first, and behind them those learned."""

    @property
    def explores(self) -> bool:
        """Whether, on this page, another way should be tried for each field too, only to see how it does."""


class DeclaredOrder:
    """The order in which the platform's author wrote them."""

    explores = False

    def ways(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        return known


DECLARED_ORDER = DeclaredOrder()


class Extractor:
    """One page being read. `tries` grows with every field."""

    def __init__(
        self, document: Document, order: SelectorOrder = DECLARED_ORDER, tries: SelectorResults | None = None
    ) -> None:
        self.document = document
        self.tries = SelectorResults() if tries is None else tries
        self._order = order
        self._asked: dict[str, tuple[Selector, ...]] = {}
        """The ways of the fields asked for so far."""

    def value(self, field: Field[T], within: Element | None = None) -> T | None:
        """The field's value; None: no way led to one."""
        return self._lead(field, lambda way: self._first(field, way, within))

    def values(self, field: Field[T], within: Element | None = None) -> list[T]:
        """All that the first way that leads to a value leads to."""
        return self._lead(field, lambda way: self._all(field, way, within) or None) or []

    def _lead(self, field: Field[T], found: Callable[[Selector], R | None]) -> R | None:
        """What is found by the first way that leads to something, else by a guess."""
        self._asked[field.name] = field.ways
        ways = self._order.ways(field.name, field.ways)
        for place, way in enumerate(ways):
            if way not in field.ways and not self._may_be(field, label(way.selector)):
                continue
            value = found(way)
            self._note(field, way, value is not None)
            if value is not None:
                if self._order.explores and place + 1 < len(ways) and (other := ways[place + 1]) in field.ways:
                    self._note(field, other, found(other) is not None)
                return value
        return self._guess(field, found)

    def _first(self, field: Field[T], way: Selector, within: Element | None) -> T | None:
        for piece in way.find(self.document, within):
            value = field.shape(piece)
            if value is not None:
                return value
        return None

    def _all(self, field: Field[T], way: Selector, within: Element | None) -> list[T]:
        pieces = way.find(self.document, within)
        return [value for piece in pieces if (value := field.shape(piece)) is not None]

    def rows(self, part: Section, within: Element | None = None) -> list[Row] | None:
        """Of a section's tables. None: it is not found. What lists nothing and says so is no failure of any way."""
        found = self.value(part.field, within)
        if found is not None and found.rows:
            self.tries.note_columns(part.field.name, part.columns.headings, found.columns)
            return found.rows
        if found is None and not (part.is_named_empty(self.document) or self._is_empty(part.field, within)):
            return None
        self.tries.drop(part.field.name)
        return []

    def _is_empty(self, field: Field[Table], within: Element | None) -> bool:
        """Whether it is there, without headings and without a row."""
        return any(lists_nothing(piece) for way in field.ways for piece in way.find(self.document, within))

    def _note(self, field: Field[T], way: Selector, success: bool) -> None:
        self.tries.append(
            _selector_result(field.name, way, success)
            if way in field.ways
            else SelectorResult(field.name, way, success, True)
        )

    def _may_be(self, field: Field[T], text: str) -> bool:
        """Whether a label that was learned, here or elsewhere, may be the field's."""
        own = " ".join(_labels(field.ways))
        return field.name != _NEVER_GUESSED and not self._is_owned(text) and _changing(text) <= _changing(own)

    def _guess(self, field: Field[T], found: Callable[[Selector], R | None]) -> R | None:
        """By a label that resembles one of the field's, if what is beside it has the field's shape."""
        own = _labels(field.ways)
        wanted = [set(text.split()) for text in own] if field.name != _NEVER_GUESSED else []
        if not any(_may_be_read(words, self.document.words) for words in wanted):
            return None
        for text in self.document.labels_with(set().union(*wanted)):
            if text in own or not _resembles(text, wanted) or self._is_owned(text):
                continue
            way = Label(text)
            value = found(way)
            if value is not None:
                self.tries.append(SelectorResult(field.name, way, success=True, guess=True))
                return value
        return None

    def _is_owned(self, text: str) -> bool:
        return any(text in _labels(ways) for ways in self._asked.values())


def shown_fields(listed: Iterable[object], names: Iterable[str]) -> set[str]:
    """Which of these one of the list says something of."""
    every = list(listed)
    return {name for name in names if any(getattr(one, name) is not None for one in every)}


@lru_cache(maxsize=8_192)
def _selector_result(field: str, way: Selector, success: bool) -> SelectorResult:
    return SelectorResult(field, way, success)


@lru_cache(maxsize=8_192)
def _column_result(field: str, name: str, heading: str, success: bool) -> SelectorResult:
    return SelectorResult(f"{field}.{name}", Label(heading), success)


@lru_cache(maxsize=1_024)
def _labels(ways: tuple[Selector, ...]) -> Sequence[str]:
    return [label(way.selector) for way in ways if isinstance(way, Label)]


def _may_be_read(words: set[str], shown: Set[str]) -> bool:
    """Whether so many of these are among the words of the page's labels that one may resemble."""
    return len(words & shown) >= _SIMILAR * len(words) > 0


def _resembles(text: str, wanted: Sequence[set[str]]) -> bool:
    found, changing = set(text.split()), _changing(text)
    return any(
        words and len(words & found) / len(words | found) >= _SIMILAR and _changing(" ".join(words)) == changing
        for words in wanted
    )


def _changing(text: str) -> frozenset[str]:
    return _CHANGING.intersection(_WORD.findall(text))
