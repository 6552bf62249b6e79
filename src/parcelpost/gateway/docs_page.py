"""/docs: the OpenAPI document as one plain page that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font: 1rem ui-monospace, monospace; border-top: 1px solid; padding-top: 1rem; margin-top: 2rem; }
b { display: inline-block; min-width: 4rem; }
td, th { text-align: left; padding: 0 1rem 0 0; vertical-align: top; }
"""
_POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)


def router(app: FastAPI) -> APIRouter:
    routes = APIRouter()

    @routes.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse("".join(_page(app.openapi())), headers={"Content-Security-Policy": _POLICY})

    return routes


def _page(document: dict[str, Any]) -> Iterator[str]:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    yield f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    yield '<meta name="viewport" content="width=device-width"></head><body>'
    yield f'<h1>{title}</h1><p>For programs: <a href="/openapi.json">openapi.json</a></p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method, path, operation)
    yield "</body></html>"


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><b>{escape(method.upper())}</b> {escape(path)}</h2>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p><table>"
    for parameter in operation.get("parameters", ()):
        needed = " (required)" if parameter.get("required") else ""
        words = escape(parameter.get("description", ""))
        yield f"<tr><td>{escape(parameter['name'])}</td><td>{escape(parameter['in'])}{needed}</td><td>{words}</td></tr>"
    schemes = ", ".join(name for one in operation.get("security", ()) for name in one)
    if schemes:
        yield f"<tr><td>token</td><td>{escape(schemes)}</td><td></td></tr>"
    for kind in operation.get("requestBody", {}).get("content", ()):
        yield f"<tr><td>body</td><td>{escape(kind)}</td><td></td></tr>"
    for status, answer in operation["responses"].items():
        yield f"<tr><td>{escape(status)}</td><td>answer</td><td>{escape(answer['description'])}</td></tr>"
    yield "</table>"
