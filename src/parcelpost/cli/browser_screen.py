"""Where a person uses a browser, and when they are done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

from parcelpost.errors import InvalidInput

_USUAL_PORT = 9222


def has_screen() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def free_port(wanted: int | None) -> int:
    """That one, or if it is all the same the one where chrome://inspect looks, if it is free. Raises InvalidInput."""
    for port in (_USUAL_PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            number: int = probe.getsockname()[1]
            return number
    raise InvalidInput(f"port {wanted} of 127.0.0.1 cannot be used", hint="name another, or none")


@contextlib.contextmanager
def watching_for_the_end(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C, SIGTERM or Enter sets it."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    terminal = _watch_for_enter(loop, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if terminal is not None:
            loop.remove_reader(terminal)


def _watch_for_enter(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> int | None:
    """None: there is nobody who could press it."""

    def typed(handle: int) -> None:
        if os.read(handle, 1_024):
            stop.set()
        else:
            loop.remove_reader(handle)

    try:
        handle = sys.stdin.fileno()
        loop.add_reader(handle, typed, handle)
    except (OSError, ValueError, AttributeError):
        return None
    return handle
