"""How a fetch can fail, and the outcome that each failure is.

FetchFailed
├── NotThere      the site says that there is no such page      -> NotFound
├── TurnedAway    the site wants no more of us for now          -> Blocked
├── NoTurn        others of ours are before it at the host      -> Busy
├── NoBrowser     the page needs one, and there is none         -> Busy
├── BrowserDied   under the page, through no fault of the task  -> Busy
├── TryLater      it may work later                             -> Retry
└── CannotFetch   it will not work, however often it is tried   -> GiveUp
"""

from __future__ import annotations

from typing import assert_never

from parcelpost.model import Blocked, Busy, GiveUp, NotFound, Outcome, Retry


class FetchFailed(Exception):
    """No page came of it."""


class NotThere(FetchFailed):
    """The site says that there is no such page."""


class TurnedAway(FetchFailed):
    """The site wants no more of us for now."""

    def __init__(self, reason: str, cool_down_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.cool_down_seconds = cool_down_seconds


class NoTurn(FetchFailed):
    """Others of ours are before it at the host: nothing was asked."""

    def __init__(self, reason: str, after_seconds: float) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class NoBrowser(FetchFailed):
    """The page needs a browser, and none can be had here for now."""

    def __init__(self, reason: str, after_seconds: float, remedy: str = "") -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
        self.remedy = remedy
        """What a person can do, where it is known."""


class BrowserDied(FetchFailed):
    """Under the page: nothing that the task could help."""

    def __init__(self, reason: str, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class TryLater(FetchFailed):
    """It may work later; `after_seconds` where somebody said when."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class CannotFetch(FetchFailed):
    """It will not work, however often it is tried."""


AnyFailure = NotThere | TurnedAway | NoTurn | NoBrowser | BrowserDied | TryLater | CannotFetch
FAILURES = (NotThere, TurnedAway, NoTurn, NoBrowser, BrowserDied, TryLater, CannotFetch)
"""To be caught, and handed to `outcome_of`."""


def outcome_of(failure: AnyFailure) -> Outcome:
    match failure:
        case NotThere():
            return NotFound(str(failure))
        case TurnedAway():
            return Blocked(str(failure), failure.cool_down_seconds)
        case NoTurn() | BrowserDied():
            return Busy(str(failure), failure.after_seconds)
        case NoBrowser():
            return Busy(str(failure), failure.after_seconds, lacks_browser=True, remedy=failure.remedy)
        case TryLater():
            return Retry(str(failure), failure.after_seconds)
        case CannotFetch():
            return GiveUp(str(failure))
        case _:
            assert_never(failure)
