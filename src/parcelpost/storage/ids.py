"""Identifiers that sort by the time they were made, so that an index of them grows at its end."""

from __future__ import annotations

import random
from datetime import datetime


def new_id(now: datetime) -> str:
    """32 hex digits: 48 bits of milliseconds, 80 bits of chance."""
    return f"{int(now.timestamp() * 1000):012x}{random.getrandbits(80):020x}"
