"""More mutations of HTML pages: a site's redesign, another parcel's data on the page, a server in trouble.

As in `markup`, each returns the mutated page, or None if the page has nothing of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

from lxml import etree

from bench.mutate.markup import (
    Element,
    Mutation,
    Tree,
    cells_of,
    changed,
    drop,
    drop_attributes,
    empty,
    other_digits,
    parsed,
    rows_of,
    shown_text,
)
from bench.mutate.verdict import OTHER_YEAR

_DATE = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", re.ASCII)
_NAMES = ("NOVAK PETRA", "OSTROWSKI LAND CO LLC", "DELACROIX HENRI & MARIE")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "legend", "caption")


# Labels.


def labels_renamed(body: bytes, tree: Tree) -> bytes | None:
    """A third of all labels."""
    for number, label in enumerate(tree.labels()):
        if tree.chance.random() < 0.33:
            label.text = f"Item {chr(65 + number % 26)}{number}"
    return tree.bytes()


def label_and_value_swapped(body: bytes, tree: Tree) -> bytes | None:
    """In rows of two cells."""
    pairs = [row for row in tree.rows() if len(cells_of(row)) == 2]

    def swap(row: Element) -> None:
        first, second = cells_of(row)
        row.remove(second)
        row.insert(row.index(first), second)

    return changed(tree, tree.pick(pairs), swap)


def labels_of_neighbors_swapped(body: bytes, tree: Tree) -> bytes | None:
    """Two rows of two cells change places: each keeps its label."""
    pairs = [row for row in tree.rows() if len(cells_of(row)) == 2 and _next_pair(row) is not None]

    def swap(row: Element) -> None:
        following = _next_pair(row)
        if following is not None:
            row.addprevious(following)

    return changed(tree, tree.pick(pairs), swap)


def _next_pair(row: Element) -> Element | None:
    following = row.getnext()
    return following if following is not None and following.tag == "tr" and len(cells_of(following)) == 2 else None


def previous_owner_before(body: bytes, tree: Tree) -> bytes | None:
    return _previous_owner(tree, is_before=True)


def previous_owner_after(body: bytes, tree: Tree) -> bytes | None:
    return _previous_owner(tree, is_before=False)


def _previous_owner(tree: Tree, *, is_before: bool) -> bytes | None:
    """The owner's row, or block, again: with another name and title."""
    owners = [label for label in tree.labels() if (label.text or "").strip(" :").lower() in ("owner", "owners")]
    if not owners:
        return None
    block = next(owners[0].iterancestors("tr", "section"), None)
    if block is None:
        return None
    copy = deepcopy(block)
    copy.tail = None
    label = next(one for one in copy.iter() if (one.text or "").strip(" :").lower() in ("owner", "owners"))
    title = tree.chance.choice(("Previous Owner", "Former Owner", "Owner as of 1/1/2015", "Seller"))
    label.text = title
    for one in copy.iter():
        drop_attributes(one, "id")
        if one is not label and one.text and one.text.strip():
            one.text = tree.chance.choice(_NAMES)
        if one.tail and one.tail.strip():
            one.tail = None
    block.addprevious(copy) if is_before else block.addnext(copy)
    return tree.bytes()


def label_qualified(body: bytes, tree: Tree) -> bytes | None:
    """The value is another one now, and the label says so: `Previous Owner`, `Just Value of 1998`."""
    pairs = [row for row in tree.rows() if len(cells_of(row)) == 2 and shown_text(cells_of(row)[0])]
    row = tree.pick(pairs)
    if row is None:
        return None
    first, second = cells_of(row)
    text = shown_text(first)
    empty(first)
    first.text = tree.chance.choice(("Previous {}", "Proposed {}", "Neighboring {}", "{} of 1998", "{} (old)")).format(
        text
    )
    for one in second.iter(etree.Element):
        one.text, one.tail = other_digits(one.text, tree.chance), other_digits(one.tail, tree.chance)
    return tree.bytes()


def label_in_cell_of_value(body: bytes, tree: Tree) -> bytes | None:
    """`<td>Acres: 1.2</td>` instead of two cells."""

    def join(row: Element) -> None:
        first, second = cells_of(row)
        text = f"{shown_text(first).rstrip(': ')}: {shown_text(second)}"
        drop(second)
        empty(first)
        first.text = text

    return changed(tree, tree.pick([row for row in tree.rows() if len(cells_of(row)) == 2]), join)


