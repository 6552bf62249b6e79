"""The error a route raises, and the error responses clients receive."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parcelpost.errors import RawStoreUnavailable
from parcelpost.protocol import payloads

_CODES = {
    400: "INVALID",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_ENCODING",
    421: "WRONG_LEDGER",
    422: "INVALID",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_ERROR",
    503: "UNAVAILABLE",
}


class ApiError(HTTPException):
    """Raised by routes and what they call; becomes the contract's error body.

    `close`: the connection is closed afterwards, because the rest of the request is not read.
    """

    def __init__(
        self, status: int, message: str, *, headers: dict[str, str] | None = None, close: bool = False
    ) -> None:
        super().__init__(status, message, headers)
        self.close = close


def error_code(status: int) -> str:
    return _CODES.get(status, "ERROR")


def unavailable(message: str, retry_after: int = 5) -> ApiError:
    return ApiError(503, message, headers={"Retry-After": str(retry_after)})


_MAX_REASON_CHARS = 300
_JSON = "application/json"
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 4 * 1024 * 1024


class _LastResponse(Response):
    """Closes the connection after giving the client a moment to read the response, which a reset could discard."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers["Connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await _discard_body(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard_body(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if not message.get("more_body"):
            return
        left -= len(message.get("body", b""))


def error_response(
    request: Request, status: int, message: str, given: dict[str, str] | None = None, *, close: bool = False
) -> Response:
    body = payloads.error_body(error_code(status), message, request.scope.get("request_id", ""))
    kind = _LastResponse if close else Response
    return kind(body, status, given, media_type=_JSON)


def reason_of(error: Exception) -> str:
    """Returns the reason for the log, with the error of the disk or server, which clients do not see."""
    cause = f" ({error.__cause__})" if isinstance(error, RawStoreUnavailable) and error.__cause__ else ""
    return " ".join(f"{error}{cause}".split())[:_MAX_REASON_CHARS]
