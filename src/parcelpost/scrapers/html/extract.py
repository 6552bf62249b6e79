"""Field extraction: tries a field's selectors in the order that worked best lately and records every result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, Piece, label, text_of
from parcelpost.scrapers.html.selectors import Label, Selector
from parcelpost.scrapers.html.tables import Columns, Row, Table, is_row_of_values, lists_nothing, rows_of
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.validation import is_heading, is_other_kind

T = TypeVar("T")
R = TypeVar("R")

_SIMILAR = 0.6
_MAX_VALUE_CHARS = 200
_NEVER_GUESSED = "parcel_id"
"""A record of the wrong parcel is worse than none."""
_WORD = re.compile("[a-z]+")
_OTHER_MEANING = re.compile(
    r"\b(?:previous|prior|former|past|old|proposed|estimated|neighbou?r(?:ing)?|adjacent|comparable|sample"
    r"|of (?:19|20)\d\d)\b",
    re.ASCII,
)
"""In a label, but not in the declared ones: the value is not the field's."""
_QUALIFIERS = frozenset(
    _WORD.findall(
        "owner owners co mailing billing previous prior old former past parent child new next alternate secondary other"
        " exempt exemption exemptions taxable assessed appraised deferred market land building buildings improvement"
        " improvements school city county state zip effective neighbor adjacent grantor grantee buyer seller"
        " fire water sewer drainage lighting library park special"
    )
)
"""A label with one of these words means something else than one without."""


class Field(Struct, Generic[T], frozen=True):
    """A field of a platform's pages.

    `convert` returns the value of a piece of the page, or None if it cannot be one: then the selector has failed.
    """

    name: str
    selectors: tuple[Selector, ...]
    convert: Callable[[Piece], T | None]
    is_optional: bool = False
    """Whether some parcels lack the field: a page without it does not count against the selectors."""


class Section(Struct, frozen=True):
    """A table of a page, found like a field. The results of its columns are recorded separately."""

    field: Field[Table]
    columns: Columns
    is_named_empty: Callable[[Document], bool]
    """Whether the page says elsewhere that the list is empty."""
    kinds: Mapping[str, Callable[[str], object | None]] = {}
    """Columns of numbers, amounts, years and dates. If there are any, the others never hold just one of these."""
    has_rows: bool = False
    """Whether its table always has a row, or a text that says that there is nothing."""


def section(
    name: str,
    columns: Columns,
    *selectors: Selector,
    is_named_empty: Callable[[Document], bool] = lambda _: False,
    kinds: Mapping[str, Callable[[str], object | None]] = {},
    has_rows: bool = False,
) -> Section:
    return Section(Field(name, selectors, columns.read), columns, is_named_empty, kinds, has_rows)


class SelectorResult(Struct, frozen=True):
    field: str
    selector: Selector
    success: bool
    guess: bool = False
    """Whether the selector is not declared but a similar label found on this page or an earlier one."""


class SelectorResults(list[SelectorResult]):
    """The selector results of one page."""

    def note(self, field: str, selector: Selector, success: bool) -> None:
        """For something that a platform finds in its own way."""
        self.append(_selector_result(field, selector, success))

    def note_columns(self, field: str, headings: Mapping[str, Sequence[str]], columns: Container[str]) -> None:
        """Records for `sales.price` and so on whether the column was found. The selector is its first heading."""
        self.extend([_column_result(field, name, texts[0], name in columns) for name, texts in headings.items()])

    def drop(self, field: str) -> None:
        """Removes the results of a field: the page says that there is none, so no selector has failed."""
        self[:] = [result for result in self if result.field != field]


