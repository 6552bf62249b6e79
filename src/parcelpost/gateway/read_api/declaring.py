"""Every route's answers as the OpenAPI document names them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from parcelpost.gateway import declared
from parcelpost.gateway.declared import Schema, schema_of

Answers = dict[int | str, Schema]

_ALWAYS = (401, 403, 422, 503)


def answers(kind: type[Struct], *refusals: int) -> Answers:
    """200 with that, or one of the refusals."""
    return declared.answers(_with_numbers(schema_of(kind)), *_ALWAYS, *refusals)


def download(media_type: str, *refusals: int) -> Answers:
    said = declared.answers({}, *_ALWAYS, *refusals)
    return {**said, 200: {"description": "A file", "content": {media_type: {"schema": {"type": "string"}}}}}


def body_of(kind: Any, *others: str) -> dict[str, Any]:
    """For `openapi_extra` of a route that reads its body itself."""
    body = declared.json_body(kind)
    body["content"] |= {media_type: {"schema": {"type": "string"}} for media_type in others}
    return {"requestBody": body}


def _with_numbers(node: Any) -> Any:
    """Money is written as a number, which msgspec cannot know."""
    if isinstance(node, list):
        return [_with_numbers(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "decimal":
        return {"type": "number"}
    return {name: _with_numbers(value) for name, value in node.items()}
