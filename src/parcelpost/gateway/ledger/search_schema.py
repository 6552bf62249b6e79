"""The tables of the search index, in both databases.

All of it is derived from the ledger: an index of another version, or one that is missing, is made again. Each parcel
and each lien has one narrow row. Rows with the same values in all facets are a group, whose number is the upper part of
a row's own, so that every index of a column says which group its entries belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from parcelpost.gateway.models import SearchRow
from parcelpost.gateway.search_rows import Asked

INDEX_VERSION = 2
"""Of what the index holds. With another one, it is made again."""

PARCELS, LIENS = "parcels", "liens"
NUMBER_BITS = 40
"""Of a row's number: `group_no << 40 | parcel_no` or `lien_no`."""
NUMBER_MASK = (1 << NUMBER_BITS) - 1

GROUP_COLUMNS = (
    "state",
    "county",
    "platforms",
    "delinquent",
    "has_liens",
    "land_use",
    "tax_year",
    "status",
    "freshness",
)
"""The facets. Groups that share the first five have the same number on the map."""
MAP_COLUMNS = GROUP_COLUMNS[:5]

SHOWN_COLUMNS = SearchRow.__struct_fields__
COLUMNS = ("no", "group_no", *SHOWN_COLUMNS, "words_hash", "stale_at")
_TYPES = {
    "no": "{integer} PRIMARY KEY",
    "group_no": "{integer} NOT NULL",
    "parcel_id": "{folded} NOT NULL",
    **dict.fromkeys(("owner", "situs", "certificate_number", "holder_name"), "{folded}"),
    "acres": "{real}",
    **dict.fromkeys(("number", "parcel_no", "liens", "scraped_at", "changed_at"), "{integer} NOT NULL"),
    **dict.fromkeys(("partial", "words_hash"), "{integer} NOT NULL"),
    **dict.fromkeys(("state", "county", "parcel_norm", "platforms", "freshness"), "{text} NOT NULL"),
    **dict.fromkeys(("land_use", "status", "sold_on"), "{text}"),
}
_INTEGER = "{integer}"

ALWAYS_KNOWN = {"parcel_id", "liens", "scraped_at", "changed_at"}
"""Columns without missing values."""
SORTED_COLUMNS = {
    PARCELS: (
        *("parcel_id", "owner", "situs", "tax_due", "liens", "lien_amount", "market_value", "acres", "sold_on"),
        *("scraped_at", "changed_at"),
    ),
    LIENS: (
        *("certificate_number", "certificate_year", "lien_amount", "sold_on", "holder_name", "parcel_id", "owner"),
        *("situs", "tax_due", "market_value", "acres", "scraped_at", "changed_at"),
    ),
}
"""Columns with an index. All others that can be sorted by are facets."""
_FOLDED = ("parcel_id", "owner", "situs", "holder_name", "certificate_number")
_GROUP_INDEX = (
    "group_no, tax_due, market_value, lien_amount, acres, sold_on, scraped_at, changed_at, longitude, latitude"
)
"""All columns that ranges are asked of: rows are counted by group in its order, whichever ranges there are."""
_MAP_INDEX = "longitude, latitude, delinquent, lien_amount"

_TABLES = (*(f"{table}{part}" for table in (PARCELS, LIENS) for part in ("", "_groups", "_words")), "cells", "state")
TABLES = {"search_queue", *(f"search_{name}" for name in _TABLES)}
STATE_VERSION = "SELECT version FROM search_state"


def least_value(column: str) -> str:
    """No value of the column is less. As a bound it is looked up in the index, which `IS NOT NULL` is not."""
    return "''" if _TYPES.get(column, "").startswith(("{text}", "{folded}")) else "-9223372036854775807"


