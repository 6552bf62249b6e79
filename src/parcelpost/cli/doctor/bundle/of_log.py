"""The end of a worker's log, line by line, with nothing but what this program itself would say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from parcelpost import events
from parcelpost.cli.doctor.bundle.scrubbing import LEFT_OUT, Scrubber
from parcelpost.errors import InvalidInput

_TAIL_BYTES = 512 * 1024
_MOST_LINES = 2_000
_LEVELS = ("debug", "info", "warning", "error")
_FOR_PEOPLE = re.compile(rf"(\d\d:\d\d:\d\d) ({'|'.join(_LEVELS)})\s+(.*)")


def tail(path: Path, scrub: Scrubber) -> str:
    """Raises InvalidInput for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            content = file.read(_TAIL_BYTES)
    except OSError as error:
        raise InvalidInput(f"the log {path} cannot be read: {error.strerror}", hint="leave --log out") from None
    lines = content.decode("utf-8", "replace").splitlines()
    whole = lines[1:] if size > _TAIL_BYTES else lines  # the first is cut
    return "\n".join(_line(line, scrub) for line in whole[-_MOST_LINES:]) + "\n"


def _line(line: str, scrub: Scrubber) -> str:
    if (spoken := _FOR_PEOPLE.match(line)) is not None:
        return f"{spoken[1]} {spoken[2]} {scrub.words(spoken[3])}"
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return scrub.words(line)
    kind = getattr(events, str(found.get("event")), None)
    if not isinstance(kind, type) or not issubclass(kind, events.Event):
        return LEFT_OUT
    told = {
        "time": scrub.moment(str(found.get("time"))),
        "level": found["level"] if found.get("level") in _LEVELS else "",
        "event": kind.__name__,
        **{name: _value(found[name], scrub) for name in kind.__struct_fields__ if name in found},
    }
    return msgspec.json.encode(told).decode()


def _value(given: Any, scrub: Scrubber) -> Any:
    if isinstance(given, bool | int | float) or given is None:
        return given
    if isinstance(given, str):
        return scrub.moment(given) or scrub.words(given)
    return f"{len(given)} entries" if isinstance(given, list | dict) else LEFT_OUT
