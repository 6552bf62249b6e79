"""The fetcher for plain functions: its calls end when the page is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parcelpost.model import Page
from parcelpost.scrapers.browsers.steps import Step

if TYPE_CHECKING:
    from parcelpost.scrapers.session import Session


class BlockingSession:
    """Only for threads without a running event loop. Raises a FetchFailed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return asyncio.run(self._session.get(url, headers=headers, cached=cached))

    def post(self, url: str, form: Mapping[str, str]) -> Page:
        return asyncio.run(self._session.post(url, form))

    def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        wanted = self._session.rendered(url, until=until, steps=steps, keep_cookies=keep_cookies, cached=cached)
        return asyncio.run(wanted)
