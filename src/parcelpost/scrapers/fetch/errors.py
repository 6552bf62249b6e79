"""How a fetch can fail and the Outcome of each failure: our own errors, HTTP errors of platform code, robot checks."""

from __future__ import annotations

import re
from typing import assert_never

from parcelpost.model import Blocked, Busy, GiveUp, NotFound, Outcome, Page, Retry


class FetchFailed(Exception):
    """No page came of it."""


class PageNotFound(FetchFailed):
    """The site says that there is no such page."""


class SiteBlocked(FetchFailed):
    """The site wants no more of us for now."""

    def __init__(self, reason: str, cool_down_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.cool_down_seconds = cool_down_seconds


class HostBusy(FetchFailed):
    """Others of ours are before it at the host: nothing was asked."""

    def __init__(self, reason: str, after_seconds: float) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class BrowserUnavailable(FetchFailed):
    """The page needs a browser, and none can be had here for now."""

    def __init__(self, reason: str, after_seconds: float, remedy: str = "") -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
        self.remedy = remedy
        """What a person can do, where it is known."""


class BrowserCrashed(FetchFailed):
    """Under the page: nothing that the task could help."""

    def __init__(self, reason: str, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class RetryLater(FetchFailed):
    """It may work later; `after_seconds` where somebody said when."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class CannotFetch(FetchFailed):
    """It will not work, however often it is tried."""


AnyFailure = PageNotFound | SiteBlocked | HostBusy | BrowserUnavailable | BrowserCrashed | RetryLater | CannotFetch
FAILURES = (PageNotFound, SiteBlocked, HostBusy, BrowserUnavailable, BrowserCrashed, RetryLater, CannotFetch)
"""To be caught, and handed to `outcome_of`."""


def outcome_of(failure: AnyFailure) -> Outcome:
    match failure:
        case PageNotFound():
            return NotFound(str(failure))
        case SiteBlocked():
            return Blocked(str(failure), failure.cool_down_seconds)
        case HostBusy() | BrowserCrashed():
            return Busy(str(failure), failure.after_seconds)
        case BrowserUnavailable():
            return Busy(str(failure), failure.after_seconds, lacks_browser=True, remedy=failure.remedy)
        case RetryLater():
            return Retry(str(failure), failure.after_seconds)
        case CannotFetch():
            return GiveUp(str(failure))
        case _:
            assert_never(failure)


_MOST_CAUSES = 5
_SECONDS = re.compile(r"\d{1,9}")


def outcome_of_http_error(error: BaseException) -> Outcome | None:
    """None: it carries no status. What was raised `from` an error with one counts as that error."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return None
        if (status := _status(found)) is not None:
            return _outcome_of_status(status, _retry_after(found))
        found = found.__cause__
    return None


def _outcome_of_status(status: int, after: float | None) -> Outcome:
    said = f"the site answered {status}"
    match status:
        case 404 | 410:
            return NotFound(said)
        case 403 | 429:
            return Blocked(said, after)
        case _:
            return Retry(said, after)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    shapes = [getattr(response, "status_code", None), getattr(response, "status", None)]
    if hasattr(error, "headers"):  # aiohttp and urllib; a bare `code` may be anything, such as an exit code
        shapes += [getattr(error, "status", None), getattr(error, "code", None)]
    shapes.append(getattr(error, "status_code", None))
    return next((one for one in shapes if type(one) is int and 400 <= one < 600), None)


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    get = getattr(headers, "get", None)
    text = get("Retry-After") if callable(get) else None
    return float(text) if isinstance(text, str) and _SECONDS.fullmatch(text) else None


SIGN_IN_REQUIRED = "wants us to sign in"
TERMS_REQUIRED = "wants its terms accepted"


def needs_operator(reason: str) -> bool:
    return SIGN_IN_REQUIRED in reason or TERMS_REQUIRED in reason


LOOK_BYTES = 64 * 1024
_SURE_SIGNS = (
    (re.compile(rb"<title>\s*Just a moment\.\.\.|cf_chl_opt", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"<title>\s*Attention Required! \| Cloudflare", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"Request unsuccessful\. Incapsula", re.IGNORECASE), "Imperva"),
    (re.compile(rb"px-captcha", re.IGNORECASE), "PerimeterX"),
    (re.compile(rb"geo\.captcha-delivery\.com", re.IGNORECASE), "DataDome"),
    (re.compile(rb"<title>\s*Access Denied\s*</title>.*?errors\.edgesuite\.net", re.IGNORECASE | re.DOTALL), "Akamai"),
    (re.compile(rb"<title>[^<]{0,60}(robot|human) (check|verification)", re.IGNORECASE), "a robot check"),
)
_SIGNS = (
    *_SURE_SIGNS,
    (re.compile(rb"_Incapsula_Resource", re.IGNORECASE), "Imperva"),
    (re.compile(rb"perimeterx", re.IGNORECASE), "PerimeterX"),
    (re.compile(rb"datadome", re.IGNORECASE), "DataDome"),
)


def find_challenge(page: Page, *, is_built: bool = False) -> Blocked | None:
    """None: it is none, as far as its first 64 KiB show.

    A page of a parcel may carry a guard's script: in a large page, and in one that scripts have built (`is_built`),
    that is no sign yet.
    """
    beginning = page.body[:LOOK_BYTES]
    for sign, name in _SURE_SIGNS if is_built or len(page.body) > LOOK_BYTES else _SIGNS:
        if sign.search(beginning):
            return Blocked(f"the site asks whether we are a person ({name})")
    return None
