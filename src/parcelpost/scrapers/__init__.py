"""Platforms: what turns a task's target into a record."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parcelpost.scrapers.plugins import as_platform

__all__ = ["as_platform"]


def __getattr__(name: str) -> Any:
    """Who asks for `as_platform` gets it; who wants another module of this room does not wait for it."""
    if name == "as_platform":
        from parcelpost.scrapers.plugins import as_platform  # noqa: PLC0415 - the point

        return as_platform
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