class Dialect(Struct, frozen=True):
    """Where the databases differ."""

    folded_text: str
    """The type of a text that is sorted without case."""
    folded: str
    """The expression that such a text is sorted and indexed by."""
    integer: str
    real: str
    text: str
    identity: str
    row_index: str
    """Columns that an index of a column has after it, so that it holds a row's number."""
    folded_index: str
    """What an index of a folded text has besides, so that rows need not be read."""
    words_table: str
    words_index: str
    add_words: str
    matches: str
    """A condition of the table of words."""
    query: Callable[[Sequence[Asked], Sequence[Sequence[str]]], str]
    """What matches all parts, and one of each sequence of words."""
    any_of: str
    """Whether an expression is one of several whole numbers, which are one parameter."""
    walked: str
    """A table `t`, read along one of its indexes."""
    fence: str
    """After a query whose rows are all found before those around it are ordered."""
    follow: Sequence[str]
    """What puts the parcels of new results into the queue."""

    def sort_key(self, column: str) -> str:
        """The expression that a column is indexed and sorted by: texts without case."""
        return self.folded.format(column) if column.removeprefix("t.") in _FOLDED else column


def _fts_query(parts: Sequence[Asked], places: Sequence[Sequence[str]]) -> str:
    def quoted(word: str, *, is_prefix: bool) -> str:
        return f'"{word}"{"*" if is_prefix else ""}'

    alternatives = (" OR ".join(f'"{word}"' for word in words) for words in places)
    return " AND ".join(
        [*(_either(part, quoted, " AND ", " OR ") for part in parts), *(f"({words})" for words in alternatives)]
    )


def _ts_query(parts: Sequence[Asked], places: Sequence[Sequence[str]]) -> str:
    def lexeme(word: str, *, is_prefix: bool) -> str:
        return f"'{word}'{':*' if is_prefix else ''}"

    alternatives = (" | ".join(f"'{word}'" for word in words) for words in places)
    return " & ".join(
        [*(_either(part, lexeme, " & ", " | ") for part in parts), *(f"({words})" for words in alternatives)]
    )


def _either(part: Asked, quote: Callable[..., str], both: str, either: str) -> str:
    """All words of a part, or all of them as one. Words have letters and digits only: they need no escaping."""
    *first, last = part.words
    words = both.join([*(quote(word, is_prefix=False) for word in first), quote(last, is_prefix=part.is_prefix)])
    return f"(({words}){either}{quote(part.joined, is_prefix=part.is_prefix)})" if first else words


SQLITE = Dialect(
    folded_text="TEXT COLLATE NOCASE",
    folded="{}",
    integer="INTEGER",
    real="REAL",
    text="TEXT",
    identity="INTEGER PRIMARY KEY AUTOINCREMENT",
    row_index="",
    folded_index="",
    words_table="CREATE VIRTUAL TABLE {} USING fts5 (words, tokenize = 'ascii', detail = none, prefix = '1 2 3')",
    words_index="",
    add_words="INSERT INTO {} (rowid, words) VALUES (?, ?)",
    matches="{} MATCH ?",
    query=_fts_query,
    any_of="{} IN (SELECT value FROM json_each(?))",
    walked="{0} t INDEXED BY {0}_by_{1}",
    fence="LIMIT -1",
    follow=[
        "DROP TRIGGER IF EXISTS results_to_index",
        """CREATE TRIGGER results_to_index AFTER INSERT ON results_to_compare BEGIN
            INSERT INTO search_queue (parcel_no) SELECT parcel_no FROM sources WHERE source_no = new.source_no;
        END""",
    ],
)
POSTGRES = Dialect(
    folded_text='TEXT COLLATE "C"',
    folded="lower({})",
    integer="BIGINT",
    real="DOUBLE PRECISION",
    text='TEXT COLLATE "C"',
    identity="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    row_index=", no",
    folded_index=" INCLUDE ({})",
    words_table="CREATE TABLE {} (rowid BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
    words_index="CREATE INDEX {0}_by_word ON {0} USING gin (words) WITH (fastupdate = off)",
    add_words="INSERT INTO {} (rowid, words) VALUES (?, array_to_tsvector(string_to_array(?, ' ')))",
    matches="words @@ ?::text::tsquery",
    query=_ts_query,
    any_of="{} = ANY (?::bigint[])",
    walked="{0} t",
    fence="OFFSET 0",
    follow=[
        """CREATE OR REPLACE FUNCTION queue_for_search() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO search_queue (parcel_no)
            SELECT DISTINCT (SELECT s.parcel_no FROM sources s WHERE s.source_no = a.source_no) FROM added a;
            RETURN NULL;
        END $$""",
        "DROP TRIGGER IF EXISTS results_to_index ON results_to_compare",
        """CREATE TRIGGER results_to_index AFTER INSERT ON results_to_compare REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION queue_for_search()""",
    ],
)


