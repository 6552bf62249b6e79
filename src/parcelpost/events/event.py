"""What an event is, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened and that somebody may want to know."""


Emit = Callable[[Event], None]


def ignore(_: Event) -> None:
    """An Emit that nobody listens to."""
