"""How often a task's page has taken its browser along."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from parcelpost.scrapers.browsers.driver import Driver
from parcelpost.scrapers.fetch_errors import BrowserDied, TryLater

_MOST_DEATHS = 5
_MOST_TASKS = 10_000


class Deaths:
    """A death costs the task nothing, unless it is there at one death after the other."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, int] = OrderedDict()

    @contextmanager
    def counted(self, task_id: str, driver: Driver) -> Iterator[None]:
        """Raises TryLater in the place of the last BrowserDied that is for nothing."""
        try:
            yield
        except BrowserDied as error:
            if self._is_too_often(task_id, driver):
                raise TryLater(f"{error}, as {_MOST_DEATHS} times before with this task") from error
            raise
        self._of.pop(task_id, None)

    def _is_too_often(self, task_id: str, driver: Driver) -> bool:
        if not driver.is_running:
            return False  # it died under all pages at once
        count = self._of.pop(task_id, 0) + 1
        if count > _MOST_DEATHS:
            return True
        self._of[task_id] = count
        while len(self._of) > _MOST_TASKS:
            self._of.popitem(last=False)
        return False
