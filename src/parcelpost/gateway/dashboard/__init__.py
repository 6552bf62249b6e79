"""The dashboard's files. They hold no data: the page requests it from the read API with the reader's token."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from parcelpost.gateway.errors import ApiError

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "img-src 'self' blob:"
)
"""Ends with what images may come from."""
_RAW_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of the page that shows a county's raw page in a sandboxed frame, which inherits it."""


class _File:
    def __init__(self, name: str, body: bytes, policy: str) -> None:
        self.body = body
        self.headers = {
            "Content-Type": f"{_TYPES[name[name.rindex('.') :]]}; charset=utf-8",
            "Content-Security-Policy": _RAW_PAGE_POLICY if name == "page.html" else policy,
            "Cache-Control": "no-cache",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        }


def routes(tile_origin: str) -> list[Route]:
    """`/` and `/docs`, which are one page, and its files. Only the map's tiles may come from elsewhere."""
    policy = f"{_POLICY} {tile_origin}".rstrip()
    known = {
        file.name: _File(file.name, file.read_bytes(), policy)
        for file in files(__package__).iterdir()
        if file.name.endswith(tuple(_TYPES))
    }

    async def page(request: Request) -> Response:
        return _response(known["index.html"], request)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in known:
            raise ApiError(404, "the dashboard has no such file")
        return _response(known[name], request)

    return [Route("/", page), Route("/docs", page), Route("/dashboard/{name}", file)]


def wants_page(request: Request) -> bool:
    """Whether somebody opened this address in a browser."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def missing_page() -> Response:
    """The page that says that there is none at this address."""
    file = _File("index.html", (files(__package__) / "index.html").read_bytes(), _POLICY)
    return Response(file.body, 404, headers=file.headers)


def _response(file: _File, request: Request) -> Response:
    if request.headers.get("if-none-match") == file.headers["ETag"]:
        return Response(status_code=304, headers=file.headers)
    return Response(file.body, headers=file.headers)
