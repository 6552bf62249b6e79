"""HTTP calls to a gateway: address, headers, time and size limits, and errors."""

from __future__ import annotations

import asyncio
import gzip
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

_MAX_HEADER_CHARS = 4_096


def base_url(settings: GatewaySettings) -> str:
    """Returns the address that paths are appended to, without a trailing slash. Raises InvalidSettings."""
    try:
        url = str(httpx2.URL(settings.url))
    except httpx2.InvalidURL:
        raise InvalidSettings("gateway.url is not a valid URL") from None
    return "/".join(part for part in (url.rstrip("/"), settings.base_path.strip("/")) if part)


def header_value(setting: str, value: str) -> str:
    """Returns the value if it is valid in a header. Raises InvalidSettings, which does not quote it."""
    if not value:
        raise InvalidSettings(f"{setting} is not set")
    if len(value) > _MAX_HEADER_CHARS or not all("!" <= char <= "~" for char in value):
        raise InvalidSettings(f"{setting} must be printable ASCII characters without spaces")
    return value


T = TypeVar("T")

_COMPRESS_FROM_BYTES = 1_024
_MAX_ERROR_BYTES = 64 * 1024
_MAX_MESSAGE_CHARS = 300
_SLOWEST_BYTES_PER_SECOND = 32 * 1024
_READ_INLINE_BYTES = 128 * 1024
_TIMED_OUT = frozenset({408, 504, 524})  # 524 is Cloudflare's
_CACHED_URLS = 32  # parsing is slow compared with a small call
_CERTIFICATE_HINT = (
    "check gateway.url; for your own certificate authority, set SSL_CERT_FILE to its certificate "
    "(PEM) in the worker's environment and restart it; everything is stored locally until then"
)
_KEEP_ALIVE_SECONDS = 4.0  # common servers close idle connections after five


class Upload(NamedTuple):
    """A file, and a JSON field that is sent before it."""

    metadata: bytes
    name: str
    file: IO[bytes]


class Answer(Struct, kw_only=True):
    """A response, which may be incomplete."""

    call: str
    """Method and path, for messages."""
    status: int = 0
    """0 if nothing was received."""
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
    """The ledger of the gateway at first contact. A different gateway at its address gets nothing."""

    async def expected(self) -> str | None:
        """Returns its id, '' if the gateway gave none, or None before the first contact."""

    async def met(self, ledger_id: str) -> None:
        """Compares the ledger id of an answer. Raises AnotherGateway."""

    def doubt(self) -> None:
        """Call it when the gateway was offline or rejected the token: a different one may answer next."""

    @property
    def in_doubt(self) -> bool: ...


def another_gateway(address: str, ledger_id: str, known: str) -> str:
    seen, expected = payloads.ledger_name(ledger_id), payloads.ledger_name(known)
    return f"a different gateway responds at {address}: {seen}; this store works with {expected}"


class PlainClient(httpx2.AsyncClient):
    """An HTTP client without redirects, cookies and authentication."""

    async def send_once(self, request: httpx2.Request) -> httpx2.Response:
        """Returns a response of which only status, headers and stream are usable. The caller closes the stream."""
        return await self._transport_for_url(request.url).handle_async_request(request)


def open_client(token: str, worker_id: str) -> PlainClient:
    """Returns a client that uses proxies from the environment. `worker_id` may be ''. Raises InvalidSettings."""
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
        raise InvalidSettings("the proxy address in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is invalid") from None


