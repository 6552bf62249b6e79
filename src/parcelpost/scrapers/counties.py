"""The known county sites (data in counties.toml), and the URL of a target on its county's site."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidSettings
from parcelpost.model import Target
from parcelpost.places import county_slug, state_or_text
from parcelpost.scrapers.browser.profiles import is_profile_name
from parcelpost.scrapers.fetch.errors import CannotFetch
from parcelpost.scrapers.html.values import parcel_norm
from parcelpost.scrapers.platforms import NAMES, RENDERED

_MAX_FILE_BYTES = 16 * 1024**2
SHIPPED = Path(__file__).with_name("counties.toml")
ENTRY_HINT = f"the head of {SHIPPED} describes the fields of an entry"


class County(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One county's site on one platform. The comment at the top of counties.toml explains each field."""

    platform: str
    state: str
    county: str
    fips: str = ""
    site: str = ""
    hosts: tuple[str, ...] = ()
    url: str = ""
    ids: Mapping[str, str] = {}
    parcel: str = ""
    example: str = ""
    pace_seconds: float = 0.0
    field_map: str = ""
    profile: str = ""

    @property
    def name(self) -> str:
        return f"{self.platform} {self.state}/{self.county}"

    @property
    def base(self) -> str:
        """The site without a trailing slash."""
        return self.site.rstrip("/")

    def owns(self, url: str) -> bool:
        """Whether a URL is on the county's site or one of its other hosts."""
        given = _host_and_port(url)
        return given != "" and given in {
            _host_and_port(self.site),
            _host_and_port(self.url),
            *(_host_and_port(host) for host in self.hosts),
        }

    def takes(self, parcel_id: str) -> bool:
        """Whether a parcel number matches the county's format."""
        return not self.parcel or re.fullmatch(self.parcel, parcel_id, re.ASCII | re.IGNORECASE) is not None


class Counties:
    """County entries; the first one for a platform, state and county is used."""

    def __init__(self, entries: Iterable[County] = ()) -> None:
        self._entries: dict[tuple[str, str, str], County] = {}
        for entry in entries:
            self._entries.setdefault((entry.platform, state_or_text(entry.state), county_slug(entry.county)), entry)

    def __iter__(self) -> Iterator[County]:
        return iter(sorted(self._entries.values(), key=lambda entry: (entry.platform, entry.state, entry.county)))

    def find(self, platform: str, state: str, county: str) -> County | None:
        """Accepts any spelling of state and county. Returns None if there is no entry."""
        return self._entries.get((platform, state_or_text(state), county_slug(county)))


def load_counties(counties_file: str = "") -> Counties:
    """The operator's entries, then the built-in ones. Raises InvalidSettings with the name of a bad entry."""
    return Counties([*(_from_file(Path(counties_file)) if counties_file else ()), *_shipped()])


def parse_counties(name: str, text: str) -> list[County]:
    """Raises InvalidSettings."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{name} is not valid TOML: {error}", hint=ENTRY_HINT) from None
    entries = given.get("county", [])
    if not isinstance(entries, list) or given.keys() - {"county"}:
        raise InvalidSettings(f"{name} must contain only [[county]] entries", hint=ENTRY_HINT)
    return [_county(name, number, entry) for number, entry in enumerate(entries, 1)]


@cache
def _shipped() -> tuple[County, ...]:
    return tuple(parse_counties("counties.toml", (files("parcelpost.scrapers") / "counties.toml").read_text("utf-8")))


def _from_file(path: Path) -> list[County]:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidSettings(f"fetch.counties_file {path} cannot be read: {reason}", hint=ENTRY_HINT) from None
    return parse_counties(str(path), text)


def _county(name: str, number: int, entry: object) -> County:
    where = f"{name}: entry {number}"
    if isinstance(entry, dict) and entry.get("county"):
        where += f" ({entry.get('platform', '?')} {entry.get('state', '?')}/{entry['county']})"
    try:
        county = msgspec.convert(entry, County)
    except msgspec.ValidationError as error:
        raise InvalidSettings(f"{where}: {error}", hint=ENTRY_HINT) from None
    if problem := _problem(county):
        raise InvalidSettings(f"{where}: {problem}", hint=ENTRY_HINT)
    return county


def _problem(county: County) -> str:
    if not county.platform or not county.county or not re.fullmatch("[A-Za-z]{2}", county.state):
        return "platform, state (two letters) and county are required"
    for key, url in (("site", county.site), ("url", county.url)):
        if url and not _host_and_port(url):
            return f"{key} must begin with https:// or http:// and name a host"
    if not county.site and not county.url:
        return "site or url is required"
    try:
        fits = county.takes(county.example)
    except re.error as error:
        return f"parcel is not a valid regular expression: {error}"
    if county.parcel and not fits:
        return f"the example {county.example!r} does not match parcel"
    if not 0 <= county.pace_seconds < math.inf:
        return "pace_seconds must be a number of seconds, 0 or more"
    if county.profile and not is_profile_name(county.profile):
        return "profile must be letters, digits, _ and -"
    if county.profile and county.platform in NAMES and county.platform not in RENDERED:
        return f"{county.platform} fetches its pages without a browser, so a profile would have no effect"
    return ""


def _host_and_port(url: str) -> str:
    """Host and port in lower case; '' if there is no host."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""


_HOW = f"add one to the file set as fetch.counties_file; {ENTRY_HINT}"


def target_url(target: Target, county: County | None) -> str:
    """The task's own URL, or ''. Raises CannotFetch if it is on another site."""
    if target.url and county is not None and not county.owns(target.url):
        raise CannotFetch(f"{target.url!r:.200} is not on {county.site or county.url}, the site of {county.name}")
    return target.url


def page_url(target: Target, county: County | None) -> str:
    """The task's URL, else the one of the county's entry. Raises CannotFetch if there is neither."""
    if url := target_url(target, county):
        return url
    if county is None or not county.url:
        raise CannotFetch(f"the task needs a url: {_county_name(target)} has no county entry with a url; {_HOW}")
    parcel = parcel_number(target, county) if "{" in county.url else ""
    return county.url.replace("{parcel}", quote_part(parcel)).replace("{plain}", quote_part(parcel_norm(parcel)))


def require_county(county: County | None, target: Target) -> County:
    """Raises CannotFetch if the county has no entry."""
    if county is None or not county.site:
        raise CannotFetch(f"there is no county entry for {_county_name(target)}: {_HOW}")
    return county


def required_id(county: County, name: str) -> str:
    """Raises CannotFetch if the entry lacks that id."""
    if not county.ids.get(name):
        raise CannotFetch(f"the entry of {county.name} lacks ids.{name}; {ENTRY_HINT}")
    return county.ids[name]


def parcel_number(target: Target, county: County) -> str:
    """The target's parcel number. Raises CannotFetch if it does not match the county's format."""
    parcel = target.parcel_id.strip()
    if not parcel:
        raise CannotFetch("the task has no parcel number")
    if not county.takes(parcel):
        raise CannotFetch(f"{parcel!r:.60} is not a parcel number of {county.name}; an example is {county.example}")
    return parcel


def quote_part(text: str) -> str:
    return quote(text, safe="")


def _county_name(target: Target) -> str:
    return f"{target.state or '?'}/{target.county or '?'}"
