"""The OpenAPI document, made from the route table."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from parcelpost.gateway.api.descriptions import FIELDS, PARAMETER_EXAMPLES, PARAMETERS, PATH_PARAMETERS
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
    {
        "in": "header",
        "name": name,
        "schema": {"type": "string"},
        "description": PARAMETERS[name],
        "example": PARAMETER_EXAMPLES[name],
        "required": False,
    }
    for name in ("X-Worker-ID", LEDGER_HEADER)
]


def document(routes: Sequence[Route], version: str) -> Schema:
    """The OpenAPI document of these routes. Every type is one component, with the example it has in EXAMPLES, or that
    a type there contains.
    """
    kinds = [kind for route in routes for kind in (_reply_type(route), _body_type(route), route.unavailable_type)]
    named = [kind for kind in (*kinds, ErrorReply) if kind is not None]
    schemas, components = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    by_type = {str(kind): schema for kind, schema in zip(named, schemas, strict=True)}
    for struct, texts in _field_texts(named).items():
        for name, field in components[struct]["properties"].items():
            text = texts.get(name) or FIELDS.get(f"{struct}.{name}") or FIELDS.get(name)
            if text:
                field.setdefault("description", text)
    for example in _with_parts(EXAMPLES.values()):
        components.get(type(example).__name__, {}).setdefault("examples", [msgspec.json.decode(encode(example))])
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


def _with_parts(examples: Iterable[Any]) -> list[Struct]:
    """Returns the examples, then the structs that they contain."""
    found: list[Struct] = []
    waiting = list(examples)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Struct):
            found.append(node)
            waiting += [getattr(node, name) for name in node.__struct_fields__]
        elif isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, list | tuple):
            waiting += node
    return found


def _field_texts(kinds: Iterable[Any]) -> Mapping[str, Mapping[str, str]]:
    """Returns what the source says of each field, by struct: the docstrings below the fields."""
    texts: dict[str, dict[str, str]] = {}
    for kind in _structs(kinds):
        bases = [base for base in reversed(kind.__mro__) if issubclass(base, Struct) and base is not Struct]
        texts[kind.__name__] = {name: text for base in bases for name, text in _field_docstrings(base).items()}
    return texts


def _structs(kinds: Iterable[Any]) -> Iterator[type[Struct]]:
    """Yields every struct that these types consist of."""
    seen: set[type[Struct]] = set()
    waiting: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while waiting:
        node = waiting.pop()
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls in seen:
                continue
            seen.add(node.cls)
            yield node.cls
        if isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
            waiting += [getattr(node, name) for name in node.__struct_fields__]
        elif isinstance(node, tuple):
            waiting += node


def _field_docstrings(kind: type[Struct]) -> Mapping[str, str]:
    return _docstrings_in(kind.__module__).get(kind.__name__, {})


@cache
def _docstrings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Returns the docstrings of the fields of a module's classes, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(node.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _reply_type(route: Route) -> Any:
    kind = route.reply_type or route.types["return"]
    return None if kind is Response else kind


def _body_type(route: Route) -> Any:
    kind = route.body_type or route.types.get("body")
    return None if kind is bytes else kind


def _operation(route: Route, schemas: Schema) -> Schema:
    name = getattr(route.handler, "__name__", "")
    summary, _, description = (inspect.getdoc(route.handler) or "").partition("\n")
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
        "tags": [_group(route)],
        "summary": summary,
        "description": description.strip(),
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


_GROUPS = {
    "parcels": "Parcels and liens",
    "liens": "Parcels and liens",
    "changes": "Changes and webhooks",
    "webhooks": "Changes and webhooks",
    "search": "Parcels and liens",
    "map": "Parcels and liens",
    "tasks": "Tasks",
    "failures": "Tasks",
    "artifacts": "Tasks",
    "refresh": "Tasks",
    "schedules": "Schedules",
}


def _group(route: Route) -> str:
    """Returns the heading under which the reference lists it."""
    if route.role is Role.WORKER:
        return "Worker protocol"
    if re.search(r"\.\w+$", route.path):
        return "Downloads"
    _, version, *rest = route.path.split("/")
    return _GROUPS.get(rest[0], "Fleet") if version == "v1" and rest else "Monitoring"


def _path_parameter(name: str) -> Schema:
    return {
        "in": "path",
        "name": name,
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": PATH_PARAMETERS[name],
        "example": PARAMETER_EXAMPLES[name],
    }


def _query_parameters(kind: type[Struct]) -> Iterator[Schema]:
    named = msgspec.json.schema(kind)["$defs"]
    schema = _inlined(named[kind.__name__], named)
    for name, value in schema["properties"].items():
        description = value.pop("description", "") or value.get("anyOf", [{}])[0].pop("description", "")
        example = PARAMETER_EXAMPLES[name]
        values = value.get("enum", [example])
        example = example if example in values else values[0]
        yield {
            "in": "query",
            "name": name,
            "schema": value,
            "description": description or PARAMETERS[name],
            "example": [example] if value.get("type") == "array" else example,
            "required": name in schema["required"],
        }


def _inlined(node: Any, named: Mapping[str, Any]) -> Any:
    """Replaces references by what they refer to."""
    if isinstance(node, list):
        return [_inlined(item, named) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(named[node["$ref"].rpartition("/")[2]], named)
    return {name: _inlined(item, named) for name, item in node.items()}


def _decimals_as_numbers(node: Any) -> Any:
    """Money is written as a number, which msgspec does not know."""
    if isinstance(node, list):
        return [_decimals_as_numbers(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "decimal":
        return {**{name: value for name, value in node.items() if name != "format"}, "type": "number"}
    return {name: _decimals_as_numbers(value) for name, value in node.items()}


def docs_routes(routes: Sequence[Route], version: str) -> list[StarletteRoute]:
    """/openapi.json, which the dashboard's /docs page shows."""

    @cache
    def made() -> bytes:
        return msgspec.json.encode(document(routes, version))

    async def openapi(request: Request) -> Response:
        return Response(made(), media_type=JSON)

    return [StarletteRoute("/openapi.json", openapi)]
