"""What every route of the gateway is made of."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.gateway.bodies import Patience
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.tally import Tally
from parcelpost.gateway.tokens import Tokens
from parcelpost.raw_store import RawStore
from parcelpost.settings.schema import ServerSettings


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
