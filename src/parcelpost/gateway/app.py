"""The gateway as an ASGI application: routes, error handlers and response headers."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parcelpost.errors import InvalidInput, LedgerError, RawStoreUnavailable
from parcelpost.events import AccessDenied, Event, RequestFailed, RequestPutOff
from parcelpost.gateway import dashboard, openapi
from parcelpost.gateway.api import fleet, health, parcels, worker
from parcelpost.gateway.auth import Access
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import error_response, reason_of
from parcelpost.gateway.openapi import ADMIN_TOKEN, READ_TOKEN

_HEADERS = [
    (b"accept-encoding", b"gzip, zstd"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_DEFAULT_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}


class ResponseHeaders:
    """A route may set its own Content-Security-Policy and Cache-Control; all else is the same for all.

    `answered` is told the status of every answer that passes here.
    """

    def __init__(self, app: ASGIApp, answered: Callable[[int], None]) -> None:
        self._app = app
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = secrets.token_hex(8)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answered(message["status"])
                message["headers"] = with_default_headers(message["headers"], scope["request_id"])
            await send(message)

        await self._app(scope, receive, send_with_headers)


def with_default_headers(given: list[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    said = {name for name, _ in given}
    rest = [(name, text) for name, text in _DEFAULT_HEADERS.items() if name not in said]
    return [*given, *_HEADERS, *rest, (b"x-request-id", request_id.encode())]


_DENIALS_EVERY_SECONDS = 1.0
_DELAYS_EVERY_SECONDS = 10.0


class _ThrottledEvents:
    """What may happen often is told once in a while, with how often it was not told."""

    def __init__(self, parts: Context, every_seconds: float) -> None:
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


def _path(request: Request) -> str:
    return f"{request.method} {request.url.path}"


def _methods(app: FastAPI, request: Request) -> list[str]:
    """What may be asked of that path. Starlette names those of the first route only."""
    scopes = ({**request.scope, "method": method} for method in ("GET", "POST"))
    return [scope["method"] for scope in scopes if any(route.matches(scope)[0] is Match.FULL for route in app.routes)]


def add_error_handlers(app: FastAPI, parts: Context) -> None:
    """The handlers of every kind of error."""

    denials = _ThrottledEvents(parts, _DENIALS_EVERY_SECONDS)
    without_ledger, without_raw_store = (_ThrottledEvents(parts, _DELAYS_EVERY_SECONDS) for _ in range(2))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code in {401, 403}:
            client = request.client.host if request.client else ""
            denials.tell(lambda more: AccessDenied(client=client, path=_path(request), reason=error.detail, more=more))
        told = dict(error.headers or {})
        if error.status_code == 405:
            told["Allow"] = ", ".join(_methods(app, request))
        return error_response(request, error.status_code, error.detail, told, close=getattr(error, "close", False))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        said = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()[:5])
        return error_response(request, 422, said)

    @app.exception_handler(InvalidInput)
    async def unusable(request: Request, error: InvalidInput) -> Response:
        return error_response(request, 422, str(error))

    @app.exception_handler(LedgerError)
    @app.exception_handler(RawStoreUnavailable)
    async def away(request: Request, error: Exception) -> Response:
        delays = without_raw_store if isinstance(error, RawStoreUnavailable) else without_ledger
        delays.tell(lambda more: RequestPutOff(path=_path(request), reason=reason_of(error), more=more))
        return error_response(request, 503, str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        parts.tally.answered(500)  # sent past our headers
        parts.emit(RequestFailed(path=_path(request), error=f"{type(error).__name__}: {error}"))
        answer = error_response(request, 500, "something here is broken; the gateway's log says what")
        answer.raw_headers = with_default_headers(answer.raw_headers, request.scope.get("request_id", ""))
        return answer


def make_app(parts: Context) -> FastAPI:
    app = FastAPI(
        title="Parcelpost gateway",
        version=parts.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the address would be that of the Host header, which anybody may write
    )
    app.add_middleware(ResponseHeaders, answered=parts.tally.answered)
    add_error_handlers(app, parts)
    for router in (
        worker.router(parts),
        *read_routers(parts),
        health.router(parts),
        openapi.docs_router(app),
        dashboard.router(),
    ):
        app.routes.extend(router.routes)  # include_router would build each of them again
    return app


def read_routers(parts: Context) -> tuple[APIRouter, APIRouter]:
    access = Access(parts.settings, parts.tokens)

    async def reader(request: Request) -> None:
        access.reader(request)

    reading = APIRouter(prefix="/v1", tags=["reading"], dependencies=[Depends(reader), READ_TOKEN, ADMIN_TOKEN])
    parcels.add_list_routes(reading, parts)
    parcels.add_parcel_routes(reading, parts)
    parcels.add_export_routes(reading, parts)
    fleet.add_read_routes(reading, parts)
    ordering = APIRouter(prefix="/v1", tags=["ordering"], dependencies=[ADMIN_TOKEN])
    fleet.add_admin_routes(ordering, parts, access)
    return reading, ordering
