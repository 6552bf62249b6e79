"""Mutations of HTML pages. Each returns the mutated page, or None if the page has nothing of that kind.

A mutation picks the elements that the record was read from more often than others, because the rest of a page does not
matter. Pages are written back as a browser would: every element is closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random
from zlib import crc32

from lxml import etree, html

Element = etree._Element
_CELLS = ("td", "th")
_SECTIONS = ("section", "fieldset", "table", "div")
_RELEVANT = 0.8
_MAX_LABEL_CHARS = 40
_WORD = re.compile(r"[A-Za-z][A-Za-z'/&. -]{1,38}")
_SPANISH = {
    "owner": "Dueño",
    "address": "Dirección",
    "site": "Sitio",
    "location": "Ubicación",
    "description": "Descripción",
    "area": "Área",
    "use": "Uso",
    "code": "Código",
    "sale": "Venta",
    "sales": "Ventas",
    "date": "Fecha",
    "price": "Precio",
    "value": "Valor",
    "values": "Valores",
    "land": "Tierra",
    "building": "Edificio",
    "buildings": "Edificios",
    "year": "Año",
    "built": "Construido",
    "total": "Suma",
    "tax": "Impuesto",
    "taxable": "Imponible",
    "legal": "Jurídica",
    "assessed": "Tasado",
    "just": "Justo",
    "market": "Mercado",
    "exempt": "Exento",
    "exemptions": "Exenciones",
    "parcel": "Parcela",
    "number": "Número",
    "property": "Propiedad",
    "name": "Nombre",
    "history": "Historia",
    "bid": "Oferta",
    "opening": "Inicial",
    "status": "Estado",
    "case": "Caso",
    "amount": "Monto",
    "type": "Tipo",
    "acres": "Acres (unidad)",
    "living": "Habitable",
    "improvements": "Mejoras",
    "book": "Libro",
    "page": "Página",
}
_SHOWN = etree.XPath(".//text()[not(parent::script or parent::style)]")
_RENAMED = ("Zorblatt", "Quilm reference", "Vestige", "Notional figure", "Custodian")
_NOTES = ("Values are subject to change.", "Result: 1 of 1", "Click here for details", "Back to top")


class Tree:
    """A parsed page, the texts of its record, and the choice of elements."""

    def __init__(self, body: bytes, texts: Sequence[str], chance: Random, parcel_id: str = "") -> None:
        self.root: Element = parsed(body)
        self.chance = chance
        self.parcel_id = parcel_id
        self._is_whole = b"<html" in body.lower()
        self._texts = texts

    def pick(self, elements: Sequence[Element]) -> Element | None:
        """One of the elements, mostly one that has a text of the record."""
        if not elements:
            return None
        relevant = [one for one in elements if self.is_relevant(one)]
        return self.chance.choice(relevant if relevant and self.chance.random() < _RELEVANT else elements)

    def is_relevant(self, element: Element) -> bool:
        text = shown_text(element)
        return any(one in text for one in self._texts if len(one) > 3)

    def tables(self, rows: int = 1) -> list[Element]:
        """The innermost tables with so many rows."""
        return [
            table
            for table in self.root.iter("table")
            if next(table.iterdescendants("table"), None) is None and len(rows_of(table)) >= rows
        ]

    def lists(self) -> list[Element]:
        """Tables that are lists: a row of headings and rows below it with as many cells."""
        return [table for table in self.tables(2) if _is_list(table)]

    def rows(self) -> list[Element]:
        return [
            row for row in self.root.iter("tr") if next(row.iterdescendants("table"), None) is None and shown_text(row)
        ]

    def cells(self) -> list[Element]:
        return [cell for cell in self.root.iter(*_CELLS) if next(cell.iterdescendants("table"), None) is None]

    def sections(self) -> list[Element]:
        """Blocks that are a part of the page, but not most of it."""
        whole = max(1, len(shown_text(self.root)))
        return [one for one in self.root.iter(*_SECTIONS) if 20 < len(shown_text(one)) < 0.4 * whole]

    def labels(self) -> list[Element]:
        """Elements whose own text is short, beside or above something else."""
        found = []
        for one in self.root.iter():
            own = " ".join((one.text or "").split()).rstrip(": ")
            is_word = own and one.tag not in _NOT_LABELS and len(own) <= _MAX_LABEL_CHARS and _WORD.fullmatch(own)
            if is_word and not self._is_value(own.lower()):
                found.append(one)
        return found

    def _is_value(self, text: str) -> bool:
        return any(text == one.lower() or (len(text) > 3 and text in one.lower()) for one in self._texts)

    def bytes(self) -> bytes:
        """A fragment stays one: without a head and a body."""
        if self._is_whole:
            return _written(self.root)
        return b"".join(_written(part, is_whole=False) for part in next(self.root.iter("body")))


_NOT_LABELS = ("script", "style", "option", "title", "a", "noscript", "button", "textarea", "template")


def _written(root: Element, *, is_whole: bool = True) -> bytes:
    """In ASCII: the page's declared encoding does not matter."""
    return bytes(html.tostring(root, encoding="ascii", doctype="<!DOCTYPE html>" if is_whole else None))


