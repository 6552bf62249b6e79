"""Parcelpost: an offline-first worker for tax-lien data."""

__version__ = "0.1.0"
