"""What an operator may set, and where it comes from."""

from parcelpost.settings.keys import Settings

__all__ = ["Settings"]
