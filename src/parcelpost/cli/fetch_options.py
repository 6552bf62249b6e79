"""How pages are fetched, from the settings."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost import __version__
from parcelpost.scrapers.exchange import FetchOptions
from parcelpost.settings import Settings
from parcelpost.settings.secrets import PROXY_LOGIN_VARIABLE


def fetch_options(settings: Settings, environment: Mapping[str, str]) -> FetchOptions:
    fetch = settings.fetch
    contact = f" (+{fetch.contact})" if fetch.contact else ""
    return FetchOptions(
        user_agent=fetch.user_agent or f"parcelpost/{__version__}{contact}",
        pace_seconds=fetch.pace_seconds,
        concurrency_per_host=fetch.concurrency_per_host,
        timeout_seconds=fetch.timeout_seconds,
        max_page_bytes=min(fetch.max_page_bytes, settings.storage.max_page_bytes),
        proxy=fetch.proxy,
        proxy_login=environment.get(PROXY_LOGIN_VARIABLE, ""),
        allow_private=fetch.allow_private,
        obey_robots=fetch.obey_robots,
    )
