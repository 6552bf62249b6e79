"""Steps that platform code can take on a page before it is read. Needs no browser to be installed."""

from __future__ import annotations

from msgspec import Struct


class Fill(Struct, frozen=True, tag=True):
    """Types text into a field."""

    selector: str
    text: str


class Click(Struct, frozen=True, tag=True):
    selector: str


class Choose(Struct, frozen=True, tag=True):
    """Selects an entry of a list by its value or text."""

    selector: str
    value: str


class WaitFor(Struct, frozen=True, tag=True):
    """Waits until an element is there."""

    selector: str


Step = Fill | Click | Choose | WaitFor
