"""What the OpenAPI document says of the requests that workers make."""

from __future__ import annotations

from typing import Any

from parcelpost.gateway.declared import json_body, query, schema_of
from parcelpost.model import Signal
from parcelpost.protocol.payloads import Completion, Failure, Heartbeat, ParcelResult, RawMetadata

_NAME = {"type": "string", "minLength": 1, "maxLength": 500}


_RESULT = schema_of(ParcelResult)
_RESULT = {
    **_RESULT,
    "properties": {
        **_RESULT["properties"],
        "data": {"type": "object"},
        "raw_html_hash": {"type": ["string", "null"], "pattern": "^[0-9a-fA-F]{64}$"},
    },
}
_SAMPLE = {
    "type": "object",
    "properties": {"timestamp": {"type": "string", "format": "date-time"}},
    "additionalProperties": {"type": ["number", "null"]},
    "required": ["timestamp"],
}
_BEAT = {**schema_of(Heartbeat), "required": []}

WORK_IS = "Hand out tasks"
WORK = (
    query("capacity", {"type": "integer", "default": 1}, "How many at most; taken as 1 to 100"),
    query("platforms", {"type": "array", "items": _NAME, "minItems": 1}, "Once for each platform", required=True),
)
SELECTORS = (query("platform", {"type": "string", "maxLength": 512}, "Of this platform; without it of all"),)
TASK = ({"in": "path", "name": "task_id", "schema": _NAME, "required": True},)


def _array(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"type": "array", "items": schema}}}}


RESULTS = _array(_RESULT)
SIGNALS = _array(schema_of(Signal))
SAMPLES = _array(_SAMPLE)
BEAT = {"required": True, "content": {"application/json": {"schema": _BEAT}}}
FAILURE = json_body(Failure, required=False)
COMPLETION = json_body(Completion, required=False)
RAW_FILE = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "metadata": {"type": "string", "contentMediaType": "application/json"},
                },
                "required": ["file", "metadata"],
                "description": f"metadata: {', '.join(RawMetadata.__struct_fields__)}",
            }
        }
    },
}
