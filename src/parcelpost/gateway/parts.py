"""What every route of the gateway is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.gateway.bodies import Patience
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.tally import Tally
from parcelpost.gateway.tokens import Tokens
from parcelpost.model import Task
from parcelpost.raw_store import RawStore
from parcelpost.settings.schema import ServerSettings


class Platforms(Protocol):
    """The platforms and counties that are known. A gateway knows none itself: whoever starts it does."""

    @property
    def names(self) -> Collection[str]: ...

    def checked(self, task: Task, reported: Collection[str]) -> Task:
        """The task with its platform in its one spelling; a platform that workers have `reported` is known, too.

        Raises InvalidInput with a hint for a platform that nobody knows, and for a county that it does not serve.
        """


class Parts(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    raw_store: RawStore
    settings: ServerSettings
    tokens: Tokens
    clock: Clock
    emit: Emit
    tally: Tally
    version: str
    patience: Patience = Patience()
    stopping: asyncio.Event
    """Set when the gateway is told to stop: an answer that goes on for long ends then."""
    platforms: Platforms | None = None
    """None: tasks of any platform are queued."""
