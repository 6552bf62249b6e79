"""The OpenAPI document, made from the route table, and the /docs page that shows it."""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as StarletteRoute

from parcelpost.gateway.api.examples import EXAMPLES
from parcelpost.gateway.routes import JSON, Role, Route, encode
from parcelpost.protocol.payloads import LEDGER_HEADER, ErrorReply

Schema = dict[str, Any]

_DESCRIPTIONS = {
    400: "The request is malformed",
    401: "The token is missing or unknown",
    403: "The request is not local and no tokens are configured, or the worker ID belongs to another token",
    404: "Not found",
    409: "The name is already taken",
    413: "The body is too large",
    415: "The body's Content-Encoding is not supported",
    421: "The request is for a gateway with another ledger",
    422: "A parameter or a field is missing or invalid",
    429: "Too many requests; see Retry-After",
    501: "The gateway lacks a package that this format needs",
    503: "Temporarily unavailable: the ledger or the raw file store cannot be reached",
}
_ROLE_ERRORS = {
    Role.PUBLIC: (),
    Role.READER: (401, 403, 503),
    Role.ADMIN: (401, 403, 503),
    Role.WORKER: (400, 401, 403, 421, 429, 503),
}
_NO_TOKENS = "not needed on a loopback address where no tokens are configured"
_SECURITY_SCHEMES = {
    "workerToken": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Worker-Token",
        "description": f"A worker token; {_NO_TOKENS}",
    },
    "readToken": {
        "type": "http",
        "scheme": "bearer",
        "description": f"A read token; {_NO_TOKENS}, or with server.open_read",
    },
    "adminToken": {"type": "http", "scheme": "bearer", "description": f"An admin token; {_NO_TOKENS}"},
}
_SECURITY: dict[Role, list[dict[str, list[str]]]] = {
    Role.PUBLIC: [],
    Role.READER: [{"readToken": []}, {"adminToken": []}],
    Role.ADMIN: [{"adminToken": []}],
    Role.WORKER: [{"workerToken": []}],
}
_WORKER_HEADERS = [
    {"in": "header", "name": name, "schema": {"type": "string"}, "description": description, "required": False}
    for name, description in (
        ("X-Worker-ID", "The worker's stable ID"),
        (LEDGER_HEADER, "The ledger that the worker expects: the value of this header in an earlier response"),
    )
]


def document(routes: Sequence[Route], version: str) -> Schema:
    """The OpenAPI document of these routes. Every type is one component, with the example it has in EXAMPLES."""
    kinds = [kind for route in routes for kind in (_reply_type(route), _body_type(route), route.unavailable_type)]
    named = [kind for kind in (*kinds, ErrorReply) if kind is not None]
    schemas, components = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    by_type = {str(kind): schema for kind, schema in zip(named, schemas, strict=True)}
    for kind, example in EXAMPLES.items():
        components[kind.__name__]["examples"] = [msgspec.json.decode(encode(example))]
    paths: dict[str, Schema] = {}
    for route in routes:
        path = re.sub(r":path}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_type)
    schema: Schema = _decimals_as_numbers(
        {
            "openapi": "3.1.0",
            "info": {"title": "Parcelpost gateway", "version": version},
            "paths": paths,
            "components": {"schemas": components, "securitySchemes": _SECURITY_SCHEMES},
        }
    )
    return schema


def _reply_type(route: Route) -> Any:
    kind = route.reply_type or route.types["return"]
    return None if kind is Response else kind


def _body_type(route: Route) -> Any:
    kind = route.body_type or route.types.get("body")
    return None if kind is bytes else kind


def _operation(route: Route, schemas: Schema) -> Schema:
    name = getattr(route.handler, "__name__", "")
    description = inspect.getdoc(route.handler) or ""
    body, query = _body_type(route), route.types.get("query")
    problem = {JSON: {"schema": schemas[str(ErrorReply)]}}
    statuses = {*_ROLE_ERRORS[route.role], *route.errors}
    if body is not None:
        statuses |= {400, 413, 415}
    if query is not None or (isinstance(body, type) and route.role is Role.ADMIN):
        statuses.add(422)
    reply = _reply_type(route)
    file = {"type": "object" if route.media_type.endswith("+json") else "string"}
    content = {"schema": file if reply is None else schemas[str(reply)]}
    responses: Schema = {"200": {"description": "Success", "content": {route.media_type: content}}}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _DESCRIPTIONS[status], "content": problem}
    if route.unavailable_type is not None:
        content = {JSON: {"schema": schemas[str(route.unavailable_type)]}}
        responses["503"] = {"description": _DESCRIPTIONS[503], "content": content}
    operation: Schema = {
        "operationId": name,
        "tags": [route.role.value],
        "summary": description.partition("\n")[0],
        "description": description,
        "parameters": [
            *(_WORKER_HEADERS if route.role is Role.WORKER else ()),
            *map(_path_parameter, route.path_parameters),
            *(_query_parameters(query) if query is not None else ()),
        ],
        "security": _SECURITY[route.role],
        "responses": responses,
    }
    if body is not None:
        others = {kind: {"schema": {"type": "string"}} for kind in route.body_media_types[1:]}
        content = {route.body_media_types[0]: {"schema": schemas[str(body)]}, **others}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    return operation


