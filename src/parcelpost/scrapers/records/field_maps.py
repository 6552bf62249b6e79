"""Field maps: which column of a table fills which field of a record, and how it is converted.

They are read from TOML files or the settings and validated before use."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct, structs

from parcelpost.errors import InvalidSettings
from parcelpost.model import GiveUp, Json, Retry, Target
from parcelpost.scrapers.counties import Counties
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.addresses import owners_and_mailing
from parcelpost.scrapers.records.column_values import has_shape
from parcelpost.scrapers.records.columns import Column, described
from parcelpost.scrapers.records.field_map_proposal import LIKELY_FROM, propose
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import LIEN, Lien, Record, Sale
from parcelpost.scrapers.records.validation import is_parcel_number, is_withheld
from parcelpost.scrapers.tabular import column_name

Row = Mapping[str, Json]
"""Values by normalized column name (`column_name`)."""

_MAX_ROWS_SAMPLED = 1_000
_MAX_MISFITS = 0.2
"""Share of the rows; of few rows, one."""
_TELLING = ("owner_names", "situs_address", "legal_description", "market_value", "assessed_value", "taxable_value")
_OF_NUMBERS = frozenset({"money", "price", "some", "year", "day", "whole"})
_UNREADABLE = {"mailing": "mailing_lines"}
PROPOSED = "proposed"
"""The name of a field map that was proposed for a table and that nobody has confirmed."""
_HOUSE_NUMBER = re.compile(r"(?<!UNIT)(?<!APT)(?<!SUITE)NUM(?:BER|LO)?$")
_UNIT = re.compile("UNIT|APT|SUITE|^SUB")
"""Names of columns."""
_NUMBERED_ROAD = re.compile(r"\b(?:HWY|HIGHWAY|ROUTE|RTE|ROAD|RD|FM|SR|CR)$", re.IGNORECASE)
_BOROUGHS = {"1": "NEW YORK", "2": "BRONX", "3": "BROOKLYN", "4": "QUEENS", "5": "STATEN ISLAND"}


class FieldSource(Struct, frozen=True):
    """The columns of a field and how they are converted."""

    conversion: str
    columns: tuple[str, ...]
    like: str = ""
    """The form of each text in the columns, as a regular expression; '' if it is not known."""

    @property
    def is_of_numbers(self) -> bool:
        return self.conversion in _OF_NUMBERS

    def has_value(self, row: Row) -> bool:
        """Whether one of the columns has something: then `value` must not be None."""
        return any(not _is_nothing(row.get(column)) for column in self.columns)

    def value(self, row: Row) -> Any:
        given = [row.get(column) for column in self.columns]
        if self.like and any(re.fullmatch(self.like, text) is None for text in _texts(given)):
            return None
        return CONVERSIONS[self.conversion].read(given)


class FieldMap(Struct, frozen=True, kw_only=True):
    name: str
    has: frozenset[str]
    """Columns that identify such a table; empty: the map is used only where a county's entry names it."""
    kind: str
    fields: Mapping[str, FieldSource]
    lien: Mapping[str, FieldSource]
    doubtful: Mapping[str, FieldSource] = {}
    """Fields that a proposal is not certain of: they are not read, but named where their columns have something."""

    def values_of(self, row: Row) -> dict[str, Any]:
        found = {name: source.value(row) for name, source in self.fields.items()}
        if (situs := self.fields.get("situs_address")) is not None and _is_shuffled(situs, row):
            found["situs_address"] = None
        return found

    def record(self, row: Row, fields: Mapping[str, Any] | None = None) -> Record | None:
        """Returns None if the row has no parcel number: a note or a description is none. `fields`: its values."""
        if fields is None:
            fields = self.values_of(row)
        if not is_parcel_number(fields["parcel_id"] or ""):
            return None
        given = {name: value for name, value in fields.items() if value is not None and name != "mailing"}
        record = Record(field_map=self.name, **given)
        if mailing := fields.get("mailing"):
            _take_mailing(record, mailing)
        if record.last_sale_date or record.last_sale_price is not None:
            record.sales = [Sale(date=record.last_sale_date, price=record.last_sale_price)]
        unread = [name for name, source in self.doubtful.items() if source.has_value(row)]
        unread += self.unreadable(row, fields)
        record.unreadable = sorted({_UNREADABLE.get(name, name) for name in unread})
        if "last_sale_date" in record.unreadable or "last_sale_price" in record.unreadable:
            record.unreadable.append("sales")
        if self.kind == LIEN:
            record.record_kind = LIEN
            record.liens = [Lien(**{name: source.value(row) for name, source in self.lien.items()})]
        return record

    def unreadable(self, row: Row, found: Mapping[str, Any]) -> list[str]:
        """Fields whose columns have something that cannot be their value."""
        return [name for name, value in found.items() if value is None and self.fields[name].has_value(row)]

    def is_shifted(self, row: Row, found: Mapping[str, Any]) -> bool:
        """Whether most of its numbers and dates are something else: a heading, or a row of another table."""
        wrong = [name for name in self.unreadable(row, found) if self.fields[name].is_of_numbers]
        right = sum(value is not None and self.fields[name].is_of_numbers for name, value in found.items())
        return len(wrong) > 1 and len(wrong) > right

    def describes_parcel(self, row: Row) -> bool:
        """Whether it has two of owner, address, legal description and a value; of a lien, one."""
        known = sum(self.fields[name].has_value(row) for name in _TELLING if name in self.fields)
        return known > (0 if self.kind == LIEN else 1)


