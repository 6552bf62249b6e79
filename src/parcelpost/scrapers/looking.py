"""Finding a field: its ways are tried in the order that did best lately, and every try is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from parcelpost.scrapers.document import Document, Element, Piece, label
from parcelpost.scrapers.ways import Label, Way

T = TypeVar("T")

_SIMILAR = 0.6


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
    """Nobody wrote this way down: it was made from a label that resembles the field's own."""


class Order(Protocol):
    def ways(self, field: str, known: Sequence[Way]) -> Sequence[Way]:
        """The ways to try, best first: those known, and those learned on this site."""

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

    def value(self, field: Field[T], within: Element | None = None) -> T | None:
        """The field's value; None: no way led to one."""
        ways = self._order.ways(field.name, field.ways)
        for place, way in enumerate(ways):
            value = self._try(field, way, within)
            if value is not None:
                if self._order.explores and place + 1 < len(ways):
                    self._try(field, ways[place + 1], within)
                return value
        return self._guess(field, within)

    def _try(self, field: Field[T], way: Way, within: Element | None) -> T | None:
        value = self._found(field, way, within)
        self.tries.append(Try(field.name, way, value is not None))
        return value

    def _found(self, field: Field[T], way: Way, within: Element | None) -> T | None:
        for piece in way.find(self.document, within):
            value = field.shape(piece)
            if value is not None:
                return value
        return None

    def _guess(self, field: Field[T], within: Element | None) -> T | None:
        """By a label that resembles one of the field's, if what is beside it has the field's shape."""
        own = [label(way.selector) for way in field.ways if isinstance(way, Label)]
        wanted = [set(text.split()) for text in own]
        for text in self.document.labels_with(set().union(*wanted)):
            if text in own or not _resembles(text, wanted):
                continue
            way = Label(text)
            value = self._found(field, way, within)
            if value is not None:
                self.tries.append(Try(field.name, way, success=True, guess=True))
                return value
        return None


def _resembles(text: str, wanted: Sequence[set[str]]) -> bool:
    found = set(text.split())
    return any(words and len(words & found) / len(words | found) >= _SIMILAR for words in wanted)