def create_statements(dialect: Dialect) -> list[str]:
    """Statements that make an empty index, whatever was there before."""
    integer, text = dialect.integer, dialect.text
    types = {"integer": integer, "real": dialect.real, "text": text, "folded": dialect.folded_text}
    made = [f"DROP TABLE IF EXISTS search_{name}" for name in _TABLES]
    made.append(f"CREATE TABLE IF NOT EXISTS search_queue (queue_no {dialect.identity}, parcel_no {integer} NOT NULL)")
    made.append(
        f"""CREATE TABLE search_state (
            only_row {integer} PRIMARY KEY CHECK (only_row = 1), version {integer} NOT NULL,
            changes {integer} NOT NULL, rebuilt_to {integer} NOT NULL, rebuild_until {integer} NOT NULL,
            schedules TEXT NOT NULL)"""
    )
    for table in (PARCELS, LIENS):
        name = f"search_{table}"
        columns = ", ".join(f"{column} {_TYPES.get(column, _INTEGER).format(**types)}" for column in COLUMNS)
        made.append(f"CREATE TABLE {name} ({columns})")
        made.append(f"CREATE INDEX {name}_by_number ON {name} (number)")
        made += [
            f"CREATE INDEX {name}_by_{column} ON {name} ({dialect.sort_key(column)}{dialect.row_index})"
            + (dialect.folded_index.format(column) if column in _FOLDED else "")
            for column in SORTED_COLUMNS[table]
        ]
        made.append(f"CREATE INDEX {name}_by_group ON {name} ({_GROUP_INDEX})")
        made.append(f"CREATE INDEX {name}_on_map ON {name} ({_MAP_INDEX}{dialect.row_index})")
        made.append(dialect.words_table.format(f"{name}_words"))
        if dialect.words_index:
            made.append(dialect.words_index.format(f"{name}_words"))
        made.append(
            f"""CREATE TABLE {name}_groups (
            group_no {integer} PRIMARY KEY, map_no {integer} NOT NULL, state {text} NOT NULL, county {text} NOT NULL,
            platforms {text} NOT NULL, delinquent {integer}, has_liens {integer} NOT NULL, land_use {text},
            tax_year {integer}, status {text}, freshness {text} NOT NULL, number_of_rows {integer} NOT NULL,
            changed {integer} NOT NULL)"""
        )
        made.append(f"CREATE INDEX {name}_groups_changed ON {name}_groups (changed)")
    made.append("CREATE INDEX search_liens_of_parcel ON search_liens (parcel_no)")
    made.append("CREATE INDEX search_parcels_stale ON search_parcels (stale_at) WHERE stale_at IS NOT NULL")
    made.append(
        f"""CREATE TABLE search_cells (
        zoom {integer}, x {integer}, y {integer}, map_no {integer}, parcels {integer} NOT NULL,
        lien_amount {integer} NOT NULL, longitudes {integer} NOT NULL, latitudes {integer} NOT NULL,
        PRIMARY KEY (zoom, x, y, map_no))"""
    )
    return [
        *made,
        *dialect.follow,
        f"""INSERT INTO search_state (only_row, version, changes, rebuilt_to, rebuild_until, schedules)
        SELECT 1, {INDEX_VERSION}, 0, 0, coalesce(max(parcel_no), 0), '{{}}' FROM parcels""",
    ]