def _is_shuffled(situs: FieldSource, row: Row) -> bool:
    """Whether a word is in the place of the house number and the number is behind it, or a number is in the place of a
    direction or a kind of street: the columns hold each other's values.
    """
    if situs.conversion != "joined":
        return False
    texts = {column: text for column in situs.columns if (text := values.json_text(row.get(column))) is not None}
    before = ("", *texts.values())
    numbers = [
        column
        for (column, text), previous in zip(texts.items(), before, strict=False)
        if text.isdigit() and not _UNIT.search(column) and not _NUMBERED_ROAD.search(previous)
    ]
    house = next((text for column, text in texts.items() if _HOUSE_NUMBER.search(column)), "0")
    is_turned = bool(numbers) and not any(map(str.isdigit, house))
    return is_turned or any("TYP" in column or "DIR" in column for column in numbers)


def _is_nothing(value: Json) -> bool:
    """Whether it stands for no value: empty, a placeholder, zero, or the zero date of a database."""
    if values.json_text(value) is None and not isinstance(value, bool | Mapping | list):
        return not isinstance(value, int | Decimal)  # a number that is too large to be real is no missing one
    return values.json_number(value) == 0 or (isinstance(value, str) and values.is_zero_date(value))


def map_rows(field_map: FieldMap, rows: Iterable[Row], problems: Problems) -> list[Record]:
    """Rows without a parcel number that describe a parcel, and rows of something else, are counted in the problems."""
    found, lost, shifted = [], 0, 0
    listed = [(row, field_map.values_of(row)) for row in rows]
    misfits = _drop_misfits(field_map, [values_of_row for _, values_of_row in listed])
    for (row, values_of_row), count in zip(listed, misfits, strict=True):
        if count > 1 or field_map.is_shifted(row, values_of_row):
            shifted += 1
        elif (record := field_map.record(row, values_of_row)) is not None:
            found.append(record)
        else:
            lost += field_map.describes_parcel(row)
    if lost:
        problems.lacks(f"the parcel numbers of {lost} rows")
    if shifted:
        problems.lacks(f"{shifted} rows, whose values do not fit their columns")
    return found


