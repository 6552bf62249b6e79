"""One HTTP exchange with a gateway: its address, headers, limits and errors."""

from __future__ import annotations

import asyncio
import gzip
import re
import ssl
import zlib
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import lru_cache
from typing import IO, NamedTuple, Protocol, TypeVar, cast

import httpx2
from msgspec import Struct, field

from parcelpost import __version__
from parcelpost.errors import (
    AnotherGateway,
    InvalidSettings,
    Refused,
    TooLarge,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from parcelpost.protocol import payloads
from parcelpost.settings.schema import GatewaySettings

_MOST_HEADER_CHARS = 4_096
_BASE_PATH = re.compile(r"[A-Za-z0-9._~/-]*", re.ASCII)
_FORM = "gateway.url must look like https://gateway.example.com"


def base_url(settings: GatewaySettings) -> str:
    """Where every path of the contract is appended, without a slash at the end.

    Raises InvalidSettings, which never quotes the address: somebody may have put a password in it.
    """
    try:
        url = httpx2.URL(settings.url)
        url.raw_host.decode("ascii").encode("idna")  # as the resolver will
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise InvalidSettings(f"{_FORM}: {_reason(error)}") from None
    if url.scheme not in {"http", "https"}:
        raise InvalidSettings(f"{_FORM}, with http or https")
    if not url.host or "%" in url.host or url.port == 0 or (url.port or 0) > 65_535:
        raise InvalidSettings(f"{_FORM}: it has no usable host and port")
    if url.userinfo:
        raise InvalidSettings("gateway.url must not hold a user name or password; the token has its own setting")
    if url.query or url.fragment or "?" in settings.url or "#" in settings.url:
        raise InvalidSettings(f"{_FORM}, without a query or fragment")
    path = settings.base_path
    if not _BASE_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")) or "//" in path:
        raise InvalidSettings("gateway.base_path must look like /internal")
    return "/".join(part for part in (str(url).rstrip("/"), path.strip("/")) if part)


def header_value(setting: str, value: str) -> str:
    """The value itself, if it can stand in a header. Raises InvalidSettings, which does not quote it."""
    if not value:
        raise InvalidSettings(f"{setting} is not set")
    if len(value) > _MOST_HEADER_CHARS or not all("!" <= sign <= "~" for sign in value):
        raise InvalidSettings(f"{setting} must be visible ASCII characters without spaces")
    return value


def _reason(error: Exception) -> str:
    return "its host is not a name" if isinstance(error, UnicodeError) else "it is not an address"


T = TypeVar("T")

_COMPRESS_FROM_BYTES = 1_024
_MOST_ERROR_BYTES = 64 * 1024
_MOST_SAID_CHARS = 300
_SLOWEST_BYTES_PER_SECOND = 32 * 1024
_READ_AT_ONCE_BYTES = 128 * 1024
_TIMED_OUT = frozenset({408, 504, 524})  # the last one is a proxy's
_URLS_KEPT = 32  # reading one takes longer than a small call should
_HOW_TO_TRUST = (
    "check gateway.url; for a certificate of your own authority, set SSL_CERT_FILE to that authority's certificate "
    "(PEM) where the worker is started, and start it anew; everything is kept here meanwhile"
)
_KEEP_ALIVE_SECONDS = 4.0  # common servers hang up after five: a call never meets a connection about to close


class Upload(NamedTuple):
    """A file, and a JSON field that goes before it."""

    metadata: bytes
    name: str
    file: IO[bytes]


class Answer(Struct, kw_only=True):
    """What came back, as far as it came."""

    call: str
    """Method and path, for messages."""
    status: int = 0
    """0: not even that came."""
    headers: Mapping[str, str] = {}
    received: bytearray = field(default_factory=bytearray)
    whole: bool = False

    @property
    def body(self) -> bytes:
        return bytes(self.received)

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class ExpectedLedger(Protocol):
    """Which ledger the gateway had when it was first met: another gateway at its address gets nothing from us."""

    async def expected(self) -> str | None:
        """Its id; '': it gave none. None: no gateway was met yet."""

    async def met(self, ledger_id: str) -> None:
        """The gateway has answered as this one. Raises AnotherGateway."""

    def doubt(self) -> None:
        """The gateway was away, or refused us: it may be another when it answers again."""

    @property
    def in_doubt(self) -> bool: ...


def another_gateway(address: str, ledger_id: str, known: str) -> str:
    """For people."""
    seen, expected = payloads.ledger_name(ledger_id), payloads.ledger_name(known)
    return f"another gateway answers at {address}: {seen}; this store works with {expected}"


class PlainClient(httpx2.AsyncClient):
    """Sends a request and hands back the answer: no redirect is followed, no cookie kept, no login tried."""

    async def send_once(self, request: httpx2.Request) -> httpx2.Response:
        """Of an answer only its status, its headers and its stream are there. Close the stream."""
        return await self._transport_for_url(request.url).handle_async_request(request)


def open_client(token: str, worker_id: str) -> PlainClient:
    """`worker_id`: '' sends none. Takes proxies from the environment. Raises InvalidSettings."""
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"parcelpost/{__version__}",
        "X-Worker-Token": header_value("PARCELPOST_GATEWAY_TOKEN", token),
    }
    if worker_id:
        headers["X-Worker-ID"] = header_value("worker.id", worker_id)
    try:
        return PlainClient(
            headers=headers,
            timeout=None,  # an Exchange has one deadline for the whole call
            limits=httpx2.Limits(keepalive_expiry=_KEEP_ALIVE_SECONDS),
        )
    except (ValueError, ImportError, httpx2.InvalidURL):
        raise InvalidSettings("the proxy address in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used") from None


