"""Selectors that find something on a page. Each has a stable name under which its success is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from lxml import etree
from lxml.cssselect import CSSSelector
from msgspec import Struct

from parcelpost.scrapers.html.document import BREAK, Document, Element, Piece, beside, is_in, text_of

IN_ONE_LINE = f"normalize-space(translate(., '{BREAK}\N{NO-BREAK SPACE}', '  '))"
"""In an XPath: an element's text with plain blanks, without the breaks that a Document puts into it."""


class Selector(Protocol):
    @property
    def type(self) -> str:
        """css, xpath or label."""

    @property
    def selector(self) -> str:
        """Its name, the same in every run."""

    def __hash__(self) -> int: ...

    def find(self, document: Document, within: Element | None) -> Iterable[Piece]:
        """Whatever it leads to, in the page's order; nothing beyond `within`."""


class Id(Struct, frozen=True):
    """The element of that id."""

    name: str
    type = "css"

    @property
    def selector(self) -> str:
        return f"#{self.name}"

    def find(self, document: Document, within: Element | None) -> Sequence[Piece]:
        found = document.by_id(self.name)
        return (Piece(found),) if found is not None and is_in(found, within) else ()


class IdEnd(Struct, frozen=True):
    """An element whose id ends in that part, whatever a county's numbering puts before it."""

    name: str
    type = "css"

    @property
    def selector(self) -> str:
        return f"[id$='{self.name}']"

    def find(self, document: Document, within: Element | None) -> Sequence[Piece]:
        return [Piece(found) for found in document.by_id_end(self.name) if is_in(found, within)]


class Css(Struct, frozen=True):
    selector: str
    type = "css"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return _pieces(_css(self.selector)(document.root if within is None else within))


class XPath(Struct, frozen=True):
    """Relative to where is looked: begin it with `.//` or `./`."""

    selector: str
    type = "xpath"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return _pieces(_xpath(self.selector)(document.root if within is None else within))


class Label(Struct, frozen=True):
    """What stands beside a text that reads as this one."""

    selector: str
    type = "label"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for element in document.labelled(self.selector):
            piece = beside(element, document) if is_in(element, within) else None
            if piece is not None and not piece.text.endswith(":"):
                yield piece  # what ends in a colon is the next label: this one's value is missing


class Inside(Struct, frozen=True):
    """What follows a label's text inside the same element: `<td>Parcel: <b>1-2</b></td>`."""

    name: str
    type = "label"

    @property
    def selector(self) -> str:
        return f"{self.name} >"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for element in document.labelled(self.name):
            if is_in(element, within):
                yield from (Piece(child) for child in element.iter(etree.Element) if child is not element)


class Captioned(Struct, frozen=True):
    """Tables whose caption begins with this."""

    text: str
    type = "label"

    @property
    def selector(self) -> str:
        return f"caption {self.text}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for table in (document.root if within is None else within).iter("table"):
            caption = next(table.iterchildren("caption"), None)
            if caption is not None and text_of(caption).lower().startswith(self.text.lower()):
                yield Piece(table)


class Titled(Struct, frozen=True):
    """A section whose title is one of these; if there is none, one whose title has one of them in it.

    It is looked for in the whole page: no section is part of another.
    """

    names: tuple[str, ...]
    but: tuple[str, ...] = ()
    """With one of these words in it, a title is that of something else."""
    type = "label"

    @property
    def selector(self) -> str:
        return f"section {self.names[0]}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        known = document.sections
        exact = [known[name] for name in self.names if name in known]
        return map(Piece, exact or self._similar(known))

    def _similar(self, known: Mapping[str, Element]) -> Iterator[Element]:
        for name in self.names:
            for title, one in known.items():
                if name in title and not any(word in title for word in self.but):
                    yield one


@lru_cache(maxsize=8_192)
def selector_name(way: Selector) -> tuple[str, str]:
    """Kind and selector, by which a way is remembered."""
    return way.type, way.selector


def selector_from_name(kind: str, selector: str) -> Selector | None:
    """The way that was remembered under that name. None: no such kind of way."""
    if kind == "label":
        return Inside(selector.removesuffix(" >")) if selector.endswith(" >") else Label(selector)
    if kind == "xpath":
        return XPath(selector)
    return Css(selector) if kind == "css" else None


def _pieces(found: object) -> Iterator[Piece]:
    for one in found if isinstance(found, Sequence) else ():
        yield Piece(one) if isinstance(one, etree._Element) else Piece(None, str(one))


@lru_cache(maxsize=4_096)
def _css(selector: str) -> CSSSelector:
    return CSSSelector(selector, translator="html")


@lru_cache(maxsize=4_096)
def _xpath(selector: str) -> etree.XPath:
    return etree.XPath(selector)
