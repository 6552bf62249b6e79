"""One HTTP request and its response, within limits of time and size, and what a response means that is not a page."""

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

from parcelpost import __version__
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

_MOST_OF_A_REFUSAL = 64 * 1024
_MOST_PARTS = 10_000
_WITH_HEAD, _WITHOUT_HEAD = 47, -15
_ENCODINGS = {"": 0, "identity": 0, "gzip": 31, "x-gzip": 31, "deflate": _WITH_HEAD}
"""Names of encodings -> how zlib calls them."""


class FetchOptions(Struct, frozen=True, kw_only=True):
    """`docs/settings.md` says what each means."""

    user_agent: str = f"parcelpost/{__version__}"
    pace_seconds: float = 1.0
    concurrency_per_host: int = 2
    timeout_seconds: float = 60.0
    max_page_bytes: int = 32 * 1024**2
    proxy: str = ""
    proxy_login: str = ""
    allow_private: tuple[str, ...] = ()
    obey_robots: bool = True


class Response(Struct, frozen=True, kw_only=True):
    url: httpx2.URL
    status: int
    headers: httpx2.Headers
    body: bytes
    """Unpacked; of a refusal only its beginning."""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class Exchange:
    """Ends within `timeout_seconds`, and reads no more than `max_page_bytes`, packed or unpacked."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, timeout_seconds: float, max_page_bytes: int) -> None:
        self._pool = pool
        self._timeout = timeout_seconds
        self._limit = max_page_bytes

    async def send(self, request: httpx2.Request) -> Response:
        """Whatever its status. Raises TryLater, and CannotFetch for one that is too large."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(request)
        except TimeoutError:
            problem = f"no whole answer within {self._timeout:g} s"
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
        limit = self._limit if good else _MOST_OF_A_REFUSAL
        unpacker = _unpacker(url, headers.get("content-encoding", ""))
        received = bytearray()
        packed = 0
        async for chunk in response.aiter_stream():
            packed += len(chunk)
            received += unpacker.unpack(chunk, limit + 1 - len(received))
            if max(packed, len(received)) > limit:
                if good:
                    raise CannotFetch(f"{_url_without_query(url)} is longer than {limit:,} bytes")
                return bytes(received[:limit])
        if not unpacker.is_complete:
            raise RetryLater(f"{_url_without_query(url)} came only in part")
        return bytes(received)


class _Unpacker(Protocol):
    @property
    def is_complete(self) -> bool: ...

    def unpack(self, chunk: bytes, room: int) -> bytes: ...


class _AsItIs:
    is_complete = True

    def unpack(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Unzip:
    """Never makes more than there is room for, however small the bomb."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._zlib = zlib.decompressobj(wbits)
        self._parts = 0

    @property
    def is_complete(self) -> bool:
        return self._zlib.eof or not self._parts

    def unpack(self, chunk: bytes, room: int) -> bytes:
        made = b""
        while chunk and len(made) < room:
            if self._zlib.eof or not self._parts:
                self._begin_part(chunk[0])
            made += self._zlib.decompress(chunk, room - len(made))
            chunk = self._zlib.unused_data
        return made

    def _begin_part(self, first: int) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise zlib.error(f"packed in more than {_MOST_PARTS:,} parts")
        # Some servers send "deflate" without its head, by whose first byte it is known.
        is_bare = self._wbits == _WITH_HEAD and first & 0x0F != 0x08 and first != 0x1F
        self._zlib = zlib.decompressobj(_WITHOUT_HEAD if is_bare else self._wbits)


def _unpacker(url: httpx2.URL, encoding: str) -> _Unpacker:
    wbits = _ENCODINGS.get(encoding.strip().lower())
    if wbits is None:
        raise RetryLater(f"{_url_without_query(url)} came packed with {encoding!r:.40}, which was not asked for")
    return _Unzip(wbits) if wbits else _AsItIs()


def _url_without_query(url: httpx2.URL) -> str:
    """For messages, without the query, where a token might be."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}"[:200]


REDIRECTS = frozenset({301, 302, 303, 307, 308})

_REST_AFTER_429_SECONDS = 30.0
"""Where it does not say how long."""
_LONGEST_SECONDS = 86_400.0
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_PERSON_ONLY = (
    (re.compile(r"log-?[io]n|sign-?in|/sso|oauth|/auth(/|$)", re.IGNORECASE), SIGN_IN_REQUIRED),
    (re.compile(r"terms|disclaimer|agreement|accept", re.IGNORECASE), TERMS_REQUIRED),
    (re.compile(r"captcha|challenge|robot-?check|validate", re.IGNORECASE), "asks whether we are a person"),
)
_EXPIRED = re.compile(r"expired|time-?out|session-?end|maintenance|error", re.IGNORECASE)


def response_page(answer: Response) -> Page:
    """Keeps the charset that the site named."""
    return Page(
        body=answer.body,
        content_type=answer.headers.get("content-type", "").strip()[:200] or "application/octet-stream",
        url=str(answer.url),
    )


def response_problem(answer: Response, now: datetime) -> FetchFailed | None:
    """None: it is a page, or the word that the page has not changed."""
    asked = find_challenge(response_page(answer))
    if asked is not None:
        return SiteBlocked(asked.reason)
    if answer.is_good or answer.status == 304:
        return None
    said = f"{answer.url.host} answered {answer.status}"
    match answer.status:
        case 404 | 410:
            return PageNotFound(said)
        case 401 | 403 | 407 | 451:
            return SiteBlocked(said)
        case 408 | 425 | 429:
            return RetryLater(said, cool_down_seconds(answer, now) or None)
        case status if 400 <= status < 500:
            return CannotFetch(said)
        case _:
            return RetryLater(said, cool_down_seconds(answer, now) or None)


def cool_down_seconds(answer: Response, now: datetime) -> float:
    """How long the host wants to be left alone; 0: it does not ask for that."""
    if answer.status not in (429, 503):
        return 0.0
    given = answer.headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(given):
        asked = float(given)
    else:
        until = _date(given)
        asked = (until - (_date(answer.headers.get("date", "")) or now)).total_seconds() if until else 0.0
    if asked <= 0:
        asked = _REST_AFTER_429_SECONDS if answer.status == 429 else 0.0
    return min(asked, _LONGEST_SECONDS)


def redirect_problem(asked: httpx2.URL, leads_to: httpx2.URL) -> FetchFailed | None:
    """A redirect to where only a person gets on, or to where a site sends those it cannot serve now."""
    for sign, what in _PERSON_ONLY:
        if sign.search(leads_to.path) and not sign.search(asked.path):
            return SiteBlocked(f"{asked.host} {what}: it redirects to {leads_to.host}{leads_to.path}"[:300])
    if _EXPIRED.search(leads_to.path) and not _EXPIRED.search(asked.path):
        return RetryLater(f"{asked.host} redirects to {leads_to.host}{leads_to.path}"[:300])
    return None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text[:64])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
