"""Owner names and mailing addresses, as pages print them in one block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcelpost.scrapers.html.values import CityStateZip, city_state_zip, clean
from parcelpost.scrapers.records.record import Record

_STREET = re.compile(
    r"(P\.?\s?O\.?\s*(?:BOX|BX|DRAWER)\b|P\.?O\.?B\.?\s+\d|POST OFFICE (?:BOX|DRAWER)\b|P?BOX\s+\d|PMB\s+\d"
    r"|\d+[A-Z]?(-\d+)?\s+\S|#\s*\d|R[RT]\s*#?\d|R\.?F\.?D\.?\s*#?\d|ROUTE\s+\d|RURAL ROUTE\b|STAR ROUTE\b|HCR?\s*\d"
    r"|PSC\s+\d|CMR\s+\d|GENERAL DELIVERY\b|(?:STATE|COUNTY|US)\s+(?:HWY|HIGHWAY|ROAD|RD|ROUTE|RTE)\b"
    r"|(?:HWY|HIGHWAY|CR|SR)\s+\d"
    r"|ONE\s+\w|(?:APT|UNIT|STE|SUITE|FLOOR|LOT)\b\s*#?\S|[NSEW]\d+\s?[NSEW]?\d*\s+\S|[NS]?[EW]?(?<=[NSEW])\s+\d)",
    re.IGNORECASE,
)
_FIRM = re.compile(
    r"\b(LLC|L\.?L\.?C\.?|INC|CORP|CORPORATION|TRUST|TRUSTEES?|LP|LLP|LTD|LLLP|CO|COMPANY|HOLDINGS|PROPERTIES|ESTATE|BANK|ASSOC(?:IATION|IATES)?"
    r"|PARTNERS(?:HIP)?|INVESTMENTS?|REV|ET\s?AL|CHURCH|FOUNDATION)\b\.?(?:\s*&)?$",
    re.IGNORECASE,
)
"""The end of a name that may begin with digits: `123 MAIN LLC`."""
_CARE_OF = re.compile(r"(?:C/O|%|ATTN|ATTENTION|CARE OF)\b|C/O|%", re.IGNORECASE)
_CARED_FOR = re.compile(r"(\S.*?\S)\s+((?:%|C/O)\s*\S.*)", re.IGNORECASE)
_ZIP = re.compile(r"\d{5}(?:-?\d{4})?$", re.ASCII)
_WHOLE = re.compile(r"([^,]{3,80}),\s*([^,\d]{2,40},\s*[A-Z]{2}[,\s]+\d{5}(?:-?\d{4})?)", re.ASCII | re.IGNORECASE)
"""Street, city, state and zip on one line, separated by commas."""
_COUNTRIES = frozenset(
    {
        *("ARGENTINA", "AUSTRALIA", "AUSTRIA", "BAHAMAS", "BELGIUM", "BERMUDA", "BRAZIL", "CANADA", "CHILE", "CHINA"),
        *("COLOMBIA", "COSTA RICA", "DENMARK", "DOMINICAN REPUBLIC", "ECUADOR", "ENGLAND", "FINLAND", "FRANCE"),
        *("GERMANY", "GREAT BRITAIN", "INDIA", "IRELAND", "ISRAEL", "ITALY", "JAMAICA", "JAPAN", "MEXICO"),
        *("NETHERLANDS", "NEW ZEALAND", "NORWAY", "PANAMA", "PERU", "SCOTLAND", "SOUTH AFRICA", "SOUTH KOREA", "SPAIN"),
        *("SWEDEN", "SWITZERLAND", "UK", "UNITED KINGDOM", "VENEZUELA"),
    }
)
_FOREIGN_PLACES = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        r"(?P<city>\D+?)[,\s]+(?P<state>AB|BC|MB|NB|NL|NS|NT|NU|ON|PE|QC|SK|YT)[,\s]+(?P<zip>[A-Z]\d[A-Z]\s?\d[A-Z]\d)",
        r"(?P<city>\D+?)[,\s]+(?P<state>NSW|VIC|QLD|WA|SA|TAS|ACT|NT)[,\s]+(?P<zip>\d{4})",
        r"(?P<city>\D+?)[,\s]+(?P<zip>[A-Z]{1,2}\d[A-Z\d]?\s?\d[A-Z]{2})",
        r"(?:[A-Z]{1,2}-)?(?P<zip>\d{4,6})[,\s]+(?P<city>\D{2,40})",
        r"(?P<city>\D{2,40}?)[,\s]+(?P<zip>\d{4,6}(?:-\d{3})?)",
    )
)
"""City lines of Canada, Australia, Great Britain, and countries that write the postcode first or last."""
_CANADIAN = _FOREIGN_PLACES[0]
_FRAGMENT = re.compile(
    r"(?:(?:AS|CO-?|SUCCESSOR)\s?)*(?:TRUSTEES?|TTEES?)(?: OF .*)?"
    r"|(?:(?:REVOCABLE|IRREVOCABLE|REV|LIVING|FAMILY|LAND|JOINT)\.? )+TR(?:UST)?(?: (?:DATED|U/?A/?D?|#|\d).*)?"
    r"|TRUST(?: (?:DATED|U/?A/?D?|#|\d).*)?|DATED .*|U/?A/?D .*|OF [A-Z].*|ET ?[/.]? ?(?:UX|AL|VIR)\.?"
    r"|\(?LIFE ESTATE\)?|H ?/ ?W|JT ?/? ?RS",
    re.IGNORECASE,
)
"""The rest of the name above: `TRUSTEE`, `REVOCABLE TRUST`, `OF RAIFORD`."""
_DOMESTIC = frozenset({"USA", "US", "U.S.A", "UNITED STATES", "UNITED STATES OF AMERICA"})
_MIN_LINES = 3
"""Name, street and city."""
_OPEN_END = ("&", " AND", " OR", ",")


def owners_and_mailing(
    lines: Sequence[str], names: int | None = None, at_least: int = 1
) -> tuple[list[str], list[str], CityStateZip | None]:
    """Splits a block into owner names, address lines, and the city, state and zip of its last line.

    `names`: how many lines at the top are names, if known; otherwise all lines before the first that looks like a
    street or PO box, but at least `at_least`. A name that ends in `&` continues on the next line; a care-of line is not
    an owner. The name of a foreign country ends an address without a state.
    """
    rest = [line for line in map(clean, lines) if line.strip(".,- ")]
    if rest and rest[-1].strip(" .").upper() in _DOMESTIC:
        rest = rest[:-1]
    rest, last = _without_place(rest, are_names_known=names is not None)
    count = names if names is not None else _names(rest, at_least)
    owners, carers = _parted(joined_names(rest[:count]))
    return owners, carers + rest[count:], last


def _without_place(lines: list[str], *, are_names_known: bool) -> tuple[list[str], CityStateZip | None]:
    """The city may be on the last line, on the last two or three, or after the street."""
    if (foreign := _foreign_place(lines)) is not None:
        return foreign
    last = city_state_zip(lines[-1], is_last=_is_street(lines[-2:-1])) if lines else None
    if last is not None and last.zip is None and not are_names_known and len(lines) < _MIN_LINES:
        last = last if is_last_of_address(lines) else None
    if last is not None:
        return lines[:-1], last
    for count in (2, 3):
        place = city_state_zip(" ".join(lines[-count:])) if len(lines) > count - 1 else None
        if (
            place is not None
            and place.zip is not None
            and _ZIP.search(lines[-1])
            and city_state_zip(lines[-count]) != place
        ):
            return lines[:-count], place
    found_in = _WHOLE.fullmatch(lines[-1]) if lines else None
    if found_in and _is_street([found_in[1]]) and (place := city_state_zip(found_in[2])) is not None:
        return [*lines[:-1], found_in[1]], place
    return lines, None


def _foreign_place(lines: list[str]) -> tuple[list[str], CityStateZip] | None:
    """The lines above the city, and the city, of an address in another country."""
    country = country_of(lines)
    rest = list(lines)
    if country is not None:
        last = rest.pop().strip(" .")
        without = last[: len(last) - len(country)].strip(" ,.")
        rest += [without] if without else []
    patterns = _FOREIGN_PLACES if country is not None else (_CANADIAN,)
    for pattern in patterns if rest else ():
        if match := pattern.fullmatch(rest[-1]):
            parts = match.groupdict()
            state = parts.get("state")
            city = parts["city"].strip(" ,")
            place = CityStateZip(city, state.upper() if state else None, parts["zip"].upper(), country or "CANADA")
            return rest[:-1], place
    return None


def take_mailing(record: Record, lines: Sequence[str], place: CityStateZip | None) -> None:
    """The address of the record: lines without the city, and the city."""
    record.mailing_lines = list(lines)
    record.mailing_country = country_of(lines)
    if place is not None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip
        record.mailing_country = place.country or record.mailing_country


def is_street(line: str) -> bool:
    """Whether the line looks like a street, a PO box or a care-of line."""
    return _STREET.match(line) is not None or _CARE_OF.match(line) is not None


def _is_street(lines: Sequence[str]) -> bool:
    return any(_STREET.match(clean(line)) for line in lines)


def _parted(names: list[str]) -> tuple[list[str], list[str]]:
    """`SMITH JOHN % JANE DOE`: the owner, and who receives the mail."""
    owners, carers = [], []
    for name in names:
        match = _CARED_FOR.fullmatch(name)
        owners.append(match[1] if match else name)
        carers += [match[2]] if match else []
    return owners, carers


def is_last_of_address(lines: Sequence[str]) -> bool:
    """Whether the last line has the city. Without a zip, only below a street: `JONES ROBERT, MD` is a name."""
    place = city_state_zip(lines[-1]) if lines else None
    return place is not None and (place.zip is not None or any(_STREET.match(clean(line)) for line in lines[:-1]))


def country_of(lines: Sequence[str]) -> str | None:
    """The foreign country at the end of an address, as written; None if there is none."""
    last = clean(lines[-1]) if lines else ""
    words = last.upper().strip(" .").split()
    for count in (1, 2):
        if " ".join(words[-count:]) in _COUNTRIES:
            return " ".join(last.strip(" .").split()[-count:])
    return None


def _names(lines: Sequence[str], at_least: int) -> int:
    """How many of the lines are names."""
    is_foreign = country_of(lines) is not None
    for number, line in enumerate(lines):
        if number < at_least:
            continue
        if is_foreign and any(sign.isdigit() for sign in line):
            return number  # in other countries the house number follows the street
        if _CARE_OF.match(line) or (_STREET.match(line) and not _is_firm(line, lines[number + 1 :])):
            return number
    return min(len(lines), max(at_least, len(lines) - 1))


def _is_firm(line: str, after: Sequence[str]) -> bool:
    """Whether the line is a company name that looks like a street, with the street still to come."""
    return _FIRM.search(line) is not None and any(_STREET.match(text) or _CARE_OF.match(text) for text in after)


def joined_names(lines: Sequence[str]) -> list[str]:
    """Joins names that continue on the next line: after a `&`, or with a part that is no name."""
    joined: list[str] = []
    for line in lines:
        if joined and (joined[-1].upper().endswith(_OPEN_END) or _FRAGMENT.fullmatch(line)):
            joined[-1] = f"{joined[-1]} {line}"
        else:
            joined.append(line)
    return [name.rstrip(" &,") for name in joined]
