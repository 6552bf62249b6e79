"""The gateway as an ASGI application: routes, error handlers and response headers."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parcelpost.errors import InvalidInput, LedgerError, RawStoreUnavailable
from parcelpost.events import AccessDenied, Event, RequestDeferred, RequestFailed
from parcelpost.gateway import dashboard
from parcelpost.gateway.api.fleet import FleetApi
from parcelpost.gateway.api.health import HealthApi
from parcelpost.gateway.api.parcels import ParcelsApi
from parcelpost.gateway.api.schedules import SchedulesApi
from parcelpost.gateway.api.search import SearchApi
from parcelpost.gateway.api.tasks import TasksApi
from parcelpost.gateway.api.webhooks import WebhooksApi
from parcelpost.gateway.api.worker import WorkerApi
from parcelpost.gateway.auth import Access
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError, error_response, reason_of
from parcelpost.gateway.openapi import docs_routes
from parcelpost.gateway.routes import Caller, Role, starlette_route

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
_DENIALS_EVERY_SECONDS = 1.0
_OUTAGES_EVERY_SECONDS = 10.0


def make_app(context: Context) -> Starlette:
    access = Access(context.settings, context.tokens)
    workers = WorkerApi(context, access)
    table = [
        *workers.routes(),
        *ParcelsApi(context).routes(),
        *SearchApi(context).routes(),
        *FleetApi(context).routes(),
        *TasksApi(context).routes(),
        *WebhooksApi(context).routes(),
        *SchedulesApi(context).routes(),
        *HealthApi(context, access).routes(),
    ]

    async def authorize(role: Role, request: Request, needs_id: bool) -> Caller:
        if role is Role.WORKER:
            return await workers.authorize(request, needs_id)
        if role is Role.READER:
            access.reader(request)
        elif role is Role.ADMIN:
            access.admin(request)
        return Caller()

    routes: list[BaseRoute] = [
        *(starlette_route(route, authorize) for route in table),
        *docs_routes(table, context.version),
        *dashboard.routes(context.map_layers.tile_origin),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(ResponseHeaders, count=context.counters.count_response)],
        exception_handlers=ErrorHandlers(context, routes).by_type,
    )
    app.router.redirect_slashes = False  # it would redirect to whatever the Host header names
    return app


class ResponseHeaders:
    """Adds the headers that every response has. A route may set its own Content-Security-Policy and Cache-Control.

    `count` is called with the status of every response.
    """

    def __init__(self, app: ASGIApp, count: Callable[[int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = secrets.token_hex(8)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(message["status"])
                message["headers"] = with_default_headers(message["headers"], scope["request_id"])
            await send(message)

        await self._app(scope, receive, send_with_headers)


def with_default_headers(given: list[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in given}
    defaults = [(name, text) for name, text in _DEFAULT_HEADERS.items() if name not in names]
    return [*given, *_HEADERS, *defaults, (b"x-request-id", request_id.encode())]


class ErrorHandlers:
    """Turns every exception into the contract's error body, and reports it as an event."""

    def __init__(self, context: Context, routes: list[BaseRoute]) -> None:
        self._context = context
        self._routes = routes
        self._denials = _ThrottledEvents(context, _DENIALS_EVERY_SECONDS)
        self._ledger_outages, self._raw_store_outages = (
            _ThrottledEvents(context, _OUTAGES_EVERY_SECONDS) for _ in range(2)
        )
        self.by_type = {
            HTTPException: self.rejected,
            InvalidInput: self.invalid,
            LedgerError: self.unavailable,
            RawStoreUnavailable: self.unavailable,
            Exception: self.failed,
        }

    async def rejected(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for these
        if error.status_code in {401, 403}:
            client = request.client.host if request.client else ""
            self._denials.emit(
                lambda more: AccessDenied(client=client, path=_path(request), reason=error.detail, more=more)
            )
        if error.status_code == 404 and not isinstance(error, ApiError) and dashboard.wants_page(request):
            return dashboard.missing_page()
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(self._methods(request))
        return error_response(request, error.status_code, error.detail, headers, close=getattr(error, "close", False))

    async def invalid(self, request: Request, error: Exception) -> Response:
        return error_response(request, 422, str(error))

    async def unavailable(self, request: Request, error: Exception) -> Response:
        outages = self._raw_store_outages if isinstance(error, RawStoreUnavailable) else self._ledger_outages
        outages.emit(lambda more: RequestDeferred(path=_path(request), reason=reason_of(error), more=more))
        return error_response(request, 503, str(error), {"Retry-After": "5"})

    async def failed(self, request: Request, error: Exception) -> Response:
        self._context.counters.count_response(500)  # it does not pass through ResponseHeaders
        self._context.emit(RequestFailed(path=_path(request), error=f"{type(error).__name__}: {error}"))
        response = error_response(request, 500, "internal error; see the gateway's log")
        response.raw_headers = with_default_headers(response.raw_headers, request.scope.get("request_id", ""))
        return response

    def _methods(self, request: Request) -> list[str]:
        """The methods that the path allows. Starlette names those of the first route only."""
        scopes = ({**request.scope, "method": method} for method in ("GET", "POST", "DELETE"))
        return [
            scope["method"] for scope in scopes if any(route.matches(scope)[0] is Match.FULL for route in self._routes)
        ]


class _ThrottledEvents:
    """Emits a frequent event once in a while, with how many were skipped since."""

    def __init__(self, context: Context, every_seconds: float) -> None:
        self._context = context
        self._every_seconds = every_seconds
        self._skipped = 0
        self._next_at = 0.0

    def emit(self, event_with: Callable[[int], Event]) -> None:
        now = self._context.clock.monotonic()
        if now < self._next_at:
            self._skipped += 1
            return
        self._context.emit(event_with(self._skipped))
        self._skipped, self._next_at = 0, now + self._every_seconds


def _path(request: Request) -> str:
    return f"{request.method} {request.url.path}"
