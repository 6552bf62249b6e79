"""Pages by which a site asks whether we are a person. They are never answered: the outcome is Blocked."""

from __future__ import annotations

import re

from parcelpost.model import Blocked, Page

_LOOK_BYTES = 64 * 1024
_SIGNS = (
    (re.compile(rb"<title>\s*Just a moment\.\.\.|cf_chl_opt", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"<title>\s*Attention Required! \| Cloudflare", re.IGNORECASE), "Cloudflare"),
    (re.compile(rb"_Incapsula_Resource|Request unsuccessful\. Incapsula", re.IGNORECASE), "Imperva"),
    (re.compile(rb"px-captcha|perimeterx", re.IGNORECASE), "PerimeterX"),
    (re.compile(rb"geo\.captcha-delivery\.com|datadome", re.IGNORECASE), "DataDome"),
    (re.compile(rb"<title>\s*Access Denied\s*</title>.*?errors\.edgesuite\.net", re.IGNORECASE | re.DOTALL), "Akamai"),
    (re.compile(rb"<title>[^<]{0,60}(robot|human) (check|verification)", re.IGNORECASE), "a robot check"),
)


def challenge(page: Page) -> Blocked | None:
    """None: it is none. A page of a parcel may carry a guard's script; a challenge is small and has nothing else."""
    if len(page.body) > _LOOK_BYTES:
        return None
    for sign, name in _SIGNS:
        if sign.search(page.body):
            return Blocked(f"the site asks whether we are a person ({name})")
    return None
