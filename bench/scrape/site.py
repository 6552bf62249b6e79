"""A county's site in a process of its own: `vgsi` pages, `robots.txt`, and how often each page was served.

It prints the ports of its sites as JSON, and serves until it is killed. `/_control/counts` answers with `Counts`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import vgsi
from parcelpost.simulator.web import Layout, Request

HOST = "127.0.0.1"
PATH = "/Parcel.aspx?Pid="
COUNTS = "/_control/counts"
_ROBOTS = b"User-agent: *\nDisallow: /_control/\n"
_FORM, _FOOTER = b'<form id="form1" method="post">', b'<div id="footer">'
_VIEWSTATE_SHARE = 0.4
"""Of what makes a page larger. The rest are links to other parcels."""


@dataclass(slots=True)
class Counts:
    pages: int = 0
    """Answers with a page."""
    distinct: int = 0
    began: float = 0.0
    """Seconds since the epoch."""
    ended: float = 0.0
    before_robots: int = 0
    """Answers with a page of a site whose `robots.txt` had not been asked for."""


@dataclass(slots=True)
class Site:
    """Several of them, on a port each, have the same pages."""

    pages: Sequence[bytes]
    padding: tuple[bytes, bytes]
    """After the form begins, and before the footer."""
    delay: float
    counts: Counts = field(default_factory=Counts)
    served: set[tuple[int, int]] = field(default_factory=set)
    """(port, parcel)"""
    polite: set[int] = field(default_factory=set)
    """Ports whose `robots.txt` was asked for."""

    def answer(self, target: str, port: int) -> bytes:
        if target == COUNTS:
            return _response(json.dumps(asdict(self.counts)).encode(), "application/json")
        if target == "/robots.txt":
            self.polite.add(port)
            return _response(_ROBOTS, "text/plain")
        number = target.removeprefix(PATH)
        if not (number.isdecimal() and 1 <= int(number) <= len(self.pages)):
            return _response(b"<html><body>Not found</body></html>", status="404 Not Found")
        self._count(port, int(number))
        page = self.pages[int(number) - 1]
        if self.padding[0]:
            start, form, rest = page.partition(_FORM)
            content, footer, end = rest.partition(_FOOTER)
            page = b"".join((start, form, self.padding[0], content, self.padding[1], footer, end))
        return _response(page)

    def _count(self, port: int, number: int) -> None:
        now = time.time()
        self.counts.began = self.counts.began or now
        self.counts.ended = now
        self.counts.pages += 1
        self.counts.before_robots += port not in self.polite
        self.served.add((port, number))
        self.counts.distinct = len(self.served)


def _response(body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, site: Site, port: int) -> None:
        self._site, self._port = site, port
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("latin-1")
            if self._site.delay and target.startswith(PATH):
                asyncio.get_running_loop().call_later(self._site.delay, self._respond, target)
            else:
                self._respond(target)

    def _respond(self, target: str) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._site.answer(target, self._port))


def make_pages(count: int) -> list[bytes]:
    """Of about 6 KB."""
    world = World(seed=1, county="invented", size=count)
    asked = (Request(method="GET", target=f"{PATH}{number}", headers={}) for number in range(1, count + 1))
    return [vgsi.respond(request, world, Layout()).body for request in asked]


def make_padding(size: int) -> tuple[bytes, bytes]:
    """As pages of ASP.NET have it: the form's state, then links to the other parcels of the street."""
    if size <= 0:
        return b"", b""
    chance = random.Random(1)
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    state = "".join(chance.choices(signs, k=int(size * _VIEWSTATE_SHARE)))
    links = ['<ul id="street">\n']
    while sum(map(len, links)) < size * (1 - _VIEWSTATE_SHARE):
        number = chance.randrange(1, 10_000)
        links.append(f'<li class="other"><a href="/Parcel.aspx?Pid={number}">{number} ELM ST</a></li>\n')
    return f'<input type="hidden" name="__VIEWSTATE" value="{state}" />\n'.encode(), "".join([*links, "</ul>"]).encode()


async def serve(site: Site, sites: int) -> None:
    sockets = [socket.create_server((HOST, 0), backlog=512) for _ in range(sites)]
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound, port in zip(sockets, ports, strict=True):
        await asyncio.get_running_loop().create_server(partial(_Connection, site, port), sock=bound)
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, required=True, help="per site")
    parser.add_argument("--bytes", type=int, default=0, help="size of a page; smaller ones are not cut")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each page")
    parser.add_argument("--sites", type=int, default=1)
    arguments = parser.parse_args()
    pages = make_pages(arguments.pages)
    padding = make_padding(arguments.bytes - sum(map(len, pages)) // len(pages))
    asyncio.run(serve(Site(pages, padding, arguments.delay), arguments.sites))


if __name__ == "__main__":
    main()
