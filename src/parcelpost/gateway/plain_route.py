"""Routes for what comes often."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class PlainRoute(APIRoute):
    """In the OpenAPI document as any other, and called with the bare request: nothing is looked up or parsed for it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint
