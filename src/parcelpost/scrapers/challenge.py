"""Pages by which a site asks whether we are a person. They are never answered: the outcome is Blocked."""

from __future__ import annotations

import re

from parcelpost.model import Blocked, Page

LOOK_BYTES = 64 * 1024
_SURE_SIGNS = (
    (re.compile(rb"<title>\s*Just a moment\.\.\.|cf_chl_opt", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"<title>\s*Attention Required! \| Cloudflare", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"Request unsuccessful\. Incapsula", re.IGNORECASE), "Imperva"),
    (re.compile(rb"px-captcha", re.IGNORECASE), "PerimeterX"),
    (re.compile(rb"geo\.captcha-delivery\.com", re.IGNORECASE), "DataDome"),
    (re.compile(rb"<title>\s*Access Denied\s*</title>.*?errors\.edgesuite\.net", re.IGNORECASE | re.DOTALL), "Akamai"),
    (re.compile(rb"<title>[^<]{0,60}(robot|human) (check|verification)", re.IGNORECASE), "a robot check"),
)
_SIGNS = (
    *_SURE_SIGNS,
    (re.compile(rb"_Incapsula_Resource", re.IGNORECASE), "Imperva"),
    (re.compile(rb"perimeterx", re.IGNORECASE), "PerimeterX"),
    (re.compile(rb"datadome", re.IGNORECASE), "DataDome"),
)


def challenge(page: Page, *, is_built: bool = False) -> Blocked | None:
    """None: it is none, as far as its first 64 KiB show.

    A page of a parcel may carry a guard's script: in a large page, and in one that scripts have built (`is_built`),
    that is no sign yet.
    """
    beginning = page.body[:LOOK_BYTES]
    for sign, name in _SURE_SIGNS if is_built or len(page.body) > LOOK_BYTES else _SIGNS:
        if sign.search(beginning):
            return Blocked(f"the site asks whether we are a person ({name})")
    return None
