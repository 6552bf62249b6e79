"""Settings: what an operator may set, and where values come from."""

from parcelpost.settings.schema import Settings

__all__ = ["Settings"]
