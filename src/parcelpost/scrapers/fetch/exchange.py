"""One HTTP request and its response, within time and size limits, and the meaning of responses that are not pages."""

from __future__ import annotations

import asyncio
import re
import zlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpcore2
import httpx2
from msgspec import Struct

from parcelpost import __version__, private_addresses
from parcelpost.model import Page
from parcelpost.scrapers.fetch.errors import (
    SIGN_IN_REQUIRED,
    TERMS_REQUIRED,
    CannotFetch,
    FetchFailed,
    PageNotFound,
    RetryLater,
    SiteBlocked,
    find_challenge,
)

_MAX_ERROR_BODY_BYTES = 64 * 1024
_MAX_PARTS = 10_000
_WITH_HEADER, _WITHOUT_HEADER = 47, -15
_ENCODINGS = {"": 0, "identity": 0, "gzip": 31, "x-gzip": 31, "deflate": _WITH_HEADER}
"""Content encoding -> `wbits` of zlib; 0: not compressed."""


class FetchOptions(Struct, frozen=True, kw_only=True):
    """The settings of section `fetch`; see docs/settings.md."""

    user_agent: str = f"parcelpost/{__version__}"
    pace_seconds: float = 1.0
    concurrency_per_host: int = 2
    processes: int = 1
    """How many of them send requests to the same hosts: each waits that many times as long between two requests."""
    timeout_seconds: float = 60.0
    max_page_bytes: int = 32 * 1024**2
    proxy: str = ""
    proxy_login: str = ""
    allow_private: tuple[str, ...] = ()
    obey_robots: bool = True


class FetchGuard(private_addresses.Guard):
    """Refuses private addresses to county sites, as a fetch that fails."""

    setting = "fetch.allow_private"
    refused = CannotFetch
    no_address = RetryLater


class Response(Struct, frozen=True, kw_only=True):
    url: httpx2.URL
    status: int
    headers: httpx2.Headers
    body: bytes
    """Decompressed; only the beginning if the status is an error."""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class Exchange:
    """Sends requests within `timeout_seconds`; a body may have `max_page_bytes`, compressed or not."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, timeout_seconds: float, max_page_bytes: int) -> None:
        self._pool = pool
        self._timeout = timeout_seconds
        self._limit = max_page_bytes

    async def send(self, request: httpx2.Request) -> Response:
        """Returns the response, whatever its status. Raises RetryLater, and CannotFetch if the body is too large."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(request)
        except TimeoutError:
            problem = f"no complete response within {self._timeout:g} s"
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, zlib.error) as error:
            problem = f"{type(error).__name__} {error}".strip()
        except httpcore2.ProxyError as error:
            problem = f"the proxy refused: {error}"
        raise RetryLater(f"{_url_without_query(request.url)}: {problem}"[:300])

    async def _send(self, request: httpx2.Request) -> Response:
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        async with self._pool.stream(
            request.method, target, headers=request.headers.raw, content=request.content
        ) as response:
            headers = httpx2.Headers(response.headers)
            body = await self._body(url, response, headers)
            return Response(url=url, status=response.status, headers=headers, body=body)

    async def _body(self, url: httpx2.URL, response: httpcore2.Response, headers: httpx2.Headers) -> bytes:
        good = 200 <= response.status < 300
        limit = self._limit if good else _MAX_ERROR_BODY_BYTES
        decompressor = _decompressor(url, headers.get("content-encoding", ""))
        received = bytearray()
        compressed = 0
        async for chunk in response.aiter_stream():
            compressed += len(chunk)
            received += decompressor.decompress(chunk, limit + 1 - len(received))
            if max(compressed, len(received)) > limit:
                if good:
                    raise CannotFetch(f"{_url_without_query(url)} is longer than {limit:,} bytes")
                return bytes(received[:limit])
        if not decompressor.is_complete:
            raise RetryLater(f"{_url_without_query(url)} is incomplete")
        return bytes(received)


class _Decompressor(Protocol):
    @property
    def is_complete(self) -> bool: ...

    def decompress(self, chunk: bytes, room: int) -> bytes: ...


