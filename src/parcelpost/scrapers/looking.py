"""Finding a field: its ways are tried in the order that did best lately, and every try is noted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from parcelpost.scrapers.document import Document, Element, Piece, label
from parcelpost.scrapers.ways import Label, Way

T = TypeVar("T")

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
    ways: tuple[Way, ...]
    shape: Callable[[Piece], T | None]


class Try(Struct, frozen=True):
    field: str
    way: Way
    success: bool
    guess: bool = False
    """Nobody wrote this way down: it is a label that resembles the field's own, found on this page or before."""


class Order(Protocol):
    def ways(self, field: str, known: Sequence[Way]) -> Sequence[Way]:
        """The ways to try: those known, best first, and behind them those learned."""

    @property
    def explores(self) -> bool:
        """Whether, on this page, another way should be tried for each field too, only to see how it does."""


class AsWritten:
    """The order in which the platform's author wrote them."""

    explores = False

    def ways(self, field: str, known: Sequence[Way]) -> Sequence[Way]:
        return known


AS_WRITTEN = AsWritten()


class Look:
    """One page being read. `tries` grows with every field."""

    def __init__(self, document: Document, order: Order = AS_WRITTEN) -> None:
        self.document = document
        self.tries: list[Try] = []
        self._order = order
        self._asked: dict[str, tuple[Way, ...]] = {}
        """The ways of the fields asked for so far."""

    def value(self, field: Field[T], within: Element | None = None) -> T | None:
        """The field's value; None: no way led to one."""
        self._asked[field.name] = field.ways
        ways = self._order.ways(field.name, field.ways)
        for place, way in enumerate(ways):
            if way not in field.ways and not self._may_be(field, label(way.selector)):
                continue
            value = self._try(field, way, within)
            if value is not None:
                if self._order.explores and place + 1 < len(ways) and ways[place + 1] in field.ways:
                    self._try(field, ways[place + 1], within)
                return value
        return self._guess(field, within)

    def _try(self, field: Field[T], way: Way, within: Element | None) -> T | None:
        value = self._found(field, way, within)
        self.tries.append(Try(field.name, way, value is not None, guess=way not in field.ways))
        return value

    def _may_be(self, field: Field[T], text: str) -> bool:
        """Whether a label that was learned, here or elsewhere, may be the field's."""
        own = " ".join(_labels(field.ways))
        return field.name != _NEVER_GUESSED and not self._is_owned(text) and _changing(text) <= _changing(own)

    def _found(self, field: Field[T], way: Way, within: Element | None) -> T | None:
        for piece in way.find(self.document, within):
            value = field.shape(piece)
            if value is not None:
                return value
        return None

    def _guess(self, field: Field[T], within: Element | None) -> T | None:
        """By a label that resembles one of the field's, if what is beside it has the field's shape."""
        if field.name == _NEVER_GUESSED:
            return None
        own = _labels(field.ways)
        wanted = [set(text.split()) for text in own]
        for text in self.document.labels_with(set().union(*wanted)):
            if text in own or not _resembles(text, wanted) or self._is_owned(text):
                continue
            way = Label(text)
            value = self._found(field, way, within)
            if value is not None:
                self.tries.append(Try(field.name, way, success=True, guess=True))
                return value
        return None

    def _is_owned(self, text: str) -> bool:
        return any(text in _labels(ways) for ways in self._asked.values())


@lru_cache(maxsize=1_024)
def _labels(ways: tuple[Way, ...]) -> Sequence[str]:
    return [label(way.selector) for way in ways if isinstance(way, Label)]


def _resembles(text: str, wanted: Sequence[set[str]]) -> bool:
    found, changing = set(text.split()), _changing(text)
    return any(
        words and len(words & found) / len(words | found) >= _SIMILAR and _changing(" ".join(words)) == changing
        for words in wanted
    )


def _changing(text: str) -> frozenset[str]:
    return _CHANGING.intersection(_WORD.findall(text))
