"""The entries of a JSON array, one at a time, however long the array is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcelpost.cli.importing.readers import Bad, Row, bad, json_object
from parcelpost.cli.importing.source import MAX_LINE_BYTES, Decoder, Source
from parcelpost.errors import InvalidInput

_READ_BYTES = 64 * 1024

# Each takes everything up to what matters next, if only nothing, and never goes back over what it took.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BETWEEN_ENTRIES = re.compile(rb'(?:[^{}\[\]",]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_ENTRY = re.compile(rb'(?:[^{}\[\]"]++|' + _STRING + rb")*+", re.DOTALL)
_WITHIN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class JsonArray:
    unit = "entry"
    columns = ()

    def __init__(self, source: Source) -> None:
        self._file = source.file
        self._entries = _Entries()
        self._number = 0
        self.text = Decoder()
        self.bytes = 0

    def __iter__(self) -> Iterator[Row | Bad]:
        self._file.read(self._file.peek(4096).index(b"[") + 1)
        while block := self._file.read1(_READ_BYTES):
            self.bytes += len(block)
            for entry in self._entries.of(block):
                yield self._row(entry)
            if self._entries.ended:
                yield from self._after_the_end()
                return
        yield Bad(self._number + 1, "it does not end: a bracket or a quote is missing; nothing after it was read")

    def _row(self, entry: bytes | None) -> Row | Bad:
        self._number += 1
        if entry is None:
            return Bad(self._number, f"the entry has more than {MAX_LINE_BYTES:,} bytes")
        text = self.text.of(entry, self._number)
        try:
            return Row(self._number, json_object(text))
        except InvalidInput as error:
            return bad(self._number, error, text)

    def _after_the_end(self) -> Iterator[Bad]:
        rest = self._entries.rest + self._file.read1(_READ_BYTES)
        if rest.strip():
            reason = "the array ended before it: there is a bracket too many; nothing after it was read"
            yield bad(self._number + 1, InvalidInput(reason), self.text.of(rest, self._number + 1))


class _Entries:
    """Entries are told apart by their brackets alone, so that a broken one does not take its neighbours with it."""

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""
        """What came after the array's end; before that, a sign that the next block decides about."""
        self._depth = 0
        self._in_string = False
        self._entry = bytearray()
        self._is_too_long = False

    def of(self, block: bytes) -> Iterator[bytes | None]:
        """The entries that end in this block; None for one that is too long."""
        block, self.rest = self.rest + block, b""
        start = at = 0
        while (at := self._pattern().match(block, at).end()) < len(block):  # type: ignore[union-attr] # it always matches
            sign = block[at : at + 1]
            if sign == b"\\":
                self.rest = block[at:]
                break
            if sign == b'"':
                self._in_string = not self._in_string
            elif sign in (b",", b"]", b"}") and self._depth == 0:
                self.ended = sign != b","
                self._keep(block[start:at])
                if not self.ended or self._is_something():
                    yield self._take()
                start = at + 1
                if self.ended:
                    self.rest = block[start:]
                    return
            else:
                self._depth += 1 if sign in (b"{", b"[") else -1
            at += 1
        self._keep(block[start:at])

    def _pattern(self) -> re.Pattern[bytes]:
        if self._in_string:
            return _WITHIN_STRING
        return _WITHIN_ENTRY if self._depth else _BETWEEN_ENTRIES

    def _keep(self, piece: bytes) -> None:
        if len(self._entry) + len(piece) > MAX_LINE_BYTES:
            self._is_too_long = True
            self._entry.clear()
        elif not self._is_too_long:
            self._entry += piece

    def _is_something(self) -> bool:
        return self._is_too_long or bool(self._entry.strip())

    def _take(self) -> bytes | None:
        taken = None if self._is_too_long else bytes(self._entry)
        self._entry.clear()
        self._is_too_long = False
        return taken
