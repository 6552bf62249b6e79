"""`[field_maps.NAME]`: carried as it is written, with where it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcelpost.settings.sources import Loaded

GOOD = """
[field_maps.mine]
has = ["PIN"]

[field_maps.mine.fields]
parcel_id = { text = ["PIN"] }

[field_maps.other.fields]
parcel_id = { text = ["APN"] }
"""


def test_each_is_known_by_its_name_and_its_line(loading: Callable[..., Loaded]) -> None:
    found = loading(GOOD).settings.field_maps
    assert found["mine"].given == {"has": ["PIN"], "fields": {"parcel_id": {"text": ["PIN"]}}}
    assert (found["mine"].origin, found["other"].origin) == ("parcelpost.toml:2", "parcelpost.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("field_maps = 3", "parcelpost.toml:1: field_maps is a section, not a setting"),
        ("[field_maps]\nmine = 3", "parcelpost.toml:2: field_maps.mine must be a section of its own"),
        (
            '[field_maps."a b"]\nhas = []',
            "parcelpost.toml: a field map's name must be at most 100 letters, digits, '_', '-' and '.', not 'a b'",
        ),
    ],
)
def test_what_is_no_section_is_refused(refused: Callable[..., str], text: str, message: str) -> None:
    assert refused(text).startswith(message)
