"""Settings for every test. Fixtures live beside the tests that use them."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# Shared machines stall now and then: an example's time says nothing about the code.
settings.register_profile("parcelpost", deadline=None)
settings.load_profile("parcelpost")

# A shell that starts tests in the background has them ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: one that began last would run alone for minutes, beside idle processors."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
