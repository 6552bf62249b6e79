"""Which sites have a turn free for a task, so that a slot does not take one only to stand in line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from parcelpost.model import Site, Task

OpensIn = Callable[[str, int], float]
"""A host, and how many tasks are on their way there -> the seconds until it takes one more; 0: now."""

PageOpensIn = Callable[[int], float]
"""How many tasks that need a browser are on their way -> the seconds until a page is free for one more; 0: now."""

_MOST_SITES = 10_000


class Closed(NamedTuple):
    sites: frozenset[Site]
    """Those with no turn free soon."""
    opens_in: list[float]
    """The seconds until each of their hosts opens, soonest first."""


class Turns:
    """Belongs to the worker's loop. Learns from requests which host a site is on: it takes a site to be on one.

    Sites that nobody has fetched from here are open.
    """

    def __init__(
        self,
        opens_in: OpensIn = lambda _host, _before: 0.0,
        page_opens_in: PageOpensIn = lambda _before: 0.0,
    ) -> None:
        self._opens_in = opens_in
        self._page_opens_in = page_opens_in
        self._need_browser: set[Site] = set()
        self._on_their_way_to_a_page: set[str] = set()
        """Tasks, until they have a page."""
        self._host_of: dict[Site, str] = {}
        self._sites_at: dict[str, set[Site]] = {}
        self._on_their_way: dict[str, str] = {}
        """Task -> its host, until it has come there."""

    @property
    def are_known(self) -> bool:
        return bool(self._host_of)

    def learn(self, site: Site, host: str) -> None:
        known = self._host_of.get(site)
        if known == host:
            return
        if len(self._host_of) >= _MOST_SITES:  # learned again, at the price of some tasks that are put off
            self._host_of.clear()
            self._sites_at.clear()
        elif known is not None:
            self._sites_at[known].discard(site)
        self._host_of[site] = host
        self._sites_at.setdefault(host, set()).add(site)

    def need_browser(self, site: Site) -> None:
        """The site's pages were asked for in a browser: others of its tasks will want one, too."""
        if len(self._need_browser) >= _MOST_SITES:
            self._need_browser.clear()
        self._need_browser.add(site)

    def need_no_browser(self, site: Site) -> None:
        self._need_browser.discard(site)

    def sets_out(self, task: Task) -> None:
        """It was claimed, and will soon come to its site."""
        if task.site in self._need_browser:
            self._on_their_way_to_a_page.add(task.task_id)
        if host := self._host_of.get(task.site):
            self._on_their_way[task.task_id] = host

    def is_at_host(self, task: Task) -> None:
        """It is in its host's line."""
        self._on_their_way.pop(task.task_id, None)

    def has_browser(self, task: Task) -> None:
        """It has its page."""
        self._on_their_way_to_a_page.discard(task.task_id)

    def came(self, task: Task) -> None:
        """It has been where it was going, or will not come there."""
        self.is_at_host(task)
        self.has_browser(task)

    def closed(self) -> Closed:
        coming = Counter(self._on_their_way.values())
        found: set[Site] = set()
        opens_in = []
        for host, sites in self._sites_at.items():
            if seconds := self._opens_in(host, coming[host]):
                found |= sites
                opens_in.append(seconds)
        if self._need_browser and (seconds := self._page_opens_in(len(self._on_their_way_to_a_page))):
            found |= self._need_browser
            opens_in.append(seconds)
        return Closed(frozenset(found), sorted(opens_in))
