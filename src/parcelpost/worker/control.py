"""What the upstream and the operator have told this worker, shared by its loops."""

from __future__ import annotations

import asyncio


class Control:
    """Belongs to one event loop. The loops look at it at the start of every turn."""

    def __init__(self) -> None:
        self.paused = False
        """No task is started and none is asked for; what is stored is delivered."""
        self.platforms: frozenset[str] | None = None
        """Only these, by the upstream's order; None: what the settings say."""
        self.leaving = asyncio.Event()
        """Set when the worker drains: nothing new is begun."""
        self.reason = ""
        """Why it leaves."""
        self.stopping = asyncio.Event()
        """Set when it stops without waiting for what runs."""
        self._is_interrupted = False

    @property
    def may_start(self) -> bool:
        return not self.paused and not self.leaving.is_set()

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Drains; with `at_once`, stops. Asked again, it goes on as it does."""
        if at_once:
            self.stopping.set()
        self.reason = self.reason or reason
        self.leaving.set()

    def interrupt(self, signal: str) -> None:
        """The first one drains, the second stops at once."""
        self.leave(signal, at_once=self._is_interrupted)
        self._is_interrupted = True
