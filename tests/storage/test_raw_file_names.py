"""Nothing that a page or a gateway says can leave the folder or harm a file system."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.storage.raw_files import folder_of, inside, safe_name

DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
ALLOWED = re.compile(r"[A-Za-z0-9_.,+=()%~ -]+")
LONGEST_END = "~" + "0" * 32 + ".html.gz.partial"
"""A result's id, the type, and what a repair writes first."""

HOSTILE = [
    "../../x", "..", ".", "...", "/etc/passwd", "a/b", "a\\b", "C:\\x", "a:b", "CON", "con", "Con.txt", "nul.html",
    "COM1", "lpt9.gz", "", " ", "   ", ".hidden", "dot.", "space ", " space", "a. ", ". .", "line\nbreak", "tab\tbreak",
    "\x7f", "\x00", "a" * 300, "é" * 300, "🏠", "🏠" * 100, "parcel ~1", "%2E%2E", "%", "*?<>|\"'", "-rf", "$(x)",
    "com\u00b9", "con .txt", "\u202egnp.exe", "a" * 119 + ".", "a" * 120 + ".", "a" * 102 + "🏠" * 5,
]  # fmt: skip

values = st.one_of(
    st.text(),
    st.text(alphabet="./\\ ~%:cCoOnN\n\0🏠é", max_size=12),
    st.text(min_size=100, max_size=400),
    st.sampled_from(HOSTILE),
)


def check(value: str) -> None:
    name = safe_name(value)
    assert name == safe_name(value)
    assert ALLOWED.fullmatch(name)
    assert name not in (".", "..")
    assert not name.startswith((".", " "))
    assert not name.endswith((".", " "))
    assert not DEVICES.fullmatch(name)
    assert not DEVICES.fullmatch(name + ".html.gz")
    assert len((name + LONGEST_END).encode()) <= 255


def test_a_hostile_name_is_made_safe(subtests: pytest.Subtests) -> None:
    for value in HOSTILE:
        with subtests.test(value=value):
            check(value)


@given(values)
def test_every_name_is_made_safe(value: str) -> None:
    check(value)


@given(values, values, values, values)
def test_no_name_leaves_the_folder(platform: str, state: str, county: str, parcel_id: str) -> None:
    root = Path("/store/data")
    path = inside(root, f"{folder_of(platform, state, county)}/{safe_name(parcel_id)}.html.gz")
    assert Path(*path.parts[:3]) == root
    assert len(path.parts) == 7
    assert path.resolve() == path


@pytest.mark.parametrize("value", ["1-2", "R 0123.45", "12+3", "A=B,C", "(1)", "map_4", "x" * 120])
def test_an_ordinary_name_stays_readable(value: str) -> None:
    assert safe_name(value) == value


@given(st.sets(st.text(alphabet=st.characters(codec="utf-8", exclude_characters=" ")), min_size=2, max_size=5))
def test_different_values_have_different_names(some: set[str]) -> None:
    """But for the spaces around them, which get different files all the same (see test_raw_files)."""
    assert len({safe_name(value) for value in some}) == len(some)


def test_a_name_never_looks_like_another_ones_second_file() -> None:
    assert "~" not in safe_name("1-2~0123456789ab")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a/.."])
def test_a_path_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="outside the raw folder"):
        inside(Path("/store/data"), name)
