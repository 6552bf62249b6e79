"""The words in the names of parcel layers' columns, and the fields that they mean. The data is in vocabulary.toml."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product

from msgspec import Struct

from parcelpost.scrapers.tabular import plain_heading

CERTAIN, LIKELY, DOUBTFUL = 0.95, 0.7, 0.65
"""Confidence in the meaning of a name before its values are checked."""
_MAX_NAME_CHARS = 100
_MIN_GLUED, _MAX_GLUED = 2, 40
_MIN_CUT = 3
_MAX_AFFIX = 5
_MIN_ABBREVIATION, _MAX_ABBREVIATION = 3, 20
_SHAPEFILE_CHARS = 10
"""Shapefiles cut names here: `Living_Are`, `Account_Nu`."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", re.ASCII)
_PLUS4 = re.compile(r"(?:ZIP|POSTCODE|POSTALCODE)_?(?:CODE_?)?(?:PLUS_?)?4(?![0-9])", re.ASCII | re.IGNORECASE)
_FIRST_YEAR, _LAST_YEAR = 1900, 2100


class Reading(Struct, frozen=True):
    """What a column's name means."""

    field: str
    score: float
    rank: int
    """Among the names of the field, 0 is the best."""
    index: int | None
    """The number in the name: 2 in OWNER2."""
    year: int | None
    """The year in the name: 2023 in VALUE_2023."""


class Words(Struct, frozen=True):
    words: frozenset[str]
    index: int | None
    year: int | None
    unknown: int = 0
    """The number of parts of the name that are no known word."""
    guessed: bool = False
    """Whether a part was taken for the abbreviation of a word."""


class _Vocabulary(Struct, frozen=True):
    spellings: Mapping[str, str]
    cut: Mapping[str, str]
    """Beginnings of spellings that have only one meaning."""
    neutral: frozenset[str]
    minor: frozenset[str]
    meanings: Mapping[frozenset[str], tuple[tuple[str, float, int], ...]]
    names: Mapping[str, str]


@lru_cache(maxsize=20_000)
def readings(name: str) -> tuple[Reading, ...]:
    """The fields that a name may mean, the surest first. Takes time linear in the length of the name."""
    vocabulary = _vocabulary()
    parsed = words_of(name)
    plain = plain_heading(name[:_MAX_NAME_CHARS])
    listed = vocabulary.names.get(plain) or vocabulary.names.get(plain.rstrip("0123456789"))
    if listed is not None:
        return (Reading(listed, CERTAIN, 0, parsed.index, parsed.year),)
    if parsed.unknown or not parsed.words:
        return ()
    meanings = vocabulary.meanings.get(parsed.words, ()) or _nearly(parsed.words)
    if parsed.guessed:
        meanings = tuple((field, min(score, LIKELY), rank + 1) for field, score, rank in meanings)
    return tuple(Reading(field, score, rank, parsed.index, parsed.year) for field, score, rank in meanings)


def _nearly(words: frozenset[str]) -> tuple[tuple[str, float, int], ...]:
    """The meanings of a name that has a word too many which adds little. They are likely, never certain."""
    meanings = _vocabulary().meanings
    for word in sorted(words & _vocabulary().minor):
        if len(words) > 2 and (
            candidates := [
                meaning for meaning in meanings.get(words - {word}, ()) if not meaning[0].startswith("unqualified.")
            ]
        ):
            return tuple((field, min(score, LIKELY), rank + 1) for field, score, rank in candidates[:1])
    return ()


class Shortened(Struct, frozen=True):
    """A name without an unknown beginning or end."""

    affix: str
    readings: tuple[Reading, ...]
    is_clean: bool
    """Whether it ends at a separator or leaves several words (KCA_ZONING, NFMLNDVL) rather than any word (B-LOCK)."""


