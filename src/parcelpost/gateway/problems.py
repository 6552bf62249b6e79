"""Whatever goes wrong becomes the contract's error body."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parcelpost import wire
from parcelpost.errors import InvalidInput, LedgerError, RawStoreAway
from parcelpost.events import AccessDenied, RequestFailed
from parcelpost.gateway import headers
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.refusals import code_of

_DENIALS_EVERY_SECONDS = 1.0
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


class _Denials:
    """Says so when somebody is denied, but not more often than once a second."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._more = 0
        self._next_at = 0.0

    def note(self, request: Request, reason: str) -> None:
        now = self._parts.clock.monotonic()
        if now < self._next_at:
            self._more += 1
            return
        client = request.client.host if request.client else ""
        path = f"{request.method} {request.url.path}"
        self._parts.emit(AccessDenied(client=client, path=path, reason=reason, more=self._more))
        self._more, self._next_at = 0, now + _DENIALS_EVERY_SECONDS


def problem(
    request: Request, status: int, message: str, given: dict[str, str] | None = None, *, close: bool = False
) -> Response:
    body = wire.error_answer(code_of(status), message, request.scope.get("request_id", ""))
    kind = _LastResponse if close else Response
    return kind(body, status, given, media_type=_JSON)


def answer_for(app: FastAPI, parts: Parts) -> None:
    """The handlers of every kind of error."""

    denials = _Denials(parts)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code in {401, 403}:
            denials.note(request, error.detail)
        told = dict(error.headers or {})
        return problem(request, error.status_code, error.detail, told, close=getattr(error, "close", False))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        said = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()[:5])
        return problem(request, 422, said)

    @app.exception_handler(InvalidInput)
    async def unusable(request: Request, error: InvalidInput) -> Response:
        return problem(request, 422, str(error))

    @app.exception_handler(LedgerError)
    @app.exception_handler(RawStoreAway)
    async def away(request: Request, error: Exception) -> Response:
        return problem(request, 503, str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        path = f"{request.method} {request.url.path}"
        parts.emit(RequestFailed(path=path, error=f"{type(error).__name__}: {error}"))
        answer = problem(request, 500, "something here is broken; the gateway's log says what")
        answer.raw_headers = headers.complete(answer.raw_headers, request.scope.get("request_id", ""))
        return answer