def _drop_misfits(field_map: FieldMap, rows: Sequence[dict[str, Any]]) -> list[int]:
    """Sets values to None that have not the shape which others of their field have. Returns how many, of each row.

    If most of a field's values have another shape, its column is not the one that the map means.
    """
    counts = [0] * len(rows)
    for name in field_map.fields if len(rows) > 1 else ():
        if name == "parcel_id":
            continue  # a county may number its parcels 1, 2, 3
        known = [(at, row[name]) for at, row in enumerate(rows) if row[name] is not None and row[name] != []]
        wrong = [at for at, value in known if not _has_shape(name, value)]
        is_another = 2 * len(wrong) > len(known)
        if is_another or len(wrong) <= max(1, _MAX_MISFITS * len(known)):
            for at in wrong:
                rows[at][name] = None
                counts[at] += not is_another
    return counts


def _has_shape(field: str, value: Any) -> bool:
    if isinstance(value, bool):
        return True
    return all(has_shape(field, item) for item in (value if isinstance(value, list) else [value]))


def plain_row(row: Mapping[str, Json]) -> Row:
    """Normalizes column names to the last part of `DB.OWNER.TABLE.FIELD`. Contradicting values become None."""
    plain: dict[str, Json] = {}
    for name, value in row.items():
        column = column_name(name)
        known = plain.get(column)
        plain[column] = value if known in (None, "", value) else known if value in (None, "") else None
    return plain


def columns_of(rows: Sequence[Row]) -> set[str]:
    """The columns of all rows: some servers omit empty ones."""
    return {name for row in rows[:_MAX_ROWS_SAMPLED] for name in row}


def _take_mailing(record: Record, lines: list[str]) -> None:
    record.owner_lines = [*record.owner_names, *lines]
    _, record.mailing_lines, place = owners_and_mailing(lines, names=0)
    if place is not None and record.mailing_city is None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip


def _first(read: Callable[[Json], Any]) -> Callable[[list[Json]], Any]:
    def value(given: list[Json]) -> Any:
        for item in given:
            if (result := read(item)) is not None or isinstance(item, Mapping | list):
                return result
        return None

    return value


def _texts(given: list[Json]) -> list[str]:
    return [text for item in given if (text := values.json_text(item)) is not None]


def _joined(given: list[Json]) -> str | None:
    texts = _texts(given)
    is_hidden = any(isinstance(item, str) and values.is_placeholder(item) for item in given)
    return None if is_hidden or any(map(is_withheld, texts)) else values.text_or_none(" ".join(texts))


def _line(given: list[Json]) -> list[str]:
    joined = _joined(given)
    return [joined] if joined is not None else []


def _day(given: Json) -> str | None:
    """A small number is no moment: it is a year or a date of an unknown form."""
    number = None if isinstance(given, str) else values.json_money(given)
    if number is not None and abs(number) < values.MIN_EPOCH_MS:
        return values.iso_date(values.json_text(given))
    return values.json_date(given)


def _bbl(given: list[Json]) -> str | None:
    """Borough, block and lot of New York City in ten digits."""
    parts = [values.whole_number(values.json_text(item)) for item in given]
    if len(parts) != 3 or any(part is None for part in parts):
        return None
    return f"{parts[0]}{parts[1]:05}{parts[2]:04}"


def _notice(given: list[Json]) -> str | None:
    text = (values.json_text(given[0]) or "").lower()
    return "noticed" if "notice" in text else "sold" if "sale" in text else text or None


def _zip(given: Json) -> str | None:
    text = values.json_text(given)
    if text and text.isdigit() and len(text) in (8, 9):
        text = f"{text.zfill(9)[:5]}-{text.zfill(9)[5:]}"
    return text.zfill(5) if text and text.isdigit() and len(text) == 4 else text


class Conversion(Struct, frozen=True):
    """Converts the values of one or more columns into a value of type `gives`."""

    read: Callable[[list[Json]], Any]
    gives: Any
    columns: int = 0
    """The number of columns it needs; 0: any."""


