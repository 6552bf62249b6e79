"""What a browser asks a proxy, and what a site answers, as far as a proxy reads it."""

from __future__ import annotations

from typing import NamedTuple

_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade"})


class Asked(NamedTuple):
    method: bytes
    target: bytes
    lines: list[bytes]

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def place(self) -> str:
        """Host and port as they are written."""
        rest = self.target if self.is_tunnel else self.target.partition(b"://")[2]
        return rest.partition(b"/")[0].partition(b"?")[0].decode("latin-1")

    @property
    def path(self) -> bytes:
        return self.target.partition(b"://")[2][len(self.place) :] or b"/"

    @property
    def length(self) -> int:
        """Of its body."""
        given = self.header(b"content-length")
        return int(given) if given.isdigit() else 0

    def header(self, name: bytes) -> bytes:
        return next((line.partition(b":")[2].strip() for line in self.lines if _name(line) == name), b"")

    def head(self, *, whole_address: bool, login: bytes) -> bytes:
        """For the site, or for the next proxy (`whole_address`), which is to close the connection afterwards."""
        first = b" ".join((self.method, self.target if whole_address else self.path, b"HTTP/1.1"))
        return _joined(first, self.lines, login)


def asked(head: bytes) -> Asked | None:
    """None: it is nothing that a browser asks a proxy."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not (parts[0] == b"CONNECT" or parts[1].startswith(b"http://")):
        return None
    return Asked(parts[0], parts[1], lines)


class Answered(NamedTuple):
    head: bytes
    """For the browser, which is to close the connection afterwards."""
    is_final: bool
    """False: the answer itself is still to come."""
    length: int | None
    """Of its body; None: it ends with the connection, or tells its end in itself."""


def answered(head: bytes, method: bytes) -> Answered:
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = first.partition(b" ")[2][:3]
    named = {_name(line): line.partition(b":")[2].strip() for line in lines}
    given = named.get(b"content-length", b"")
    length = int(given) if given.isdigit() and b"transfer-encoding" not in named else None
    if method == b"HEAD" or status in (b"204", b"304"):
        length = 0
    return Answered(_joined(first, lines), not status.startswith(b"1"), length)


def _joined(first: bytes, lines: list[bytes], login: bytes = b"") -> bytes:
    kept = b"".join(line + b"\r\n" for line in lines if _name(line) not in _HOP_BY_HOP)
    return first + b"\r\n" + kept + login + b"Connection: close\r\n\r\n"


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
