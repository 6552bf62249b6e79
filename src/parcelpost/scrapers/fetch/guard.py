"""The guard of county sites. What it refuses is a failed fetch, like every other that a scraper meets."""

from __future__ import annotations

from parcelpost import private_addresses
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater


class Guard(private_addresses.Guard):
    setting = "fetch.allow_private"
    refused = CannotFetch
    no_address = RetryLater