def parsed(body: bytes) -> Element:
    parser = html.HTMLParser(remove_comments=True, remove_pis=True)
    return html.document_fromstring(body, parser=parser)


def _shown(element: Element) -> list[str]:
    found = _SHOWN(element)
    return [str(text) for text in found] if isinstance(found, list) else []


def shown_text(element: Element) -> str:
    return " ".join("".join(_shown(element)).split())


def rows_of(table: Element) -> list[Element]:
    return [row for row in table.iter("tr") if next(row.iterancestors("table"), None) is table]


def cells_of(row: Element) -> list[Element]:
    return [cell for cell in row if cell.tag in _CELLS]


def _is_list(table: Element) -> bool:
    rows = rows_of(table)
    width = len(cells_of(rows[0]))
    heads = [shown_text(cell) for cell in cells_of(rows[0])]
    return width > 2 and all(heads) and not any(one[:1].isdigit() or one[:1] == "$" for one in heads)


def drop(element: Element) -> None:
    parent = element.getparent()
    if parent is None:
        return
    if element.tail:
        previous = element.getprevious()
        if previous is not None:
            previous.tail = (previous.tail or "") + element.tail
        else:
            parent.text = (parent.text or "") + element.tail
    parent.remove(element)


def empty(element: Element) -> None:
    for child in list(element):
        element.remove(child)
    element.text = None
    drop_attributes(element, "title", "data-content")


def drop_attributes(element: Element, *names: str) -> None:
    for name in names:
        if name in element.attrib:
            del element.attrib[name]


# Cuts.


def cut(body: bytes, tree: Tree) -> bytes | None:
    return body[: _place(body, tree)]


def cut_and_ended(body: bytes, tree: Tree) -> bytes | None:
    return body[: _place(body, tree)] + b"</body></html>"


def cut_and_closed(body: bytes, tree: Tree) -> bytes | None:
    """What a browser gives back of a page that was cut off."""
    tree.root = parsed(body[: _place(body, tree)])
    return tree.bytes()


def _place(body: bytes, tree: Tree) -> int:
    return int(len(body) * tree.chance.uniform(0.05, 0.98))


def cut_before_section(body: bytes, tree: Tree) -> bytes | None:
    """The rest of the page is missing from the beginning of a section on."""
    return _without_rest(tree, tree.pick(tree.sections()))


def cut_before_row(body: bytes, tree: Tree) -> bytes | None:
    return _without_rest(tree, tree.pick(tree.rows()))


def cut_before_cell(body: bytes, tree: Tree) -> bytes | None:
    return _without_rest(tree, tree.pick(tree.cells()))


def _without_rest(tree: Tree, first: Element | None) -> bytes | None:
    node = first
    while node is not None:
        parent = node.getparent()
        for sibling in list(node.itersiblings()):
            if parent is not None and parent.tag != "html":
                parent.remove(sibling)
        node.tail = None
        node = parent
    if first is not None:
        drop(first)
    return tree.bytes()


# What is missing.


def table_dropped(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.tables()), drop)


def section_dropped(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.sections()), drop)


def section_emptied(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.sections()), empty)


def row_dropped(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.rows()), drop)


def heading_row_dropped(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    return changed(tree, rows_of(table)[0] if table is not None else None, drop)


def cell_dropped(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.cells()), drop)


def cell_emptied(body: bytes, tree: Tree) -> bytes | None:
    return changed(tree, tree.pick(tree.cells()), empty)


def row_emptied(body: bytes, tree: Tree) -> bytes | None:
    def empty_cells(row: Element) -> None:
        for cell in cells_of(row):
            empty(cell)

    return changed(tree, tree.pick(tree.rows()), empty_cells)


def column_dropped(body: bytes, tree: Tree) -> bytes | None:
    return _columns(tree, lambda cells, at: drop(cells[at]))


def value_is_loading(body: bytes, tree: Tree) -> bytes | None:
    def wait(cell: Element) -> None:
        empty(cell)
        cell.text = "Loading..."

    return changed(tree, tree.pick(tree.cells()), wait)


def changed(tree: Tree, element: Element | None, change: Callable[[Element], None]) -> bytes | None:
    if element is None:
        return None
    change(element)
    return tree.bytes()


# What is added.


