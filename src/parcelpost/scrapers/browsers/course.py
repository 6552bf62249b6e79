"""How the rendering of one page goes: where it leads, and what ends it early."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx2

from parcelpost.scrapers.answers import away_from_the_page
from parcelpost.scrapers.browsers.blocking import host_of
from parcelpost.scrapers.fetch_errors import CannotFetch, FetchFailed, TryLater
from parcelpost.scrapers.guard import Guard

Allows = Callable[[httpx2.URL], bool]
"""Whether the site's robots.txt, as far as it is known, lets us ask for that."""


class Course:
    def __init__(self, url: httpx2.URL, guard: Guard, allows: Allows, most_documents: int) -> None:
        self.url = url
        self._guard = guard
        self._allows = allows
        self._most_documents = most_documents
        self.documents: list[httpx2.URL] = []
        """All that stood in the page's main frame, redirects included."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.net_error = ""
        """Why the last document did not come."""
        self.failure: FetchFailed | None = None
        self.is_over = False
        """Nothing more is loaded."""

    @property
    def last(self) -> httpx2.URL:
        return self.documents[-1] if self.documents else self.url

    def is_on_its_way(self, text: str) -> bool:
        """Whether it is the document that the main frame has asked for, and somebody waits for it."""
        try:
            return bool(self.documents) and not self.is_over and self._guard.url(text) == self.documents[-1]
        except CannotFetch:
            return False

    def is_of_the_site(self, text: str) -> bool:
        """Whether it is of the same host as the document, or of one below or above it."""
        one, other = (host.removeprefix("www.") for host in (host_of(text), self.last.host))
        return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")

    def leads_to(self, text: str) -> None:
        """The main frame asks for a document."""
        if not text.startswith(("http:", "https:")):
            return
        self.net_error = ""
        try:
            url = self._guard.url(text)
        except CannotFetch as failure:
            self.fail(failure)
            return
        previous = self.last
        self.documents.append(url)
        if len(self.documents) > self._most_documents:
            self.fail(TryLater(f"{url.host} leads on to other pages more than {self._most_documents} times"))
        elif failure_of_it := away_from_the_page(previous, url):
            self.fail(failure_of_it)
        elif not self._allows(url):
            self.fail(CannotFetch(f"robots.txt of {url.host} does not allow {url}"[:500]))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """A document has come. After one that is an error nothing counts: what a script makes of it is no answer."""
        if self.is_over:
            return
        self.status, self.headers = status, headers
        self.is_over = self.status >= 400

    def fail(self, failure: FetchFailed) -> None:
        self.failure = self.failure or failure
        self.is_over = True
