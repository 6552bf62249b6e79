"""A request that is not answered as it wished, and the one form in which it is told so."""

from __future__ import annotations

from starlette.exceptions import HTTPException

_CODES = {
    400: "INVALID",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "TOO_SLOW",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_ENCODING",
    421: "ANOTHER_LEDGER",
    422: "INVALID",
    429: "TOO_MANY_REQUESTS",
    500: "OUR_FAULT",
    503: "NOT_NOW",
}


class Refusal(HTTPException):
    """Raised anywhere below a route; becomes the contract's error body.

    `close`: the connection is not used again, because the rest of the request will not be read.
    """

    def __init__(
        self, status: int, message: str, *, headers: dict[str, str] | None = None, close: bool = False
    ) -> None:
        super().__init__(status, message, headers)
        self.close = close


def code_of(status: int) -> str:
    return _CODES.get(status, "ERROR")


def not_now(message: str, retry_after: int = 5) -> Refusal:
    return Refusal(503, message, headers={"Retry-After": str(retry_after)})
