"""How a worker tells other processes which fields broke."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from parcelpost.model import Broken

BROKEN_STATE = "broken fields "
"""With the worker's id: the name under which the store keeps them."""


class BrokenFields(Struct, frozen=True, kw_only=True):
    """As one worker sees them."""

    at: datetime
    fields: tuple[Broken, ...]
