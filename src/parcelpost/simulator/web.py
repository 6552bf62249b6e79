"""Requests and responses of simulated sites, and how their pages are laid out and formatted."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

HTML = "text/html; charset=utf-8"
JSON = "application/json; charset=utf-8"
CSV = "text/csv; charset=utf-8"


class Request(Struct, frozen=True, kw_only=True):
    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    base: str = ""
    """Prefix of the site's own paths on this server."""

    @property
    def path(self) -> str:
        """Within its site."""
        return urlsplit(self.target).path.removeprefix(self.base)

    @property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def form(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.body.decode("latin-1"), keep_blank_values=True))

    @property
    def cookies(self) -> Mapping[str, str]:
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return {name: value for name, _, value in pairs if name}


class Response(Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    content_type: str = HTML
    headers: Mapping[str, str] = {}


def json_response(value: object) -> Response:
    return Response(body=msgspec.json.encode(value), content_type=JSON)


def html_page(text: str) -> Response:
    return Response(body=text.encode())


NOT_FOUND = Response(status=404, body=b"<html><head><title>404</title></head><body>Not found</body></html>")


def not_modified(request: Request, response: Response) -> Response:
    """304 where the asker has this very page."""
    if response.status != 200:
        return response
    tag = f'"{zlib.crc32(response.body):08x}"'
    headers = {"ETag": tag, **response.headers}
    if tag in request.headers.get("if-none-match", "").replace("W/", "").split(", "):
        return Response(status=304, headers=headers, content_type=response.content_type)
    return msgspec.structs.replace(response, headers=headers)


class Layout(Struct, frozen=True):
    redesigned: bool = False

    def name(self, ident: str) -> str:
        """An id or a class."""
        return f"v2-{zlib.crc32(ident.encode()):08x}" if self.redesigned else ident

    def order(self, blocks: Sequence[str]) -> str:
        return "\n".join(reversed(blocks) if self.redesigned else blocks)


def whole_number(text: str | None, otherwise: int) -> int:
    """Of a parameter; `otherwise` if it is missing or is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else otherwise


def dollars(amount: int) -> str:
    return f"${amount:,}"


def cents(amount: int) -> str:
    return f"${amount // 100:,}.{amount % 100:02}"


def us_date(day: date, *, zeros: bool = False) -> str:
    return f"{day:%m/%d/%Y}" if zeros else f"{day.month}/{day.day}/{day.year}"
