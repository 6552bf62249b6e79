"""Whatever goes wrong becomes the contract's error body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from parcelpost.errors import InvalidInput, LedgerError, RawStoreUnavailable
from parcelpost.events import AccessDenied, Event, RequestFailed, RequestPutOff
from parcelpost.gateway import headers
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.refusals import code_of
from parcelpost.protocol import payloads

_DENIALS_EVERY_SECONDS = 1.0
_DELAYS_EVERY_SECONDS = 10.0
_MOST_REASON_CHARS = 300
_JSON = "application/json"
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 4 * 1024 * 1024


class _LastResponse(Response):
    """Ends the connection, but not before the client had a moment to read it: a reset would take it away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers["Connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await _ignore(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _ignore(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if not message.get("more_body"):
            return
        left -= len(message.get("body", b""))


class _Seldom:
    """What may happen often is told once in a while, with how often it was not told."""

    def __init__(self, parts: Parts, every_seconds: float) -> None:
        self._parts = parts
        self._every_seconds = every_seconds
        self._more = 0
        self._next_at = 0.0

    def tell(self, event_with: Callable[[int], Event]) -> None:
        now = self._parts.clock.monotonic()
        if now < self._next_at:
            self._more += 1
            return
        self._parts.emit(event_with(self._more))
        self._more, self._next_at = 0, now + self._every_seconds


def problem(
    request: Request, status: int, message: str, given: dict[str, str] | None = None, *, close: bool = False
) -> Response:
    body = payloads.error_body(code_of(status), message, request.scope.get("request_id", ""))
    kind = _LastResponse if close else Response
    return kind(body, status, given, media_type=_JSON)


def reason_of(error: Exception) -> str:
    """For the log: with the words of the disk or the server, which are not for whoever asked."""
    cause = f" ({error.__cause__})" if isinstance(error, RawStoreUnavailable) and error.__cause__ else ""
    return " ".join(f"{error}{cause}".split())[:_MOST_REASON_CHARS]


def _path(request: Request) -> str:
    return f"{request.method} {request.url.path}"


def _methods(app: FastAPI, request: Request) -> list[str]:
    """What may be asked of that path. Starlette names those of the first route only."""
    scopes = ({**request.scope, "method": method} for method in ("GET", "POST"))
    return [scope["method"] for scope in scopes if any(route.matches(scope)[0] is Match.FULL for route in app.routes)]


def answer_for(app: FastAPI, parts: Parts) -> None:
    """The handlers of every kind of error."""

    denials = _Seldom(parts, _DENIALS_EVERY_SECONDS)
    without_ledger, without_raw_store = (_Seldom(parts, _DELAYS_EVERY_SECONDS) for _ in range(2))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code in {401, 403}:
            client = request.client.host if request.client else ""
            denials.tell(lambda more: AccessDenied(client=client, path=_path(request), reason=error.detail, more=more))
        told = dict(error.headers or {})
        if error.status_code == 405:
            told["Allow"] = ", ".join(_methods(app, request))
        return problem(request, error.status_code, error.detail, told, close=getattr(error, "close", False))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        said = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()[:5])
        return problem(request, 422, said)

    @app.exception_handler(InvalidInput)
    async def unusable(request: Request, error: InvalidInput) -> Response:
        return problem(request, 422, str(error))

    @app.exception_handler(LedgerError)
    @app.exception_handler(RawStoreUnavailable)
    async def away(request: Request, error: Exception) -> Response:
        delays = without_raw_store if isinstance(error, RawStoreUnavailable) else without_ledger
        delays.tell(lambda more: RequestPutOff(path=_path(request), reason=reason_of(error), more=more))
        return problem(request, 503, str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        parts.tally.answered(500)  # sent past our headers
        parts.emit(RequestFailed(path=_path(request), error=f"{type(error).__name__}: {error}"))
        answer = problem(request, 500, "something here is broken; the gateway's log says what")
        answer.raw_headers = headers.complete(answer.raw_headers, request.scope.get("request_id", ""))
        return answer
