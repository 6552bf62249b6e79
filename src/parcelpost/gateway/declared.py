"""What a route's place in the OpenAPI document says. The routes take the bare request: nothing is parsed twice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from fastapi import Security
from fastapi.security import APIKeyHeader, HTTPBearer
from msgspec import Struct

from parcelpost.protocol.payloads import LEDGER_HEADER, ErrorReply

_WORDS = {
    400: "It cannot be read",
    401: "A token is needed, or the one given is not known",
    403: "It is not of this machine, and there are no tokens",
    404: "There is no such thing",
    408: "The body came too slowly",
    413: "The body is too large",
    415: "The body is packed in a way that is not understood",
    421: "The request is for a gateway with another ledger",
    422: "Something in it is missing or wrong",
    429: "This worker asks too often",
    500: "An error of ours",
    503: "Not now: the ledger or the store of raw files is away",
}
_ALWAYS = (400, 401, 403, 429, 503)
BODIES = (408, 413, 415)
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


def declared(
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
        "responses": answers(schema_of(words), *_ALWAYS, 421, *refusals),
        "openapi_extra": extra,
    }


def answers(schema: Schema, *refusals: int) -> dict[int | str, Schema]:
    """The `responses` of a route that answers with such JSON, or refuses."""
    problem = {"application/json": {"schema": schema_of(ErrorReply)}}
    refused: dict[int | str, Schema] = {
        status: {"description": _WORDS[status], "content": problem} for status in sorted(set(refusals))
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


def query(name: str, schema: Schema, description: str, *, required: bool = False) -> Schema:
    return {"in": "query", "name": name, "schema": schema, "description": description, "required": required}


def header(name: str, description: str) -> Schema:
    return {"in": "header", "name": name, "schema": {"type": "string"}, "description": description, "required": False}


_WORKER_HEADERS = (
    header("X-Worker-ID", "The worker's stable id"),
    header(LEDGER_HEADER, "Which ledger is meant, as an earlier answer's header of that name said; another is 421"),
)


def _inlined(schema: Any, named: Schema) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, named) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(named[schema["$ref"].rsplit("/", 1)[-1]], named)
    return {name: _inlined(one, named) for name, one in schema.items()}