CONVERSIONS: Mapping[str, Conversion] = {
    "text": Conversion(_first(values.json_text), str),
    "texts": Conversion(_texts, list[str]),
    "lines": Conversion(_texts, list[str]),
    "line": Conversion(_line, list[str]),
    "joined": Conversion(_joined, str),
    "money": Conversion(_first(values.json_money), Decimal),
    "price": Conversion(_first(lambda one: values.json_money(one) or None), Decimal),
    "some": Conversion(_first(values.json_nonzero), Decimal),
    "year": Conversion(_first(values.json_year), int),
    "day": Conversion(_first(_day), str),
    "whole": Conversion(_first(lambda item: values.whole_number(values.json_text(item))), int),
    "flag": Conversion(_first(lambda item: values.yes_no(values.json_text(item))), bool),
    "zip": Conversion(_first(_zip), str),
    "bbl": Conversion(_bbl, str, columns=3),
    "borough": Conversion(lambda given: _BOROUGHS.get(values.json_text(given[0]) or ""), str, columns=1),
    "notice": Conversion(_notice, str, columns=1),
}


EXAMPLES = Path(__file__).with_name("field_maps")
_HINT = f"for examples see {EXAMPLES}"
_MAX_FILE_BYTES = 1024**2
_LIKE = "like"
_KEYS = ("has", "kind", "fields", "lien")
_KINDS = ("parcel", LIEN)
_SET_BY_PLATFORM = frozenset(
    (
        *("parcel_id_norm", "platform", "source_url", "scraped_at", "raw_html_hash", "parser_version", "field_map"),
        "record_kind",
    )
)


@cache
def shipped_field_maps() -> tuple[FieldMap, ...]:
    folder = files("parcelpost.scrapers.records") / "field_maps"
    toml_files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(parse_field_map(f.name.removesuffix(".toml"), f.read_text("utf-8"), f.name) for f in toml_files)


def load_field_maps(folder: Path) -> list[FieldMap]:
    """One map for each `NAME.toml`. Raises InvalidSettings that names the file."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
        return [parse_field_map(path.stem, _file_text(path), str(path)) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        place = getattr(error, "filename", None) or folder
        raise InvalidSettings(f"the field maps in {place} cannot be read: {reason}", hint=_HINT) from None


def parse_field_map(name: str, text: str, where: str) -> FieldMap:
    """Raises InvalidSettings."""
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidSettings(f"{where}: the field map {name} is not valid TOML: {error}", hint=_HINT) from None
    return build_field_map(name, given, where)


def build_field_map(name: str, given: Mapping[str, Any], where: str) -> FieldMap:
    """`where`: its file or setting. Raises InvalidSettings with the first problem."""
    if name == PROPOSED and where != PROPOSED:
        raise InvalidSettings(f"{where}: a field map cannot be named {PROPOSED}", hint="give it another name")
    if problem := _problem(given):
        raise InvalidSettings(f"{where}: the field map {name} {problem}", hint=_HINT)
    return FieldMap(
        name=name,
        has=frozenset(column_name(column) for column in given.get("has", ())),
        kind=given.get("kind", "parcel"),
        fields={field: _source(source) for field, source in given["fields"].items()},
        lien={field: _source(source) for field, source in given.get("lien", {}).items()},
    )


def _problem(given: Mapping[str, Any]) -> str:
    """Describes the first problem, as a predicate of the map's name; '' if there is none."""
    if unknown := sorted(given.keys() - set(_KEYS)):
        return f"has the unknown key {unknown[0]!r:.60}; allowed keys: {', '.join(_KEYS)}"
    if not _are_columns(given.get("has", ["any"])):
        return 'needs a list of columns in has, for example has = ["PIN", "OWNER"]'
    if given.get("kind", "parcel") not in _KINDS:
        return f"needs kind to be parcel or {LIEN}, not {given['kind']!r:.60}"
    fields, lien = given.get("fields"), given.get("lien", {})
    if not isinstance(fields, Mapping) or not isinstance(lien, Mapping) or "parcel_id" not in fields:
        return "needs [fields] with a parcel_id"
    if bool(lien) != (given.get("kind") == LIEN):
        return f'needs either both [lien] and kind = "{LIEN}", or neither'
    parcel = {name: source for name, source in _types(Record).items() if name not in _SET_BY_PLATFORM}
    problems = [
        *(
            _field_problem(field, source, {**parcel, "mailing": list[str]}, "a record")
            for field, source in fields.items()
        ),
        *(_field_problem(field, source, _types(Lien), "a lien") for field, source in lien.items()),
    ]
    return next(filter(None, problems), "")


