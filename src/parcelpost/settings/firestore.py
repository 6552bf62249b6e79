"""What must hold of `[firestore]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from parcelpost.errors import InvalidSettings
from parcelpost.settings.gathering import Problem
from parcelpost.settings.keys import Settings

_FORMS = (
    ("firestore.project", re.compile(r"[a-z0-9.:-]{0,100}", re.ASCII), "must be a project's id", "my-project"),
    (
        "firestore.database",
        re.compile(r"\(default\)|[a-z][a-z0-9-]{2,62}", re.ASCII),
        "is no database's id",
        "(default)",
    ),
)
_BEATS_A_LEASE = 4
"""A lease is extended by the first beat in its second half: so there is time for another, should that one fail."""
_NO_ID = re.compile(r"|\.|\.\.|__.*__", re.DOTALL)


def check(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[Problem]:
    for name, form, what, example in _FORMS:
        if not form.fullmatch(values[name]):
            yield Problem(what=f"{origins[name]}: {name} {what}", remedy=f"write it as {example}")
    root = values["firestore.root"]
    parts = root.strip("/").split("/")
    if root and (len(parts) % 2 or any(_NO_ID.fullmatch(part) for part in parts)):
        yield Problem(
            what=f"{origins['firestore.root']}: firestore.root must be the path of a document, or empty",
            remedy="write it as parcelpost/main: collection, document, and so on in pairs",
        )
    for what, remedy in _faults_of_raw(values["firestore.raw"]):
        yield Problem(what=f"{origins['firestore.raw']}: firestore.raw {what}", remedy=remedy)
    if (
        values["worker.upstream"] == "firestore"
        and values["firestore.lease_seconds"] < _BEATS_A_LEASE * values["heartbeat.seconds"]
    ):
        yield Problem(
            what="firestore.lease_seconds must be at least 4 times heartbeat.seconds: heartbeats extend the leases",
            remedy="change one of the two",
        )


def _faults_of_raw(place: str) -> Iterator[tuple[str, str]]:
    """With what to do. None quotes it."""
    if "://" not in place:
        return
    form = "write it as gs://bucket/prefix"
    if "@" in place:
        yield "must not hold a user name or a password", f"{form}; credentials come from the environment or a file"
    if "?" in place or "#" in place:
        yield "must not hold a query or a fragment", f"{form}; what signs a call comes from the environment or a file"
    if place.lower().startswith("memory://"):
        yield "must outlive the worker, and its memory does not", f"{form}, or name a folder"


def check_runnable(settings: Settings) -> None:
    """Raises InvalidSettings."""
    if not settings.firestore.raw:
        raise InvalidSettings(
            "worker.upstream is firestore, and firestore.raw does not say where raw files go",
            hint="set it to gs://bucket/prefix, s3://bucket/prefix or a folder",
        )
