"""A website for tests: a real server on this machine, whose pages are functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http.client import responses
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from parcelpost.files_and_sockets import tcp_server


class Asked(NamedTuple):
    method: str
    target: str
    """As it came: path and query, or the whole address where we are its proxy."""
    headers: Mapping[str, str]
    """Lower-case names."""
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: found[-1] for name, found in parse_qs(urlsplit(self.target).query).items()}

    @property
    def form(self) -> dict[str, str]:
        found = parse_qs(self.body.decode(), keep_blank_values=True)
        return {name: values[-1] for name, values in found.items()}


class Reply(NamedTuple):
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


Page = Callable[[Asked], Reply | Awaitable[Reply]]
Stream = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Asked], Awaitable[None]]


class Website:
    """`asked`: every request so far. A path without a page is answered with 404."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.streams: dict[str, Stream] = {}
        """Pages that write their own bytes."""
        self.asked: list[Asked] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [one.target for one in self.asked]

    def page(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = lambda _: Reply(body, status, named)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            with contextlib.suppress(asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
            writer.close()
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open for another."""
        asked = await _read(reader)
        self.asked.append(asked)
        stream = self.streams.get(asked.path if asked.method != "CONNECT" else "CONNECT")
        if stream is not None:
            await stream(reader, writer, asked)
            return False
        page = self.pages.get(asked.path)
        reply = page(asked) if page else Reply(b"nothing here", 404)
        await _write(writer, reply if isinstance(reply, Reply) else await reply)
        return asked.headers.get("connection", "").lower() != "close"


@contextlib.asynccontextmanager
async def website() -> AsyncIterator[Website]:
    site = Website()
    async with tcp_server(site.serve, "127.0.0.1") as site.port:
        yield site


async def _read(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(reply.body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, '')}", *(f"{n}: {v}" for n, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
    await writer.drain()
