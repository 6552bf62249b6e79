"""Finds changes between two scrapes of a parcel that people act on. No I/O.

Only facts count. A value that a page no longer shows or that could not be read is not a change, nor is the order of
rows, the spelling of a name, or the same page parsed again. What several sources show is reported once: by the first
that shows it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from parcelpost.errors import InvalidInput
from parcelpost.model import Json
from parcelpost.search_fields import (
    Lien,
    SearchFields,
    cents,
    liens_of,
    one_line,
    search_fields,
    subsequent_taxes_of,
    text_or_number,
)

_MAX_ITEMS = 200
_MAX_NAMES = 50
_MAX_NAME = 200
_MAX_TEXT = 500
_MAX_KEPT = 1_000
"""Liens, and later taxes, that are known of a source."""
_WORDS = re.compile(r"[^\W_]+")
_REDEEMED = frozenset({"redeemed", "paid", "satisfied", "released", "discharged"})
_NOT_SPELLED = re.compile("['`\u2018\u2019\u02bb\u02bc\u0300-\u036f]")
"""Apostrophes and accents."""
_INITIALS = re.compile(r"\b([^\W\d]) (?=[^\W\d]\b)")
_VALUES = ("land_value", "building_value", "market_value", "assessed_value", "taxable_value")


T = TypeVar("T")


class Kind(StrEnum):
    """What a change is about."""

    PARCEL_NEW = "parcel.new"
    OWNER_CHANGED = "owner.changed"
    VALUE_CHANGED = "value.changed"
    TAX_DELINQUENT = "tax.delinquent"
    TAX_PAID = "tax.paid"
    SALE_NEW = "sale.new"
    LIEN_NEW = "lien.new"
    LIEN_CHANGED = "lien.changed"
    """Another status, holder or amount."""
    LIEN_SUBTAXED = "lien.subtaxed"
    """The holder paid a later tax on the certificate."""
    LIEN_REDEEMED = "lien.redeemed"
    LIEN_GONE = "lien.gone"
    """No longer shown by any source that used to show it."""


def checked_kinds(names: Iterable[str]) -> tuple[str, ...]:
    """Checks the names of kinds: `lien.new`, or `lien` for all changes of liens. Raises InvalidInput."""
    known = {*Kind, *(kind.partition(".")[0] for kind in Kind)}
    kinds = tuple(dict.fromkeys(names))
    for name in kinds:
        if name not in known:
            raise InvalidInput(f"unknown kind of change: {name!r:.100}", hint=f"the kinds are {', '.join(Kind)}")
    return kinds


class SaleFacts(Struct, frozen=True, omit_defaults=True, gc=False):
    date: str
    price_cents: int | None = None
    reference: str = ""
    """Words and numbers of its book and page, or of its document number, without leading zeros."""

    def is_same(self, other: SaleFacts) -> bool:
        """A sale may get its price or its reference later, and a price may be corrected."""
        return self.date == other.date and (
            "" in (self.reference, other.reference) or self.reference == other.reference
        )


class LienFacts(Struct, frozen=True, omit_defaults=True, gc=False):
    number: str = ""
    """Its certificate or case number, as shown."""
    year: int | None = None
    status: str | None = None
    holder_name: str | None = None
    amount_cents: int | None = None
    sale_date: str | None = None

    @property
    def is_redeemed(self) -> bool:
        return self.status in _REDEEMED


VOLATILE = frozenset({"scraped_at", "raw_html_hash", "parser_version", "field_map"})
"""Fields that differ even if the page did not change."""

_FINGERPRINT_CHARS = 24


class Facts(Struct, frozen=True, omit_defaults=True, gc=False):
    """The facts of one source, as it last showed each of them."""

    owner: tuple[str, ...] = ()
    values: Mapping[str, int] = {}
    """Amounts in cents by field."""
    value_year: int | None = None
    delinquent: bool | None = None
    tax_due_cents: int | None = None
    sales: tuple[SaleFacts, ...] | None = None
    """None: not known."""
    liens: Mapping[str, LienFacts] = {}
    """Liens by key."""
    subsequent_taxes: Mapping[str, int | None] = {}
    """Amount in cents, by the certificate's key and the day."""
    has_all_liens: bool = True
    parser: str = ""
    """Version of the parser that read it last."""
    fingerprint: str = ""
    """Of everything that the record shows."""
    is_repeated: bool = False
    """The scrape before it showed the same."""
    changed_at: Mapping[str, datetime] = {}
    """When the source was scraped that first showed another `owner`, `tax` or value than before, by name."""


