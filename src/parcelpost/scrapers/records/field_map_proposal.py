"""Proposes a field map for a table that no field map fits, from the names, aliases, types and values of its columns.

Each column gets a confidence. From CERTAIN_FROM on, its name says what it holds, its values agree, and no other column
claims the same field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct, structs

from parcelpost.model import Json
from parcelpost.scrapers.html import values
from parcelpost.scrapers.records import column_values
from parcelpost.scrapers.records.columns import Column, column_meanings, last_part
from parcelpost.scrapers.records.vocabulary import DOUBTFUL, LIKELY, Reading, shortened, words_of
from parcelpost.scrapers.tabular import column_name

_MIN_SUMS = 3
CERTAIN_FROM = 0.9
LIKELY_FROM = 0.6
_SAMPLED_ROWS, _SAMPLED_CELLS = 200, 40_000
_MAX_COLUMNS = 1_000
_MAX_CANDIDATES = 20
"""Limit on candidate columns per field."""
_MAX_VALUE_CHARS = 200
_SHARED_AFFIX = 3
"""Number of fields whose columns must share a prefix for it to count as the table's prefix."""
_MIN_FIT, _GOOD_FIT = 0.5, 0.8
_MIN_DISTINCT = 0.5
_FEW_ROWS = 4
_FEET_PER_ACRE = 43_560
_ROUNDED = Decimal("0.1")
_NEAR = 3
_UNLIKE = 0.1
"""Two columns of one meaning may differ in so many of the rows."""

_CONVERSIONS = {
    **dict.fromkeys(("mailing_zip", "situs_zip"), "zip"),
    **dict.fromkeys(
        ("land_area_acres", "building_area_sqft", "bedrooms", "bathrooms", "latitude", "longitude"), "some"
    ),
    **dict.fromkeys(("year_built", "value_year", "tax_year"), "year"),
    "building_count": "whole",
    "homestead": "flag",
    "last_sale_date": "day",
    **dict.fromkeys(
        (
            *("land_value", "building_value", "extra_feature_value", "market_value", "assessed_value", "taxable_value"),
            *("taxable_value_school", "exemption_value", "last_sale_price", "tax_amount", "tax_due"),
        ),
        "money",
    ),
}
"""The others are text."""
_NUMBERED = ("last_sale_date", "last_sale_price", "land_value", "building_value", "market_value", "assessed_value")
"""Fields of which a table may have several, the first one being that of the record."""
_ESSENTIAL: Mapping[str, tuple[str, ...]] = {
    "the parcel number": ("parcel_id",),
    "the owner or the address": ("owner_names", "situs_address"),
    "a value": ("land_value", "building_value", "market_value", "assessed_value", "taxable_value"),
}
_SITUS_PARTS = ("situs.number", "situs.prefix", "situs.street", "situs.suffix", "situs.post", "situs.unit")


class Placement(Struct, frozen=True):
    """Where a column belongs."""

    column: str
    field: str
    """Field of the record; '' if the column is not placed."""
    confidence: float
    reason: str


class Proposed(Struct, frozen=True):
    """The columns of a field, as in a field map, and how sure they are."""

    conversion: str
    columns: tuple[str, ...]
    confidence: float
    reason: str = ""


class Proposal(Struct, frozen=True):
    fields: Mapping[str, Proposed]
    placements: Sequence[Placement]
    """One per column, in the order of the table."""

    def field_map(self, at_least: float = CERTAIN_FROM) -> dict[str, Any]:
        """The field map in the form of its TOML file, of the fields that are at least so certain."""
        sure = {field: proposed for field, proposed in self.fields.items() if proposed.confidence >= at_least}
        return {
            "has": sorted(
                {sure[field].columns[0] for fields in _ESSENTIAL.values() for field in fields if field in sure}
            ),
            "fields": {field: {proposed.conversion: list(proposed.columns)} for field, proposed in sure.items()},
        }

    def missing(self, at_least: float = CERTAIN_FROM) -> list[str]:
        """Which essential columns could not be placed, and which columns they may be."""
        missing = []
        for meaning, fields in _ESSENTIAL.items():
            known = [self.fields[field] for field in fields if field in self.fields]
            if any(proposed.confidence >= at_least for proposed in known):
                continue
            unclear = sorted({column for proposed in known for column in proposed.columns})
            missing.append(f"{meaning} (perhaps {', '.join(unclear[:5])})" if unclear else meaning)
        return missing