def _field_problem(field: str, given: Any, types: Mapping[str, Any], whose: str) -> str:
    if field not in types:
        return f"has {field!r:.60}, which is not a field of {whose} that can be mapped{_nearest(field, types)}"
    if not isinstance(given, Mapping) or len(given.keys() - {_LIKE}) != 1:
        return f'needs {field} in the form {field} = {{ {_conversions_to(types[field])[0]} = ["COLUMN"] }}'
    conversion, columns = next((name, listed) for name, listed in given.items() if name != _LIKE)
    if not _is_pattern(given.get(_LIKE, "")):
        return f"needs {_LIKE} of {field} to be a regular expression"
    possible = _conversions_to(types[field])
    if conversion not in possible:
        known = "" if conversion in CONVERSIONS else ", which is not a conversion"
        return f"converts {field} with {conversion!r:.60}{known}; possible for this field: {', '.join(possible)}"
    if not _are_columns(columns):
        return f'needs a list of columns for {field}, for example {field} = {{ {conversion} = ["COLUMN"] }}'
    needed = CONVERSIONS[conversion].columns
    if needed and len(columns) != needed:
        return f"needs {needed} columns for {field}, because of {conversion}"
    return ""


def _is_pattern(given: Any) -> bool:
    try:
        return isinstance(given, str) and bool(re.compile(given))
    except re.error:
        return False


def _are_columns(given: Any) -> bool:
    return (
        isinstance(given, list) and bool(given) and all(isinstance(name, str) and column_name(name) for name in given)
    )


def _source(given: Mapping[str, Any]) -> FieldSource:
    conversion, columns = next((name, listed) for name, listed in given.items() if name != _LIKE)
    return FieldSource(conversion, tuple(column_name(column) for column in columns), given.get(_LIKE, ""))


@cache
def _types(kind: type[Record] | type[Lien]) -> dict[str, Any]:
    """The type of each field that some conversion gives."""
    hints = {name: _without_none(hint) for name, hint in get_type_hints(kind).items()}
    return {name: hint for name, hint in hints.items() if _conversions_to(hint)}


def _without_none(hint: Any) -> Any:
    given = [arg for arg in get_args(hint) if arg is not NoneType]
    return given[0] if NoneType in get_args(hint) else hint


def _conversions_to(wanted: Any) -> list[str]:
    """The conversions that give values of that type; a whole number is also a Decimal."""
    return [
        name
        for name, conversion in CONVERSIONS.items()
        if conversion.gives == wanted or (conversion.gives is int and wanted is Decimal)
    ]


def _nearest(field: str, types: Iterable[str]) -> str:
    close = difflib.get_close_matches(field, list(types), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _file_text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES).decode("utf-8")


Rows = Sequence[Mapping[str, Json]]


