"""The OpenAPI document: how routes describe themselves, and the /docs page that shows it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from parcelpost.protocol.payloads import LEDGER_HEADER, ErrorReply


class PlainRoute(APIRoute):
    """In the OpenAPI document as any other, and called with the bare request: nothing is looked up or parsed for it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


_DESCRIPTIONS = {
    400: "It cannot be read",
    401: "A token is needed, or the one given is not known",
    403: "It is not of this machine, and there are no tokens",
    404: "There is no such thing",
    413: "The body is too large",
    415: "The body is packed in a way that is not understood",
    421: "The request is for a gateway with another ledger",
    422: "Something in it is missing or wrong",
    429: "This worker asks too often",
    500: "An error of ours",
    503: "Not now: the ledger or the store of raw files is away",
}
_WORKER_ERRORS = (400, 401, 403, 429, 503)
BODY_ERRORS = (413, 415)
"""What may be wrong with a body."""

Schema = dict[str, Any]

_OPEN = "not needed on a loopback address where no tokens are set at all"
WORKER_TOKEN = Security(
    APIKeyHeader(
        name="X-Worker-Token", scheme_name="workerToken", description=f"A worker's token; {_OPEN}", auto_error=False
    )
)
READ_TOKEN = Security(
    HTTPBearer(
        scheme_name="readToken", description=f"A read token; {_OPEN}, or with server.open_read", auto_error=False
    )
)
ADMIN_TOKEN = Security(HTTPBearer(scheme_name="adminToken", description=f"An admin token; {_OPEN}", auto_error=False))
"""For the document only: `Access` decides. A route with two of them takes either."""


def worker_route(
    words: type[Struct],
    *refusals: int,
    parameters: Sequence[Schema] = (),
    body: Schema | None = None,
    summary: str = "",
) -> dict[str, Any]:
    """Arguments for `add_api_route`: the answer's form, every refusal, the query and the body."""
    extra: Schema = {"parameters": [*_WORKER_HEADERS, *parameters]}
    if body:
        extra["requestBody"] = body
    return {
        "response_model": None,
        "summary": summary,
        "responses": json_responses(schema_of(words), *_WORKER_ERRORS, 421, *refusals),
        "openapi_extra": extra,
    }


def json_responses(schema: Schema, *refusals: int) -> dict[int | str, Schema]:
    """The `responses` of a route that answers with such JSON, or refuses."""
    problem = {"application/json": {"schema": schema_of(ErrorReply)}}
    refused: dict[int | str, Schema] = {
        status: {"description": _DESCRIPTIONS[status], "content": problem} for status in sorted(set(refusals))
    }
    return {200: {"description": "Done", "content": {"application/json": {"schema": schema}}}, **refused}


@cache
def schema_of(words: Any) -> Schema:
    """A type's JSON schema, whole in one piece."""
    found = msgspec.json.schema(words)
    named = found.pop("$defs", {})
    schema = _inlined(found, named)
    assert isinstance(schema, dict)  # noqa: S101 - a schema is an object
    return schema


def json_body(words: Any, *, required: bool = True) -> Schema:
    return {"required": required, "content": {"application/json": {"schema": schema_of(words)}}}


def query_param(name: str, schema: Schema, description: str, *, required: bool = False) -> Schema:
    return {"in": "query", "name": name, "schema": schema, "description": description, "required": required}


def header_param(name: str, description: str) -> Schema:
    return {"in": "header", "name": name, "schema": {"type": "string"}, "description": description, "required": False}


_WORKER_HEADERS = (
    header_param("X-Worker-ID", "The worker's stable id"),
    header_param(
        LEDGER_HEADER, "Which ledger is meant, as an earlier answer's header of that name said; another is 421"
    ),
)


def _inlined(schema: Any, named: Schema) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, named) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(named[schema["$ref"].rsplit("/", 1)[-1]], named)
    return {name: _inlined(one, named) for name, one in schema.items()}


Responses = dict[int | str, Schema]

_READ_ERRORS = (401, 403, 422, 503)


def responses(kind: type[Struct], *refusals: int) -> Responses:
    """200 with that, or one of the refusals."""
    return json_responses(_decimals_as_numbers(schema_of(kind)), *_READ_ERRORS, *refusals)


def download_responses(media_type: str, *refusals: int) -> Responses:
    said = json_responses({}, *_READ_ERRORS, *refusals)
    return {**said, 200: {"description": "A file", "content": {media_type: {"schema": {"type": "string"}}}}}


def request_body(kind: Any, *others: str) -> dict[str, Any]:
    """For `openapi_extra` of a route that reads its body itself."""
    body = json_body(kind)
    body["content"] |= {media_type: {"schema": {"type": "string"}} for media_type in others}
    return {"requestBody": body}


def _decimals_as_numbers(node: Any) -> Any:
    """Money is written as a number, which msgspec cannot know."""
    if isinstance(node, list):
        return [_decimals_as_numbers(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "decimal":
        return {"type": "number"}
    return {name: _decimals_as_numbers(value) for name, value in node.items()}


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font: 1rem ui-monospace, monospace; border-top: 1px solid; padding-top: 1rem; margin-top: 2rem; }
b { display: inline-block; min-width: 4rem; }
td, th { text-align: left; padding: 0 1rem 0 0; vertical-align: top; }
"""
_DOCS_POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)


def docs_router(app: FastAPI) -> APIRouter:
    routes = APIRouter()

    @routes.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse("".join(_docs_page(app.openapi())), headers={"Content-Security-Policy": _DOCS_POLICY})

    return routes


def _docs_page(document: dict[str, Any]) -> Iterator[str]:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    yield f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    yield '<meta name="viewport" content="width=device-width"></head><body>'
    yield f'<h1>{title}</h1><p>For programs: <a href="/openapi.json">openapi.json</a></p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _docs_operation(method, path, operation)
    yield "</body></html>"


def _docs_operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
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
