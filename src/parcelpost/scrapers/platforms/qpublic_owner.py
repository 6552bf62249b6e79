"""The owners' module of `qpublic`: blocks of lines, each a name with an address below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcelpost.scrapers import values
from parcelpost.scrapers.addresses import country_of, is_last_of_address, owners_and_mailing
from parcelpost.scrapers.document import Element, label, lines_of
from parcelpost.scrapers.record import Record

_HEADINGS = frozenset(
    {
        "owner",
        "owners",
        "owner name",
        "owner information",
        "primary owner",
        "secondary owner",
        "other owner",
        "current owner",
        "name",
        "names",
        "deed holder",
        "contract holder",
        "contract buyer",
        "contract owner",
        "title holder",
        "taxpayer",
        "tax payer",
        "address",
        "owner address",
        "mailing address",
        "mailing name & address",
        "mail to",
    }
)
_MAIL_ONLY = frozenset({"mailing address", "mailing name & address", "mail to", "taxpayer", "tax payer"})
"""Under these stands where mail goes; whose parcel it is stands under another."""
_MOST_LINES = 60


def take_owner(record: Record, module: Element) -> None:
    """All names, and the address of the mail, else the first owner's."""
    blocks = [(heading, lines) for heading, lines in _blocks(module) if lines]
    names = [name for heading, lines in blocks if heading not in _MAIL_ONLY for name in _read(lines)[0]]
    record.owner_names = list(dict.fromkeys(names)) or [name for _, lines in blocks for name in _read(lines)[0]][:1]
    mail = next((lines for heading, lines in blocks if heading in _MAIL_ONLY and _read(lines)[2]), None)
    lines = mail or next((lines for _, lines in blocks), [])
    _, record.mailing_lines, place = owners_and_mailing(lines)
    record.mailing_country = country_of(lines)
    if place is not None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip


def _read(lines: Sequence[str]) -> tuple[list[str], list[str], values.Place | None]:
    return owners_and_mailing(lines)


def _blocks(module: Element) -> Iterator[tuple[str, list[str]]]:
    """Each up to a line with city and state, with the heading above it."""
    content = next((one for one in module.iter("div") if "module-content" in (one.get("class") or "")), module)
    heading = ""
    lines: list[str] = []
    for line in lines_of(content)[:_MOST_LINES]:
        if label(line) in _HEADINGS:
            yield heading, lines
            heading, lines = label(line), []
        else:
            lines.append(line)
            if is_last_of_address(lines):
                yield heading, lines
                lines = []
    yield heading, lines
