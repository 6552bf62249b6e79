"""Serves simulated counties over HTTP on this machine, each platform's site below `/<platform>`.

`/_control/faults` says which faults are switched on; asked with `name`, `rate` and `parcel` it switches one.
`/_control/answers` says how often each platform's site answered with what status.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from http.client import responses

import msgspec
from msgspec import Struct

from parcelpost.clock import Clock, SystemClock
from parcelpost.errors import InvalidInput
from parcelpost.files_and_sockets import tcp_server
from parcelpost.simulator import faults
from parcelpost.simulator.faults import Faults, corrupted, error_response
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import JSON, NOT_FOUND, Layout, Request, Response, json_response, not_modified

_MOST_HEAD_BYTES = 64 * 1024
_MOST_BODY_BYTES = 1024**2
_ROBOTS = Response(body=b"User-agent: *\nDisallow: /_control/\n", content_type="text/plain")
_BAD = Response(status=400, body=b"Bad request", content_type="text/plain")


class CountyServer(Struct, kw_only=True):
    worlds: Mapping[str, World]
    """Simulated counties by platform."""
    faults: Faults = msgspec.field(default_factory=Faults)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    answers: dict[str, Counter[str]] = msgspec.field(default_factory=lambda: defaultdict(Counter))
    """Number of responses by platform (and `robots.txt`) and status; broken connections count as `reset`."""

    async def respond(self, request: Request) -> Response | None:
        """None: the connection breaks."""
        place = request.target.removeprefix("/").split("?")[0].split("/")[0]
        if place == "_control":
            return self._control(request)
        if place == "robots.txt":
            response: Response | None = not_modified(request, _ROBOTS)
        elif (world := self.worlds.get(place)) is None:
            return NOT_FOUND
        else:
            response = await self._of_site(msgspec.structs.replace(request, base=f"/{place}"), place, world)
        self.answers[place]["reset" if response is None else str(response.status)] += 1
        return response

    async def _of_site(self, request: Request, platform: str, world: World) -> Response | None:
        if self.faults.strikes("slow", request):
            await self.clock.sleep(self.faults.slow_seconds)
        if self.faults.strikes("reset", request):
            return None
        if (wrong := error_response(self.faults, request)) is not None:
            return wrong
        if self.faults.strikes("terms", request) and (asked := faults.terms_response(request)) is not None:
            return asked
        if self.faults.strikes("missing", request):
            world = msgspec.structs.replace(world, size=0)
        looks = Layout(redesigned=self.faults.strikes("redesign", request))
        answer = SITES[platform].respond(request, world, looks)
        if self.faults.strikes("script", request):
            answer = faults.script_shell(request, answer)
        return not_modified(request, corrupted(answer, self.faults, request))

    def _control(self, request: Request) -> Response:
        if request.path == "/_control/answers":
            return json_response(self.answers)
        if request.path != "/_control/faults":
            return NOT_FOUND
        asked = {**request.query, **request.form}
        if "name" in asked:
            try:
                self.faults.set(asked["name"], float(asked.get("rate") or 0), asked.get("parcel", "").split(","))
            except (InvalidInput, ValueError) as error:
                return Response(status=400, body=str(error).encode(), content_type="text/plain")
        return Response(body=self.faults.as_json(), content_type=JSON)


@contextlib.asynccontextmanager
async def serving(server: CountyServer, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Its address, `http://127.0.0.1:8090`, for as long as it is served; port 0 takes any. Raises OSError."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError):
            with contextlib.suppress(asyncio.IncompleteReadError):
                while await _exchange(server, reader, writer):
                    pass
            writer.close()
            await writer.wait_closed()

    async with tcp_server(serve, host, port, limit=_MOST_HEAD_BYTES) as bound_port:
        yield f"http://{host}:{bound_port}"


async def _exchange(server: CountyServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection stays open for another."""
    request = await _read(reader)
    response = await server.respond(request) if request is not None else _BAD
    if response is None:
        writer.transport.abort()
        return False
    stays = request is not None and request.headers.get("connection", "").lower() != "close"
    writer.write(_encoded(request, response, stays))
    await writer.drain()
    return stays


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """None: it is no request. Raises IncompleteReadError when nobody is there any more."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    first = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    length = headers.get("content-length", "0")
    if len(first) != 3 or not (length.isascii() and length.isdecimal()) or int(length) > _MOST_BODY_BYTES:
        return None
    return Request(method=first[0], target=first[1], headers=headers, body=await reader.readexactly(int(length)))


def _encoded(request: Request | None, response: Response, stays: bool) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "keep-alive" if stays else "close",
        **response.headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    shown = b"" if request is not None and request.method == "HEAD" else response.body
    return f"HTTP/1.1 {response.status} {responses.get(response.status, '')}\r\n{head}\r\n".encode("latin-1") + shown
