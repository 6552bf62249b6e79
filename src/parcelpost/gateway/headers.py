"""What every answer carries, and a number for every request. Pure ASGI: it costs next to nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EVERYWHERE = [
    (b"accept-encoding", b"gzip, zstd"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_UNLESS_SAID = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}


class Headers:
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
                message["headers"] = complete(message["headers"], scope["request_id"])
            await send(message)

        await self._app(scope, receive, send_with_headers)


def complete(given: list[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    said = {name for name, _ in given}
    rest = [(name, text) for name, text in _UNLESS_SAID.items() if name not in said]
    return [*given, *_EVERYWHERE, *rest, (b"x-request-id", request_id.encode())]
