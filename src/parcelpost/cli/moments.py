"""A moment as a person writes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from parcelpost.errors import InvalidInput

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(s|min|m|h|d|w)(?:ours?|ays?|eeks?)?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment(text: str, now: datetime) -> datetime:
    """`2026-11-15`, `2026-11-15T19:50`, `2h` (ago), `3d`: UTC unless a zone is said. Raises InvalidInput."""
    words = text.strip()
    try:
        if found := _AGE.fullmatch(words):
            return now - timedelta(seconds=float(found[1]) * _SECONDS[found[2].lower()])
        read = datetime.fromisoformat(words)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text!r:.80} is no moment", hint="such as 2026-11-15, 2026-11-15T19:50, 30min, 2h or 3d (that long ago)"
        ) from None
