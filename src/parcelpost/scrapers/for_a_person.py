"""What a site may want that a person can do for us, as the reason of a pause says it. A robot check is none of it."""

from __future__ import annotations

SIGN_IN = "wants us to sign in"
TERMS = "wants its terms accepted"


def needs_a_person(reason: str) -> bool:
    return SIGN_IN in reason or TERMS in reason
