"""Platforms: what turns a task's target into a record."""

from parcelpost.scrapers.adapted import as_platform

__all__ = ["as_platform"]
