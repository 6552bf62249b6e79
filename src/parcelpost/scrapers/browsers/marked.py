"""The processes of browsers that are known by their marker."""

from __future__ import annotations

from parcelpost.scrapers.browsers import processes
from parcelpost.scrapers.browsers.processes import Process

SWITCH = "--parcelpost-browser="


class Marked:
    """Of the browsers that were started with this marker, or with one that begins so.

    The marker stands in the command line of the browser itself; its other processes are of the same group, which is
    remembered once it was seen.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._groups: dict[int, tuple[str, str]] = {}

    def remember(self, pid: int, started: str, program: str) -> None:
        self._groups[pid] = (started, program)

    def left(self) -> list[Process]:
        """Those that run now."""
        for leader in processes.leaders_with(f"{SWITCH}{self._marker}") if self._marker else ():
            self.remember(leader.pid, leader.started, processes.executable(leader.pid))
        return [
            one for pid, (started, program) in self._groups.items() for one in processes.group_of(pid, started, program)
        ]
