"""How a worker tells other processes what it was started as."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

PRESENCE_STATE = "presence "
"""With the worker's id: the name under which the store keeps it."""


class Presence(Struct, frozen=True, kw_only=True):
    """One worker, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: what is said here ends with it."""
    since: datetime
    mode: str
    upstream: str
    """Its host, or its name; '': none."""
    slots: int
    version: str
    gateway_url: str = ""
    """The address that it was given, for whoever looks on; '': none."""
