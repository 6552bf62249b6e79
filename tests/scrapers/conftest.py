"""A website and what fetches from it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.website import Website, website


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    async with website() as one:
        yield one
