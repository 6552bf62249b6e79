"""A parsed page that can be searched by label, id and text. Any bytes give a Document or None, never an error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from itertools import islice
from typing import cast

from lxml import etree

from parcelpost.model import Page
from parcelpost.scrapers.html.encoding import as_utf8, without_controls
from parcelpost.scrapers.html.values import clean

_NEVER_VALUES = frozenset(
    {
        *("account", "account #", "account number", "acct", "acct#", "acres", "actual year built"),
        *("address", "alternate id", "amount", "appraised value", "area", "assessed value", "assessment year"),
        *("bathrooms", "bedrooms", "bill #", "bill number", "book & page", "book/page", "building value", "co-owner"),
        *("date", "deed acres", "deed book", "deed date", "deed type", "desc", "description"),
        *("effective year", "exempt value", "exemptions", "folio", "folio number", "grantee", "grantor"),
        *("gross acres", "gross living area", "heated area", "improvement value", "instrument"),
        *("instrument type", "just value", "land area", "land use", "land use code", "land value", "legal"),
        *("legal description", "legal reference", "living area", "location", "location address", "mail to"),
        *(
            "mailing address",
            "map/parcel",
            "market value",
            "mblu",
            "millage area",
            "millage group",
            "millage rate",
            "name",
            "neighborhood",
            "notes",
        ),
        *("number of units", "or book/page", "owner", "owner address", "owner information", "owner name"),
        *("owner name & address", "owner's", "owners", "parcel", "parcel #", "parcel id", "parcel id number"),
        *("parcel no", "parcel number", "physical address", "pid", "pin", "price", "prop id", "property address"),
        *("property class", "property id", "property type", "property use", "property use code", "qualification"),
        *("remarks", "s/t/r", "sale amount", "sale date", "sale price", "sales history", "sec/twp/rng"),
        *("section", "section/township/range", "site", "site address", "site location", "situs", "situs address"),
        *("square feet", "subdivision", "tax amount", "tax class", "tax code", "tax district", "tax id", "tax year"),
        *("taxable value", "taxes", "total acres", "total assessed value", "total market value", "total value"),
        *("unit of measure", "use", "use code", "use code description", "value", "vacant/improved", "year"),
        *("year blt", "year built", "zip", "zip code", "zone", "zoning", "zoning code"),
    }
)
_SELDOM_VALUES = frozenset(
    {
        *(
            "acreage",
            "building",
            "buildings",
            "city",
            "class",
            "code",
            "country",
            "county",
            "improvement",
            "improvements",
        ),
        *("land", "qualified", "range", "state", "total", "township", "type", "units"),
    }
)
"""These can be values, such as the city of a district or a qualified sale; two of them side by side are headings."""


def is_label_text(text: str, beside: str) -> bool:
    """Whether the text beside a label is another label. Both are normalized by `label`."""
    return text in _NEVER_VALUES or (text in _SELDOM_VALUES and beside in _SELDOM_VALUES)


Element = etree._Element
MAX_BYTES = 16 * 1024**2
"""A typical page of one parcel has a tenth of a megabyte."""

_MAX_LABEL_CHARS = 80
_MAX_TEXT_CHARS = 4 * _MAX_LABEL_CHARS
"""Limit for a label with its decoration and spaces."""
_MAX_ANCESTORS = 4
_MAX_LABEL_PARTS = 6
_MAX_PARTS_AROUND = 40
"""Text parts in the element around a label that contains nothing else."""
_START_CHARS = 60
_END_CHARS = 1_500
_END_SPACED_CHARS = 5 * _END_CHARS
"""Limit including the markup's white space."""
_string = etree.XPath("string()")
_HIDDEN = ("script", "style", "noscript", "template", "option", "textarea")
_BLOCKS = frozenset(
    {"p", "div", "tr", "td", "th", "li", "dd", "dt", "table", "h1", "h2", "h3", "h4", "h5", "h6"},
)
BREAK = "\N{LINE SEPARATOR}"
"""Marks line breaks: in the tree in each `br`, and in extracted text around blocks."""
_CELLS = frozenset({"td", "th"})
_NAMES = _CELLS | {"dt"}
"""Elements that are a label as a whole: the value is beside them, not beside their parent."""
_STYLED = etree.XPath("descendant-or-self::*/@style/..")  # a third of the time of `*[@style]`
_MARKED_HIDDEN = etree.XPath("descendant-or-self::*/@hidden/..")
_HINTS = ("sr-only", "visually-hidden", "tooltiptext")
"""Classes of texts that a browser does not show beside others."""
_WITH_ID = etree.XPath("descendant-or-self::*[@id]")
_NOT_DISPLAYED = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_DIGIT = re.compile("[0-9]")
_STRUCK = frozenset({"s", "del", "strike"})
_INLINE = frozenset({"span", "small", "em", "i", "b", "strong", "sup", "a", "abbr", "label"})
_OF_A_COPY = 0.8
"""Share of the labels of a hidden part that the visible page has, too, if the part is a copy."""
_SET_OFF = frozenset({"b", "strong", "label", "th", "dt", "h1", "h2", "h3", "h4", "h5", "h6"})
_ADORNING = frozenset({"a", "button", "i", "img", "script", "style", "sup", "svg", "wbr"})
_DECORATION_BEFORE, _DECORATION_BEHIND = " *\u2022", " :*?#\u2022"


