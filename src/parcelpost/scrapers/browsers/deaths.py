"""How often a task's page has taken its browser along."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from parcelpost.scrapers.browsers.browser import Chromium
from parcelpost.scrapers.fetch_errors import BrowserDied, TryLater

_MOST_DEATHS = 5
_MOST_TASKS = 10_000


class Deaths:
    """A death costs the task nothing, unless its page is the cause, or it is there at one death after the other."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, int] = OrderedDict()

    @contextmanager
    def counted(self, task_id: str, chromium: Chromium) -> Iterator[None]:
        """Raises TryLater in the place of a BrowserDied that the page has caused, and of the sixth in a row."""
        try:
            yield
        except BrowserDied as error:
            if chromium.cause == "page":
                raise TryLater(str(error)) from error
            if self._is_too_often(task_id, chromium):
                raise TryLater(f"{error}, as {_MOST_DEATHS} times before with this task") from error
            raise
        self._of.pop(task_id, None)

    def _is_too_often(self, task_id: str, chromium: Chromium) -> bool:
        if chromium.cause == "ours" or not chromium.driver.is_running:
            return False  # no page can help that; the driver dies under all of them at once
        count = self._of.pop(task_id, 0) + 1
        if count > _MOST_DEATHS:
            return True
        self._of[task_id] = count
        while len(self._of) > _MOST_TASKS:
            self._of.popitem(last=False)
        return False
