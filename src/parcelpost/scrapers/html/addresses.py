"""Owner names and mailing addresses, as pages print them in one block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcelpost.scrapers.html.values import CityStateZip, city_state_zip, clean, is_nothing
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
_FOREIGN_STREET = re.compile(
    r"(?:CALLE|CARRERA|CALZADA|AVENIDA|AVDA|RUE|RUA|PASEO)\s.*\d.*"
    r"|\S*(?:STR|STRASSE|STRAAT|WEG|GASSE|PLATZ|ALLEE|GATAN|VEIEN)\.?\s+\d+\s?[A-Z]?",
    re.IGNORECASE,
)
"""Where the house number follows the street: `CALLE 5 NO 23`, `HAUPTSTR 5`."""
_NAMED_STREET = re.compile(
    r"(?:P\.?\s?O\.?\s*(?:BOX|BX|DRAWER)|POST OFFICE (?:BOX|DRAWER)) \S+"
    r"|\d+[A-Z]?(?:-\d+)? (?:\S+ ){0,5}(?:ST|STREET|AVE?|AVENUE|RD|ROAD|DR|DRIVE|LN|LANE|CT|COURT|CIR|CIRCLE|BLVD|WAY"
    r"|PL|PLACE|HWY|HIGHWAY|TER|TERRACE|TRL|TRAIL|PKWY)\.?(?: [NSEW]{1,2})?(?: (?:#|APT|UNIT|STE|SUITE|LOT)\.? ?\S+)?",
    re.IGNORECASE,
)
"""An address for certain, although it is in the place of a name."""
_BUILDING = re.compile(r".*\b(?:TOWERS?|BUILDING|BLDG|ARCADE|PLAZA)(?: (?:\d+|[A-Z]))?", re.IGNORECASE)
_UNIT = re.compile(
    r"(?:#|(?:UNIT|APT|APARTMENT|STE|SUITE|BLDG|BUILDING|LOT|RM|ROOM|FL|FLOOR|SPC|SPACE|TRLR|PH|SLIP|UPPR|LOWR)\b).{0,20}"
    r"|REAR|FRONT|UPPER|LOWER|UPSTAIRS|DOWNSTAIRS|BASEMENT|BSMT|GARAGE|PENTHOUSE|[NSEW]{1,2}",
    re.IGNORECASE,
)
_CARE_OF = re.compile(r"(?:C\s?[/\\]\s?O|ATTN|ATTENTION|CARE OF)\b|%", re.IGNORECASE)
_CARED_FOR = re.compile(r"(\S.*?\S)\s+((?:(?<!\d\s)%\s*\S|C\s?[/\\]\s?O\b|ATTN\b:?\s*\S).*)", re.IGNORECASE)
_ZIP = re.compile(r"\d{5}(?:-?\d{4})?$", re.ASCII)
_WHOLE = re.compile(r"([^,]{3,80}),\s*([^,\d]{2,40},\s*[A-Z]{2}[,\s]+\d{5}(?:-?\d{4})?)", re.ASCII | re.IGNORECASE)
"""Street, city, state and zip on one line, separated by commas."""
_COUNTRIES = frozenset(
    {
        *(
            "ARGENTINA",
            "AUSTRALIA",
            "AUSTRIA",
            "BAHAMAS",
            "BARBADOS",
            "BELGIE",
            "BELGIQUE",
            "BELGIUM",
            "BELIZE",
            "BERMUDA",
        ),
        *("BRASIL", "BRAZIL", "BRITISH WEST INDIES", "CANADA", "CAYMAN ISLANDS", "CHILE", "CHINA", "COLOMBIA"),
        *(
            "COSTA RICA",
            "CZECH REPUBLIC",
            "DANMARK",
            "DENMARK",
            "DEUTSCHLAND",
            "DOMINICAN REPUBLIC",
            "ECUADOR",
            "EGYPT",
        ),
        *("EL SALVADOR", "ENGLAND", "ESPANA", "FINLAND", "FRANCE", "GERMANY", "GREAT BRITAIN", "GREECE", "GUATEMALA"),
        *("HONDURAS", "HONG KONG", "HUNGARY", "ICELAND", "INDIA", "INDONESIA", "IRELAND", "ISRAEL", "ITALIA", "ITALY"),
        *(
            "JAMAICA",
            "JAPAN",
            "KOREA",
            "KUWAIT",
            "LUXEMBOURG",
            "MALAYSIA",
            "MEXICO",
            "MONACO",
            "NEDERLAND",
            "NETHERLANDS",
        ),
        *("NEW ZEALAND", "NICARAGUA", "NIGERIA", "NORGE", "NORTHERN IRELAND", "NORWAY", "OSTERREICH", "PANAMA"),
        *("PEOPLES REPUBLIC OF CHINA", "PERU", "PHILIPPINES", "POLAND", "PORTUGAL", "PR CHINA", "P R CHINA"),
        *("QATAR", "REPUBLIC OF KOREA", "RUSSIA", "SAUDI ARABIA", "SCHWEIZ", "SCOTLAND", "SINGAPORE", "SOUTH AFRICA"),
        *("SOUTH KOREA", "SPAIN", "SUISSE", "SVERIGE", "SWEDEN", "SWITZERLAND", "TAIWAN", "THAILAND", "THE BAHAMAS"),
        *(
            "THE NETHERLANDS",
            "UK",
            "UKRAINE",
            "UNITED ARAB EMIRATES",
            "UNITED KINGDOM",
            "URUGUAY",
            "VENEZUELA",
            "VIETNAM",
        ),
        "WALES",
    }
)
_MAX_COUNTRY_WORDS = max(len(name.split()) for name in _COUNTRIES)
_PROVINCES = {
    "ALBERTA": "AB",
    "BRITISH COLUMBIA": "BC",
    "MANITOBA": "MB",
    "NEW BRUNSWICK": "NB",
    "NEWFOUNDLAND": "NL",
    "NEWFOUNDLAND AND LABRADOR": "NL",
    "NOVA SCOTIA": "NS",
    "NORTHWEST TERRITORIES": "NT",
    "NUNAVUT": "NU",
    "ONTARIO": "ON",
    "PRINCE EDWARD ISLAND": "PE",
    "QUEBEC": "QC",
    "PQ": "QC",
    "SASKATCHEWAN": "SK",
    "YUKON": "YT",
}
_PROVINCE = "|".join((*sorted(_PROVINCES, key=len, reverse=True), *sorted(set(_PROVINCES.values()))))
_FOREIGN_PLACES = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"(?P<city>\D+?)[,\s]+(?P<state>{_PROVINCE})[,.\s]+(?:CANADA[,.\s]+)?(?P<zip>[A-Z]\d[A-Z][\s-]?\d[A-Z]\d)",
        r"(?P<city>\D+?)[,\s]+(?P<state>NSW|VIC|QLD|WA|SA|TAS|ACT|NT)[,\s]+(?P<zip>\d{4})",
        r"(?P<city>\D+?)[,\s]+(?P<zip>[A-Z]{1,2}\d[A-Z\d]?\s?\d[A-Z]{2})",
        r"(?:[A-Z]{1,2}-)?(?P<zip>\d{4,6})[,\s]+(?P<city>\D{2,40})",
        r"(?P<city>\D{2,40}?)[,\s]+(?P<zip>\d{4,6}(?:-\d{3})?)",
    )
)
"""City lines of Canada, Australia, Great Britain, and countries that write the postcode first or last."""
_CANADIAN = _FOREIGN_PLACES[0]
_TRUST_TEXT = r"(?: (?:DATED|DTD|U/[ADT]\b|UTD\b|UAD\b|UDT\b|#|\d).*)?"
_FRAGMENT = re.compile(
    rf"(?:(?:AS|CO-?|SUCC(?:ESSOR)?)\.?\s?)*(?:TRUSTEES?|TTEES?|TRS?)\.?(?: OF .*|{_TRUST_TEXT})"
    r"|(?:AS |CO-?\s?)*(?:PERSONAL REP(?:RESENTATIVE)?S?|PERS\.? REPS?|EXECUT(?:OR|RIX|ORS)|ADMINISTRAT(?:OR|RIX|ORS)"
    r"|GUARDIANS?|CUSTODIANS?)\.?(?: OF .*)?"
    rf"|(?:(?:REVOCABLE|IRREVOCABLE|REV|LIVING|FAMILY|LAND|JOINT|SUCC(?:ESSOR)?)\.? )+TR(?:UST)?{_TRUST_TEXT}"
    rf"|TRUST{_TRUST_TEXT}|(?:DATED|DTD) .*|U/?A/?D .*|(?:U/[ADT](?:/[ADT])?|UTD|UAD|UDT)(?: .*)?"
    r"|UNDER (?:TRUST|AGREEMENT|DECLARATION|THE|AGMT)\b.*"
    r"|(?:ESTATE|EST|HEIRS|DEVISEES|HEIRS (?:AND|&) DEVISEES)(?: OF)?|DEC(?:EASED|'?D)?\.?"
    r"|OF [A-Z].*|ET ?[/.]? ?(?:UX|AL|VIR)\.?|(?:&|AND|OR) .*"
    r"|(?:[DFAN]/?[BK]/?A)\b.*|(?:JR|SR|I{2,3}|IV)\.?"
    r"|\(?LIFE ESTATE\)?|H ?/ ?W|JT ?/? ?(?:RS|TEN|WROS)|TENANTS? IN COMMON|TENANTS? BY (?:THE )?ENTIRET(?:Y|IES)",
    re.IGNORECASE,
)
"""The rest of the name above: `TRUSTEE`, `REVOCABLE TRUST`, `OF RAIFORD`, `& JANE`."""
_BEGINNING = re.compile(r"(?:THE |UNKNOWN )?(?:ESTATE|HEIRS|TRUSTEES?) OF", re.IGNORECASE)
"""A line that the name below completes."""
_DOMESTIC = frozenset({"USA", "US", "U.S.A", "UNITED STATES", "UNITED STATES OF AMERICA"})
_MAX_PLACE_CHARS = 200
_MIN_LINES = 3
"""Name, street and city."""
_OPEN_END = ("&", " AND", " OR", ",")
_NO_SIGNS = str.maketrans("", "", ".'")


def owners_and_mailing(
    lines: Sequence[str], names: int | None = None, at_least: int = 1, country: str | None = None
) -> tuple[list[str], list[str], CityStateZip | None]:
    """Splits a block into owner names, address lines, and the city, state and zip of its last line.

    `names`: how many lines at the top are names, if known; otherwise all lines before the first that looks like a
    street or PO box, but at least `at_least`. A name that ends in `&` continues on the next line; a care-of line is not
    an owner. The name of a foreign country ends an address without a state. `country`: if the page names it elsewhere.
    """
    rest = [line for line in map(clean, lines) if not is_nothing(line.strip(".,- "))]
    if lines and rest[:1] != [clean(lines[0])]:
        at_least = 0  # `N/A` in the place of the name
    if len(rest) > 1 and _is_domestic(rest[-1]) and (is_last_of_address(rest[:-1]) or _is_street(rest[:-1])):
        rest = rest[:-1]
    country = country or country_of(rest)
    rest, last = _without_place(rest, country, are_names_known=names is not None)
    if names is None:
        names = _names(rest, at_least, country, has_place=last is not None)
    joined = joined_names(rest[:names])
    owners, others = parted(joined)
    if not owners:
        owners, others = joined, []  # a street in the place of the only name
    return owners, others + rest[names:], last


def _is_domestic(line: str) -> bool:
    return line.strip(" .").upper() in _DOMESTIC


def _without_place(
    lines: list[str], country: str | None, *, are_names_known: bool
) -> tuple[list[str], CityStateZip | None]:
    """The city may be on the last line, on the last two or three, or after the street."""
    if (foreign := _foreign_place(lines, country)) is not None:
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


def _foreign_place(lines: list[str], country: str | None) -> tuple[list[str], CityStateZip] | None:
    """The lines above the city, and the city, of an address in another country."""
    rest = _without_country(lines) if country is not None else list(lines)
    for count in (1, 2, 3):
        above, text = rest[:-count], " ".join(rest[-count:])
        if len(text) > _MAX_PLACE_CHARS or (count > 1 and not any(map(str.isdigit, "".join(above[-1:])))):
            continue  # the line above the city is the street
        patterns = (_CANADIAN,) if country is None or count > 1 else _FOREIGN_PLACES
        for match in (match for pattern in patterns if (match := pattern.fullmatch(text))):
            parts = match.groupdict()
            state = (parts.get("state") or "").upper() or None
            province = _PROVINCES.get(state or "", state)
            return above, CityStateZip(parts["city"].strip(" ,"), province, parts["zip"].upper(), country or "CANADA")
    return None


def _without_country(lines: Sequence[str]) -> list[str]:
    written = country_of(lines)
    if written is None:
        return list(lines)
    *above, last = lines
    before = last.strip(" .").removesuffix(written).strip(" ,.")
    return [*above, before] if before else above


def take_mailing(record: Record, lines: Sequence[str], place: CityStateZip | None) -> None:
    """The address of the record: lines without the city, and the city."""
    record.mailing_lines = list(lines)
    record.mailing_country = country_of(lines)
    if place is not None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip
        record.mailing_country = place.country or record.mailing_country


def is_street(line: str) -> bool:
    """Whether the line looks like a street, a PO box or a care-of line."""
    return _is_street([line]) or is_care_of(line)


def is_named_street(line: str) -> bool:
    """Whether the line is an address for certain: a house number and the kind of a street, or a PO box."""
    return _NAMED_STREET.fullmatch(line) is not None


def is_unit(text: str) -> bool:
    """Whether the text names a part of a building: `UNIT B`, `REAR`."""
    return _UNIT.fullmatch(clean(text)) is not None


def is_care_of(line: str) -> bool:
    return _CARE_OF.match(line) is not None


def _is_street(lines: Sequence[str]) -> bool:
    return any(_STREET.match(line) or _FOREIGN_STREET.fullmatch(line) for line in map(clean, lines))


def settle_owners(record: Record) -> None:
    """Moves lines of the address out of the names, and joins parts of a name. `owner_lines` has them as shown."""
    if not record.owner_lines:
        record.owner_lines = [*record.owner_names, *record.mailing_lines]
    if not record.owner_names:
        return
    record.owner_names, others = parted(joined_names(record.owner_names))
    record.mailing_lines = [*(line for line in others if line not in record.mailing_lines), *record.mailing_lines]


def parted(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """`SMITH JOHN % JANE DOE`: the owner, and who receives the mail. A street in the place of a name is no owner."""
    owners, others = [], []
    for name in names:
        if is_care_of(name) or (is_named_street(name) and not _FIRM.search(name)):
            others.append(name)
            continue
        match = _CARED_FOR.fullmatch(name)
        owners.append(match[1].rstrip(" &,") if match else name)
        others += [match[2]] if match else []
    return owners, others


def is_last_of_address(lines: Sequence[str]) -> bool:
    """Whether the last line has the city. Without a zip, only below a street: `JONES ROBERT, MD` is a name."""
    place = city_state_zip(lines[-1]) if lines else None
    return place is not None and (place.zip is not None or any(_STREET.match(clean(line)) for line in lines[:-1]))


def is_whole_address(lines: Sequence[str]) -> bool:
    """Whether the lines end with a city, or with the country below it."""
    last = list(lines)[-1:]
    is_abroad = _foreign_place(list(lines), country_of(lines)) is not None
    return is_last_of_address(lines) or is_abroad or (len(lines) > 1 and bool(last) and is_country(last[0]))


def is_country(line: str) -> bool:
    return _is_domestic(line) or _country_at_end(line) == line.strip(" .")


def country_of(lines: Sequence[str]) -> str | None:
    """The foreign country at the end of an address, as written; None if there is none.

    Among other words it is one only below or behind a street or a city: `SMITH ISRAEL` is a name.
    """
    last = clean(lines[-1]) if lines else ""
    country = _country_at_end(last)
    is_alone = country == last.strip(" .")
    is_of_address = "," in last or any(sign.isdigit() for line in lines for sign in line)
    return country if is_alone or is_of_address else None


def _country_at_end(line: str) -> str | None:
    words = line.strip(" .").split()
    for count in range(_MAX_COUNTRY_WORDS, 0, -1):
        if " ".join(words[-count:]).upper().translate(_NO_SIGNS) in _COUNTRIES:
            return " ".join(words[-count:])
    return None


def _names(lines: Sequence[str], at_least: int, country: str | None, *, has_place: bool) -> int:
    """How many of the lines are names."""
    for number, line in enumerate(lines):
        if number < at_least:
            continue
        if country is not None and any(sign.isdigit() for sign in line):
            return _without_buildings(lines, number, at_least)  # in other countries the house number follows the street
        if is_care_of(line) or (_is_street([line]) and not _is_firm(line, lines[number + 1 :])):
            return _without_buildings(lines, number, at_least)
    if country is not None and not has_place:
        shown = len(_without_country(lines))
        return min(len(lines), max(at_least, shown - (2 if shown > 2 else 1)))  # the street and the city have no number
    return min(len(lines), max(at_least, len(lines) - 1))


def _without_buildings(lines: Sequence[str], names: int, at_least: int) -> int:
    """`MARINA TOWER` directly above the street."""
    while names > at_least and _BUILDING.fullmatch(lines[names - 1]):
        names -= 1
    return names


def _is_firm(line: str, after: Sequence[str]) -> bool:
    """Whether the line is a company name that looks like a street, with the street still to come."""
    return _FIRM.search(line) is not None and any(is_street(text) for text in after)


def joined_names(lines: Sequence[str]) -> list[str]:
    """Joins names that continue on the next line: after a `&`, or with a part that is no name."""
    joined: list[str] = []
    for line in lines:
        if joined and not is_care_of(line) and _continues(joined[-1], line):
            joined[-1] = f"{joined[-1]} {line}"
        else:
            joined.append(line)
    return [name.rstrip(" &,") for name in joined]


def _continues(name: str, line: str) -> bool:
    is_open = name.upper().endswith(_OPEN_END) or _BEGINNING.fullmatch(name) is not None
    return is_open or _FRAGMENT.fullmatch(line) is not None