class Exchange:
    """Makes calls and raises failures as an UpstreamError.

    A call may take `timeout_seconds`, or as long as sending its body at 32 KiB a second, whichever is longer. Reads at
    most `max_response_bytes` of an answer, counted after decompression.
    """

    def __init__(
        self,
        client: PlainClient,
        settings: GatewaySettings,
        token: str,
        now: Callable[[], datetime],
        ledger: ExpectedLedger | None = None,
    ) -> None:
        """`ledger`: the one that the gateway must have; None for any."""
        self._client = client
        self._ledger = ledger
        self._headers = client.headers.raw
        self._base_url = base_url(settings)
        self._settings = settings
        self._token = token
        self._now = now
        self._url = lru_cache(_CACHED_URLS)(httpx2.URL)
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
        """Returns a successful answer.

        Raises Refused and TooLarge only if they are listed in `may`; otherwise Unauthorized, because an operator must
        act. `absent` is raised for 404 and 405.
        """
        answer = await self.send(method, path, json, upload)
        if answer.is_good:
            return answer
        raise self.error(answer, may, absent)

    async def read(self, answer: Answer, reader: Callable[[bytes], T]) -> T:
        """Returns the body as parsed by `reader`. Raises Unavailable for a body that breaks the contract."""
        try:
            if len(answer.received) <= _READ_INLINE_BYTES:
                return reader(answer.body)
            return await asyncio.to_thread(reader, answer.body)
        except Unavailable as error:
            problem = f"the response is invalid: {error}"
            raise Unavailable(self._message(answer, problem), retry_after=self.wait(answer), responded=True) from None

    def wait(self, answer: Answer) -> float:
        """Returns how many seconds the gateway wants us to wait."""
        return payloads.wait_seconds(answer.headers, answer.body, self._now())

    async def send(self, method: str, path: str, json: bytes = b"", upload: Upload | None = None) -> Answer:
        """Returns the answer, whatever its status. Raises Unavailable or Unauthorized if there is none."""
        ledger = await self._ledger_header()
        if self._gzip_offered and not self._gzip_refused and len(json) > _COMPRESS_FROM_BYTES:
            packed = await asyncio.to_thread(gzip.compress, json, 1)
            headers = [*ledger, (b"Content-Encoding", b"gzip")]
            answer = await self._send(self._request(method, path, packed, None, headers))
            if answer.status != 415:
                return answer
            self._gzip_refused = True
        return await self._send(self._request(method, path, json, upload, ledger))

    async def _ledger_header(self) -> list[tuple[bytes, bytes]]:
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
            problem = f"no complete response within {seconds:.3g} s"
        except (httpx2.HTTPError, zlib.error) as error:
            if certificate_problem := _certificate_problem(error):
                raise Unauthorized(self._message(answer, certificate_problem), hint=_CERTIFICATE_HINT) from None
            problem = f"{type(error).__name__} {error}"
        else:
            problem = await self._size_problem(answer)
        if problem and (answer.is_good or answer.status == 0):
            raise Unavailable(self._message(answer, problem), timed_out=limit.expired(), responded=answer.status != 0)
        return answer  # an error status is enough, even with a truncated body

    async def _receive(self, response: httpx2.Response, stream: httpx2.AsyncByteStream, answer: Answer) -> None:
        answer.status, answer.headers = response.status_code, response.headers
        limit = self._settings.max_response_bytes if answer.is_good else _MAX_ERROR_BYTES
        packed = response.headers.get("content-encoding", "").strip().lower() == "gzip"
        unpacker = zlib.decompressobj(wbits=31) if packed else None
        received = 0
        async for chunk in stream:
            received += len(chunk)
            room = limit + 1 - len(answer.received)
            if unpacker is None:
                answer.received += chunk
            elif not unpacker.eof:  # data after the end would accumulate in it
                answer.received += unpacker.decompress(chunk, room)
            if received > limit or len(answer.received) > limit:
                del answer.received[limit:]
                return
        answer.whole = True
        self._gzip_offered |= answer.is_good and _names_gzip(response.headers.get("accept-encoding", ""))

    async def _size_problem(self, answer: Answer) -> str:
        """Returns why the answer is too large to read, '' if it is not."""
        limit = self._settings.max_response_bytes
        if not answer.whole:
            return f"a response longer than {limit:,} bytes"
        if len(answer.received) <= _READ_INLINE_BYTES:
            return ""
        is_too_dense = await asyncio.to_thread(payloads.is_too_dense, answer.body, limit)
        return "a response with too many values" if is_too_dense else ""

    def error(
        self,
        answer: Answer,
        may: Collection[type[UpstreamError]] = (),
        absent: type[UpstreamError] = Unauthorized,
    ) -> UpstreamError:
        """Returns the error for a status other than 2xx."""
        status = answer.status
        if status in {408, 425, 429} or status >= 500 or status < 200:
            message, timed_out = self._message(answer), status in _TIMED_OUT
            return Unavailable(message, retry_after=self.wait(answer), timed_out=timed_out, responded=True)
        if status < 400:
            where = f"a redirect to {answer.headers.get('location', 'nowhere')}"
            return (Refused if absent is Refused else Unauthorized)(self._message(answer, where))
        if status == 421:
            return AnotherGateway(self._message(answer))
        if status in {404, 405}:
            return absent(self._message(answer))
        if status == 413 and TooLarge in may:
            return TooLarge(self._message(answer))
        if status in {400, 413, 422} and Refused in may:
            return Refused(self._message(answer))
        return Unauthorized(self._message(answer))

    def _message(self, answer: Answer, problem: str = "") -> str:
        """Returns one short line without the token."""
        parts = [f"returned {answer.status}" if answer.status else "failed"]
        parts += [payloads.one_line(problem), payloads.error_text(answer.body)]
        line = self.without_token(": ".join(part for part in parts if part))
        return f"{answer.call[:_MAX_MESSAGE_CHARS]} {line[:_MAX_MESSAGE_CHARS]}"

    def without_token(self, text: str) -> str:
        return text.replace(self._token, "***")


def _certificate_problem(error: BaseException) -> str:
    """Returns why the gateway's certificate is not trusted, '' for another error. Retrying does not help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return ""


def _names_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip."""
    named = (part.replace(" ", "").lower().partition(";") for part in header.split(","))
    return any(name == "gzip" and weight.rstrip("0.") != "q=" for name, _, weight in named)
