"""Files as they come: broken quotes, lines without end, other encodings, JSON with holes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.cli.importer import readers
from parcelpost.cli.importer.options import Format
from parcelpost.cli.importer.readers import BadRow, Row, open_reader, open_source

MIB = 1024**2


def read(path: Path, content: str | bytes, kind: Format = Format.CSV) -> list[Row | BadRow]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with open_source(str(path)) as source:
        return list(open_reader(source, kind))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def values(rows: list[Row | BadRow]) -> list[Any]:
    """The good rows' values; a bad one's number."""
    return [list(row.values.values()) if isinstance(row, Row) else row.number for row in rows]


def test_quoted_values_hold_separators_quotes_and_line_breaks(file: Path) -> None:
    rows = read(file, 'a,b\n"1,\r\n""2""",x\n\n,\n3,y\n')
    assert rows == [Row(2, {"a": '1,\r\n"2"', "b": "x"}), Row(6, {"a": "3", "b": "y"})]


@pytest.mark.parametrize("rest", [3, 5_000])
def test_a_quote_without_its_end_costs_one_line(file: Path, rest: int) -> None:
    rows = read(file, 'a,b\n1,x\n2,"y\n' + "".join(f"{n},z\n" for n in range(rest)))
    assert isinstance(rows[1], BadRow)
    assert (rows[1].number, rows[1].text) == (3, '2,"y')
    assert rows[1].reason.startswith("a quoted value is not closed")
    assert values(rows) == [["1", "x"], 3, *([str(n), "z"] for n in range(rest))]
    assert rows[-1].number == rest + 3


def test_a_value_too_long_for_a_csv_field_is_a_bad_line(file: Path) -> None:
    rows = read(file, "a\n1\n" + "x" * 200_000 + "\n3\n")
    assert values(rows) == [["1"], 3, ["3"]]


def test_a_line_of_any_length_is_one_bad_line(file: Path) -> None:
    endless = b"y" * (10 * MIB)
    assert values(read(file, b"a\n1\n" + endless + b"\n3\n")) == [["1"], 3, ["3"]]
    assert values(read(file, b'{"a": 1}\n' + endless + b'\n{"a": 3}', Format.JSONL)) == [[1], 2, [3]]
    assert values(read(file, b'[{"a": 1}, {"a": "' + endless + b'"}, {"a": 3}]', Format.JSON)) == [[1], 2, [3]]


def test_nul_bytes_spoil_their_line_only(file: Path) -> None:
    assert values(read(file, "a,b\n1,x\n2,\0\n3,z\n")) == [["1", "x"], 3, ["3", "z"]]
    rows = read(file, 'a,b\n1,"x\n2,\0\n3,z\n')
    assert rows[0] == BadRow(2, "the line contains a NUL byte (on line 3, inside quotes)", '1,"x')
    assert values(rows[1:]) == [["3", "z"]]


@pytest.mark.parametrize(
    ("raw", "first_other"),
    [("a\nMüller\n".encode(), 0), ("\ufeffa\nMüller\n".encode(), 0), ("a\nMüller\n".encode("cp1252"), 2)],
)
def test_text_is_utf_8_or_else_windows_1252(file: Path, raw: bytes, first_other: int) -> None:
    file.write_bytes(raw)
    with open_source(str(file)) as source:
        rows = open_reader(source, Format.CSV)
        assert list(rows) == [Row(2, {"a": "Müller"})]
        assert rows.text.first_other == first_other


def test_columns_have_distinct_names(file: Path) -> None:
    assert read(file, "a,,a,a 2\n1,2,3,4\n") == [Row(2, {"a": "1", "column 2": "2", "a 2": "3", "a 2 2": "4"})]


def test_a_spreadsheets_own_word_on_the_separator_is_heard(file: Path) -> None:
    assert read(file, "sep=;\na,x;b\n1,5;2\n") == [Row(3, {"a,x": "1,5", "b": "2"})]


def test_rows_that_are_too_short_or_too_long_are_bad(file: Path) -> None:
    assert values(read(file, "a,b\n1\n1,2,,\n1,2,3\n")) == [2, ["1", "2"], 4]


def test_bad_json_lines_harm_none_beside_them(file: Path) -> None:
    deep = "[" * 100_000
    content = f'{{"a": 1}}\n{{"a": }}\n[1]\n"x"\n{deep}\n{{"a": NaN}}\n\n{{"a": 12345678901234567890123}}'
    rows = read(file, content, Format.JSONL)
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6, 8]
    assert [type(row) for row in rows] == [Row, BadRow, BadRow, BadRow, BadRow, BadRow, Row]
    assert values(rows)[-1] == [12345678901234567890123]


def test_bad_entries_of_an_array_harm_none_beside_them(file: Path) -> None:
    content = '[{"a": "]},{["}, {"a": 1,}, 7, null, , "x, {", [{"a": 2}], {"a": "\\""}, {"a": [1, {"b": 2}]},]'
    assert values(read(file, content, Format.JSON)) == [["]},{["], 2, 3, 4, 5, 6, 7, ['"'], [[1, {"b": 2}]]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('[{"a": 1}, {"a": 2', "a closing bracket or quote is missing; nothing after this point was read"),
        ('[{"a": 1}, {"a": "2}]', "a closing bracket or quote is missing; nothing after this point was read"),
        (
            '[{"a": 1}], {"a": 2}]',
            "an extra closing bracket comes before this entry; nothing after the bracket was read",
        ),
    ],
)
def test_an_array_without_its_right_end_says_so(file: Path, content: str, reason: str) -> None:
    first, second = read(file, content, Format.JSON)
    assert first == Row(1, {"a": 1})
    assert isinstance(second, BadRow)
    assert (second.number, second.reason) == (2, reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


@given(
    entries=st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    block=st.integers(1, 40),
)
def test_an_array_is_read_the_same_however_it_is_cut(
    entries: list[dict[str, Any]], ascii_only: bool, indent: int | None, block: int
) -> None:
    text = json.dumps(entries, ensure_ascii=ascii_only, indent=indent).encode(errors="surrogatepass")
    splitter = readers._Entries()
    found = [entry for at in range(1, len(text), block) for entry in splitter.of(text[at : at + block])]
    assert splitter.ended
    assert [json.loads(entry.decode(errors="surrogatepass")) for entry in found if entry is not None] == entries
