"""A gateway that stores nothing: it follows the protocol, responds at once, late or never, and counts results.

`sink` runs this module as a separate process, so that it does not share the GIL with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.request import urlopen

import msgspec

_HOST = "127.0.0.1"
_BUFFER_BYTES = 4 * 1024 * 1024
_NEVER = 1e9

_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


@contextmanager
def sink(answer_after: float = 0.0) -> Iterator[str]:
    """Yields the address of a gateway that responds to each call after that many seconds."""
    command = [sys.executable, "-m", "bench.sink", "--answer-after", str(answer_after)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://{_HOST}:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def silent() -> Iterator[str]:
    """Yields the address of a gateway that accepts every call and never responds."""
    with sink(_NEVER) as url:
        yield url


@contextmanager
def refusing() -> Iterator[str]:
    """Yields an address at which every connection is refused."""
    with socket.socket() as taken:
        taken.bind((_HOST, 0))  # reserves the port without listening on it
        yield f"http://{_HOST}:{taken.getsockname()[1]}"


def results_taken(url: str) -> int:
    """Returns how many results that gateway has received."""
    with urlopen(f"{url}/taken") as answer:
        return int(json.load(answer)["results"])


class _Sink:
    def __init__(self, answer_after: float) -> None:
        self._answer_after = answer_after
        self._results = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, _HOST, 0, limit=_BUFFER_BYTES)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_content_length(head))
                if self._answer_after:
                    await asyncio.sleep(self._answer_after)
                writer.write(self._answer(head, body))
                await writer.drain()
        writer.close()

    def _answer(self, head: bytes, body: bytes) -> bytes:
        path = head.split(b" ", 2)[1].partition(b"?")[0].rpartition(b"/")[2]
        match path:
            case b"results":
                count = len(_entries(body))
                self._results += count
                return _response({"inserted": count, "updated": 0, "failed": 0, "errors": None})
            case b"work":
                return _response({"tasks": None, "retry_after": 1})
            case b"heartbeat":
                return _response({"acknowledged": True, "commands": None})
            case b"raw-files":
                return _response({"status": "ok", "path": "nowhere"})
            case b"complete" | b"fail":
                return _response({"success": True})
            case b"taken":
                return _response({"results": self._results})
        return _response({"error": {"code": "NOT_FOUND", "message": "not here"}}, "404 Not Found")


def _content_length(head: bytes) -> int:
    lengths = [line for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"]
    return int(lengths[0][15:]) if lengths else 0


def _response(content: dict[str, object], status: str = "200 OK") -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sink", description=__doc__)
    parser.add_argument("--answer-after", type=float, default=0.0, metavar="SECONDS")
    with suppress(KeyboardInterrupt):
        asyncio.run(_Sink(parser.parse_args().answer_after).serve())


if __name__ == "__main__":
    main()
