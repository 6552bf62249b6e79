"""Selectors that find something on a page. Each has a stable name under which its success is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from lxml import etree
from lxml.cssselect import CSSSelector
from msgspec import Struct

from parcelpost.scrapers.html.document import BREAK, Document, Element, Piece, beside, is_in, label, text_of

IN_ONE_LINE = f"normalize-space(translate(., '{BREAK}\N{NO-BREAK SPACE}', '  '))"
"""XPath: the text of an element, with white space normalized and the Document's line breaks removed."""


class Selector(Protocol):
    @property
    def type(self) -> str:
        """css, xpath or label."""

    @property
    def expression(self) -> str:
        """Its text, under which stats are stored; never changes between runs."""

    def __hash__(self) -> int: ...

    def find(self, document: Document, within: Element | None) -> Iterable[Piece]:
        """The matches inside `within`, in document order."""


class Id(Struct, frozen=True):
    """The element with that id."""

    name: str
    type = "css"

    @property
    def expression(self) -> str:
        return f"#{self.name}"

    def find(self, document: Document, within: Element | None) -> Sequence[Piece]:
        element = document.by_id(self.name)
        return (Piece(element),) if element is not None and is_in(element, within) else ()


class IdEnd(Struct, frozen=True):
    """Elements whose id ends in that part, whatever prefix a county's numbering adds."""

    name: str
    type = "css"

    @property
    def expression(self) -> str:
        return f"[id$='{self.name}']"

    def find(self, document: Document, within: Element | None) -> Sequence[Piece]:
        return [Piece(element) for element in document.by_id_end(self.name) if is_in(element, within)]


class Css(Struct, frozen=True):
    expression: str
    type = "css"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return _pieces(_css(self.expression)(document.root if within is None else within))


class XPath(Struct, frozen=True):
    """Relative to the searched element: begin it with `.//` or `./`."""

    expression: str
    type = "xpath"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return _pieces(_xpath(self.expression)(document.root if within is None else within))


class Label(Struct, frozen=True):
    """The value beside a label with this text."""

    expression: str
    type = "label"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for element in document.labelled(self.expression):
            piece = beside(element, document) if is_in(element, within) else None
            if piece is not None and not piece.text.endswith(":"):
                yield piece  # text that ends in a colon is the next label, so the value is missing


class Beginning(Struct, frozen=True):
    """Elements whose own text begins with these words: `<td>updated: 8/1/2024</td>`."""

    start: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"{self.start} ..."

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        start = label(self.start)
        for text in document.labels():
            if text.startswith(start):
                yield from (Piece(element) for element in document.labelled(text) if is_in(element, within))


class Inside(Struct, frozen=True):
    """The value inside the same element as its label: `<td>Parcel: <b>1-2</b></td>`."""

    name: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"{self.name} >"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for element in document.labelled(self.name):
            if is_in(element, within):
                yield from (Piece(child) for child in element.iter(etree.Element) if child is not element)


class Captioned(Struct, frozen=True):
    """Tables whose caption begins with this text."""

    text: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"caption {self.text}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for table in (document.root if within is None else within).iter("table"):
            caption = next(table.iterchildren("caption"), None)
            if caption is not None and text_of(caption).lower().startswith(self.text.lower()):
                yield Piece(table)


class Titled(Struct, frozen=True):
    """Sections whose title is one of these names; if there are none, those whose title contains one.

    Searches the whole page: sections are never nested.
    """

    names: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    """Titles with one of these words are excluded."""
    type = "label"

    @property
    def expression(self) -> str:
        return f"section {self.names[0]}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        known = document.sections
        exact = [known[name] for name in self.names if name in known]
        return map(Piece, exact or self._similar(known))

    def _similar(self, known: Mapping[str, Element]) -> Iterator[Element]:
        for name in self.names:
            for title, section in known.items():
                if name in title and not any(word in title for word in self.exclude):
                    yield section


class AtEnd(Struct, frozen=True):
    """One of these texts, in small letters, at the end of the page, such as in a footer."""

    texts: tuple[str, ...]
    type = "label"

    @property
    def expression(self) -> str:
        return f"at the end {self.texts[0]}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        end = document.end_text
        return (Piece(None, text) for text in self.texts if text in end)


class Says(Struct, frozen=True):
    """A heading or label with this text, whatever is beside it."""

    text: str
    type = "label"

    @property
    def expression(self) -> str:
        return f"says {self.text}"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        return (Piece(element) for element in document.labelled(self.text) if is_in(element, within))


@lru_cache(maxsize=8_192)
def selector_name(selector: Selector) -> tuple[str, str]:
    """Type and expression, under which stats are stored."""
    return selector.type, selector.expression


def selector_from_name(kind: str, expression: str) -> Selector | None:
    """The inverse of `selector_name`; None for an unknown type."""
    if kind == "label":
        return Inside(expression.removesuffix(" >")) if expression.endswith(" >") else Label(expression)
    if kind == "xpath":
        return XPath(expression)
    return Css(expression) if kind == "css" else None


def _pieces(matches: object) -> Iterator[Piece]:
    for match in matches if isinstance(matches, Sequence) else ():
        yield Piece(match) if isinstance(match, etree._Element) else Piece(None, str(match))


@lru_cache(maxsize=4_096)
def _css(expression: str) -> CSSSelector:
    return CSSSelector(expression, translator="html")


@lru_cache(maxsize=4_096)
def _xpath(expression: str) -> etree.XPath:
    return etree.XPath(expression)
