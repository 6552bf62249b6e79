"""The route table. Each route is declared once: routing and the OpenAPI document are both made from it.

A handler's signature says what it takes and returns. Its arguments are filled by name: `request`, `query` (the query
parameters as a Struct), `body` (bytes, or a Struct that the JSON must fit), `worker_id`, and the path's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from parcelpost.errors import InvalidInput
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.uploads import read_body

T = TypeVar("T")

SMALL_BODY_BYTES = 64 * 1024
JSON = "application/json"

_INVALID_FIELD = re.compile(r"(.*) - at `\$\.([^`\[]*).*`", re.DOTALL)
_INVALID_NAME = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)
_PATH_PARAMETER = re.compile(r"{(\w+)(?::path)?}")

encode = msgspec.json.Encoder(decimal_format="number").encode
"""Money is written as a number, exactly."""


class Role(StrEnum):
    """Who may call a route."""

    PUBLIC = "public"
    READER = "reader"
    ADMIN = "admin"
    WORKER = "worker"


class Caller(NamedTuple):
    worker_id: str = ""
    headers: Mapping[str, str] = {}
    """Headers of the response."""


Authorize = Callable[[Role, Request, bool], Awaitable[Caller]]
"""Returns a caller that has the role, or raises ApiError. The flag: whether the route needs the caller's worker id."""


class Route(Struct, frozen=True):
    method: str
    path: str
    handler: Callable[..., Awaitable[Struct | Response]]
    """Its docstring is the route's description."""
    role: Role
    errors: tuple[int, ...] = ()
    """Besides those of the role, the query and the body."""
    body_type: Any = None
    """Schema of the body, for a handler that reads `body` (bytes) or `request` itself."""
    body_media_types: tuple[str, ...] = (JSON,)
    body_required: bool = True
    max_body_bytes: int = SMALL_BODY_BYTES
    reply_type: Any = None
    """Schema of the response, for a handler that returns a Response."""
    media_type: str = JSON
    """Media type of the response."""
    unavailable_type: Any = None
    """Schema of a 503 response, if it is not an error message."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The types of the handler's arguments, and of its `return`."""
        return get_type_hints(self.handler)

    @property
    def path_parameters(self) -> list[str]:
        return _PATH_PARAMETER.findall(self.path)


def starlette_route(route: Route, authorize: Authorize) -> StarletteRoute:
    return StarletteRoute(route.path, _endpoint(route, authorize), methods=[route.method])


def _endpoint(route: Route, authorize: Authorize) -> Callable[[Request], Awaitable[Response]]:
    types = route.types
    query_type, body_type = types.get("query"), types.get("body")
    takes_request, needs_id = "request" in types, "worker_id" in types
    names = [name for name in route.path_parameters if name in types]

    async def respond(request: Request) -> Response:
        caller = await authorize(route.role, request, needs_id)
        arguments: dict[str, Any] = {name: request.path_params[name] for name in names}
        if needs_id:
            arguments["worker_id"] = caller.worker_id
        if takes_request:
            arguments["request"] = request
        if query_type is not None:
            arguments["query"] = read_query(query_type, request.query_params)
        if body_type is not None:
            body = await read_body(request, route.max_body_bytes)
            arguments["body"] = body if body_type is bytes else _read_json(body_type, body)
        reply = await route.handler(**arguments)
        if isinstance(reply, Response):
            reply.headers.update(caller.headers)
            return reply
        return Response(encode(reply), headers=caller.headers, media_type=JSON)

    return _with_bad_request(respond) if route.role is Role.WORKER else respond


def _with_bad_request(
    respond: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """The worker contract has 400 where the rest of the API has 422."""

    async def respond_400(request: Request) -> Response:
        try:
            return await respond(request)
        except InvalidInput as error:
            raise ApiError(400, str(error)) from None

    return respond_400


def read_query(kind: type[T], given: QueryParams) -> T:
    """Raises ApiError (422) naming the parameter."""
    lists = _list_fields(kind)  # type: ignore[arg-type]  # a class is hashable
    values = {name: given.getlist(name) if name in lists else text for name, text in given.items()}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(422, _query_problem(str(error))) from None


@cache
def _list_fields(kind: Any) -> set[str]:
    """The parameters that may be repeated."""
    return {name for name, hint in get_type_hints(kind).items() if get_origin(hint) is list}


def _query_problem(message: str) -> str:
    if match := _INVALID_NAME.fullmatch(message):
        return f"{match[2]}: {'unknown parameter' if 'unknown' in match[1] else 'this parameter is required'}"
    if match := _INVALID_FIELD.fullmatch(message):
        return f"{match[2]}: {match[1][0].lower()}{match[1][1:].replace('`', '')}"
    return message


def _read_json(kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise ApiError(422, f"invalid body: {error}") from None
