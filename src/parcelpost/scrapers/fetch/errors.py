"""How a fetch can fail and the Outcome of each failure: our own errors, HTTP errors of platform code, robot checks."""

from __future__ import annotations

import re
from typing import assert_never

from parcelpost.model import Blocked, Busy, GiveUp, NotFound, Outcome, Page, Retry


class FetchFailed(Exception):
    """A page could not be fetched."""


class PageNotFound(FetchFailed):
    """The site has no such page."""


class SiteBlocked(FetchFailed):
    """The site refuses our requests for now."""

    def __init__(self, reason: str, cool_down_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.cool_down_seconds = cool_down_seconds


class HostBusy(FetchFailed):
    """Other tasks are using up the host's rate limit; no request was sent."""

    def __init__(self, reason: str, after_seconds: float) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class BrowserUnavailable(FetchFailed):
    """The page needs a browser, and none is available."""

    def __init__(self, reason: str, after_seconds: float, remedy: str = "") -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
        self.remedy = remedy
        """What the operator can do about it, if known."""


class BrowserCrashed(FetchFailed):
    """The browser failed, not the task."""

    def __init__(self, reason: str, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class RetryLater(FetchFailed):
    """It may work later: after `after_seconds`, if the site said when."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class CannotFetch(FetchFailed):
    """Retrying will not help."""


AnyFailure = PageNotFound | SiteBlocked | HostBusy | BrowserUnavailable | BrowserCrashed | RetryLater | CannotFetch
FAILURES = (PageNotFound, SiteBlocked, HostBusy, BrowserUnavailable, BrowserCrashed, RetryLater, CannotFetch)
"""All of AnyFailure, for `except`; pass them to `outcome_of`."""


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


_MAX_CAUSES = 5
_SECONDS = re.compile(r"\d{1,9}")


def outcome_of_http_error(error: BaseException) -> Outcome | None:
    """Returns None if neither the error nor its causes carry an HTTP status."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return None
        if (status := _status(cause)) is not None:
            return _outcome_of_status(status, _retry_after(cause))
        cause = cause.__cause__
    return None


def _outcome_of_status(status: int, after: float | None) -> Outcome:
    reason = f"the site returned {status}"
    match status:
        case 404 | 410:
            return NotFound(reason)
        case 403 | 429:
            return Blocked(reason, after)
        case _:
            return Retry(reason, after)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    candidates = [getattr(response, "status_code", None), getattr(response, "status", None)]
    if hasattr(error, "headers"):  # aiohttp and urllib; a bare `code` may be anything, such as an exit code
        candidates += [getattr(error, "status", None), getattr(error, "code", None)]
    candidates.append(getattr(error, "status_code", None))
    return next((status for status in candidates if type(status) is int and 400 <= status < 600), None)


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    get = getattr(headers, "get", None)
    text = get("Retry-After") if callable(get) else None
    return float(text) if isinstance(text, str) and _SECONDS.fullmatch(text) else None


SIGN_IN_REQUIRED = "requires signing in"
TERMS_REQUIRED = "requires its terms to be accepted"


def needs_operator(reason: str) -> bool:
    return SIGN_IN_REQUIRED in reason or TERMS_REQUIRED in reason


SCANNED_BYTES = 64 * 1024
_CERTAIN_PATTERNS = (
    (b"just a moment...", rb"<title>\s*Just a moment\.\.\.", "Cloudflare"),
    (b"cf_chl_opt", rb"", "Cloudflare"),
    (b"| cloudflare", rb"<title>\s*Attention Required! \| Cloudflare", "Cloudflare"),
    (b"request unsuccessful. incapsula", rb"", "Imperva"),
    (b"px-captcha", rb"", "PerimeterX"),
    (b"geo.captcha-delivery.com", rb"", "DataDome"),
    (b"errors.edgesuite.net", rb"<title>\s*Access Denied\s*</title>.*?errors\.edgesuite\.net", "Akamai"),
    (b"robot", rb"<title>[^<]{0,60}robot (check|verification)", "a robot check"),
    (b"human", rb"<title>[^<]{0,60}human (check|verification)", "a robot check"),
)
"""A text in lower case that is quickly searched for, the pattern of what it must be a part of, and whose it is."""
_PATTERNS = (
    *_CERTAIN_PATTERNS,
    (b"_incapsula_resource", rb"", "Imperva"),
    (b"perimeterx", rb"", "PerimeterX"),
    (b"datadome", rb"", "DataDome"),
)


def find_challenge(page: Page, *, is_built: bool = False) -> Blocked | None:
    """Returns None if the first 64 KiB do not show a robot check.

    A normal page may include the script of a protection service, so a large page and one built by scripts (`is_built`)
    are judged by certain patterns only.
    """
    beginning = page.body[:SCANNED_BYTES].lower()
    for text, pattern, name in _CERTAIN_PATTERNS if is_built or len(page.body) > SCANNED_BYTES else _PATTERNS:
        if text in beginning and re.search(pattern, beginning, re.IGNORECASE | re.DOTALL):
            return Blocked(f"the site shows a robot check ({name})")
    return None
