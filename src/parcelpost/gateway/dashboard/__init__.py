"""The dashboard's files. They hold no data: what the page shows, it asks of the read API with its reader's token."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from parcelpost.gateway.errors import ApiError

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"


class _File:
    def __init__(self, name: str, body: bytes) -> None:
        self.body = body
        self.headers = {
            "Content-Type": f"{_TYPES[name[name.rindex('.') :]]}; charset=utf-8",
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-cache",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        }


def router() -> APIRouter:
    """`/` and what it loads from /dashboard."""
    routes = APIRouter(include_in_schema=False)
    known = {
        file.name: _File(file.name, file.read_bytes())
        for file in files(__package__).iterdir()
        if file.name.endswith(tuple(_TYPES))
    }

    @routes.get("/")
    async def page(request: Request) -> Response:
        return _answer(known["index.html"], request)

    @routes.get("/dashboard/{name}")
    async def file(request: Request, name: str) -> Response:
        if name not in known:
            raise ApiError(404, "the dashboard has no such file")
        return _answer(known[name], request)

    return routes


def _answer(file: _File, request: Request) -> Response:
    if request.headers.get("if-none-match") == file.headers["ETag"]:
        return Response(status_code=304, headers=file.headers)
    return Response(file.body, headers=file.headers)