class _Identity:
    is_complete = True

    def decompress(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Unzip:
    """Never produces more than there is room for, so a zip bomb does no harm."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._zlib = zlib.decompressobj(wbits)
        self._parts = 0

    @property
    def is_complete(self) -> bool:
        return self._zlib.eof or not self._parts

    def decompress(self, chunk: bytes, room: int) -> bytes:
        output = b""
        while chunk and len(output) < room:
            if self._zlib.eof or not self._parts:
                self._begin_part(chunk[0])
            output += self._zlib.decompress(chunk, room - len(output))
            chunk = self._zlib.unused_data
        return output

    def _begin_part(self, first: int) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise zlib.error(f"compressed in more than {_MAX_PARTS:,} parts")
        # Some servers send "deflate" without its header, which the first byte reveals.
        has_no_header = self._wbits == _WITH_HEADER and first & 0x0F != 0x08 and first != 0x1F
        self._zlib = zlib.decompressobj(_WITHOUT_HEADER if has_no_header else self._wbits)


def _decompressor(url: httpx2.URL, encoding: str) -> _Decompressor:
    wbits = _ENCODINGS.get(encoding.strip().lower())
    if wbits is None:
        raise RetryLater(f"{_url_without_query(url)} has an unknown content encoding: {encoding!r:.40}")
    return _Unzip(wbits) if wbits else _Identity()


def _url_without_query(url: httpx2.URL) -> str:
    """For messages: the query may contain a token."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}"[:200]


REDIRECTS = frozenset({301, 302, 303, 307, 308})

_DEFAULT_429_SECONDS = 30.0
"""Used if there is no Retry-After."""
_MAX_COOL_DOWN_SECONDS = 86_400.0
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_HUMAN_ONLY = (
    (re.compile(r"log-?[io]n|sign-?in|/sso|oauth|/auth(/|$)", re.IGNORECASE), SIGN_IN_REQUIRED),
    (re.compile(r"terms|disclaimer|agreement|accept", re.IGNORECASE), TERMS_REQUIRED),
    (re.compile(r"captcha|challenge|robot-?check|validate", re.IGNORECASE), "shows a robot check"),
)
_ERROR_PAGE = re.compile(r"expired|time-?out|session-?end|maintenance|error", re.IGNORECASE)


def response_page(response: Response) -> Page:
    """The content type keeps the charset that the site named."""
    return Page(
        body=response.body,
        content_type=response.headers.get("content-type", "").strip()[:200] or "application/octet-stream",
        url=str(response.url),
    )


def response_problem(response: Response, now: datetime) -> FetchFailed | None:
    """Returns None for a page, and for 304 Not Modified."""
    challenge = find_challenge(response_page(response))
    if challenge is not None:
        return SiteBlocked(challenge.reason)
    if response.is_good or response.status == 304:
        return None
    reason = f"{response.url.host} returned {response.status}"
    match response.status:
        case 404 | 410:
            return PageNotFound(reason)
        case 401 | 403 | 407 | 451:
            return SiteBlocked(reason)
        case 408 | 425 | 429:
            return RetryLater(reason, cool_down_seconds(response, now) or None)
        case status if 400 <= status < 500:
            return CannotFetch(reason)
        case _:
            return RetryLater(reason, cool_down_seconds(response, now) or None)


def cool_down_seconds(response: Response, now: datetime) -> float:
    """How long the host asks us to wait (Retry-After); 0 if it does not."""
    if response.status not in (429, 503):
        return 0.0
    given = response.headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(given):
        seconds = float(given)
    else:
        until = _date(given)
        seconds = (until - (_date(response.headers.get("date", "")) or now)).total_seconds() if until else 0.0
    if seconds <= 0:
        seconds = _DEFAULT_429_SECONDS if response.status == 429 else 0.0
    return min(seconds, _MAX_COOL_DOWN_SECONDS)


def redirect_problem(url: httpx2.URL, location: httpx2.URL) -> FetchFailed | None:
    """The failure if a redirect leads to a sign-in, terms or robot check page, or to an error page."""
    for pattern, meaning in _HUMAN_ONLY:
        if pattern.search(location.path) and not pattern.search(url.path):
            return SiteBlocked(f"{url.host} {meaning}: it redirects to {location.host}{location.path}"[:300])
    if _ERROR_PAGE.search(location.path) and not _ERROR_PAGE.search(url.path):
        return RetryLater(f"{url.host} redirects to {location.host}{location.path}"[:300])
    return None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text[:64])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
