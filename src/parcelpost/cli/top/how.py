"""How a frame is to look."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from parcelpost.cli.top.text import clean, in_ascii

View = Literal["all", "slots", "platforms", "browsers", "errors", "attention"]

VIEWS: tuple[View, ...] = ("all", "slots", "platforms", "browsers", "errors", "attention")


class How(Struct, frozen=True, kw_only=True):
    view: View = "all"
    ascii_only: bool = False
    paused: bool = False
    """The person has stopped the looking."""
    helps: bool = False
    is_live: bool = True
    """Keys can be pressed."""
    interval: float = 1.0

    def text(self, given: str) -> str:
        """Text from anywhere, fit to be shown."""
        harmless = clean(given)
        return in_ascii(harmless) if self.ascii_only else harmless

    def either(self, letters: str, ascii_letters: str) -> str:
        return ascii_letters if self.ascii_only else letters

    @property
    def dot(self) -> str:
        """Between two facts."""
        return self.either(" · ", ", ")