class Change(Struct, frozen=True, gc=False):
    kind: Kind
    subject: str = ""
    """Certificate or case of a lien, or the day of a sale."""
    before: Mapping[str, Json] = {}
    after: Mapping[str, Json] = {}
    """Money in dollars."""


_FIELDS = (
    *("owner", *_VALUES, "value_year", "delinquent", "tax_due", "date", "price", "certificate", "day", "amount"),
    *("number", "year", "status", "holder_name", "sale_date"),
)
"""In `before` and `after` of changes."""


def checked_field(name: str) -> str:
    """'' stays. Raises InvalidInput for a field that no change has."""
    if name and name not in _FIELDS:
        raise InvalidInput(f"no change has the field {name!r:.100}", hint=f"the fields are {', '.join(_FIELDS)}")
    return name


def facts_of(data: bytes) -> Facts:
    """Extracts the facts from a record's JSON. Never raises for a record that was ingested."""
    record: Mapping[str, Json] = msgspec.json.decode(data)
    fields = search_fields(record, data)
    shown = {name: value for name, value in record.items() if name not in VOLATILE}
    values = {name: amount for name in _VALUES if (amount := cents(record.get(name))) is not None}
    year = record.get("value_year")
    return Facts(
        owner=_owner(record),
        values=values,
        value_year=year if isinstance(year, int) and not isinstance(year, bool) and 0 < year < 10_000 else None,
        delinquent=fields.delinquent,
        tax_due_cents=fields.tax_due_cents,
        sales=_sales(record, fields),
        liens={lien.key: _lien_facts(lien) for lien in fields.liens if lien.key},
        subsequent_taxes=dict(subsequent_taxes_of(liens_of(record)[:_MAX_ITEMS])),
        has_all_liens=fields.has_all_liens and not fields.has_more_liens,
        parser=parser[:_MAX_NAME] if isinstance(parser := record.get("parser_version"), str) else "",
        fingerprint=hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:_FINGERPRINT_CHARS],
    )


def _owner(record: Mapping[str, Json]) -> tuple[str, ...]:
    names = record.get("owner_names")
    if not isinstance(names, list):
        return ()
    return tuple(name[:_MAX_NAME] for name in names[:_MAX_NAMES] if isinstance(name, str) and name.strip())


def _sales(record: Mapping[str, Json], fields: SearchFields) -> tuple[SaleFacts, ...] | None:
    sales, unreadable = record.get("sales"), record.get("unreadable")
    if not isinstance(sales, list) or (not sales and fields.is_partial):
        return None
    if isinstance(unreadable, list) and any(str(name).startswith("sales") for name in unreadable):
        return None
    return tuple(
        SaleFacts(
            date=date,
            price_cents=cents(sale.get("price")),
            reference=_reference(str(sale.get("book_page") or sale.get("clerk_number") or "")[:_MAX_TEXT]),
        )
        for sale in sales[:_MAX_ITEMS]
        if isinstance(sale, dict) and (date := one_line(sale.get("date")))
    )


def _reference(text: str) -> str:
    reference = "-".join(word.lstrip("0") for word in _words(text))
    return reference if reference.strip("-") else ""


def _lien_facts(lien: Lien) -> LienFacts:
    case = text_or_number(msgspec.json.decode(lien.json).get("case_number"))
    return LienFacts(
        number=lien.certificate_number or case or "",
        year=lien.certificate_year or lien.tax_year,
        status=lien.status,
        holder_name=lien.holder_name,
        amount_cents=lien.amount_cents,
        sale_date=lien.sale_date,
    )