class SelectorOrder(Protocol):
    def ranked(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        """The selectors to try: the declared ones, best first, then learned ones."""

    @property
    def explores(self) -> bool:
        """Whether to try a second selector of each field on this page, to update its stats."""


class DeclaredOrder:
    """The order in the platform's code."""

    explores = False

    def ranked(self, field: str, known: Sequence[Selector]) -> Sequence[Selector]:
        return known


DECLARED_ORDER = DeclaredOrder()


class Extractor:
    """Extracts fields from a page; every attempt adds to `selector_results`."""

    def __init__(
        self,
        document: Document,
        order: SelectorOrder = DECLARED_ORDER,
        selector_results: SelectorResults | None = None,
        problems: Problems | None = None,
    ) -> None:
        self.document = document
        self.problems = Problems() if problems is None else problems
        self.selector_results = SelectorResults() if selector_results is None else selector_results
        self._order = order
        self._extracted: dict[str, tuple[Selector, ...]] = {}
        """The selectors of the fields extracted so far."""
        self._not_values = set[str]()
        """Fields beside whose labels the page has a text that is no such value."""

    def value(self, field: Field[T], within: Element | None = None) -> T | None:
        """Returns None if no selector finds a value."""
        value = self._try_selectors(field, lambda selector: self._first(field, selector, within))
        if value is None and field.name in self._not_values:
            self.problems.note(field.name, "its text is no such value")
        return value

    def values(self, field: Field[T], within: Element | None = None) -> list[T]:
        """All values of the first selector that finds any."""
        return self._try_selectors(field, lambda selector: self._all(field, selector, within) or None) or []

    def _try_selectors(self, field: Field[T], find: Callable[[Selector], R | None]) -> R | None:
        """Returns the result of the first selector that finds something, else of a guess."""
        self._extracted[field.name] = field.selectors
        selectors = self._order.ranked(field.name, field.selectors)
        for index, selector in enumerate(selectors):
            if selector not in field.selectors and not self._may_be(field, label(selector.expression)):
                continue
            value = find(selector)
            self._note(field, selector, value is not None)
            if value is not None:
                if (
                    self._order.explores
                    and index + 1 < len(selectors)
                    and (other := selectors[index + 1]) in field.selectors
                ):
                    self._note(field, other, find(other) is not None)
                return value
        guessed = self._guess(field, find)
        if guessed is None and field.is_optional:
            self.selector_results.drop(field.name)
        return guessed

    def parcel(self, field: Field[T], within: Element | None = None) -> T | None:
        """The parcel's number. None if another part of the page, found by its markup, has a different one."""
        found = self.value(field, within)
        for selector in field.selectors if found is not None else ():
            if selector.type == "css":
                others = [field.convert(piece) for piece in selector.find(self.document, within)]
                if any(other not in (None, found) for other in others):
                    self.problems.note(field.name, "the page shows several parcels")
                    return None
        return found

    def _first(self, field: Field[T], selector: Selector, within: Element | None) -> T | None:
        """The first value. None if a part of the page that looks the same has another one."""
        first: T | None = None
        first_piece: Piece | None = None
        for piece in selector.find(self.document, within):
            value = field.convert(piece)
            if value is None and selector in field.selectors and _is_printed(piece):
                self._not_values.add(field.name)
            if value is None or (selector.type != "css" and not isinstance(value, Table) and is_heading(piece.text)):
                continue
            if not isinstance(value, Table) and _has_another_meaning(piece, field.selectors):
                self.problems.note(field.name, "its label has another meaning")
                return None
            if first_piece is None:
                first, first_piece = value, piece
            elif not _are_equal(first, value) and (field.name == _NEVER_GUESSED or _look_alike(first_piece, piece)):
                self.problems.note(field.name, "two parts of the page look the same, with different values")
                return None
        return first

    def _all(self, field: Field[T], selector: Selector, within: Element | None) -> list[T]:
        pieces = selector.find(self.document, within)
        return [value for piece in pieces if (value := field.convert(piece)) is not None]

    def rows(self, part: Section, within: Element | None = None) -> list[Row] | None:
        """The rows of a section; None if it is not found. An empty list is not a failure of its selectors."""
        name = part.field.name
        table = self.value(part.field, within)
        if table is not None and table.is_part:
            self.problems.note(name, "the page says that the list has more rows")
        if table is not None and table.dropped:
            self.problems.note(name, f"the cells of {table.dropped} rows do not match the header")
        for column in sorted(table.unclear) if table is not None else ():
            self.problems.note(f"{name}.{column}", "two columns have this heading")
        if table is not None and (table.rows or table.dropped):
            self.selector_results.note_columns(name, part.columns.headings, table.columns)
            return self._fitting(part, table.rows)
        is_odd = table is None or part.has_rows
        if is_odd and not (part.is_named_empty(self.document) or self._is_empty(part.field, within)):
            self.problems.note(name, "the page has no such table" if table is None else "the table has no rows")
            return None
        self.selector_results.drop(name)
        return []

    def _fitting(self, part: Section, rows: list[Row]) -> list[Row]:
        """The rows without those of which several cells do not fit their columns: totals, and rows that shifted.

        If a column fits in no row, the columns are not what their headings say.
        """
        name, kept = part.field.name, []
        misfits: Counter[str] = Counter()
        filled: Counter[str] = Counter()
        strange: set[str] = set()
        for row in rows:
            wrong = []
            for column, piece in row.items():
                if part.kinds and (text := piece.text) and (is_fit := _fits(text, part.kinds.get(column))) is not None:
                    filled[column] += 1
                    wrong += [] if is_fit else [column]
                    strange |= {column} if not is_fit and is_other_kind(text) else set()
            if len(wrong) > 1:
                self.problems.note(name, "a row has values that do not fit their columns")
            else:
                kept.append(row)
            misfits.update(wrong)
        for column, count in misfits.items():
            is_another = count == filled[column] and (count > 1 or column in strange)
            whose = name if is_another else f"{name}.{column}"
            self.problems.note(whose, f"the column {column} has values that do not fit")
        return kept

    def count(self, part: Section, within: Element | None = None) -> int | None:
        """The number of rows with values in a section that not every page has; None if it is not found."""
        table = self.value(part.field, within)
        if table is None:
            return 0 if part.is_named_empty(self.document) or self._is_empty(part.field, within) else None
        if table.rows:
            self.selector_results.note_columns(part.field.name, part.columns.headings, table.columns)
        else:
            self.selector_results.drop(part.field.name)
        return None if table.dropped else sum(map(is_row_of_values, table.rows))

    def _is_empty(self, field: Field[Table], within: Element | None) -> bool:
        """Whether the table exists, but has no headings and no rows."""
        return any(
            lists_nothing(piece) for selector in field.selectors for piece in selector.find(self.document, within)
        )

    def _note(self, field: Field[T], selector: Selector, success: bool) -> None:
        self.selector_results.append(
            _selector_result(field.name, selector, success)
            if selector in field.selectors
            else SelectorResult(field.name, selector, success, True)
        )

    def _may_be(self, field: Field[T], text: str) -> bool:
        """Whether a learned label may belong to the field."""
        own = " ".join(_labels(field.selectors))
        if field.name == _NEVER_GUESSED or self._is_owned(text) or _OTHER_MEANING.search(text):
            return False
        return _qualifiers(text) <= _qualifiers(own)

    def _guess(self, field: Field[T], find: Callable[[Selector], R | None]) -> R | None:
        """Tries labels that resemble those of the field; the text beside must convert to a value."""
        own = _labels(field.selectors)
        declared = [set(text.split()) for text in own] if field.name != _NEVER_GUESSED else []
        if not any(_may_resemble(words, self.document.words) for words in declared):
            return None
        for text in self.document.labels_with(set().union(*declared)):
            if text in own or not _resembles(text, declared) or self._is_owned(text) or _OTHER_MEANING.search(text):
                continue
            selector = Label(text)
            value = find(selector)
            if value is not None:
                self.selector_results.append(SelectorResult(field.name, selector, success=True, guess=True))
                return value
        return None

    def _is_owned(self, text: str) -> bool:
        return any(text in _labels(selectors) for selectors in self._extracted.values())


def _is_printed(piece: Piece) -> bool:
    """Whether it is the text of a value, rather than a gap, a heading, or a whole part of the page."""
    text = values.text_or_none(piece.text)
    return text is not None and len(text) <= _MAX_VALUE_CHARS and not is_heading(text)


def _fits(text: str, convert: Callable[[str], object | None] | None) -> bool | None:
    """Whether a cell may be in its column; None if it stands for nothing."""
    if convert is not None:
        return True if convert(text) is not None else False if values.text_or_none(text) is not None else None
    return not is_other_kind(text)


def _has_another_meaning(piece: Piece, selectors: tuple[Selector, ...]) -> bool:
    """Whether the cell before a value names it otherwise than any label of the field does: `Previous Owner`."""
    element = piece.element
    if element is not None and element.tag == "tr":
        before = next(element.iterchildren("td", "th"), None)
    else:
        cell = element if element is None or element.tag == "td" else next(element.iterancestors("td"), None)
        before = cell.getprevious() if cell is not None else None
    if before is None or before.tag not in ("td", "th"):
        return False
    meaning = _OTHER_MEANING.search(label(text_of(before)))
    return meaning is not None and not any(meaning[0] in text for text in _labels(selectors))


def _are_equal(first: object, second: object) -> bool:
    if isinstance(first, Table) and isinstance(second, Table):
        return first.texts == second.texts
    return first == second


def _look_alike(first: Piece, second: Piece) -> bool:
    """Whether two values are beside the same labels, or two tables have the same headings."""
    a, b = _table_around(first), _table_around(second)
    return a is not None and b is not None and a is not b and _outline(a) == _outline(b)


def _table_around(piece: Piece) -> Element | None:
    element = piece.element
    if element is None or element.tag == "table":
        return element
    return next(element.iterancestors("table"), None)


def _outline(table: Element) -> list[str]:
    """The first cell of each row, as far as it is a text without digits."""
    cells = [label(text_of(cells[0])) for cells in rows_of(table)]
    heading = next(iter(rows_of(table)), [])
    names = [text for text in (*map(text_of, heading), *cells) if text and not any(sign.isdigit() for sign in text)]
    return [label(text) for text in names]


def shown_fields(items: Iterable[object], names: Iterable[str]) -> set[str]:
    """The names of attributes that at least one item has a value for."""
    every = list(items)
    return {name for name in names if any(getattr(item, name) is not None for item in every)}


_selector_result = lru_cache(maxsize=8_192)(SelectorResult)


@lru_cache(maxsize=8_192)
def _column_result(field: str, name: str, heading: str, success: bool) -> SelectorResult:
    return SelectorResult(f"{field}.{name}", Label(heading), success)


@lru_cache(maxsize=1_024)
def _labels(selectors: tuple[Selector, ...]) -> Sequence[str]:
    return [label(selector.expression) for selector in selectors if isinstance(selector, Label)]


def _may_resemble(words: set[str], shown: Set[str]) -> bool:
    """Whether enough of the words occur in labels of the page at all."""
    return len(words & shown) >= _SIMILAR * len(words) > 0


def _resembles(text: str, declared: Sequence[set[str]]) -> bool:
    own, qualifiers = set(text.split()), _qualifiers(text)
    return any(
        words and len(words & own) / len(words | own) >= _SIMILAR and _qualifiers(" ".join(words)) == qualifiers
        for words in declared
    )


def _qualifiers(text: str) -> frozenset[str]:
    return _QUALIFIERS.intersection(_WORD.findall(text))
