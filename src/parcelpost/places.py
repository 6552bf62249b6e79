"""One spelling for each state, county and parcel number, because two spellings would be two parcels.

States are the Postal Service's two letters (`CT`), counties are lower-case words joined by hyphens (`miami-dade`), and
parcel numbers are compared by their letters and digits (`010203`).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from functools import lru_cache

from msgspec import structs

from parcelpost.errors import InvalidInput
from parcelpost.model import Target

STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "DC": "District of Columbia", "FL": "Florida", "GA": "Georgia",
    "HI": "Hawaii", "ID": "Idaho", "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky",
    "LA": "Louisiana", "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota",
    "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada", "NH": "New Hampshire",
    "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina", "ND": "North Dakota",
    "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania", "RI": "Rhode Island",
    "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont",
    "VA": "Virginia", "WA": "Washington", "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming",
    "AS": "American Samoa", "GU": "Guam", "MP": "Northern Mariana Islands", "PR": "Puerto Rico",
    "VI": "Virgin Islands",
}  # fmt: skip

_CODES = {name.lower(): code for code, name in STATES.items()}
_WORDS = re.compile(r"[^a-z0-9]+")
_PARTS = re.compile(r"[^\W_]+")
_LONG_NUMBER = 10
_STATE = re.compile(r",\s*[a-z]{2}\s*$")
_KIND = re.compile(
    "^(?:(?:city-and-)?(?:county|borough)|parish|municipality)-of-"
    "|-(?:(?:city-and-)?(?:county|borough)|co|parish|census-area|municipality)(?:-[a-z]{2})?$"
)
_CITY_OF = "city-of-"
_SAINTS = {"saint": "st", "sainte": "ste"}
_PARTICLES = re.compile("^(de|du|la|le|mc|o|van)-")
"""First words that are written with or without a space: `De Soto`, `LaSalle`."""


def normalized(target: Target) -> Target:
    """Returns the target with its state and county in this spelling. Raises InvalidInput for an unknown state."""
    state, county = state_code(target.state), county_name(target.county)
    if (state, county) == (target.state, target.county):
        return target
    return structs.replace(target, state=state, county=county)


@lru_cache(maxsize=1_000)
def state_code(text: str) -> str:
    """`Connecticut`, `ct` and `C.T.` -> `CT`; '' stays. Raises InvalidInput for an unknown state."""
    plain = " ".join(text.replace(".", "").split())
    if not text.strip() or plain.upper() in STATES:
        return plain.upper()
    if plain.lower() in _CODES:
        return _CODES[plain.lower()]
    close = difflib.get_close_matches(plain.lower()[:100], _CODES, n=1)
    nearest = f" (did you mean {STATES[_CODES[close[0]]]} ({_CODES[close[0]]})?)" if close else ""
    raise InvalidInput(f"unknown state {text!r:.60}{nearest}")


def state_or_text(text: str) -> str:
    """Returns the state's code, or the text itself if it is not a state."""
    try:
        return state_code(text)
    except InvalidInput:
        return text


@lru_cache(maxsize=10_000)
def county_slug(text: str) -> str:
    """`Miami-Dade County, FL` -> `miami-dade`, `Saint Johns` -> `st-johns`, `De Soto` -> `desoto`,
    `City of Baltimore` -> `baltimore-city`, `City & Borough of Juneau` -> `juneau`.

    Returns '' for a name without letters or digits.
    """
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower().replace("'", "")
    letters = letters.replace("&", " and ")
    slug = _WORDS.sub("-", _STATE.sub("", letters)).strip("-")
    slug = _KIND.sub("", slug)
    if slug.startswith(_CITY_OF):  # independent cities are not the county of the same name
        slug = f"{slug.removeprefix(_CITY_OF)}-city"
    slug = _PARTICLES.sub(r"\1", slug)
    first, hyphen, rest = slug.partition("-")
    return f"{_SAINTS[first]}-{rest}" if hyphen and first in _SAINTS else slug


def county_name(text: str) -> str:
    """Like `county_slug`, but raises InvalidInput for a name without letters, such as a FIPS code; '' stays."""
    slug = county_slug(text)
    if text.strip() and not any(map(str.isalpha, slug)):
        raise InvalidInput(f"{text!r:.60} is not a county name", hint="write its name, such as columbia")
    return slug


def parcel_number(text: str) -> str:
    """Like `parcel_norm`, but raises InvalidInput for a text without letters and digits; '' stays."""
    norm = parcel_norm(text)
    if text and not norm:
        raise InvalidInput(f"{text!a:.60} is not a parcel number")
    return norm


def parcel_norm(parcel_id: str) -> str:
    """Returns a parcel number in the form that all its spellings share: `01-02-03-0004a` -> `0102030004A`.

    A short number keeps its parts apart, because they are seldom padded: `1-23` and `12-3` are two parcels.
    """
    parts = _PARTS.findall(parcel_id.upper())
    number = "".join(parts)
    return number if len(number) >= _LONG_NUMBER else "-".join(parts)