def merged(known: Facts | None, new: Facts, scraped_at: datetime) -> Facts:
    """What is known of a source after a scrape: what the new record does not say stays as it was."""
    if known is None:
        return new
    sales = new.sales
    if known.sales is not None:
        earlier = (sale for sale in known.sales if not any(sale.is_same(newer) for newer in new.sales or ()))
        sales = (*(new.sales or ()), *earlier)[:_MAX_ITEMS]
    return structs.replace(
        new,
        owner=new.owner or known.owner,
        values={**known.values, **new.values},
        value_year=new.value_year or known.value_year,
        delinquent=known.delinquent if new.delinquent is None else new.delinquent,
        tax_due_cents=known.tax_due_cents if new.tax_due_cents is None else new.tax_due_cents,
        sales=sales,
        liens=new.liens if new.has_all_liens else _newest(known.liens, new.liens),
        subsequent_taxes=_newest(known.subsequent_taxes, new.subsequent_taxes),
        changed_at={**known.changed_at, **dict.fromkeys(_changed_facts(known, new), scraped_at)},
    )


def _newest(known: Mapping[str, T], new: Mapping[str, T]) -> dict[str, T]:
    kept = {name: value for name, value in known.items() if name not in new} | dict(new)
    return dict(list(kept.items())[-_MAX_KEPT:])


def _changed_facts(known: Facts, new: Facts) -> Iterator[str]:
    if _has_another_owner(known, new):
        yield "owner"
    if _is_delinquent_now(known, new) or _is_paid_now(known, new):
        yield "tax"
    yield from _changed_values(known, new)


def _has_another_owner(known: Facts, new: Facts) -> bool:
    return bool(known.owner and new.owner) and _name_words(known.owner) != _name_words(new.owner)


def _changed_values(known: Facts, new: Facts) -> list[str]:
    return [name for name, amount in new.values.items() if known.values.get(name, amount) != amount]


def _is_delinquent_now(known: Facts, new: Facts) -> bool:
    return bool(new.delinquent) and known.delinquent is False


def _is_paid_now(known: Facts, new: Facts) -> bool:
    was_due = known.tax_due_cents or 0
    paid_up = was_due > 0 and new.tax_due_cents == 0 and not new.delinquent
    return bool(known.delinquent and new.delinquent is False) or paid_up


