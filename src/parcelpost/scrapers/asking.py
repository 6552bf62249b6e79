"""Questions to a table: which rows, and one page of them after the other."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from msgspec import Raw

from parcelpost.model import Page, Target
from parcelpost.scrapers.addressing import parcel_of
from parcelpost.scrapers.counties import County
from parcelpost.scrapers.fetch_errors import CannotFetch, TryLater

PAGE_ROWS = 1_000
_MOST_ROWS = 20_000
_MOST_WHERE_CHARS = 4_000
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}", re.ASCII)

Rows = list[Raw]
Ask = Callable[[int], Awaitable[tuple[Page, Rows | None, bool]]]
"""From which row on -> the answer, its rows (None: it holds none), and whether there are more."""


def where_of(target: Target, county: County | None) -> str:
    """`where` in the target's extra values, else the one parcel. Raises CannotFetch."""
    where = target.extra.get("where")
    if where is not None:
        if not isinstance(where, str) or not where.strip() or len(where) > _MOST_WHERE_CHARS:
            raise CannotFetch(f"where must be text of at most {_MOST_WHERE_CHARS:,} characters")
        return where
    column = target.extra.get("parcel_column") or (county.ids.get("parcel_column") if county is not None else None)
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        raise CannotFetch("which column holds the parcel is not known: set ids.parcel_column in the county's entry")
    parcel = parcel_of(target, county) if county is not None else target.parcel_id.strip()
    if not parcel:
        raise CannotFetch("the task names neither a parcel nor a where")
    return f"{column}='{parcel.replace(chr(39), chr(39) * 2)}'"


async def all_rows(ask: Ask, join: Callable[[Page, Rows], bytes], *, distinct: bool) -> Page:
    """One page with the rows of all. An answer without rows is handed on as it is: the parser says what it means.

    `distinct`: no two rows of the table are the same. Raises CannotFetch where there are too many or the server does
    not give those after the first, and TryLater where they moved, so that nobody takes a part for the whole.
    """
    rows: Rows = []
    seen: set[bytes] = set()
    first: Page | None = None
    while True:
        page, found, more = await ask(len(rows))
        if found is None:
            return page
        _check_new(found, seen, distinct=distinct)
        is_last = not more or not found
        if is_last and first is None:
            return page
        first, rows = first or page, rows + found
        if is_last:
            return Page(body=join(first, rows), content_type=first.content_type, url=first.url)
        if len(rows) > _MOST_ROWS:
            raise CannotFetch(f"more than {_MOST_ROWS:,} rows match: ask for fewer at once")


def _check_new(found: Rows, seen: set[bytes], *, distinct: bool) -> None:
    """Adds them to what was seen."""
    given = {bytes(row) for row in found}
    if given and given <= seen:
        raise CannotFetch("the server gives the same rows again instead of the next: ask for fewer at once")
    if distinct and given & seen:
        raise TryLater("some rows came twice: the table changed while it was read")
    seen |= given
