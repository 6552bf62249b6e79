"""Tasks that were given up, and why: how many of those that ended lately, and the reason that comes most often."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from datetime import datetime

from msgspec import Struct

from parcelpost.clock import iso
from parcelpost.storage import by_person
from parcelpost.storage.db import LocalDatabase

_MANY = 0.05
_MOST_REASONS = 1_000
_PARTICULAR = re.compile(r"\S*\d\S*")  # a parcel, an address, an amount: what one reason has and the next has not

_WILLED = f"(status = 'failed' AND {by_person.is_said('error')})"
_ENDS = f"""
SELECT platform, coalesce(sum(status = 'failed'), 0), count(*) FROM tasks
WHERE completed_at >= ? AND status <> 'expired' AND NOT {_WILLED} GROUP BY platform
"""
_REASONS = f"""
SELECT coalesce(error, '') FROM tasks WHERE completed_at >= ? AND status = 'failed' AND NOT {_WILLED}
ORDER BY completed_at DESC LIMIT ?
"""


class Ends(Struct, frozen=True, kw_only=True):
    failed: int
    ended: int
    """Failed or completed; each record of a list counts."""


class Failures(Struct, frozen=True, kw_only=True):
    """Of the tasks that have ended since a moment, those that are failed still: not requeued, not removed.

    What a person rejected or forgot has neither failed nor ended here.
    """

    failed: int
    ended: int
    platforms: dict[str, Ends]
    """Those that have failures."""
    commonest: str
    """The newest of the reasons that differ only in their particulars and come most often."""

    @property
    def hopeless(self) -> list[str]:
        """Platforms of which everything failed."""
        return sorted(name for name, ends in self.platforms.items() if ends.failed == ends.ended)

    @property
    def are_many(self) -> bool:
        """So many that a person should look: more than one in twenty, or all of a platform."""
        return bool(self.hopeless) or self.failed > _MANY * self.ended


class FailureLog:
    def __init__(self, database: LocalDatabase) -> None:
        self._db = database

    async def since(self, moment: datetime) -> Failures:
        return await self._db.read(since, moment)


def since(db: sqlite3.Connection, moment: datetime) -> Failures:
    ends = {name: Ends(failed=failed, ended=ended) for name, failed, ended in db.execute(_ENDS, (iso(moment),))}
    failed = sum(one.failed for one in ends.values())
    return Failures(
        failed=failed,
        ended=sum(one.ended for one in ends.values()),
        platforms={name: one for name, one in ends.items() if one.failed},
        commonest=_commonest(db, moment) if failed else "",
    )


def _commonest(db: sqlite3.Connection, moment: datetime) -> str:
    reasons: list[str] = [error for (error,) in db.execute(_REASONS, (iso(moment), _MOST_REASONS))]
    kinds = [_PARTICULAR.sub("", reason) for reason in reasons]
    [(kind, _)] = Counter(kinds).most_common(1)
    return next(reason for reason, found in zip(reasons, kinds, strict=True) if found == kind)
