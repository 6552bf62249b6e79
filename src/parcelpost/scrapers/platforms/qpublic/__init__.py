"""`qpublic` and `beacon`: a parcel page and its modules."""

from parcelpost.scrapers.platforms.qpublic.parcel_page import BEACON, PLATFORM

__all__ = ["BEACON", "PLATFORM"]