class _Candidate(Struct, frozen=True):
    key: str
    """The normalized name, by which rows are read."""
    column: str
    field: str
    score: float
    rank: int
    index: int | None
    year: int | None
    at: int
    reason: str = ""

    @property
    def order(self) -> tuple[float, int, int, int, int]:
        return (-self.score, self.rank, -(self.year or 0), self.index or 0, self.at)


class _Table:
    """The values of the columns in a sample of the rows, spread over all of them."""

    def __init__(self, rows: Sequence[Mapping[str, Json]], columns: int) -> None:
        count = min(_SAMPLED_ROWS, max(1, _SAMPLED_CELLS // max(1, columns)))
        self.rows = rows[:: max(1, len(rows) // count)][:count]
        self._values: dict[str, list[Json]] = {}

    def values(self, key: str) -> list[Json]:
        """Those that are not empty; of very long texts the beginning."""
        if key not in self._values:
            cells = (row.get(key) for row in self.rows)
            short = (value[:_MAX_VALUE_CHARS] if isinstance(value, str) else value for value in cells)
            self._values[key] = [value for value in short if not column_values.is_empty(value)]
        return self._values[key]

    def unlike(self, key: str, other_key: str, plain: Callable[[Json], Any]) -> float:
        """The share of the rows that have both values in which they differ."""
        pairs = [(plain(row.get(key)), plain(row.get(other_key))) for row in self.rows]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        return sum(a != b for a, b in both) / len(both) if both else 0.0

    def is_empty(self, key: str) -> bool:
        return not self.values(key)


def propose(columns: Sequence[Column], rows: Sequence[Mapping[str, Json]], asked: str = "") -> Proposal:
    """`rows`: values by normalized column name. `asked`: the parcel number whose row was requested, if any.

    Time is linear in the number of columns; of many rows only a sample is looked at."""
    return _Proposer(columns[:_MAX_COLUMNS], _Table(rows, len(columns)), asked).proposal()


class _Proposer:
    def __init__(self, columns: Sequence[Column], table: _Table, asked: str) -> None:
        self._columns = columns
        self._table = table
        self._asked = values.parcel_norm(asked)
        self._notes: dict[str, str] = {}
        self._stripped: dict[str, str] = {}
        """The prefix or suffix that was left out of a name."""
        self._candidates = self._read_columns()
        self._fields: dict[str, Proposed] = {}

    def proposal(self) -> Proposal:
        self._place_unqualified()
        self._place_identity()
        self._place_owner()
        self._place_mailing()
        self._place_situs()
        self._place_legal()
        self._place_acres()
        for field in _CONVERSIONS.keys() | {
            "subdivision",
            "sec_twp_rng",
            "zoning",
            "flood_zone",
            "mailing_country",
            "last_sale_book_page",
        }:
            if field not in self._fields:
                self._place_single(field)
        self._place_land_use()
        self._place_total()
        self._note_sale()
        fields = {field: self._fields[field] for field in _FIELD_ORDER if field in self._fields}
        return Proposal(fields, [self._placement(column, fields) for column in self._columns])

    def _placement(self, column: Column, fields: Mapping[str, Proposed]) -> Placement:
        for field, proposed in fields.items():
            if column.name in proposed.columns:
                reason = proposed.reason or self._notes.get(column.name) or self._stripped.get(column.name, "")
                return Placement(column.name, field, round(proposed.confidence, 2), reason)
        return Placement(column.name, "", 0.0, self._notes.get(column.name, ""))

    # Reading the columns one by one

    def _read_columns(self) -> dict[str, list[_Candidate]]:
        candidates: dict[str, list[_Candidate]] = {}
        seen: set[str] = set()
        firsts: dict[frozenset[str], str] = {}
        shared = Counter(
            (short.affix, short.readings[0].field)
            for column in self._columns
            for short in shortened(last_part(column.name))
        )
        self._affixes = Counter(affix for affix, _ in shared)
        for at, column in enumerate(self._columns):
            key = column_name(column.name)
            if column.kind == column_values.SYSTEM or not key or key in seen:
                continue
            seen.add(key)
            words = words_of(last_part(column.name))
            for candidate in self._read(column, key, at, firsts.get(words.words, "")):
                candidates.setdefault(candidate.field, []).append(candidate)
                if words.index == 1:
                    firsts[words.words] = candidate.field
        return {
            field: sorted(claims, key=lambda candidate: candidate.order)[:_MAX_CANDIDATES]
            for field, claims in candidates.items()
        }

    def _read(self, column: Column, key: str, at: int, first: str) -> list[_Candidate]:
        """The best meaning of a column that its values allow. `first`: what the same name with a 1 means."""
        meanings = self._all_meanings(column)
        given, name = self._table.values(key) if meanings else [], last_part(column.name)
        candidates = []
        for meaning in [
            meaning for meaning in meanings if meaning.field == first and (meaning.index or 1) > 1
        ] or meanings:
            field, score = meaning.field, meaning.score
            share = column_values.fit(field, column.kind, given)
            if field == "unqualified.address" and (meaning.index or 1) > 1:
                share = column_values.fit("mailing.line", column.kind, given)
            if field == "mailing.line" and meaning.index in (None, 1) and "care" not in words_of(name).words:
                share = column_values.fit("situs_address", column.kind, given)
            if share is not None and share < _MIN_FIT:
                self._notes.setdefault(column.name, f"named like {field}, but its values do not look like it")
                continue
            if share is not None and share < _GOOD_FIT:
                score = min(score, DOUBTFUL)
                self._notes.setdefault(column.name, f"only some of its values look like {field}")
            candidates.append(_Candidate(key, column.name, field, score, meaning.rank, meaning.index, meaning.year, at))
        if len(candidates) > 1 and candidates[0].score > candidates[1].score:
            return candidates[:1]
        if candidates and candidates[0].field in ("situs_address", "situs.street") and given:
            is_full = 2 * sum(map(column_values.has_house_number, given)) >= len(given)
            return [structs.replace(candidates[0], field="situs_address" if is_full else "situs.street")]
        return candidates[:1]

    def _all_meanings(self, column: Column) -> tuple[Reading, ...]:
        """By its name and alias; if these are not certain, by its name without a prefix that other columns share."""
        readings = column_meanings(column)
        if readings and readings[0].score >= CERTAIN_FROM:
            return readings
        without = self._without_affix(column)
        return without if without and (not readings or without[0].score > readings[0].score) else readings

    def _without_affix(self, column: Column) -> tuple[Reading, ...]:
        """What a column means without a prefix or suffix. Certain if other columns share it: KCA_ZONING, KCA_ACRES."""
        shorter = shortened(last_part(column.name))
        if not shorter:
            return ()
        best = max(shorter, key=lambda short: (self._affixes[short.affix], short.is_clean, -len(short.affix)))
        is_shared = self._affixes[best.affix] >= _SHARED_AFFIX
        if not is_shared and (not best.is_clean or best.readings[0].field.startswith("unqualified.")):
            return ()
        limit = CERTAIN_FROM if is_shared else LIKELY
        self._stripped[column.name] = f"without {best.affix.strip('-')}"
        return tuple(structs.replace(reading, score=min(reading.score, limit)) for reading in best.readings)

    # Placing them

    def _take(self, field: str) -> list[_Candidate]:
        return self._candidates.get(field, [])

    def _put(
        self, field: str, candidates: Sequence[_Candidate], score: float, conversion: str = "", reason: str = ""
    ) -> None:
        if candidates:
            names = tuple(dict.fromkeys(candidate.column for candidate in candidates))
            conversion = conversion or _CONVERSIONS.get(field, "text")
            self._fields[field] = Proposed(conversion, names, score, reason)

    def _place_single(self, field: str) -> None:
        candidates = [
            candidate
            for candidate in self._take(field)
            if field != "building_area_sqft" or not self._is_land(candidate)
        ]
        if candidates:
            best, score, reason = self._best(candidates, _amount if _CONVERSIONS.get(field) == "money" else _plain)
            self._put(field, [best], score, reason=reason)

    def _best(self, candidates: Sequence[_Candidate], plain: Callable[[Json], Any]) -> tuple[_Candidate, float, str]:
        """The best candidate, its score, and why it is not higher: another column may be meant as well."""
        full = [candidate for candidate in candidates if not self._table.is_empty(candidate.key)]
        best, *others = full or candidates
        rivals = [
            candidate.column
            for candidate in others
            if (candidate.score, candidate.rank) == (best.score, best.rank)
            and (candidate.index in (None, 1) or candidate.index == best.index)
            and self._table.unlike(best.key, candidate.key, plain) > _UNLIKE
            and not (candidate.year and best.year)
        ]
        if rivals:
            return best, min(best.score, DOUBTFUL), f"it may also be {', '.join(rivals[:3])}"
        if best.index is not None and best.index > 1 and best.field in _NUMBERED:
            return best, min(best.score, DOUBTFUL), "its number suggests that another column comes first"
        if best.year is not None:
            return best, min(best.score, DOUBTFUL), "it is the newest of several years"
        return best, best.score, ""

    def _place_identity(self) -> None:
        candidates = [candidate for candidate in self._take("parcel_id") if self._is_distinct(candidate)]
        accounts = [candidate for candidate in self._take("tax_account") if self._is_distinct(candidate)]
        sure = [candidate for candidate in candidates if candidate.score >= CERTAIN_FROM]
        if not sure and accounts and accounts[0].score >= CERTAIN_FROM:
            sure, accounts = (
                [accounts[0]],
                [candidate for candidate in candidates if candidate.score < CERTAIN_FROM][:1],
            )
            self._notes[sure[0].column] = "the only number that identifies a parcel"
            best, score, reason = sure[0], CERTAIN_FROM, "the only number that identifies a parcel"
        elif sure or candidates:
            best, score, reason = self._best_id(sure or candidates)
        else:
            return
        self._put("parcel_id", [best], score, reason=reason)
        others = [candidate for candidate in accounts if self._table.unlike(best.key, candidate.key, _norm) > 0]
        if others and others[0].score >= CERTAIN_FROM:
            account, account_score, why = self._best(others, _norm)
            self._put("tax_account", [account], account_score, reason=why)

    def _best_id(self, candidates: Sequence[_Candidate]) -> tuple[_Candidate, float, str]:
        """Of two spellings of one number, the one as it is displayed."""
        for candidate in candidates:
            if self._asked and any(_norm(value) == self._asked for value in self._table.values(candidate.key)):
                return candidate, max(candidate.score, CERTAIN_FROM), "it holds the number that was requested"
        best, score, reason = self._best(candidates, _norm)
        same = [
            candidate
            for candidate in candidates
            if candidate.rank == best.rank and self._table.unlike(best.key, candidate.key, _norm) == 0
        ]
        return max(same, key=lambda candidate: (self._punctuation(candidate.key), -candidate.at)), score, reason

    def _punctuation(self, key: str) -> int:
        return sum(not sign.isalnum() for value in self._table.values(key) for sign in str(value).strip())

    def _is_distinct(self, candidate: _Candidate) -> bool:
        given = [_norm(value) for value in self._table.values(candidate.key)]
        if len(given) > _FEW_ROWS and len(set(given)) < _MIN_DISTINCT * len(given):
            self._notes[candidate.column] = "the same in many rows, so it does not identify a parcel"
            return False
        return True

    def _place_owner(self) -> None:
        candidates = self._take("owner_names")
        sure = [candidate for candidate in candidates if candidate.score >= CERTAIN_FROM]
        names = [candidate for candidate in sure if candidate.rank == 0 and (candidate.index or 1) == 1]
        more = sorted(
            (candidate for candidate in sure if candidate not in names),
            key=lambda candidate: (candidate.rank, candidate.index or 0, candidate.at),
        )
        if not names and not more:
            last, first = self._take("owner.last"), self._take("owner.first")
            if last and first and not candidates:
                self._put("owner_names", [last[0], first[0]], min(last[0].score, first[0].score, CERTAIN_FROM), "line")
                return
            names = [candidate for candidate in candidates if (candidate.index or 1) == 1][:1]
            more = [
                candidate
                for candidate in candidates
                if names
                and candidate.index == 2
                and words_of(candidate.column).words == words_of(names[0].column).words
            ]
            lines = {candidate.at for candidate in self._take("mailing.line") if candidate.score >= CERTAIN_FROM}
            names = [
                structs.replace(candidate, score=CERTAIN_FROM)
                if {candidate.at + 1, candidate.at + 2} & lines and candidate.score == LIKELY
                else candidate
                for candidate in names
            ]
        if not names:
            return
        best, score, reason = self._best(names, _plain)
        self._put("owner_names", [best, *self._unequal(more, best)], score, "texts", reason)

    def _unequal(self, candidates: Iterable[_Candidate], best: _Candidate) -> list[_Candidate]:
        """Without columns that repeat the values of the best one."""
        return [
            candidate
            for candidate in candidates
            if self._table.unlike(best.key, candidate.key, _plain) > 0 or self._table.is_empty(candidate.key)
        ]

    def _place_mailing(self) -> None:
        for field in ("mailing_city", "mailing_state", "mailing_zip"):
            self._place_single(field)
        lines = [candidate for candidate in self._take("mailing.line") if candidate.score >= LIKELY_FROM]
        if not lines:
            return
        whose = min((_whose(candidate) for candidate in lines if candidate.index in (None, 1)), default=len(_WHOSE))
        lines = [
            candidate
            for candidate in lines
            if _whose(candidate) == whose or candidate.rank == _UNQUALIFIED_RANK or _is_care(candidate)
        ] or lines
        score, reason = min(candidate.score for candidate in lines), ""
        firsts = [candidate for candidate in lines if candidate.index in (None, 1) and not _is_care(candidate)]
        for candidate in firsts[1:]:
            if self._table.unlike(firsts[0].key, candidate.key, _plain) == 0:
                lines.remove(candidate)
            elif firsts[0].index == candidate.index:
                score, reason = min(score, DOUBTFUL), f"it may also be {candidate.column}"
                lines.remove(candidate)
        lines.sort(key=lambda candidate: (not _is_care(candidate), candidate.index or 0, candidate.at))
        place = self._take("mailing.place")[:1] if "mailing_city" not in self._fields else []
        self._put("mailing", [*lines, *place], score, "lines", reason)

    def _place_situs(self) -> None:
        for field in ("situs_city", "situs_zip"):
            self._place_single(field)
        parts = [
            best_of_part[0]
            for part in _SITUS_PARTS
            if (best_of_part := [candidate for candidate in self._take(part) if candidate.score >= LIKELY_FROM])
        ]
        kinds = {candidate.field: candidate.score for candidate in parts}
        has_parts = kinds.keys() >= {"situs.number", "situs.street"}
        full = self._take("situs_address")
        if full and has_parts and self._begins(full[0], parts[0]):
            kinds["situs.number"] = max(kinds["situs.number"], CERTAIN_FROM)
        if full and not (has_parts and self._is_longer(full[0], parts)):
            best, score, reason = self._best(full, _plain)
            given = self._table.values(best.key)
            if given and 2 * sum(map(column_values.has_city, given)) > len(given):
                score, reason = min(score, LIKELY), "it includes the city"
            numbered = [candidate for candidate in full if candidate.index and candidate.index > 1 and best.index == 1]
            conversion = "joined" if numbered else "text"
            self._put("situs_address", [best, *numbered], score, conversion, reason)
        elif has_parts:
            self._put("situs_address", parts, min(kinds["situs.number"], kinds["situs.street"]), "joined")

    def _is_longer(self, full: _Candidate, parts: Sequence[_Candidate]) -> bool:
        """Whether the full address has more than its parts: the city, after a comma."""
        longer, count = 0, 0
        for row in self._table.rows:
            joined = _plain(" ".join(filter(None, (values.json_text(row.get(candidate.key)) for candidate in parts))))
            whole = _plain(row.get(full.key))
            if joined and whole:
                count += 1
                longer += whole.replace(" ,", ",").startswith(f"{joined},")
        return longer > _GOOD_FIT * count

    def _place_legal(self) -> None:
        candidates = self._take("legal_description")
        if candidates:
            best = candidates[0]
            lines = [
                candidate
                for candidate in candidates
                if candidate.rank == best.rank and (candidate.index or 0) > 0 and best.index
            ]
            if lines:
                self._put(
                    "legal_description",
                    sorted(lines, key=lambda candidate: (candidate.index or 0, candidate.at)),
                    best.score,
                    "joined",
                )
            else:
                more = [candidate for candidate in candidates if candidate.index == 2 and candidate.rank == best.rank]
                chosen, score, reason = self._best(candidates, _plain)
                self._put("legal_description", [chosen, *more], score, "joined" if more else "text", reason)

    def _place_acres(self) -> None:
        candidates = [candidate for candidate in self._take("land_area_acres") if candidate.score >= LIKELY_FROM]
        if candidates:
            self._put("land_area_acres", candidates, candidates[0].score)

    def _is_land(self, candidate: _Candidate) -> bool:
        """Whether square feet are those of the land: they agree with its acres."""
        acres = self._fields.get("land_area_acres")
        pairs = self._amounts(candidate.key, column_name(acres.columns[0])) if acres is not None else []
        sizes = [(feet, size * _FEET_PER_ACRE) for feet, size in pairs if feet and size]
        if not sizes or sum(abs(feet - size) < _ROUNDED * size for feet, size in sizes) < _GOOD_FIT * len(sizes):
            return False
        self._notes[candidate.column] = "the area of the land"
        return True

    def _place_land_use(self) -> None:
        """A column may be named for the code and hold words, or the other way round."""
        codes, words = self._take("land_use_code"), self._take("land_use_desc")
        coded = [candidate for candidate in codes if not self._is_worded(candidate)]
        worded = [*words, *(candidate for candidate in codes if self._is_worded(candidate))]
        for field, candidates in (("land_use_code", coded), ("land_use_desc", worded)):
            if candidates:
                best, score, reason = self._best(candidates, _plain)
                self._put(field, [best], score, reason=reason)

    def _is_worded(self, candidate: _Candidate) -> bool:
        given = [_plain(value) or "" for value in self._table.values(candidate.key)]
        return 2 * sum(len(text) > 6 and sum(sign.isalpha() for sign in text) > 4 for text in given) > len(given) > 0

    def _place_unqualified(self) -> None:
        """ADDRESS, CITY, STATE and ZIP are the owner's or the property's: by the columns around them and by values."""
        parts = {part: self._take(f"unqualified.{part}") for part in ("address", "city", "state", "zip")}
        if not any(parts.values()):
            return
        mailing = {
            field: self._take(field) for field in ("mailing.line", "mailing_city", "mailing_state", "mailing_zip")
        }
        target, score = self._whose(parts, has_mailing=bool(mailing["mailing.line"]))
        for part, candidates in parts.items():
            place, sure = target, score
            if target == "situs" and part != "address" and mailing["mailing_city"] and not mailing[f"mailing_{part}"]:
                place, sure = "mailing", DOUBTFUL
            elif target == "situs" and part in ("city", "zip") and mailing[f"mailing_{part}"]:
                sure = CERTAIN_FROM if score >= CERTAIN_FROM else DOUBTFUL
            if place == "mailing" and not self._are_together(candidates, parts):
                sure = DOUBTFUL
            if self._follows(candidates, mailing) and place == "mailing":
                place, sure = "mailing", CERTAIN_FROM
            if (field := _UNQUALIFIED.get((place, part))) is None:
                continue
            self._candidates.setdefault(field, []).extend(
                structs.replace(candidate, field=field, score=min(candidate.score, sure), rank=_UNQUALIFIED_RANK)
                for candidate in candidates
            )
            for candidate in candidates:
                self._notes[candidate.column] = (
                    f"the {'owner' if place == 'mailing' else 'property'}'s, judging by the columns next to it"
                )
            self._candidates[field].sort(key=lambda candidate: candidate.order)

    def _whose(self, parts: Mapping[str, list[_Candidate]], *, has_mailing: bool) -> tuple[str, float]:
        """Whether unqualified columns are the owner's (mailing) or the property's (situs), and how sure that is."""
        numbers, streets = self._take("situs.number"), self._take("situs.street")
        has_situs = bool(self._take("situs_address") or streets)
        if parts["address"] and numbers and self._begins(parts["address"][0], numbers[0]):
            return "situs", CERTAIN_FROM
        states = {_plain(value) for candidate in parts["state"] for value in self._table.values(candidate.key)}
        lines = [
            value
            for candidate in parts["address"]
            if (candidate.index or 1) > 1
            for value in self._table.values(candidate.key)
        ]
        states |= {
            place.state for value in lines if (place := values.city_state_zip(values.json_text(value))) is not None
        }
        if len(states) > 1:
            return "mailing", CERTAIN_FROM if has_situs and not has_mailing else DOUBTFUL
        if has_mailing and not has_situs:
            return "situs", CERTAIN_FROM if self._differs(parts["address"], self._take("mailing.line")) else DOUBTFUL
        if not has_mailing and self._precedes(parts["address"], self._take("mailing_city")):
            return "mailing", DOUBTFUL
        if has_situs and not has_mailing:
            if parts["address"] or parts["state"]:
                return "mailing", DOUBTFUL
            return "situs", CERTAIN_FROM if numbers else DOUBTFUL
        if has_situs and has_mailing:
            return "situs", DOUBTFUL
        return ("mailing", DOUBTFUL) if parts["state"] else ("situs", CERTAIN_FROM if numbers else DOUBTFUL)

    def _differs(self, candidates: Sequence[_Candidate], others: Sequence[_Candidate]) -> bool:
        """Whether an address is another one than the owner's in some row: not its copy."""
        return not candidates or any(
            self._table.unlike(candidates[0].key, candidate.key, _plain) > 0 for candidate in others[:1]
        )

    def _precedes(self, candidates: Sequence[_Candidate], others: Sequence[_Candidate]) -> bool:
        """Whether an address comes directly before the owner's city: ADDRESS, MAILCITY."""
        return any(0 < other.at - candidate.at <= _NEAR for candidate in candidates for other in others)

    def _are_together(self, candidates: Sequence[_Candidate], parts: Mapping[str, list[_Candidate]]) -> bool:
        """Whether columns stand beside others of the same address."""
        others = {candidate.at for known in parts.values() for candidate in known if candidate not in candidates}
        alone = parts["address"] == candidates and len(candidates) > 1
        return alone or all(
            others & set(range(candidate.at - _NEAR, candidate.at + _NEAR + 1)) for candidate in candidates
        )

    def _begins(self, address: _Candidate, number: _Candidate) -> bool:
        """Whether the addresses begin with the property's house numbers."""
        pairs = [(_plain(row.get(address.key)), _plain(row.get(number.key))) for row in self._table.rows]
        both = [(text, house) for text, house in pairs if text and house and house != "0"]
        return bool(both) and sum(text.startswith(f"{house} ") for text, house in both) >= _GOOD_FIT * len(both)

    def _follows(self, candidates: Sequence[_Candidate], mailing: Mapping[str, list[_Candidate]]) -> bool:
        """Whether the columns come directly after the owner's: MAILADDR, CITY, STATE, ZIP."""
        before = {candidate.at for field in ("mailing.line", "mailing_city") for candidate in mailing[field]}
        return bool(candidates) and all(
            before & set(range(candidate.at - _NEAR, candidate.at)) for candidate in candidates
        )

    def _place_total(self) -> None:
        """A total of unknown kind is of the kind of its parts, if land and buildings add up to it; it is the market
        value if the assessed value is lower."""
        self._check_building()
        total, assessed = self._fields.get("market_value"), self._fields.get("assessed_value")
        if total is None or not LIKELY_FROM <= total.confidence < CERTAIN_FROM:
            return
        key = column_name(total.columns[0])
        if assessed is not None and assessed.confidence >= CERTAIN_FROM:
            pairs = self._amounts(key, column_name(assessed.columns[0]))
            if any(a > b for a, b in pairs) and all(a >= b for a, b in pairs):
                reason = "higher than the assessed value"
                self._fields["market_value"] = structs.replace(total, confidence=CERTAIN_FROM, reason=reason)
            elif pairs and all(a == b for a, b in pairs):
                del self._fields["market_value"]
            return
        parts = [self._fields[field] for field in ("land_value", "building_value") if field in self._fields]
        if len(parts) < 2 or not self._adds_up(key, [column_name(proposed.columns[0]) for proposed in parts]):
            return
        kinds = [
            words_of(proposed.columns[0]).words & {"market", "appraised", "assessed", "just", "cash"}
            for proposed in parts
        ]
        if kinds[0] == kinds[1] and kinds[0]:
            field = "assessed_value" if "assessed" in kinds[0] else "market_value"
            del self._fields["market_value"]
            self._fields[field] = structs.replace(
                total, confidence=CERTAIN_FROM, reason="land and buildings add up to it"
            )

    def _check_building(self) -> None:
        """Columns that are only likely to be the value of the land and of the buildings are certain if they add up."""
        parts = {field: self._fields[field] for field in ("land_value", "building_value") if field in self._fields}
        if len(parts) < 2 or all(proposed.confidence >= CERTAIN_FROM for proposed in parts.values()):
            return
        keys = [column_name(proposed.columns[0]) for proposed in parts.values()]
        totals = [self._fields[field] for field in ("market_value", "assessed_value") if field in self._fields]
        if any(self._adds_up(column_name(proposed.columns[0]), keys) for proposed in totals):
            for field, proposed in parts.items():
                if proposed.confidence < CERTAIN_FROM:
                    reason = "land and buildings add up to the total"
                    self._fields[field] = structs.replace(proposed, confidence=CERTAIN_FROM, reason=reason)

    def _adds_up(self, total: str, parts: Sequence[str]) -> bool:
        """Whether it is the sum in most rows. Rows in which a part is 0 say nothing about that part."""
        sums = [
            (amount, sum(amounts, Decimal()))
            for row in self._table.rows
            if (amount := _amount(row.get(total)))
            and all(amounts := [_amount(row.get(part)) or Decimal() for part in parts])
        ]
        return len(sums) >= _MIN_SUMS and sum(a == b for a, b in sums) >= 0.8 * len(sums)

    def _amounts(self, key: str, other_key: str) -> list[tuple[Decimal, Decimal]]:
        pairs = ((_amount(row.get(key)), _amount(row.get(other_key))) for row in self._table.rows)
        return [(a, b) for a, b in pairs if a is not None and b is not None]

    def _note_sale(self) -> None:
        """A price of 0 means unknown if the rows with it have no date either."""
        price, day = self._fields.get("last_sale_price"), self._fields.get("last_sale_date")
        if price is None or day is None:
            return
        keys = column_name(price.columns[0]), column_name(day.columns[0])
        free = [row for row in self._table.rows if _amount(row.get(keys[0])) == 0]
        if free and all(values.json_date(row.get(keys[1])) is None for row in free):
            self._fields["last_sale_price"] = structs.replace(price, conversion="some")


_UNQUALIFIED_RANK = 9
"""Columns that say whose address they are precede those that do not."""
_UNQUALIFIED = {
    ("mailing", "address"): "mailing.line",
    ("mailing", "city"): "mailing_city",
    ("mailing", "state"): "mailing_state",
    ("mailing", "zip"): "mailing_zip",
    ("situs", "address"): "situs_address",
    ("situs", "city"): "situs_city",
    ("situs", "zip"): "situs_zip",
}
_FIELD_ORDER = (
    *("parcel_id", "tax_account", "owner_names", "mailing", "mailing_city", "mailing_state", "mailing_zip"),
    *("mailing_country", "situs_address", "situs_city", "situs_zip", "latitude", "longitude", "legal_description"),
    *("subdivision", "sec_twp_rng", "land_use_code", "land_use_desc", "zoning", "flood_zone", "land_area_acres"),
    *("building_area_sqft", "year_built", "building_count", "bedrooms", "bathrooms", "value_year", "land_value"),
    *("building_value", "extra_feature_value", "market_value", "assessed_value", "exemption_value", "taxable_value"),
    *("taxable_value_school", "homestead", "last_sale_date", "last_sale_price", "last_sale_book_page", "tax_year"),
    *("tax_amount", "tax_due"),
)


_WHOSE = ("mail", "owner", "taxpayer", "bill", "tax")


def _whose(candidate: _Candidate) -> int:
    """The best of a table's addresses is that of the mail, then that of the owner."""
    words = words_of(last_part(candidate.column)).words
    return next((at for at, word in enumerate(_WHOSE) if word in words), len(_WHOSE))


def _is_care(candidate: _Candidate) -> bool:
    return "care" in words_of(last_part(candidate.column)).words


def _plain(value: Json) -> str | None:
    text = values.json_text(value)
    return " ".join(text.upper().split()) if text else None


def _norm(value: Json) -> str | None:
    return values.parcel_norm(values.json_text(value)) or None


def _amount(value: Json) -> Decimal | None:
    return values.json_money(value)


def placed_manually(field: str, column: str) -> Proposed | None:
    """A column that the operator places; None if there is no such field."""
    if field not in _FIELD_ORDER:
        return None
    conversion = {"owner_names": "texts", "mailing": "lines"}.get(field) or _CONVERSIONS.get(field, "text")
    return Proposed(conversion, (column,), 1.0, "set manually")