@lru_cache(maxsize=20_000)
def shortened(name: str) -> tuple[Shortened, ...]:
    """What a name means without an unknown beginning or end, or one of the minor words."""
    known = readings(name)
    if (known and known[0].score >= CERTAIN) or len(name) > _MAX_GLUED:
        return ()
    text = "_".join(_joined_parts(name[:_MAX_NAME_CHARS]))
    letters = text.rstrip("0123456789_")
    digits = text[len(letters) :]
    has_unknown = words_of(name).unknown > 0
    results = []
    for size in range(1, min(_MAX_AFFIX, len(letters) - _MIN_GLUED) + 1):
        for affix, rest, edge in (
            (letters[:size], letters[size:], letters[size : size + 1] + letters[size - 1]),
            (letters[-size:], letters[:-size], letters[-size - 1] + letters[-size]),
        ):
            is_separated = "_" in edge
            pieces = _pieces(affix.strip("_"), _vocabulary(), may_be_cut=False)
            is_minor = pieces is not None and set(pieces) <= _vocabulary().minor
            if not (is_minor and is_separated if not has_unknown else is_minor or pieces is None):
                continue
            if meanings := readings(rest.strip("_") + digits):
                is_clean = is_separated or len(words_of(rest).words) > 1
                side = (
                    f"{affix.strip('_')}-" if rest is not letters and letters.endswith(rest) else f"-{affix.strip('_')}"
                )
                results.append(Shortened(side, meanings, is_clean))
    return tuple(results)


def belongs(word: str, field: str) -> bool:
    """Whether some name of the field has this word."""
    return word in _words_of_fields()[field]


@cache
def _words_of_fields() -> Mapping[str, set[str]]:
    words_by_field: dict[str, set[str]] = defaultdict(set)
    for words, meanings in _vocabulary().meanings.items():
        for field, _, _ in meanings:
            words_by_field[field] |= words
    return words_by_field


@lru_cache(maxsize=20_000)
def words_of(name: str) -> Words:
    """Divides a name into known words, at separators, at changes of case, and inside what is written together."""
    vocabulary = _vocabulary()
    if word := vocabulary.spellings.get(plain_heading(name[:_MAX_NAME_CHARS]).lower()):
        return Words(frozenset((word,)), None, None)
    text = _PLUS4.sub("_plusfour_", name[:_MAX_NAME_CHARS])
    words: list[str] = []
    numbers: list[int] = []
    unknown, guessed = 0, False
    parts = list(_joined_parts(text))
    for at, part in enumerate(parts):
        if part.isdigit():
            numbers.append(int(part[:9]))
            continue
        may_be_cut = at == len(parts) - 1 and len(name) == _SHAPEFILE_CHARS
        pieces = _pieces(part, vocabulary, may_be_cut=may_be_cut)
        if pieces is None and (word := _abbreviated(part)) is not None:
            pieces, guessed = [word], True
        unknown += pieces is None
        words += pieces or ()
    years = [number for number in numbers if _FIRST_YEAR <= number <= _LAST_YEAR]
    indexes = [number for number in numbers if number < _FIRST_YEAR and not (number == 5 and "zip" in words)]
    return Words(
        _in_one(frozenset(words) - vocabulary.neutral or frozenset(words)),
        indexes[0] if indexes else None,
        years[0] if years else None,
        unknown,
        guessed,
    )


def _joined_parts(text: str) -> Iterator[str]:
    """The parts of a name in lower case: `OwnerName_1` gives owner, name, 1."""
    for token in re.split(r"[^A-Za-z0-9]+", text):
        has_cases = token.upper() != token and token.lower() != token
        parts = [part.lower() for part in _PARTS.findall(token)] if has_cases else []
        is_known = parts and all(part.isdigit() or _pieces(part, _vocabulary(), may_be_cut=False) for part in parts)
        yield from parts if is_known else _PARTS.findall(token.lower())