class Piece:
    """A match on a page: an element, or the text after one."""

    __slots__ = ("_text", "element")

    def __init__(self, element: Element | None, text: str | None = None) -> None:
        self.element = element
        self._text = text

    @property
    def text(self) -> str:
        """One line."""
        if self._text is None:
            self._text = text_of(self.element) if self.element is not None else ""
        return self._text

    @property
    def lines(self) -> list[str]:
        """The lines as displayed, without empty ones."""
        if self.element is None:
            return [self.text] if self.text else []
        return lines_of(self.element)


class Document:
    """`scripts`: the text of its scripts, which is not part of the page's text."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.scripts = _take_scripts(root)
        for line_end in root.iter("br"):
            line_end.text = BREAK
        self._drop_what_is_not_shown()

    @classmethod
    def of(cls, page: Page) -> Document | None:
        """Returns None if the page is too large, empty, or has no element."""
        if len(page.body) > MAX_BYTES:
            return None
        try:
            root = etree.fromstring(without_controls(as_utf8(page.body, page.content_type)), _parser())
        except (etree.LxmlError, ValueError):
            return None
        return cls(root) if root is not None else None

    def _drop_what_is_not_shown(self) -> None:
        """Drops old values that are crossed out, hints beside values, and hidden copies of what the page shows.

        Other hidden parts stay: sites hide details until somebody opens them.
        """
        styled = (e for e in _elements(_STYLED, self.root) if _NOT_DISPLAYED.search(e.get("style") or ""))
        classed = ((e, classes) for e in self.root.iter(*_INLINE) if (classes := e.get("class")))
        hints = (e for e, classes in classed if any(name in classes for name in _HINTS))
        unseen = [*styled, *_elements(_MARKED_HIDDEN, self.root), *hints]
        dropped = [*self.root.iter(*_STRUCK), *(e for e in unseen if e.tag in _INLINE and _is_beside_text(e))]
        for element in dropped:
            _drop(element)
        hidden = [element for element in unseen if element.tag not in _INLINE and len(element)]
        inside = {element for part in hidden for element in part.iter()}
        copies = [part for part in hidden if self._is_copy(part, inside)]
        for part in copies:
            _drop(part)
        if copies:
            self.__dict__.pop("_ids", None)
            self.__dict__.pop("_labels", None)

    def _is_copy(self, part: Element, hidden: Set[Element]) -> bool:
        """Whether visible elements have its ids, or most of its labels, or one beside it has its form."""
        beside = [other for other in (part.getprevious(), part.getnext()) if other is not None and other not in hidden]
        if any(_have_one_form(part, other) for other in beside):
            return True
        count = shown = 0
        for element in part.iter():
            name, text = element.get("id"), element.text
            if name and any(other not in hidden for other in self._ids.get(name, ())):
                return True
            own = label(text) if text and not text.isspace() else ""
            if own and len(own) <= _MAX_LABEL_CHARS and not any(sign.isdigit() for sign in own):
                count += 1
                shown += any(other not in hidden for other in self._labels.get(own, ()))
        return count > 0 and shown >= _OF_A_COPY * count

    @cached_property
    def _ids(self) -> Mapping[str, list[Element]]:
        elements: dict[str, list[Element]] = {}
        for element in _elements(_WITH_ID, self.root):
            if name := element.get("id"):
                elements.setdefault(name, []).append(element)
        return elements

    @cached_property
    def _id_ends(self) -> Mapping[str, list[Element]]:
        elements: dict[str, list[Element]] = {}
        for name, (element, *_) in self._ids.items():
            end = name.rpartition("_")[2].rpartition("$")[2].rpartition(":")[2]
            elements.setdefault(end.lower(), []).append(element)
        return elements

    @cached_property
    def _labels(self) -> Mapping[str, list[Element]]:
        elements: dict[str, list[Element]] = {}
        for element in self.root.iter():
            text = element.text
            if not text or text.isspace() or len(text) > _MAX_TEXT_CHARS or not (own := _label(text)):
                continue
            if len(own) <= _MAX_LABEL_CHARS:
                if own in elements:
                    elements[own].append(element)
                else:
                    elements[own] = [element]
            if len(element) and (whole := _whole_label(element)) not in ("", own):
                elements.setdefault(whole, []).append(element)
        return elements

    @cached_property
    def classed(self) -> Sequence[tuple[Element, str]]:
        """All elements with a class attribute, and its value, in document order."""
        return [(element, classes) for element in self.root.iter() if (classes := element.get("class"))]

    @cached_property
    def sections(self) -> Mapping[str, Element]:
        """`section` elements by title; a second one with the same title is `title (2)`."""
        sections: dict[str, Element] = {}
        counts: Counter[str] = Counter()
        for section in self.root.iter("section"):
            header = next(section.iter("header"), section)
            title = next((element for element in header.iter("div", "h2", "h3", "span") if _is_title(element)), None)
            if title is not None and (name := label(text_of(title))):
                counts[name] += 1
                sections[f"{name} ({counts[name]})" if counts[name] > 1 else name] = section
        return sections

    @cached_property
    def end_text(self) -> str:
        """The last text of the page in small letters: that of its footer."""
        body = next(self.root.iterchildren("body"), self.root)
        text = str(_string(body))
        end = clean(text[-2 * _END_CHARS :])
        if len(end) <= _END_CHARS:
            end = clean(text[-_END_SPACED_CHARS:])
        return end[-_END_CHARS:].lower()

    @cached_property
    def words(self) -> Set[str]:
        """All words of its labels."""
        return set(" ".join(self._labels).split())

    @cached_property
    def _label_indexes(self) -> Mapping[str, list[int]]:
        """Word -> indexes of the labels that contain it."""
        indexes: dict[str, list[int]] = {}
        for index, text in enumerate(self._labels):
            for word in text.split():
                indexes.setdefault(word, []).append(index)
        return indexes

    def by_id(self, name: str) -> Element | None:
        """None also if several elements have that id, with different values."""
        elements = self._ids.get(name)
        if elements is None:
            return None
        is_value = len(elements) > 1 and next(elements[0].iterdescendants("table"), None) is None
        return None if is_value and len(set(map(text_of, elements))) > 1 else elements[0]

    def by_id_end(self, name: str) -> Sequence[Element]:
        """Elements whose id ends in that part, after the prefixes of ASP.NET, which differ between counties."""
        return self._id_ends.get(name.lower(), ())

    def labelled(self, text: str) -> Sequence[Element]:
        """Elements with that label, in document order, regardless of case, colons and asterisks."""
        return self._labels.get(label(text), ())

    def labels(self) -> Iterator[str]:
        """All texts that are short enough to be a label."""
        return iter(self._labels)

    def labels_with(self, words: Iterable[str]) -> Sequence[str]:
        """Labels with one of these words, in document order."""
        indexes = {index for word in words for index in self._label_indexes.get(word, ())}
        if not indexes:
            return ()
        texts = list(self._labels)
        return [texts[index] for index in sorted(indexes)]


def label(text: str) -> str:
    """Normalizes a label for comparison; '' if it is too long to be one."""
    if len(text) > _MAX_TEXT_CHARS and len(text := clean(text)) > _MAX_TEXT_CHARS:
        return ""  # keeps the cache small
    return _label(text)


@lru_cache(maxsize=8_192)
def _label(text: str) -> str:
    return clean(text).rstrip(_DECORATION_BEHIND).lstrip(_DECORATION_BEFORE).lower()


def _is_title(element: Element) -> bool:
    return "title" in (element.get("class") or "").split() or (element.get("id") or "").endswith("_lblName")


def text_of(element: Element) -> str:
    """All of its text, on one line."""
    inside = len(element)
    if not inside:
        return clean(element.text)
    if inside == 1 and not len(child := element[0]):
        edge = " " if child.tag in _BLOCKS else ""
        return clean(f"{element.text or ''}{edge}{child.text or ''}{edge}{child.tail or ''}")
    return clean("".join(_texts(element)))


def lines_of(element: Element) -> list[str]:
    """Its text, split where the page breaks lines."""
    lines = (clean(line) for line in "".join(_texts(element)).split(BREAK))
    return [line for line in lines if line]


def is_in(element: Element, within: Element | None) -> bool:
    """Whether the element is `within` or inside it; always true for None."""
    if within is None:
        return True
    node: Element | None = element
    while node is not None:
        if node is within:
            return True
        node = node.getparent()
    return False


def beside(element: Element, document: Document | None = None) -> Piece | None:
    """The value of a label: the next cell, the `dd` of a `dt`, the next element, or the text after it.

    With the document, also the field that a `label` element refers to. Returns None if another label takes its place.
    """
    node = element
    for _ in range(_MAX_ANCESTORS):
        piece = (_named(node, document) if document is not None else None) or _next(node)
        if piece is not None:
            return None if _is_label_too(element, node, piece) else piece
        parent = node.getparent()
        if parent is None or node.tag in _NAMES or not _reads_as(parent, node):
            return None
        node = parent
    return None


def _is_label_too(element: Element, node: Element, piece: Piece) -> bool:
    """Whether the piece beside a label, or beside its parent, is the next label."""
    own = label(text_of(element))
    if is_label_text(label(piece.text), own):
        return True
    if piece.element is None:
        return False
    if node.tag in _CELLS:
        return _is_in_heading(node, own, piece.element)
    return node is not element and _is_marked_alike(element, piece, node.tag == "li")


def _is_in_heading(cell: Element, own: str, value: Element) -> bool:
    """Whether the cell is in a row of headings: a label precedes it, or two follow its supposed value."""
    before = next(cell.itersiblings(*_CELLS, preceding=True), None)
    if before is not None and is_label_text(label(text_of(before)), own):
        return True
    behind = [label(text_of(text)) for text in islice(value.itersiblings(*_CELLS), 2)]
    return len(behind) == 2 and all(is_label_text(text, other) for text, other in (behind, behind[::-1]))


def _is_marked_alike(element: Element, piece: Piece, is_item: bool) -> bool:
    """Whether the piece has the same markup as the label: `<div><b>Label</b></div><div><b>Next</b></div>`.

    All of it, or, in a list item, its beginning.
    """
    if element.tag not in _SET_OFF or piece.element is None:
        return False
    same = next((e for e in piece.element.iter(element.tag) if e.get("class") == element.get("class")), None)
    return same is not None and (is_item or _reads_as(piece.element, same))


def _named(node: Element, document: Document) -> Piece | None:
    name = node.get("for") if node.tag == "label" else None
    element = document.by_id(name) if name else None
    return Piece(element) if element is not None else None


def _next(node: Element) -> Piece | None:
    if node.tag not in _NAMES and (tail := clean(node.tail)).strip(": "):
        return Piece(None, tail.lstrip(": "))
    for sibling in node.itersiblings(etree.Element):
        if node.tag in _CELLS and sibling.tag not in _CELLS:
            continue
        if sibling.tag == "br" or (sibling.tag == node.tag and node.tag in ("dt", "th")):
            return None  # two headings side by side
        text = text_of(sibling)
        if text.strip(": "):
            return Piece(sibling, text)
        if node.tag in _NAMES or not (text or sibling.tag in _ADORNING or _is_all_of_a_name(node)):
            return Piece(sibling)  # an empty value
    return None


def _is_all_of_a_name(node: Element) -> bool:
    """Whether it is the only text of a cell or `dt`."""
    around = next(node.iterancestors(*_NAMES), None)
    return around is not None and _reads_as(around, node)


def _reads_as(around: Element, node: Element) -> bool:
    """Whether `around` has no other text than `node`."""
    own, parts = label(text_of(node)), list(islice(_texts(around), _MAX_PARTS_AROUND))
    return own != "" and len(parts) < _MAX_PARTS_AROUND and label("".join(parts)) == own


def _texts(element: Element) -> Iterator[str]:
    """All text parts in document order, with a BREAK at the start and end of blocks."""
    yield element.text or ""
    above: list[tuple[Iterator[Element], str]] = []
    inside: Iterator[Element] = iter(element)
    behind = ""
    while True:
        for child in inside:
            edge = BREAK if child.tag in _BLOCKS else ""
            yield edge + (child.text or "")
            tail = edge + (child.tail or "")
            if len(child):
                above.append((inside, behind))
                inside, behind = iter(child), tail
                break
            yield tail
        else:
            yield behind
            if not above:
                return
            inside, behind = above.pop()


def _whole_label(element: Element) -> str:
    """All text of the element, if it is short enough to be a label."""
    parts = list(islice(filter(None, _texts(element)), _MAX_LABEL_PARTS))
    whole = label("".join(parts)) if len(parts) < _MAX_LABEL_PARTS else ""
    return whole if len(whole) <= _MAX_LABEL_CHARS else ""


def _elements(path: etree.XPath, root: Element) -> list[Element]:
    return cast(list[Element], path(root))


def _have_one_form(part: Element, other: Element) -> bool:
    """Whether both have the same text but for its digits. Most differ in their first words."""
    start, other_start = _start_of(part), _start_of(other)
    length = min(len(start), len(other_start))
    if start[:length] != other_start[:length]:
        return False
    text = text_of(part)
    return text != "" and _DIGIT.sub("0", text) == _DIGIT.sub("0", text_of(other))


def _start_of(element: Element) -> str:
    """The first words of its text, or all of it, with a zero for each digit."""
    parts: list[str] = []
    length = 0
    for part in _texts(element):
        parts.append(part)
        length += len(part) if not part.isspace() else 0
        if length > _START_CHARS:
            return _DIGIT.sub("0", clean("".join(parts)).rpartition(" ")[0])
    return _DIGIT.sub("0", clean("".join(parts)))


def _is_beside_text(element: Element) -> bool:
    around = element.getparent()
    if around is None:
        return False
    texts = (around.text, *(child.tail for child in around))
    return any(text and not text.isspace() for text in texts) or any(
        child is not element and text_of(child) for child in around
    )


def _drop(element: Element) -> None:
    """Removes an element, but not the text behind it."""
    around = element.getparent()
    if around is not None:
        element.text, element[:] = None, []
        before = element.getprevious()
        tail = f" {element.tail or ''}"
        if before is not None:
            before.tail = (before.tail or "") + tail
        else:
            around.text = (around.text or "") + tail
        around.remove(element)


def _take_scripts(root: Element) -> list[str]:
    scripts = []
    for element in root.iter(*_HIDDEN):
        if element.tag == "script" and element.text:
            scripts.append(element.text)
        element.text = None
    return scripts


def _parser() -> etree.HTMLParser:
    return etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=False, collect_ids=False)


_MAX_SHELL_CHARS = 300
"""The most text of a page that only says that it is loading."""


def is_shell(page: Page) -> bool:
    """Whether the page consists of scripts and hardly any text."""
    document = Document.of(page)
    if document is None or next(document.root.iter("script"), None) is None:
        return False
    hidden = sum(len(text_of(element)) for element in document.root.iter("noscript", "title"))
    return len(text_of(document.root)) - hidden <= _MAX_SHELL_CHARS


_MAX_LINES, _MAX_LINE_CHARS = 2_000, 1_000
_PARCEL_NOUN = r"(?:records?|results?|parcels?|propert(?:y|ies)|accounts?|folios?|straps?|pins?|pids?)"
_NO_PARCEL = re.compile(
    rf"\bno (?:such|matching) {_PARCEL_NOUN}\b|\bno match(?:es|ing)?\b|(?<![,.\d])\b0 (?:{_PARCEL_NOUN}|matches)\b"
    rf"|\binvalid {_PARCEL_NOUN}\b"
    rf"|\bno (?:\w+ )?{_PARCEL_NOUN}(?: (?:that|which|was|were|is|are|has|have|been|could|be|to))*"
    r" (?:found|match\w*|met|exist\w*|available|returned|display|displayed|located|fits?)\b"
    rf"|\bno data (?:\w+ )?for th(?:is|at) {_PARCEL_NOUN}\b"
    rf"|\b{_PARCEL_NOUN}\b[^.!?]{{0,60}} (?:not|cannot|can't|doesn't|no longer)(?: be)?(?: an?)?"
    r" (?:found|exists?|located|valid)\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"\$\s?\d|\b\d{1,3},\d{3}\b", re.ASCII)


def says_no_parcel(document: Document) -> bool:
    """Whether a line says so, and no amounts are shown: those belong to a record with an empty section."""
    lines = [line[:_MAX_LINE_CHARS] for line in lines_of(document.root)[:_MAX_LINES]]
    return any(map(_NO_PARCEL.search, lines)) and not any(map(_AMOUNT.search, lines))
