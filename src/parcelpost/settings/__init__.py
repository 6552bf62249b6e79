"""What an operator may set, and where it comes from."""

from parcelpost.settings.schema import Settings

__all__ = ["Settings"]