class Exchange:
    """Makes calls. Raises an UpstreamError for each that did not do what it should.

    A call ends within `timeout_seconds`, or what a body of its size takes at 32 KiB a second if that is longer. An
    answer is read up to `max_answer_bytes`, unpacked.
    """

    def __init__(
        self,
        client: PlainClient,
        settings: GatewaySettings,
        token: str,
        now: Callable[[], datetime],
        ledger: ExpectedLedger | None = None,
    ) -> None:
        """`ledger`: which one the gateway must have; None: whichever it has."""
        self._client = client
        self._ledger = ledger
        self._headers = client.headers.raw
        self._base_url = base_url(settings)
        self._settings = settings
        self._token = token
        self._now = now
        self._url = lru_cache(_URLS_KEPT)(httpx2.URL)
        self._gzip_offered = False
        self._gzip_refused = False

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: bytes = b"",
        upload: Upload | None = None,
        may: Collection[type[UpstreamError]] = (),
        absent: type[UpstreamError] = Unauthorized,
    ) -> Answer:
        """The answer to a call that the gateway took.

        Refused and TooLarge are raised only where the call `may`; elsewhere a person must look. `absent` is what
        404 and 405 mean.
        """
        answer = await self.ask(method, path, json, upload)
        if answer.is_good:
            return answer
        raise self.error(answer, may, absent)

    async def read(self, answer: Answer, reader: Callable[[bytes], T]) -> T:
        """What the answer's body says. Unavailable where it makes no sense."""
        try:
            if len(answer.received) <= _READ_AT_ONCE_BYTES:
                return reader(answer.body)
            return await asyncio.to_thread(reader, answer.body)
        except Unavailable as nonsense:
            problem = f"an answer of no use: {nonsense}"
            raise Unavailable(self._say(answer, problem), retry_after=self.wait(answer)) from None

    def wait(self, answer: Answer) -> float:
        """Seconds that the gateway asks to be left alone."""
        return payloads.wait_seconds(answer.headers, answer.body, self._now())

    async def ask(self, method: str, path: str, json: bytes = b"", upload: Upload | None = None) -> Answer:
        """The answer to a call, whatever its status says. Raises Unavailable and Unauthorized where there is none."""
        means = await self._meant_ledger()
        if self._gzip_offered and not self._gzip_refused and len(json) > _COMPRESS_FROM_BYTES:
            packed = await asyncio.to_thread(gzip.compress, json, 1)
            headers = [*means, (b"Content-Encoding", b"gzip")]
            answer = await self._send(self._request(method, path, packed, None, headers))
            if answer.status != 415:
                return answer
            self._gzip_refused = True
        return await self._send(self._request(method, path, json, upload, means))

    async def _meant_ledger(self) -> list[tuple[bytes, bytes]]:
        expected = await self._ledger.expected() if self._ledger else None
        if expected is None:
            return []
        return [(payloads.LEDGER_HEADER.encode(), (expected or payloads.NO_LEDGER).encode())]

    def _request(
        self, method: str, path: str, json: bytes, upload: Upload | None, headers: list[tuple[bytes, bytes]]
    ) -> httpx2.Request:
        url, headers = self._url(f"{self._base_url}{path}"), self._headers + headers
        if upload is not None:
            fields, file = {"metadata": upload.metadata}, (upload.name, upload.file, "application/gzip")
            return httpx2.Request(method, url, headers=headers, data=fields, files={"file": file})
        if json:
            headers.append((b"Content-Type", b"application/json"))
        return httpx2.Request(method, url, headers=headers, content=json or None)

    async def _send(self, request: httpx2.Request) -> Answer:
        answer = Answer(call=f"{request.method} {request.url.raw_path.decode('ascii').partition('?')[0]}")
        sending = int(request.headers.get("content-length", "0")) / _SLOWEST_BYTES_PER_SECOND
        seconds = max(self._settings.timeout_seconds, sending)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                response = await self._client.send_once(request)
                stream = cast(httpx2.AsyncByteStream, response.stream)
                try:
                    await self._receive(response, stream, answer)
                finally:
                    await stream.aclose()
        except TimeoutError:
            problem = f"no whole answer within {seconds:.3g} s"
        except (httpx2.HTTPError, zlib.error) as error:
            if distrust := _distrust(error):
                raise Unauthorized(self._say(answer, distrust), hint=_HOW_TO_TRUST) from None
            problem = f"{type(error).__name__} {error}"
        else:
            problem = await self._excess(answer)
        if problem and (answer.is_good or answer.status == 0):
            raise Unavailable(self._say(answer, problem), timed_out=limit.expired())
        return answer  # a status of refusal says enough, even where its words were cut off

    async def _receive(self, response: httpx2.Response, stream: httpx2.AsyncByteStream, answer: Answer) -> None:
        answer.status, answer.headers = response.status_code, response.headers
        limit = self._settings.max_answer_bytes if answer.is_good else _MOST_ERROR_BYTES
        packed = response.headers.get("content-encoding", "").strip().lower() in {"gzip", "x-gzip"}
        unpacker = zlib.decompressobj(wbits=31) if packed else None
        came = 0
        async for chunk in stream:
            came += len(chunk)
            room = limit + 1 - len(answer.received)
            if unpacker is None:
                answer.received += chunk
            elif not unpacker.eof:  # it would keep whatever follows
                answer.received += unpacker.decompress(chunk, room)
            if came > limit or len(answer.received) > limit:
                del answer.received[limit:]
                return
        answer.whole = True
        self._gzip_offered |= answer.is_good and _names_gzip(response.headers.get("accept-encoding", ""))

    async def _excess(self, answer: Answer) -> str:
        """What is too much about it; '' if it can be read."""
        most = self._settings.max_answer_bytes
        if not answer.whole:
            return f"an answer longer than {most:,} bytes"
        if len(answer.received) <= _READ_AT_ONCE_BYTES:
            return ""
        is_too_dense = await asyncio.to_thread(payloads.is_too_dense, answer.body, most)
        return "an answer of absurdly many values" if is_too_dense else ""

    def error(
        self,
        answer: Answer,
        may: Collection[type[UpstreamError]] = (),
        absent: type[UpstreamError] = Unauthorized,
    ) -> UpstreamError:
        """What an answer means that is not good."""
        status = answer.status
        if status in {408, 425, 429} or status >= 500 or status < 200:
            return Unavailable(self._say(answer), retry_after=self.wait(answer), timed_out=status in _TIMED_OUT)
        if status < 400:
            where = f"a redirect to {answer.headers.get('location', 'nowhere')}"
            return (Refused if absent is Refused else Unauthorized)(self._say(answer, where))
        if status == 421:
            return AnotherGateway(self._say(answer))
        if status in {404, 405}:
            return absent(self._say(answer))
        if status == 413 and TooLarge in may:
            return TooLarge(self._say(answer))
        if status in {400, 413, 422} and Refused in may:
            return Refused(self._say(answer))
        return Unauthorized(self._say(answer))

    def _say(self, answer: Answer, problem: str = "") -> str:
        """One short line, without the token whoever wrote it there."""
        parts = [f"answered {answer.status}" if answer.status else "failed"]
        parts += [payloads.one_line(problem), payloads.error_text(answer.body)]
        line = self.without_token(": ".join(part for part in parts if part))
        return f"{answer.call[:_MOST_SAID_CHARS]} {line[:_MOST_SAID_CHARS]}"

    def without_token(self, text: str) -> str:
        """The gateway's words, whoever wrote our token into them."""
        return text.replace(self._token, "***")


def _distrust(error: BaseException) -> str:
    """Why the gateway's certificate cannot be trusted; '' if that is not what is wrong. It does not mend itself."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"its certificate cannot be trusted: {found.verify_message}"
        found = found.__cause__ or found.__context__
    return ""


def _names_gzip(header: str) -> bool:
    """Whether an Accept-Encoding names gzip, with any weight but 0."""
    named = (part.replace(" ", "").lower().partition(";") for part in header.split(","))
    return any(name == "gzip" and weight.rstrip("0.") != "q=" for name, _, weight in named)