def values_swapped(body: bytes, tree: Tree) -> bytes | None:
    """Of two labels in one table, with values of different kinds."""
    rows = [row for row in tree.rows() if len(cells_of(row)) == 2]
    pairs = [
        (row, other)
        for row, other in pairwise(rows)
        if "" not in (one := {_kind(shown_text(cells_of(row)[1])), _kind(shown_text(cells_of(other)[1]))})
        and len(one) > 1
    ]
    if not pairs:
        return None
    row, other = tree.chance.choice(pairs)
    first, second = cells_of(row)[1], cells_of(other)[1]
    row.append(second)
    other.append(first)
    return tree.bytes()


def titles_swapped(body: bytes, tree: Tree) -> bytes | None:
    """Two sections have each other's title."""
    titles = [one for one in tree.root.iter(*_HEADINGS) if shown_text(one) and not len(one)]
    if len(titles) < 2:
        return None
    at = tree.chance.randrange(1, len(titles))
    titles[at].text, titles[at - 1].text = titles[at - 1].text, titles[at].text
    return tree.bytes()


# Cells and columns.


def cell_spans_two(body: bytes, tree: Tree) -> bytes | None:
    """The cell behind it is gone."""

    def widen(cell: Element) -> None:
        behind = next(cell.itersiblings("td", "th"), None)
        if behind is not None:
            cell.set("colspan", "2")
            drop(behind)

    return changed(tree, tree.pick(tree.cells()), widen)


def cells_merged(body: bytes, tree: Tree) -> bytes | None:
    def merge(cell: Element) -> None:
        behind = next(cell.itersiblings("td", "th"), None)
        if behind is not None:
            cell.set("colspan", "2")
            text = f"{shown_text(cell)} {shown_text(behind)}"
            empty(cell)
            cell.text = text
            drop(behind)

    return changed(tree, tree.pick(tree.cells()), merge)


def cell_wider_than_heading(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.cells()), lambda cell: cell.set("colspan", "2"))


def cells_swapped_below_headings(body: bytes, tree: Tree) -> bytes | None:
    """Two columns of different kinds change places, and their headings do not."""
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = [cells_of(row) for row in rows_of(table)]
    width = len(rows[0])
    filled = [cells for cells in rows[1:] if len(cells) == width]
    kinds = [{_kind(shown_text(cells[at])) for cells in filled} - {""} for at in range(width)]
    pairs = [
        (one, other)
        for one in range(width)
        for other in range(one)
        if kinds[one] and kinds[other] and not kinds[one] & kinds[other]
    ]
    if not pairs:
        return None
    one, other = tree.chance.choice(pairs)
    for cells in filled:
        first, second = cells[one], cells[other]
        mark = etree.Element("td")
        first.addprevious(mark)
        second.addprevious(first)
        mark.addprevious(second)
        drop(mark)
    return tree.bytes()


def _kind(text: str) -> str:
    if not text or text in ("-", "N/A"):
        return ""
    if _DATE.search(text):
        return "date"
    if "$" in text:
        return "amount"
    return "words" if not any(sign.isdigit() for sign in text) else "reference" if "/" in text else "digits"


