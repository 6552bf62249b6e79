"""The columns of a table, and what their names and aliases mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from parcelpost.model import Json
from parcelpost.scrapers.records.vocabulary import CERTAIN, DOUBTFUL, Reading, belongs, readings, words_of
from parcelpost.scrapers.tabular import column_name

_MAX_ROWS = 200
_SCHEMA = re.compile(r"(?:^|_)(?:DBO|SDE|GDB)_", re.IGNORECASE | re.ASCII)
"""The schema of a database in the name of a joined column: `GIS_DBO_Entity_situs_city`."""
_MAX_NAME_CHARS = 200
_NONDESCRIPT_CHARS = 3
"""Names such as F12 say nothing."""


class Column(Struct, frozen=True):
    """A column as the table describes it."""

    name: str
    alias: str = ""
    kind: str = ""
    """DATE, NUMBER, TEXT or SYSTEM of `column_values`; '' if it is not declared."""


def _readings(name: str) -> tuple[Reading, ...]:
    """Also of a name that begins with those of a schema and a table."""
    short = name[:_MAX_NAME_CHARS].rpartition(".")[2]
    meanings = readings(short)
    schema = _SCHEMA.search(short)
    short = short[schema.end() :] if schema is not None else ""
    while short and not (meanings and meanings[0].score >= CERTAIN):
        meanings = readings(short) or meanings
        short = short.partition("_")[2]
    return meanings


def column_meanings(column: Column) -> tuple[Reading, ...]:
    """What the name and the alias of a column mean. If they contradict each other, neither is certain."""
    by_name, by_alias = _readings(column.name), _readings(column.alias)
    if column_name(column.alias) in ("", column_name(column.name)):
        return by_name
    if not by_alias:
        return _doubted(by_name) if _is_about_else(column.alias, by_name) else by_name
    if not by_name:
        return _doubted(by_alias) if _is_about_else(column.name, by_alias) else by_alias
    fields = {reading.field: reading for reading in by_name}
    agreed = tuple(
        structs.replace(
            reading,
            score=max(reading.score, fields[reading.field].score),
            rank=min(reading.rank, fields[reading.field].rank),
            index=reading.index or fields[reading.field].index,
            year=reading.year or fields[reading.field].year,
        )
        for reading in by_alias
        if reading.field in fields
    )
    if agreed:
        return agreed
    name, alias = by_name[0], by_alias[0]
    if name.score > alias.score or alias.field.startswith(("unqualified.", "owner.")):
        return by_name
    if alias.score > name.score or name.field.startswith("unqualified."):
        return by_alias
    return _doubted(by_alias)


def _doubted(meanings: Sequence[Reading]) -> tuple[Reading, ...]:
    return tuple(structs.replace(reading, score=min(reading.score, DOUBTFUL)) for reading in meanings)


def _is_about_else(text: str, meanings: Sequence[Reading]) -> bool:
    """Whether a text has a word that no name of these fields has: `Previous Owner`."""
    if len(column_name(text)) <= _NONDESCRIPT_CHARS:
        return False
    return any(not belongs(word, reading.field) for reading in meanings[:1] for word in words_of(text).words)


def last_part(name: str) -> str:
    return name[:_MAX_NAME_CHARS].rpartition(".")[2]


def described(rows: Sequence[Mapping[str, Json]]) -> list[Column]:
    """The columns of rows that come without a description."""
    names = Counter(name for row in rows[:_MAX_ROWS] for name in row)
    return [Column(name) for name in names]
