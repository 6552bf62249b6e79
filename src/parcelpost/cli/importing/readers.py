"""What readers of all formats give: rows, and bad rows as one row's matter. And the reader of JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from parcelpost.cli.importing.source import Decoder, Lines, Source
from parcelpost.errors import InvalidInput
from parcelpost.model import Json

SHOWN_CHARS = 200


class Row(NamedTuple):
    number: int
    values: Mapping[str, Json]
    """By column."""


class Bad(NamedTuple):
    """A row that cannot be imported."""

    number: int
    reason: str
    text: str = ""
    """How it begins, where that can be shown."""


class Reader(Protocol):
    unit: str
    """What is counted: `line`, or `entry` of an array."""
    text: Decoder

    @property
    def columns(self) -> tuple[str, ...]:
        """Known before the first row; () where every row brings its own."""

    @property
    def bytes(self) -> int:
        """Read so far, unpacked."""

    def __iter__(self) -> Iterator[Row | Bad]: ...


class JsonLines:
    """One object a line. Also reads a .json file that is no array: many that end so are this."""

    unit = "line"
    columns = ()

    def __init__(self, source: Source) -> None:
        self._lines = Lines(source)
        self.text = self._lines.text

    @property
    def bytes(self) -> int:
        return self._lines.bytes

    def __iter__(self) -> Iterator[Row | Bad]:
        while True:
            line = ""
            try:
                line = next(self._lines)
                if line.strip():
                    yield Row(self._lines.number, json_object(line))
            except StopIteration:
                return
            except InvalidInput as error:
                yield bad(self._lines.number, error, line)


def json_object(text: str) -> dict[str, Json]:
    """Raises InvalidInput for anything else."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("nested too deep") from None
    if not isinstance(found, dict):
        raise InvalidInput("not an object with named values")
    return found


def bad(number: int, error: Exception, text: str) -> Bad:
    return Bad(number, str(error), text.strip()[:SHOWN_CHARS])