def _path_parameter(name: str) -> Schema:
    return {"in": "path", "name": name, "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(kind: type[Struct]) -> Iterator[Schema]:
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]
    for name, value in schema["properties"].items():
        description = value.pop("description", "")
        required = name in schema["required"]
        yield {"in": "query", "name": name, "schema": value, "description": description, "required": required}


def _decimals_as_numbers(node: Any) -> Any:
    """Money is written as a number, which msgspec does not know."""
    if isinstance(node, list):
        return [_decimals_as_numbers(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "decimal":
        return {**{name: value for name, value in node.items() if name != "format"}, "type": "number"}
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


def docs_routes(routes: Sequence[Route], version: str) -> list[StarletteRoute]:
    """/openapi.json and /docs."""

    @cache
    def made() -> Schema:
        return document(routes, version)

    async def openapi(request: Request) -> Response:
        return Response(msgspec.json.encode(made()), media_type=JSON)

    async def docs(request: Request) -> Response:
        return HTMLResponse("".join(_docs_page(made())), headers={"Content-Security-Policy": _DOCS_POLICY})

    return [StarletteRoute("/openapi.json", openapi), StarletteRoute("/docs", docs)]


def _docs_page(document: Schema) -> Iterator[str]:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    yield f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    yield '<meta name="viewport" content="width=device-width"></head><body>'
    yield f'<h1>{title}</h1><p>With schemas and examples: <a href="/openapi.json">openapi.json</a></p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _docs_operation(method, path, operation)
    yield "</body></html>"


def _docs_operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield f"<h2><b>{escape(method.upper())}</b> {escape(path)}</h2><p>{escape(operation['description'])}</p><table>"
    for parameter in operation["parameters"]:
        required = " (required)" if parameter["required"] else ""
        description = escape(parameter.get("description", ""))
        yield f"<tr><td>{escape(parameter['name'])}</td><td>{parameter['in']}{required}</td><td>{description}</td></tr>"
    if operation["security"]:
        schemes = ", ".join(name for scheme in operation["security"] for name in scheme)
        yield f"<tr><td>token</td><td>{escape(schemes)}</td><td></td></tr>"
    for kind in operation.get("requestBody", {}).get("content", ()):
        yield f"<tr><td>body</td><td>{escape(kind)}</td><td></td></tr>"
    for status, response in operation["responses"].items():
        yield f"<tr><td>{escape(status)}</td><td>response</td><td>{escape(response['description'])}</td></tr>"
    yield "</table>"
