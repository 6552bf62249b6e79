"""Settings for every test. Fixtures live beside the tests that use them."""

from __future__ import annotations

from hypothesis import settings

# Shared machines stall now and then: an example's time says nothing about the code.
settings.register_profile("parcelpost", deadline=None)
settings.load_profile("parcelpost")
