"""The words that may stand in a bundle: those that this program itself uses, and those of systems it calls.

A text from elsewhere (an error, a log line) may hold anything: a name, an address, a token. Of such a text only these
words are kept, as they are written here, so that what is particular to it is lost whatever it is.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from parcelpost import errors

_OWN = ("errors.py", "log.py", "settings", "storage", "client", "wire", "worker", "scrapers/browsers")
_OF_SCRAPERS = (
    "answered.py",
    "answers.py",
    "asking.py",
    "blocking.py",
    "challenge.py",
    "connecting.py",
    "exchange.py",
    "failure.py",
    "fetch_errors.py",
    "fetcher.py",
    "for_a_person.py",
    "guard.py",
    "no_parcel.py",
    "politeness.py",
    "robots.py",
)
_LOWER = re.compile(r"\b[a-z]{1,20}\b")
_COMMANDS = """
parcelpost doctor init run status store backup restore migrate clean check tasks results requeue gateway serve order
resume config show browser chmod chown sudo timedatectl the is are was not with all well must be mended and
certificate verify failed self signed expired hostname mismatch malformed disk image locked refused reset peer
ConnectError ConnectTimeout ReadError ReadTimeout RemoteProtocolError ProxyError OperationalError DatabaseError
TimeoutException TimeoutError HTTP HTTPS TLS SSL DNS JSON UTC SQLite WAL
"""


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    root = files("parcelpost")
    own = (root.joinpath(*name.split("/")) for name in (*_OWN, *(f"scrapers/{name}" for name in _OF_SCRAPERS)))
    texts = [text for place in own for text in sources(place)]
    systems = [*(os.strerror(number) for number in errno.errorcode), *(status.phrase for status in HTTPStatus)]
    return frozenset(
        {
            *(word for text in texts for word in _LOWER.findall(text)),
            *(word for text in (*systems, _COMMANDS) for word in re.findall(r"[A-Za-z]+", text)),
            *(name for name in (*vars(builtins), *vars(errors)) if name[0].isupper()),
            *(str(status.value) for status in HTTPStatus),
        }
    )


def sources(place: Traversable) -> list[str]:
    if place.name == "__pycache__":  # may be another user's, and not ours to read
        return []
    if place.is_dir():
        return [text for below in place.iterdir() for text in sources(below)]
    return [place.read_text(encoding="utf-8")] if place.name.endswith(".py") else []