def cell_added(body: bytes, tree: Tree) -> bytes | None:
    def add(row: Element) -> None:
        cell = etree.Element("td")
        cell.text = tree.chance.choice(("", "1", "New", "12/31/1999", "$1,234"))
        row.insert(tree.chance.randrange(len(row) + 1), cell)

    return changed(tree, tree.pick(tree.rows()), add)


def column_added(body: bytes, tree: Tree) -> bytes | None:
    """With a heading, in every row."""
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = rows_of(table)
    width = len(cells_of(rows[0]))
    at = tree.chance.randrange(width + 1)
    for number, row in enumerate(row for row in rows if len(cells_of(row)) == width):
        cell = etree.Element(cells_of(row)[0].tag)
        cell.text = "Surveyor" if number == 0 else f"{tree.chance.randrange(1000, 9999):,}"
        row.insert(row.index(cells_of(row)[at]) if at < width else len(row), cell)
    return tree.bytes()


def note_row_added(body: bytes, tree: Tree) -> bytes | None:
    def add(row: Element) -> None:
        note = etree.Element("tr")
        cell = etree.SubElement(note, "td")
        cell.set("colspan", str(max(1, len(cells_of(row)))))
        cell.text = tree.chance.choice(_NOTES)
        row.addprevious(note) if tree.chance.random() < 0.5 else row.addnext(note)

    return changed(tree, tree.pick(tree.rows()), add)


