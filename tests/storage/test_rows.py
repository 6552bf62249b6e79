"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import re
from datetime import timedelta

from parcelpost.storage.rows import new_id
from tests.storage.factories import NOW


def test_ids_are_32_hex_digits_and_never_the_same() -> None:
    made = {new_id(NOW) for _ in range(10_000)}
    assert len(made) == 10_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", value) for value in made)


def test_ids_sort_by_the_millisecond_they_were_made_in() -> None:
    made = [new_id(NOW + timedelta(milliseconds=n)) for n in range(1_000)]
    assert made == sorted(made)