class FieldMaps:
    """Chooses the map for a table: the one that the county's entry names, else one whose `has` columns the table has.

    The operator's own maps precede the built-in ones; among several, the one with the most columns wins.
    """

    def __init__(self, own: Iterable[FieldMap] = (), counties: Counties = Counties()) -> None:  # noqa: B008 - never changed
        """Raises InvalidSettings for two maps of one name, and for a county entry that names an unknown map."""
        self._own: dict[str, FieldMap] = {}
        for field_map in own:
            if field_map.name in self._own:
                raise InvalidSettings(
                    f"there are two field maps named {field_map.name}", hint="give one of them another name"
                )
            self._own[field_map.name] = field_map
        self._counties = counties
        for county in counties:
            if county.field_map and self._named(county.field_map) is None:
                known = ", ".join(sorted({*self._own, *(field_map.name for field_map in shipped_field_maps())}))
                raise InvalidSettings(
                    f"the entry of {county.name} names the field map {county.field_map!r}, which does not exist",
                    hint=f"known field maps: {known}; add your own to fetch.field_maps_folder (examples: {EXAMPLES})",
                )

    @property
    def digest(self) -> str:
        """Changes whenever a table may be read differently."""
        named = [(county.name, county.field_map) for county in self._counties if county.field_map]
        return hashlib.sha256(msgspec.json.encode((self._own, named), order="deterministic")).hexdigest()

    def read(
        self,
        platform: str,
        target: Target,
        rows: Rows,
        columns: Sequence[Column] = (),
        problems: Problems | None = None,
    ) -> list[Record] | Retry | GiveUp:
        """Converts the rows of a table, which must not be empty, into records.

        `columns`: the table's description of its columns, if it has one. Where no field map fits, the one that is
        proposed for the table is used, with those of its columns that are certain.
        """
        problems = Problems() if problems is None else problems
        county = self._counties.find(platform, target.state, target.county)
        named = self._named(county.field_map) if county is not None and county.field_map else None
        given = [plain_row(row) for row in rows]
        field_map = named or self.matching(given) or _proposed(given, columns or described(rows), target.parcel_id)
        if isinstance(field_map, GiveUp):
            return field_map
        needed = field_map.fields["parcel_id"].columns
        if not columns_of(given) & set(needed):
            return GiveUp(f"the field map {field_map.name} needs the column {' or '.join(needed)}, which is missing")
        if columns:
            _check_columns(field_map, given, problems)
        return map_rows(field_map, given, problems) or Retry("the rows have no parcel number")

    def matching(self, rows: Sequence[Row]) -> FieldMap | None:
        """The map whose `has` columns the rows have; None if there is none."""
        columns = columns_of(rows)
        return _fitting(self._own.values(), columns) or _fitting(shipped_field_maps(), columns)

    def _named(self, name: str) -> FieldMap | None:
        return self._own.get(name) or next((m for m in shipped_field_maps() if m.name == name), None)


def _check_columns(field_map: FieldMap, rows: Sequence[Row], problems: Problems) -> None:
    """Notes a field that is put together from several columns of which the table has only some."""
    known = columns_of(rows)
    for field, source in field_map.fields.items():
        lacking = [column for column in source.columns if column not in known]
        if source.conversion == "joined" and 0 < len(lacking) < len(source.columns):
            problems.note(field, f"the table has no column {lacking[0]}")


def _proposed(rows: Sequence[Row], columns: Sequence[Column], asked: str) -> FieldMap | GiveUp:
    proposal = propose(columns, rows, asked)
    if missing := proposal.missing():
        return GiveUp(
            f"no field map matches these columns, and it is not certain which of them are {'; '.join(missing)}: "
            "create a field map with 'parcelpost platforms map URL'"
        )
    field_map = build_field_map(PROPOSED, proposal.field_map(), PROPOSED)
    likely = proposal.field_map(LIKELY_FROM)["fields"]
    doubtful = {name: _source(given) for name, given in likely.items() if name not in field_map.fields}
    return structs.replace(field_map, doubtful=doubtful)


def _fitting(maps: Iterable[FieldMap], columns: set[str]) -> FieldMap | None:
    fitting = [field_map for field_map in maps if field_map.has and field_map.has <= columns]
    return max(fitting, key=lambda field_map: len(field_map.has), default=None)