def changes(known: Facts | None, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    """Compares a scrape of a source with what was known of it.

    `others` are the parcel's other sources: what one of them showed already is not reported again.
    """
    if known is None and not others:
        yield Change(Kind.PARCEL_NEW, after=_without_nulls(owner=list(new.owner)))
    if known is not None:
        yield from _owner_change(known, new, others)
        yield from _value_change(known, new, others)
        yield from _tax_change(known, new, others)
        yield from _sale_changes(known, new, others)
    yield from _lien_changes(known or Facts(), new, others)


def _is_reported(fact: str, known: Facts, others: Sequence[Facts], shows: Callable[[Facts], bool]) -> bool:
    """Whether another source shows the fact already, and was the last of all whose fact changed. One that still shows
    what was true before does not count, nor does one that never changed: what it showed at first was not reported.
    """
    changed = [source for source in (known, *others) if fact in source.changed_at]
    last = max(changed, key=lambda source: source.changed_at[fact], default=known)
    return last is not known and shows(last)


def _owner_change(known: Facts, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    def has_same_owner(other: Facts) -> bool:
        """One source leaves out a second owner, another a middle name."""
        names, shown = _name_words(new.owner), _name_words(other.owner)
        return bool(shown) and (names <= shown or shown <= names)

    if _has_another_owner(known, new) and not _is_reported("owner", known, others, has_same_owner):
        yield Change(Kind.OWNER_CHANGED, before={"owner": list(known.owner)}, after={"owner": list(new.owner)})


def _value_change(known: Facts, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    def has_same(name: str) -> Callable[[Facts], bool]:
        return lambda other: other.values.get(name) == new.values[name]

    changed = [name for name in _changed_values(known, new) if not _is_reported(name, known, others, has_same(name))]
    if changed:
        before = {name: _dollars(known.values[name]) for name in changed}
        after = {name: _dollars(new.values[name]) for name in changed}
        years = known.value_year, new.value_year
        yield Change(
            Kind.VALUE_CHANGED,
            before=before | _without_nulls(value_year=years[0]),
            after=after | _without_nulls(value_year=years[1]),
        )


def _tax_change(known: Facts, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    before, after = _tax(known), _tax(new)
    if _is_delinquent_now(known, new) and not _is_reported("tax", known, others, lambda other: bool(other.delinquent)):
        yield Change(Kind.TAX_DELINQUENT, before=before, after=after)
    if _is_paid_now(known, new) and not _is_reported("tax", known, others, lambda other: not other.delinquent):
        yield Change(Kind.TAX_PAID, before=before, after=after)


def _sale_changes(known: Facts, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    """A sale before the newest known one was recorded late or is shown by a better parser: it is not new."""
    if known.sales is None or not new.sales:
        return
    newest = max((sale.date for sale in known.sales), default="")
    shown = [*known.sales, *(sale for other in others for sale in other.sales or ())]
    for sale in new.sales:
        if sale.date >= newest and not any(sale.is_same(earlier) for earlier in shown):
            yield Change(
                Kind.SALE_NEW, sale.date, after=_without_nulls(date=sale.date, price=_dollars(sale.price_cents))
            )


def _lien_changes(known: Facts, new: Facts, others: Sequence[Facts]) -> Iterator[Change]:
    for key, lien in new.liens.items():
        elsewhere = [other.liens[key] for other in others if key in other.liens]
        before = known.liens.get(key)
        if before is None and not elsewhere:
            yield Change(Kind.LIEN_NEW, lien.number, after=_lien(lien))
            continue
        earlier = [*([before] if before else []), *elsewhere]
        if lien.is_redeemed:
            if not any(other.is_redeemed for other in earlier):
                yield Change(Kind.LIEN_REDEEMED, lien.number, _lien(earlier[0]), _lien(lien))
        elif before is not None and (changed := _changed_fields(before, lien, elsewhere)):
            old, now = _lien(before), _lien(lien)
            yield Change(
                Kind.LIEN_CHANGED,
                lien.number,
                {name: old.get(name) for name in changed},
                {name: now.get(name) for name in changed},
            )
    for tax, amount in new.subsequent_taxes.items():
        if not any(tax in source.subsequent_taxes for source in (known, *others)):
            certificate, _, day = tax.rpartition(" ")
            after = _without_nulls(certificate=certificate, day=day, amount=_dollars(amount))
            yield Change(Kind.LIEN_SUBTAXED, certificate, after=after)
    if new.has_all_liens:
        for key, lien in known.liens.items():
            if key not in new.liens and not any(key in other.liens for other in others):
                yield Change(Kind.LIEN_GONE, lien.number, before=_lien(lien))


def _changed_fields(before: LienFacts, after: LienFacts, elsewhere: Sequence[LienFacts]) -> list[str]:
    names = {"status": "status", "holder_name": "holder_name", "amount_cents": "amount"}
    return [
        shown
        for name, shown in names.items()
        if (value := _compared(getattr(after, name))) is not None
        and _compared(getattr(before, name)) not in (None, value)
        and value not in (_compared(getattr(other, name)) for other in elsewhere)
    ]


def _compared(value: str | int | None) -> object:
    return _words(value) if isinstance(value, str) else value


def _lien(lien: LienFacts) -> dict[str, Json]:
    fields = structs.asdict(lien)
    return _without_nulls(**fields | {"amount_cents": None, "amount": _dollars(lien.amount_cents)})


def _tax(facts: Facts) -> dict[str, Json]:
    return _without_nulls(delinquent=facts.delinquent, tax_due=_dollars(facts.tax_due_cents))


def _without_nulls(**fields: Json) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _dollars(amount: int | None) -> Decimal | None:
    return None if amount is None else Decimal(amount) / 100


def _words(text: str) -> list[str]:
    """In capital letters, without accents and apostrophes. `L.L.C.` is one word."""
    plain = _NOT_SPELLED.sub("", unicodedata.normalize("NFKD", text)).upper()
    return _INITIALS.sub(r"\1", " ".join(_WORDS.findall(plain))).split()


def _name_words(names: Iterable[str]) -> set[str]:
    """The words of all names: sites write `A & B` as one name or two, turn names around, and list one twice."""
    return {word for name in names for word in _words(name) if word != "AND"}


class Scraped(Struct, frozen=True, gc=False):
    """A scrape that has not been compared yet."""

    parcel_no: int
    source_no: int
    task_id: str
    scraped_at: datetime
    data: bytes
    raw_sha256: str | None = None
    """Of its page."""


class KnownFacts(Struct, frozen=True, gc=False):
    """What is known of a source, and the scrape that showed it last."""

    parcel_no: int
    source_no: int
    task_id: str
    scraped_at: datetime
    facts: Facts
    raw_sha256: str | None = None
    unchanged: tuple[tuple[str, datetime], ...] = ()
    """Task and time of scrapes that show what those before and after them show: they tell nothing more."""


class FoundChange(Struct, frozen=True, gc=False):
    scrape: Scraped
    change: Change


def compare(scrapes: Sequence[Scraped], known: Iterable[KnownFacts]) -> tuple[list[KnownFacts], list[FoundChange]]:
    """Compares scrapes, ordered by time, with what is known of all sources of their parcels.

    Returns what is known of the sources that were scraped, and what changed. An older scrape changes nothing. What
    another parser reads from the same page replaces what was known and is not a change.
    """
    sources = {facts.source_no: facts for facts in known}
    of_parcel: defaultdict[int, set[int]] = defaultdict(set)
    for source in sources.values():
        of_parcel[source.parcel_no].add(source.source_no)
    changed: list[FoundChange] = []
    touched: dict[int, KnownFacts] = {}
    for scrape in scrapes:
        before = sources.get(scrape.source_no)
        if before is not None and (scrape.scraped_at, scrape.task_id) < (before.scraped_at, before.task_id):
            continue
        facts, last = facts_of(scrape.data), before.facts if before else None
        if before is None or not _is_same_page(before, scrape, facts):
            numbers = of_parcel[scrape.parcel_no] - {scrape.source_no}
            others = [sources[number].facts for number in sorted(numbers)]
            changed += [FoundChange(scrape, change) for change in changes(last, facts, others)]
            facts = merged(last, facts, scrape.scraped_at)
        else:
            facts = structs.replace(merged(last, facts, scrape.scraped_at), changed_at=before.facts.changed_at)
        unchanged = touched[scrape.source_no].unchanged if scrape.source_no in touched else ()
        if before is not None and before.facts.fingerprint == facts.fingerprint:
            is_new = scrape.task_id != before.task_id
            if is_new and before.facts.is_repeated:
                unchanged = (*unchanged, (before.task_id, before.scraped_at))
            facts = structs.replace(facts, is_repeated=is_new or before.facts.is_repeated)
        sources[scrape.source_no] = touched[scrape.source_no] = KnownFacts(
            scrape.parcel_no, scrape.source_no, scrape.task_id, scrape.scraped_at, facts, scrape.raw_sha256, unchanged
        )
        of_parcel[scrape.parcel_no].add(scrape.source_no)
    return list(touched.values()), changed


def _is_same_page(before: KnownFacts, scrape: Scraped, facts: Facts) -> bool:
    """A record may be read from more than its page: the same page again can only be told from a change if it was read
    by another parser.
    """
    if (scrape.scraped_at, scrape.task_id) == (before.scraped_at, before.task_id):
        return True
    is_same = scrape.raw_sha256 is not None and scrape.raw_sha256 == before.raw_sha256
    return is_same and facts.parser != before.facts.parser