def _pieces(part: str, vocabulary: _Vocabulary, *, may_be_cut: bool) -> list[str] | None:
    """Divides a part into the fewest known spellings. Returns None if that is not possible."""
    if part in vocabulary.spellings:
        return [vocabulary.spellings[part]]
    if len(part) > _MAX_GLUED:
        return None
    longest = _longest_spelling()
    best: list[list[str] | None] = [[], *[None] * len(part)]
    for end in range(_MIN_GLUED, len(part) + 1):
        for start in range(max(0, end - longest), end - _MIN_GLUED + 1):
            before = best[start]
            word = vocabulary.spellings.get(part[start:end])
            if word is None and may_be_cut and end == len(part) and end - start >= _MIN_CUT:
                word = vocabulary.cut.get(part[start:end])
            if before is not None and word is not None:
                known = best[end]
                if known is None or len(before) + 1 < len(known):
                    best[end] = [*before, word]
    return best[len(part)]


@lru_cache(maxsize=20_000)
def _abbreviated(part: str) -> str | None:
    """The only word that a part can abbreviate: it begins with the same letter and has the letters in this order."""
    if not _MIN_ABBREVIATION <= len(part) <= _MAX_ABBREVIATION:
        return None
    words_ = {
        word for spelling, word in _by_letter()[part[0]] if len(spelling) > len(part) and _is_within(part, spelling)
    }
    return next(iter(words_)) if len(words_) == 1 else None


@cache
def _by_letter() -> Mapping[str, list[tuple[str, str]]]:
    by_letter: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for spelling, word in _vocabulary().spellings.items():
        by_letter[spelling[0]].append((spelling, word))
    return by_letter


def _is_within(part: str, spelling: str) -> bool:
    letters = iter(spelling)
    return all(letter in letters for letter in part)


@cache
def _longest_spelling() -> int:
    return max(map(len, _vocabulary().spellings))


@cache
def _vocabulary() -> _Vocabulary:
    given = tomllib.loads((files("parcelpost.scrapers.records") / "vocabulary.toml").read_text("utf-8"))
    spellings = {spelling: word for word, known in given["words"].items() for spelling in known}
    spellings["plusfour"] = "plus4"
    cut: dict[str, set[str]] = defaultdict(set)
    for spelling, word in spellings.items():
        for end in range(_MIN_CUT, len(spelling)):
            cut[spelling[:end]].add(word)
    meanings: dict[frozenset[str], list[tuple[str, float, int]]] = defaultdict(list)
    for field, levels in given["fields"].items():
        for score, level in ((CERTAIN, "certain"), (LIKELY, "likely")):
            for rank, line in enumerate(levels.get(level, ())):
                for words in _expanded(line):
                    if all(field != other for other, _, _ in meanings[words]):
                        meanings[words].append((field, score, rank))
    return _Vocabulary(
        spellings=spellings,
        cut={beginning: next(iter(words)) for beginning, words in cut.items() if len(words) == 1},
        neutral=frozenset(given["neutral"]["words"]),
        minor=frozenset(given["minor"]["words"]),
        meanings={words: tuple(sorted(known, key=lambda meaning: -meaning[1])) for words, known in meanings.items()},
        names={name: field for field, names in given["names"].items() for name in names},
    )


def _expanded(line: str) -> Iterator[frozenset[str]]:
    """`owner|mail city?; town` gives {owner, city}, {owner}, {mail, city}, {mail} and {town}."""
    for phrase in line.split(";"):
        choices = []
        for term in phrase.split():
            options = [option.rstrip("?") for option in term.split("|")]
            choices.append([*options, ""] if "?" in term else options)
        yield from (_in_one(frozenset(filter(None, chosen))) for chosen in product(*choices))


def _in_one(words: frozenset[str]) -> frozenset[str]:
    """Square feet are one word, however they are written."""
    return words - {"sq", "ft"} | {"sqft"} if "sq" in words and words & {"ft", "sqft"} else words
