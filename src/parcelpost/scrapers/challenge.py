"""Pages by which a site asks whether we are a person. They are never answered: the outcome is Blocked."""

from __future__ import annotations

import re

from parcelpost.model import Blocked, Page

_LOOK_BYTES = 64 * 1024
_SIGNS = (
    ((b"just a moment...", b"cf_chl_opt"), re.compile(rb"<title>\s*just a moment\.\.\.|cf_chl_opt"), "Cloudflare"),
    ((b"attention required!",), re.compile(rb"<title>\s*attention required! \| cloudflare"), "Cloudflare"),
    ((b"incapsula",), re.compile(rb"_incapsula_resource|request unsuccessful\. incapsula"), "Imperva"),
    ((b"px-captcha", b"perimeterx"), re.compile(rb"px-captcha|perimeterx"), "PerimeterX"),
    ((b"captcha-delivery", b"datadome"), re.compile(rb"geo\.captcha-delivery\.com|datadome"), "DataDome"),
    (
        (b"errors.edgesuite.net",),
        re.compile(rb"<title>\s*access denied\s*</title>.*?errors\.edgesuite\.net", re.DOTALL),
        "Akamai",
    ),
    ((b"robot ", b"human "), re.compile(rb"<title>[^<]{0,60}(robot|human) (check|verification)"), "a robot check"),
)
"""Words without which none is looked for, since most pages have none of them; how it looks, in lower case; whose."""


def challenge(page: Page) -> Blocked | None:
    """None: it is none. A page of a parcel may carry a guard's script; a challenge is small and has nothing else."""
    if len(page.body) > _LOOK_BYTES:
        return None
    text = page.body.lower()
    for words, sign, name in _SIGNS:
        if any(word in text for word in words) and sign.search(text):
            return Blocked(f"the site asks whether we are a person ({name})")
    return None
