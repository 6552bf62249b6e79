"""Mutations of how HTML pages write their values: amounts, dates and units of other countries, texts without a value.

As in `markup`, each returns the mutated page, or None if the page has nothing of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from lxml import etree

from bench.mutate.markup import Element, Mutation, Tree, cells_of, changed, empty, shown_text

_AMOUNT = re.compile(r"\$\s?(\d[\d,]*)(\.\d\d)?(?![\d,.])", re.ASCII)
_DATE = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", re.ASCII)
_AREA = re.compile(r"acre|sq\.? ?ft|square f", re.IGNORECASE)
_MONTHS = 12
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?", re.ASCII)


def _texts_changed(tree: Tree, pattern: re.Pattern[str], form: Callable[[re.Match[str]], str]) -> bytes | None:
    count = 0
    for element in tree.root.iter(etree.Element):
        for name in ("text", "tail"):
            text = getattr(element, name)
            if text and element.tag not in ("script", "style") and pattern.search(text):
                setattr(element, name, pattern.sub(form, text))
                count += 1
    return tree.bytes() if count else None


def amounts_european(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _AMOUNT, lambda one: f"{one[1].replace(',', '.')}{(one[2] or '').replace('.', ',')}")


def amounts_with_currency(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _AMOUNT, lambda one: f"USD {one[1]}{one[2] or ''}")


def amounts_in_thousands(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _AMOUNT, lambda one: f"${round(int(one[1].replace(',', '') or 0) / 1000)}K")


def amounts_plain(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _AMOUNT, lambda one: f"{one[1].replace(',', '')}{one[2] or ''}")


def dates_iso(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _DATE, lambda one: f"{one[3]}-{one[1]:0>2}-{one[2]:0>2}")


def dates_with_dots(body: bytes, tree: Tree) -> bytes | None:
    return _texts_changed(tree, _DATE, lambda one: f"{one[2]}.{one[1]}.{one[3]}")


def value_shortened(body: bytes, tree: Tree) -> bytes | None:
    long = [cell for cell in tree.cells() if not len(cell) and len((cell.text or "").strip()) > 12]

    def shorten(cell: Element) -> None:
        text = (cell.text or "").strip()
        cell.text = text[: len(text) // 2] + "..."

    return changed(tree, tree.pick(long), shorten)


def value_is_template(body: bytes, tree: Tree) -> bytes | None:
    def fill(cell: Element) -> None:
        empty(cell)
        cell.text = tree.chance.choice(("{{ value }}", "${owner}", "<%= name %>", "undefined", "[object Object]"))

    return changed(tree, tree.pick(tree.cells()), fill)


def value_is_restricted(body: bytes, tree: Tree) -> bytes | None:
    def hide(cell: Element) -> None:
        empty(cell)
        cell.text = tree.chance.choice(
            ("Confidential", "Sign in to view", "Restricted", "See deed", "Contact the office")
        )

    return changed(tree, tree.pick(tree.cells()), hide)


def dates_day_first(body: bytes, tree: Tree) -> bytes | None:
    """All of them; a page on which every day could be a month cannot be told from one with the month first."""
    days = [int(date[2]) for text in tree.root.itertext() for date in _DATE.finditer(str(text))]
    if max(days, default=0) <= _MONTHS:
        return None
    return _texts_changed(tree, _DATE, lambda one: f"{one[2]}/{one[1]}/{one[3]}")


def areas_metric(body: bytes, tree: Tree) -> bytes | None:
    """The label and the text say so."""
    count = 0
    for row in tree.rows():
        cells = cells_of(row)
        for label, value in pairwise(cells):
            text = shown_text(label)
            if len(text) < 40 and _AREA.search(text) and _NUMBER.match(shown_text(value)):
                number = float(_NUMBER.match(shown_text(value))[0].replace(",", ""))  # type: ignore[index]
                is_acres = "acre" in f"{text} {shown_text(value)}".lower()
                empty(label)
                empty(value)
                label.text = f"Area ({'hectares' if is_acres else 'square meters'})"
                value.text = f"{number * (0.4047 if is_acres else 0.0929):,.2f} {'ha' if is_acres else 'm2'}"
                count += 1
    return tree.bytes() if count else None


def texts_escaped(body: bytes, tree: Tree) -> bytes | None:
    """Once too often: `SMITH &amp; SONS`."""
    return _texts_changed(tree, re.compile("&"), lambda _: "&amp;")


def value_in_input(body: bytes, tree: Tree) -> bytes | None:
    """The value of a form that can be edited."""

    def edit(cell: Element) -> None:
        text = shown_text(cell)
        empty(cell)
        etree.SubElement(cell, "input", type="text", value=text)

    return changed(tree, tree.pick(tree.cells()), edit)


MUTATIONS: Sequence[Mutation] = (
    *(amounts_european, amounts_with_currency, amounts_in_thousands, amounts_plain, dates_iso, dates_with_dots),
    *(value_shortened, value_is_template, value_is_restricted, dates_day_first, areas_metric, texts_escaped),
    value_in_input,
)
