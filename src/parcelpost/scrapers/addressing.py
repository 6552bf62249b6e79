"""From a target to an address, by its county's entry."""

from __future__ import annotations

from urllib.parse import quote

from parcelpost.model import Target
from parcelpost.scrapers.counties import HOW_ENTRIES_LOOK, County
from parcelpost.scrapers.fetch_errors import CannotFetch
from parcelpost.scrapers.values import parcel_norm

_HOW = f"add one to the file that fetch.counties_file names; {HOW_ENTRIES_LOOK}"


def given_url(target: Target, county: County | None) -> str:
    """The address that the task itself names; '' for none. Raises CannotFetch for one of another site."""
    if target.url and county is not None and not county.owns(target.url):
        raise CannotFetch(f"{target.url!r:.200} is not on {county.site or county.url}, the site of {county.name}")
    return target.url


def page_url(target: Target, county: County | None) -> str:
    """The task's address, else the entry's template. Raises CannotFetch where there is neither."""
    if url := given_url(target, county):
        return url
    if county is None or not county.url:
        raise CannotFetch(f"the task needs a url: no entry says where {_place(target)} shows its pages; {_HOW}")
    parcel = parcel_of(target, county) if "{" in county.url else ""
    return county.url.replace("{parcel}", quoted(parcel)).replace("{plain}", quoted(parcel_norm(parcel)))


def needed(county: County | None, target: Target) -> County:
    """Raises CannotFetch where the county has no entry."""
    if county is None or not county.site:
        raise CannotFetch(f"the site of {_place(target)} is not known: {_HOW}")
    return county


def id_of(county: County, name: str) -> str:
    """Raises CannotFetch that names what the entry lacks."""
    if not county.ids.get(name):
        raise CannotFetch(f"the entry of {county.name} lacks ids.{name}; {HOW_ENTRIES_LOOK}")
    return county.ids[name]


def parcel_of(target: Target, county: County) -> str:
    """The parcel's number. Raises CannotFetch for one that cannot be of this county."""
    parcel = target.parcel_id.strip()
    if not parcel:
        raise CannotFetch("the task names no parcel")
    if not county.takes(parcel):
        raise CannotFetch(f"{parcel!r:.60} is no parcel number of {county.name}, which look like {county.example}")
    return parcel


def quoted(text: str) -> str:
    return quote(text, safe="")


def _place(target: Target) -> str:
    return f"{target.state or '?'}/{target.county or '?'}"
