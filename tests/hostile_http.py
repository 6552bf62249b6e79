"""As much HTTP/1.1 as the hostile gateway needs, and what the Go one takes for a batch of results."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from http.client import responses
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

Json = Any


class Request(NamedTuple):
    method: str
    name: str
    """work, results, raw-files, complete, fail, heartbeat, signals, selectors or metrics; '' for anything else."""
    task_id: str
    """Of complete and fail, decoded."""
    target: str
    """As it came: path and query."""
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    """Lower-case names."""
    body: bytes
    """Unpacked."""

    def json(self) -> Json:
        return json.loads(self.body)


class Reply(NamedTuple):
    status: int
    body: Json = None
    """Bytes are sent as they are, anything else as JSON."""
    headers: Mapping[str, str] = {}

    def encoded(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **self.headers}
        return head(self.status, headers) + body


async def read_request(reader: asyncio.StreamReader, base_path: str) -> Request:
    """The next request of a connection, whole. Raises IncompleteReadError when the client has left."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    parts = urlsplit(target)
    segments = (
        parts.path.removeprefix(base_path.rstrip("/") + "/").split("/") if parts.path.startswith(base_path) else []
    )
    task_id = ""
    if len(segments) == 3 and segments[0] == "tasks":
        task_id, segments = unquote(segments[1]), segments[2:]
    name = segments[0] if len(segments) == 1 and (task_id or segments[0] not in {"complete", "fail"}) else ""
    return Request(method, name, task_id, target, parse_qs(parts.query), headers, body)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The first lines of an answer."""
    lines = [
        f"HTTP/1.1 {status} {responses.get(status, 'Odd')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Part(NamedTuple):
    filename: str
    body: bytes


def form(request: Request) -> dict[str, Part]:
    """The parts of a multipart/form-data body, by their names."""
    _, _, boundary = request.headers.get("content-type", "").partition("boundary=")
    parts: dict[str, Part] = {}
    for piece in request.body.split(b"--" + boundary.encode())[1:-1] if boundary else ():
        lines, _, body = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        words = dict(word.strip().split("=", 1) for word in lines.decode().split(";") if "=" in word)
        fields = {name: value.split("\r\n")[0].strip('"') for name, value in words.items()}
        parts[fields["name"]] = Part(fields.get("filename", ""), body.removesuffix(b"\r\n"))
    return parts


def batch_problem(entries: Json) -> str:
    """Why the Go one refuses the whole body, '' if it does not."""
    if not isinstance(entries, list):
        return "the body is not an array"
    for entry in entries:
        if not isinstance(entry, dict):
            return "an entry is not an object"
        for name in ("task_id", "parcel_id", "platform", "state", "county"):
            if not isinstance(entry.get(name), str):
                return f"{name} is not text"
        if not isinstance(entry.get("data"), dict) or type(entry.get("parse_duration_ms")) is not int:
            return "data is not an object, or parse_duration_ms no whole number"
        with contextlib.suppress(ValueError, TypeError):
            if datetime.fromisoformat(entry["scraped_at"]).tzinfo is not None:
                continue
        return "scraped_at is not RFC 3339 with a zone"
    return ""