def headings_repeated(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = rows_of(table)
    tree.chance.choice(rows).addnext(deepcopy(rows[0]))
    return tree.bytes()


def look_alike_before(body: bytes, tree: Tree) -> bytes | None:
    return _look_alike(tree, is_before=True)


def look_alike_after(body: bytes, tree: Tree) -> bytes | None:
    return _look_alike(tree, is_before=False)


def _look_alike(tree: Tree, *, is_before: bool) -> bytes | None:
    """A second table with the same headings, about another parcel."""
    table = tree.pick(tree.tables(2))
    if table is None:
        return None
    block = etree.Element("div")
    title = etree.SubElement(block, "h3")
    title.text = tree.chance.choice(("Comparable properties", "Neighboring parcel", "Sample"))
    copy = deepcopy(table)
    copy.tail = None
    for element in copy.iter():
        drop_attributes(element, "id", "headers", "title", "data-content", "href", "onclick")
        element.text, element.tail = other_digits(element.text, tree.chance), other_digits(element.tail, tree.chance)
    block.append(copy)
    outer = next((one for one in table.iterancestors("section", "fieldset")), table)
    outer.addprevious(block) if is_before else outer.addnext(block)
    return tree.bytes()


def other_digits(text: str | None, chance: Random) -> str | None:
    return re.sub(r"\d", lambda _: str(chance.randrange(1, 10)), text) if text else text


def section_duplicated(body: bytes, tree: Tree) -> bytes | None:
    def duplicate(section: Element) -> None:
        copy = deepcopy(section)
        copy.tail = None
        section.addnext(copy)

    return changed(tree, tree.pick(tree.sections()), duplicate)


# What has another name, place or form.


def label_renamed(body: bytes, tree: Tree) -> bytes | None:
    def rename(label: Element) -> None:
        colon = ":" if (label.text or "").rstrip().endswith(":") else ""
        label.text = tree.chance.choice(_RENAMED) + colon

    return changed(tree, tree.chance.choice(tree.labels()) if tree.labels() else None, rename)


def label_emptied(body: bytes, tree: Tree) -> bytes | None:
    def clear(label: Element) -> None:
        label.text = None

    return changed(tree, tree.chance.choice(tree.labels()) if tree.labels() else None, clear)


def labels_translated(body: bytes, tree: Tree) -> bytes | None:
    for label in tree.labels():
        label.text = re.sub("[A-Za-z]+", lambda word: _SPANISH.get(word[0].lower(), word[0]), label.text or "")
    return tree.bytes()


def headings_translated(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    for cell in rows_of(table)[0].iter():
        if cell.text:
            cell.text = re.sub("[A-Za-z]+", lambda word: _SPANISH.get(word[0].lower(), word[0]), cell.text)
    return tree.bytes()


def heading_renamed(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    cell = tree.chance.choice(cells_of(rows_of(table)[0]))
    empty(cell)
    cell.text = tree.chance.choice(_RENAMED)
    return tree.bytes()


def ids_renamed(body: bytes, tree: Tree) -> bytes | None:
    for element in tree.root.iter():
        if element.get("id"):
            element.set("id", f"x{crc32((element.get('id') or '').encode())}")
    return tree.bytes()


def id_dropped(body: bytes, tree: Tree) -> bytes | None:
    def drop(element: Element) -> None:
        element.attrib.pop("id")

    named = [one for one in tree.root.iter() if one.get("id") and shown_text(one)]
    return changed(tree, tree.pick(named), drop)


def classes_renamed(body: bytes, tree: Tree) -> bytes | None:
    for element in tree.root.iter():
        if element.get("class"):
            element.set("class", "css-1x" + str(len(element.get("class") or "")))
    return tree.bytes()


def tags_changed(body: bytes, tree: Tree) -> bytes | None:
    before, after = tree.chance.choice(
        (
            ("th", "td"),
            ("td", "th"),
            ("span", "em"),
            ("b", "span"),
            ("strong", "span"),
            ("section", "div"),
            ("div", "p"),
        )
    )
    changed = list(tree.root.iter(before))
    for element in changed:
        element.tag = after
    return tree.bytes() if changed else None


def table_of_divs(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.tables())
    if table is None:
        return None
    for element in table.iter("table", "thead", "tbody", "tr", "td", "th"):
        element.tag = "div"
    return tree.bytes()


def columns_swapped(body: bytes, tree: Tree) -> bytes | None:
    """With their headings."""

    def swap(cells: list[Element], at: int) -> None:
        row = cells[at].getparent()
        if row is not None and len(cells) > 1:
            other = cells[at - 1]
            first, second = sorted((row.index(other), row.index(cells[at])))
            low, high = row[first], row[second]
            row.remove(high)
            row.remove(low)
            row.insert(first, high)
            row.insert(second, low)

    return _columns(tree, swap)


def _columns(tree: Tree, change: Callable[[list[Element], int], None]) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    rows = [cells_of(row) for row in rows_of(table)]
    width = len(rows[0])
    at = tree.chance.randrange(1, width)
    for cells in rows:
        if len(cells) == width:
            change(cells, at)
    return tree.bytes()


def rows_reversed(body: bytes, tree: Tree) -> bytes | None:
    table = tree.pick(tree.lists())
    if table is None:
        return None
    first, *rest = rows_of(table)[1:]
    for row in rest:
        first.addprevious(row) if row.getparent() is first.getparent() else None
        first = row
    return tree.bytes()


def sections_shuffled(body: bytes, tree: Tree) -> bytes | None:
    """The parts of one block in another order; a heading and the text below it are not torn apart."""
    blocks = [
        one
        for one in tree.root.iter("body", "div", "form")
        if len(shown := [text for part in one if (text := shown_text(part))]) > 2 and min(map(len, shown)) > 40
    ]
    if not blocks:
        return None
    block = tree.chance.choice(blocks)
    parts = list(block)
    tree.chance.shuffle(parts)
    for part in parts:
        block.append(part)
    return tree.bytes()


def values_wrapped(body: bytes, tree: Tree) -> bytes | None:
    for cell in tree.cells():
        if cell.text and cell.text.strip() and not len(cell):
            inner = etree.SubElement(cell, "span")
            inner.text, cell.text = cell.text, None
    return tree.bytes()


def spaces_added(body: bytes, tree: Tree) -> bytes | None:
    for cell in tree.cells():
        if cell.text and cell.text.strip():
            cell.text = f"\n\u00a0 {cell.text} \u00a0\n"
    return tree.bytes()


def written_again(body: bytes, tree: Tree) -> bytes | None:
    return tree.bytes()


Mutation = Callable[[bytes, Tree], bytes | None]
MUTATIONS: Sequence[Mutation] = (
    *(cut, cut_and_ended, cut_and_closed, cut_before_section, cut_before_row, cut_before_cell),
    *(table_dropped, section_dropped, section_emptied, row_dropped, heading_row_dropped, cell_dropped, cell_emptied),
    *(row_emptied, column_dropped, value_is_loading, cell_added, column_added, note_row_added, headings_repeated),
    *(look_alike_before, look_alike_after, section_duplicated, label_renamed, label_emptied, labels_translated),
    *(headings_translated, heading_renamed, ids_renamed, id_dropped, classes_renamed, tags_changed, table_of_divs),
    *(columns_swapped, rows_reversed, sections_shuffled, values_wrapped, spaces_added, written_again),
)


def texts_of(record: object) -> Iterator[str]:
    """The values of a record as a page may print them."""
    if isinstance(record, dict):
        for name, value in record.items():
            if name not in ("platform", "state", "county", "parser_version", "record_kind", "source_url"):
                yield from texts_of(value)
    elif isinstance(record, list):
        for value in record:
            yield from texts_of(value)
    elif isinstance(record, bool) or record is None:
        return
    elif isinstance(record, int | float):
        if record >= 1_000:
            yield f"{record:,.0f}"
    elif isinstance(record, str) and len(record) > 1:
        yield record
        if re.fullmatch(r"\d{4}-\d\d-\d\d", record):
            yield f"{int(record[5:7])}/{int(record[8:])}/{record[:4]}"
            yield f"{record[5:7]}/{record[8:]}/{record[:4]}"
