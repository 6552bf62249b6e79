"""Which sites have a turn free for a task, so that a slot does not take one only to stand in line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from parcelpost.model import Site, Task

OpensIn = Callable[[str, int], float]
"""A host, and how many tasks are on their way there -> the seconds until it takes one more; 0: now."""

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

    def __init__(self, opens_in: OpensIn = lambda _host, _before: 0.0) -> None:
        self._opens_in = opens_in
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

    def sets_out(self, task: Task) -> None:
        """It was claimed, and will soon come to its site."""
        if host := self._host_of.get(task.site):
            self._on_their_way[task.task_id] = host

    def came(self, task: Task) -> None:
        """It is in its host's line, or will not come there."""
        self._on_their_way.pop(task.task_id, None)

    def closed(self) -> Closed:
        coming = Counter(self._on_their_way.values())
        found: set[Site] = set()
        opens_in = []
        for host, sites in self._sites_at.items():
            if seconds := self._opens_in(host, coming[host]):
                found |= sites
                opens_in.append(seconds)
        return Closed(frozenset(found), sorted(opens_in))
