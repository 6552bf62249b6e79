"""What an error of platform code says about the site, where it carries an HTTP status.

Errors of requests, httpx, aiohttp and urllib are known by their shape: none of them is imported.
"""

from __future__ import annotations

import re

from parcelpost.model import Blocked, NotFound, Outcome, Retry

_MOST_CAUSES = 5
_SECONDS = re.compile(r"\d{1,9}")


def outcome_of(error: BaseException) -> Outcome | None:
    """None: it carries no status. What was raised `from` an error with one counts as that error."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return None
        if (status := _status(found)) is not None:
            return _meaning(status, _retry_after(found))
        found = found.__cause__
    return None


def _meaning(status: int, after: float | None) -> Outcome:
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
