"""Those who wait for a page, served in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from parcelpost.scrapers.browsers.place import Place
from parcelpost.scrapers.fetch_errors import NoBrowser


class Line:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[Place]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def stand(self, patience: float, came: Callable[[], None]) -> Place | None:
        """A place, taken for whoever stands here; None: patience ran out. Raises NoBrowser as others decide.

        `came` is called as soon as the line is one longer.
        """
        waiting: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        came()
        try:
            await asyncio.wait({waiting}, timeout=patience)
        except BaseException:
            if waiting.done() and waiting.exception() is None:
                self.serve(waiting.result())
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiting)
        return waiting.result() if waiting.done() else None

    def serve(self, place: Place) -> None:
        """The place is free for whoever waits longest, or stays idle."""
        place.is_lent = False
        while self._waiting and place.is_idle:
            waiting = self._waiting.popleft()
            if not waiting.done():
                place.is_lent = True
                waiting.set_result(place)

    def disappoint(self, why: str, after_seconds: float) -> None:
        """Everybody is told that there is none, and when to come back."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(NoBrowser(why, after_seconds))