def column_added_without_heading(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = [row for row in rows_of(table) if len(cells_of(row)) == len(cells_of(rows_of(table)[0]))]
    at = tree.chance.randrange(len(cells_of(rows[0])))
    for row in rows[1:]:
        cell = etree.Element("td")
        cell.text = str(tree.chance.randrange(1000))
        cells_of(row)[at].addprevious(cell)
    return tree.bytes()


def heading_added_without_column(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    first = cells_of(rows_of(table)[0])
    cell = etree.Element(first[0].tag)
    cell.text = "Surveyor"
    tree.chance.choice(first).addprevious(cell)
    return tree.bytes()


def heading_of_another_column(body: bytes, tree: Tree) -> bytes | None:
    """A second column has the same heading."""
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = rows_of(table)
    width = len(cells_of(rows[0]))
    at, to = tree.chance.randrange(width), tree.chance.randrange(width + 1)
    for row in (row for row in rows if len(cells_of(row)) == width):
        cells = cells_of(row)
        copy = deepcopy(cells[at])
        copy.tail = None
        if row is not rows[0]:
            empty(copy)
            copy.text = other_digits(shown_text(cells[at]), tree.chance)
        cells[to].addprevious(copy) if to < width else cells[-1].addnext(copy)
    return tree.bytes()


def title_row_added(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    first = rows_of(table)[0]
    row = etree.Element("tr")
    cell = etree.SubElement(row, "th")
    cell.set("colspan", str(len(cells_of(first))))
    cell.text = tree.chance.choice(("Details", "Updated nightly", "County of Marigold"))
    first.addprevious(row)
    return tree.bytes()


def value_in_nested_table(body: bytes, tree: Tree) -> bytes | None:
    def nest(cell: Element) -> None:
        inner = etree.Element("table")
        line = etree.SubElement(etree.SubElement(inner, "tr"), "td")
        line.text, cell.text = cell.text, None
        for child in list(cell):
            line.append(child)
        cell.append(inner)

    return changed(tree, tree.pick(tree.cells()), nest)


# Rows and tables.


def row_duplicated(body: bytes, tree: Tree) -> bytes | None:
    def duplicate(row: Element) -> None:
        copy = deepcopy(row)
        copy.tail = None
        row.addnext(copy)

    return changed(tree, tree.pick(tree.rows()), duplicate)


def row_of_total_added(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    last = rows_of(table)[-1]
    row = etree.Element("tr")
    for number, _ in enumerate(cells_of(rows_of(table)[0])):
        cell = etree.SubElement(row, "td")
        cell.text = "Total" if number == 0 else f"${tree.chance.randrange(1000, 999999):,}"
    last.addnext(row)
    return tree.bytes()


def template_row_added(body: bytes, tree: Tree) -> bytes | None:
    """A hidden row that a script copies."""
    table = tree.pick(tree.lists())
    if table is None:
        return None
    first = rows_of(table)[0]
    row = etree.Element("tr", style="display:none")
    for number, _ in enumerate(cells_of(first)):
        etree.SubElement(row, "td").text = f"{{{{field{number}}}}}"
    first.addnext(row)
    return tree.bytes()


def table_split(body: bytes, tree: Tree) -> bytes | None:
    """The rest of the rows is in a second table without headings."""
    tables = [table for table in tree.lists() if len(rows_of(table)) > 2]
    table = tree.pick(tables)
    if table is None:
        return None
    rows = rows_of(table)
    rest = etree.Element("table")
    for row in rows[tree.chance.randrange(2, len(rows)) :]:
        rest.append(row)
    table.addnext(rest)
    return tree.bytes()


def list_says_none(body: bytes, tree: Tree) -> bytes | None:
    return _list_says(tree, ("No records found", "No data to display", "There are no records.", "None"))


def list_says_error(body: bytes, tree: Tree) -> bytes | None:
    return _list_says(
        tree, ("An error occurred while loading.", "Please log in to see this.", "Loading...", "Server busy")
    )


def _list_says(tree: Tree, messages: Sequence[str]) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    first, *rest = rows_of(table)
    for row in rest:
        drop(row)
    row = etree.Element("tr")
    cell = etree.SubElement(row, "td")
    cell.set("colspan", str(len(cells_of(first))))
    cell.text = tree.chance.choice(messages)
    first.addnext(row)
    return tree.bytes()


def other_year_before(body: bytes, tree: Tree) -> bytes | None:
    return _other_year(tree, is_before=True)


def other_year_after(body: bytes, tree: Tree) -> bytes | None:
    return _other_year(tree, is_before=False)


def _other_year(tree: Tree, *, is_before: bool) -> bytes | None:
    """A copy of a table with values of OTHER_YEAR: its years say so."""
    tables = [table for table in tree.tables(2) if re.search(r"\b20[12]\d\b", shown_text(table))]
    table = tree.pick(tables)
    if table is None:
        return None
    copy = deepcopy(table)
    copy.tail = None
    for element in copy.iter():
        drop_attributes(element, "id")
        for name in ("text", "tail"):
            text = getattr(element, name)
            if text:
                parts = re.split(r"(\b20[012]\d\b)", text)
                new = [part if at % 2 == 0 else str(OTHER_YEAR) for at, part in enumerate(parts)]
                new = [part if at % 2 else other_digits(part, tree.chance) for at, part in enumerate(new)]
                setattr(element, name, "".join(new))
    title = etree.Element("h4")
    title.text = f"{OTHER_YEAR} values"
    table.addprevious(title) if is_before else table.addnext(title)
    title.addnext(copy)
    return tree.bytes()


def columns_shuffled(body: bytes, tree: Tree) -> bytes | None:
    """All columns, with their headings."""
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = [row for row in rows_of(table) if len(cells_of(row)) == len(cells_of(rows_of(table)[0]))]
    order = list(range(len(cells_of(rows[0]))))
    tree.chance.shuffle(order)
    for row in rows:
        cells = cells_of(row)
        for at in order:
            row.append(cells[at])
    return tree.bytes()


def table_transposed(body: bytes, tree: Tree) -> bytes | None:
    """The headings are in the first column."""
    tables = [table for table in tree.lists() if len({len(cells_of(row)) for row in rows_of(table)}) == 1]
    table = tree.pick(tables)
    if table is None:
        return None
    rows = [cells_of(row) for row in rows_of(table)]
    for row in rows_of(table):
        drop(row)
    for column in zip(*rows, strict=True):
        line = etree.SubElement(table, "tr")
        for cell in column:
            line.append(cell)
    return tree.bytes()


def rows_merged(body: bytes, tree: Tree) -> bytes | None:
    """Two rows of a list are one, with a line break in each cell."""
    table = tree.pick([table for table in tree.lists() if len(rows_of(table)) > 2])
    if table is None:
        return None
    rows = rows_of(table)
    at = tree.chance.randrange(1, len(rows) - 1)
    for cell, below in zip(cells_of(rows[at]), cells_of(rows[at + 1]), strict=False):
        etree.SubElement(cell, "br").tail = shown_text(below)
    drop(rows[at + 1])
    return tree.bytes()


def list_paged(body: bytes, tree: Tree) -> bytes | None:
    """Only the first rows are shown, and a text below says that there are more."""
    table = tree.pick([table for table in tree.lists() if len(rows_of(table)) > 3])
    if table is None:
        return None
    rows = rows_of(table)
    count = tree.chance.randrange(1, len(rows) - 2)
    for row in rows[1 + count :]:
        drop(row)
    more = etree.Element("div")
    total = len(rows) - 1
    more.text = tree.chance.choice(
        (
            f"Showing 1 to {count} of {total} entries",
            f"1 - {count} of {total}",
            "Show more",
            f"View all {total}",
            "Page 1 of 2",
        )
    )
    table.addnext(more)
    return tree.bytes()


# Parts of the page.


def middle_dropped(body: bytes, tree: Tree) -> bytes | None:
    """Bytes are missing in the middle; a browser closes what is open."""
    start = int(len(body) * tree.chance.uniform(0.05, 0.8))
    end = start + int(len(body) * tree.chance.uniform(0.02, 0.4))
    tree.root = parsed(body[:start] + body[end:])
    return tree.bytes()


def sections_dropped(body: bytes, tree: Tree) -> bytes | None:
    """Two of them."""
    first = tree.pick(tree.sections())
    if first is None:
        return None
    drop(first)
    second = tree.pick(tree.sections())
    return changed(tree, second, drop)


def attributes_dropped(body: bytes, tree: Tree) -> bytes | None:
    for element in tree.root.iter(etree.Element):
        for name in ("id", "class", "headers", "data-content", "style"):
            drop_attributes(element, name)
    return tree.bytes()


def second_parcel_before(body: bytes, tree: Tree) -> bytes | None:
    return _second_parcel(tree, is_before=True)


def second_parcel_after(body: bytes, tree: Tree) -> bytes | None:
    return _second_parcel(tree, is_before=False)


def _second_parcel(tree: Tree, *, is_before: bool) -> bytes | None:
    """The whole page again, of another parcel."""
    page = next(tree.root.iter("body"), None)
    if page is None:
        return None
    copies = [deepcopy(part) for part in page if part.tag not in ("script", "style", "link")]
    for copy in copies:
        for element in copy.iter(etree.Element):
            drop_attributes(element, "id")
            element.text, element.tail = (
                other_digits(element.text, tree.chance),
                other_digits(element.tail, tree.chance),
            )
    for at, copy in enumerate(copies):
        page.insert(at if is_before else len(page), copy)
    return tree.bytes()


def hidden_copy_before(body: bytes, tree: Tree) -> bytes | None:
    return _hidden_copy(tree, is_before=True)


def hidden_copy_after(body: bytes, tree: Tree) -> bytes | None:
    return _hidden_copy(tree, is_before=False)


def _hidden_copy(tree: Tree, *, is_before: bool) -> bytes | None:
    """A part of the page again, with its ids and old values, which a browser does not show."""
    part = tree.pick([*tree.sections(), *tree.tables(2)])
    if part is None:
        return None
    copy = deepcopy(part)
    copy.tail = None
    for one in copy.iter(etree.Element):
        one.text, one.tail = other_digits(one.text, tree.chance), other_digits(one.tail, tree.chance)
    block = etree.Element("div")
    block.set(*tree.chance.choice((("style", "display: none"), ("hidden", "hidden"), ("style", "display:none;"))))
    block.append(copy)
    part.addprevious(block) if is_before else part.addnext(block)
    return tree.bytes()


def old_value_struck(body: bytes, tree: Tree) -> bytes | None:
    """The old value is still there, crossed out."""

    def strike(cell: Element) -> None:
        old = etree.Element(tree.chance.choice(("s", "del", "strike")))
        old.text = other_digits(shown_text(cell), tree.chance)
        old.tail, cell.text = f" {cell.text or ''}", None
        cell.insert(0, old)

    return changed(tree, tree.pick([cell for cell in tree.cells() if (cell.text or "").strip()]), strike)


def hint_added(body: bytes, tree: Tree) -> bytes | None:
    """A tooltip beside a value, which a browser does not show."""

    def add(cell: Element) -> None:
        hint = etree.SubElement(cell, "span")
        hint.set(*tree.chance.choice((("style", "display:none"), ("class", "tooltiptext"), ("class", "sr-only"))))
        hint.text = "as certified by the tax roll of 2019"

    return changed(tree, tree.pick([cell for cell in tree.cells() if (cell.text or "").strip()]), add)


# Other pages.

_SIGN_IN = "<form><h2>Sign in</h2><label>User name</label><input name=user><label>Password</label><input></form>"
_TROUBLE = (
    _SIGN_IN,
    "<h1>Scheduled maintenance</h1><p>The site is unavailable. Please try again later.</p>",
    "<h1>Your session has expired</h1><p>Return to the search page and start again.</p>",
    "<p>An unexpected error occurred while processing your request. No parcel data is available.</p>",
    "<p>Too many requests. Please slow down.</p>",
)


def content_replaced(body: bytes, tree: Tree) -> bytes | None:
    """The page's frame stays: its first and its last parts."""
    page = next(tree.root.iter("body"), None)
    if page is None:
        return None
    parts = list(page)
    kept = parts[:1] + parts[-1:] if len(parts) > 3 else []
    for part in parts:
        if part not in kept or tree.is_relevant(part):
            drop(part)
    page.append(next(parsed(f"<div>{tree.chance.choice(_TROUBLE)}</div>".encode()).iter("div")))
    return tree.bytes()


def page_replaced(body: bytes, tree: Tree) -> bytes | None:
    return f"<!DOCTYPE html><html><body>{tree.chance.choice(_TROUBLE)}</body></html>".encode()


def parcel_number_changed(body: bytes, tree: Tree) -> bytes | None:
    """The page of another parcel, where the number of this one was asked for."""
    number = tree.parcel_id
    if not number or number.encode() not in body:
        return None
    plain = re.sub(r"\W", "", number)
    other = other_digits(number, tree.chance) or ""
    page = body.replace(number.encode(), other.encode())
    return page.replace(plain.encode(), re.sub(r"\W", "", other).encode())


MUTATIONS: Sequence[Mutation] = (
    *(labels_renamed, label_and_value_swapped, labels_of_neighbors_swapped),
    *(previous_owner_before, previous_owner_after, cell_spans_two, cells_merged, cell_wider_than_heading),
    *(cells_swapped_below_headings, column_added_without_heading, heading_added_without_column),
    *(heading_of_another_column, title_row_added, value_in_nested_table, row_duplicated, row_of_total_added),
    *(template_row_added, table_split, list_says_none, list_says_error, other_year_before, other_year_after),
    *(middle_dropped, sections_dropped, attributes_dropped, second_parcel_before, second_parcel_after),
    *(label_qualified, label_in_cell_of_value, values_swapped, titles_swapped, columns_shuffled, table_transposed),
    *(rows_merged, list_paged, hidden_copy_before, hidden_copy_after, old_value_struck, hint_added),
    *(content_replaced, page_replaced, parcel_number_changed),
)
