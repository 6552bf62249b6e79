"""Whether the gateway can do its work, looked at now and then for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parcelpost.clock import Clock
from parcelpost.errors import LedgerError, RawStoreUnavailable
from parcelpost.gateway.parts import Parts

_LEDGER_SECONDS = 1.0
_RAW_STORE_SECONDS = 30.0  # it is written to, and S3 charges for that


class HealthDesk:
    """Asks the ledger at most once a second, and writes to the raw store at most twice a minute."""

    def __init__(self, parts: Parts) -> None:
        self._lock = asyncio.Lock()
        self._looks = (
            _Look(parts.ledger.check, "the ledger is away", _LEDGER_SECONDS, parts.clock),
            _Look(parts.raw_store.check, "the raw store cannot be written", _RAW_STORE_SECONDS, parts.clock),
        )

    async def problem(self) -> str:
        """'' if all is well."""
        async with self._lock:
            found = [await look.problem() for look in self._looks]
        return "; ".join(filter(None, found))


class _Look:
    def __init__(self, check: Callable[[], Awaitable[None]], problem: str, seconds: float, clock: Clock) -> None:
        self._check = check
        self._problem = problem
        self._seconds = seconds
        self._clock = clock
        self._looked_at = float("-inf")
        self._found = ""

    async def problem(self) -> str:
        now = self._clock.monotonic()
        if now - self._looked_at >= self._seconds:
            self._found = await self._look()
            self._looked_at = now
        return self._found

    async def _look(self) -> str:
        try:
            await self._check()
        except (LedgerError, RawStoreUnavailable):
            return self._problem
        return ""
