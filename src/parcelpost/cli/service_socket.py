"""sd_notify: how a program tells the service manager that started it how it is."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from parcelpost.log import printable

_MOST_STATUS_CHARS = 200
_OFTEN_SECONDS = 10.0
_PINGS_PER_WATCHDOG = 3


class ServiceSocket:
    """Says nothing where `NOTIFY_SOCKET` is not set. Never raises, never waits: a word that cannot be sent is lost."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._watchdog = _watchdog_seconds(environment)

    @property
    def is_there(self) -> bool:
        return bool(self._address)

    @property
    def every_seconds(self) -> float:
        """How often to say that all is well: several times within the watchdog's patience."""
        return min(_OFTEN_SECONDS, self._watchdog / _PINGS_PER_WATCHDOG) if self._watchdog else _OFTEN_SECONDS

    def tell(self, *words: str) -> bool:
        """`READY=1` and its like, in one message. Whether it was taken."""
        if not self._address:
            return False
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(words).encode(), self._address)
            return True
        return False


def status(text: str) -> str:
    """One line, whatever the text holds."""
    return f"STATUS={printable(text)[:_MOST_STATUS_CHARS]}"


def extend(seconds: float) -> str:
    """The service manager waits so much longer from now on before it kills."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def _address(text: str) -> str:
    """A path, or with a leading @ a name that is in no folder."""
    return f"\0{text[1:]}" if text.startswith("@") else text if text.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """0: there is none, or it is meant for another process."""
    length, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not length.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(length) / 1_000_000
