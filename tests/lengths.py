"""How long a test goes on: a little in `make test`, at length in `make test-long`."""

from __future__ import annotations

from typing import Any

import pytest


def short_and_long(names: str, short: Any, long: Any) -> pytest.MarkDecorator:
    """The test runs with the first values; with the second ones as well in `make test-long`."""
    return pytest.mark.parametrize(
        names, [pytest.param(*short, id="short"), pytest.param(*long, id="long", marks=pytest.mark.long)]
    )
