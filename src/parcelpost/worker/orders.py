"""How a worker tells other processes what the gateway has ordered it to do."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

ORDERS_STATE = "orders "
"""With the worker's id: the name under which the store keeps them."""


class Orders(Struct, frozen=True, kw_only=True):
    """What one worker obeys, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: the orders end with it."""
    since: datetime
    paused: bool = False
    platforms: tuple[str, ...] = ()
    """Only these; empty: what the settings say."""
