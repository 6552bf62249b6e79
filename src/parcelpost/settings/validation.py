"""Checks whether settings are valid together, and whether a worker can run with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from parcelpost.errors import InvalidSettings
from parcelpost.health_checks import Finding
from parcelpost.settings.schema import KEYS, Settings, as_text
from parcelpost.settings.secrets import PROXY_LOGIN_VARIABLE

_ORDERED = (
    ("collector.low_water", "collector.high_water", "less than"),
    ("sync.backoff_min_seconds", "sync.backoff_max_seconds", "at most"),
    ("executor.retry_min_seconds", "executor.retry_max_seconds", "at most"),
    ("executor.cool_down_seconds", "executor.cool_down_max_seconds", "at most"),
    ("resources.slow_percent", "resources.no_new_tasks_percent", "at most"),
    ("resources.no_new_tasks_percent", "resources.stop_browsers_percent", "at most"),
    ("browser.page_seconds", "executor.task_timeout_seconds", "at most"),
)
_BASE_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?", re.ASCII)
_OLD_BASE_PATH = "/internal/parcel"
_WORKER_ID = re.compile(r"[!-~]{0,200}", re.ASCII)
_HEADER = re.compile(r"[ -~]{0,200}", re.ASCII)
_NEEDS_UPSTREAM = ("ondemand", "legacy")


def _invalid(message: str, fix: str) -> Finding:
    return Finding.of("settings.invalid", message, fix)


def fit_defaults(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Adjusts a default if only the other setting of an ordered pair was set."""
    for low, high, relation in (*_ORDERED, *_ORDERED):  # twice: one adjusted default may affect another
        apart = 1 if relation == "less than" else 0
        if values[low] + apart <= values[high]:
            continue
        if origins[low] == "default" and origins[high] != "default":
            values[low] = max(values[high] - apart, 0)
            origins[low] = f"default, to fit {high}"
        elif origins[high] == "default" and origins[low] != "default":
            values[high] = values[low] + apart
            origins[high] = f"default, to fit {low}"


def check(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[Finding]:
    """Yields what is wrong with settings that are valid by themselves."""
    for low, high, relation in _ORDERED:
        if values[low] > values[high] or (values[low] == values[high] and relation == "less than"):
            parts = [f"{name} ({as_text(KEYS[name], values[name])}, {origins[name]})" for name in (low, high)]
            yield _invalid(f"{parts[0]} must be {relation} {parts[1]}", "change one of the two")
    if problem := url_problem(values["gateway.url"]):
        where = origins["gateway.url"]
        yield _invalid(f"{where}: gateway.url {problem}", "write it as https://gateway.example.org")
    path: str = values["gateway.base_path"]
    if path and not _BASE_PATH.fullmatch(path):
        where = origins["gateway.base_path"]
        yield _invalid(f"{where}: gateway.base_path must be a path", "write it as /internal")
    if name := _old_gateway(values["gateway.url"], path):
        where = f"{origins[name]}: {name} leads to {_OLD_BASE_PATH}"
        yield _invalid(
            f"{where}, the older Python gateway, which is not supported",
            "use the address of a Go (version 3) or Parcelpost gateway, with /internal as gateway.base_path",
        )
    if not is_worker_id(values["worker.id"]):
        where = origins["worker.id"]
        yield _invalid(
            f"{where}: worker.id must be at most 200 printable ASCII characters without spaces",
            "write it as hartford-1",
        )
    for name in ("fetch.user_agent", "fetch.contact"):
        if not _HEADER.fullmatch(values[name]):
            where = origins[name]
            yield _invalid(
                f"{where}: {name} must be at most 200 printable ASCII characters",
                "write it as records@example.org",
            )
    if "@" in values["fetch.proxy"]:
        yield _invalid(
            f"{origins['fetch.proxy']}: fetch.proxy must not contain a user name or a password",
            f"put them into {PROXY_LOGIN_VARIABLE}, as user:password",
        )
    yield from _check_firestore(values, origins)
    if not values["storage.path"]:
        where = origins["storage.path"]
        yield _invalid(f"{where}: storage.path is empty", "set it to the path of the store's file")


def is_worker_id(text: str) -> bool:
    return _WORKER_ID.fullmatch(text) is not None


def _old_gateway(url: str, base_path: str) -> str:
    """Returns the setting that leads to the older Python gateway, or ''."""
    prefix = "" if url_problem(url) else urlsplit(url).path.rstrip("/")
    if prefix.endswith(_OLD_BASE_PATH):
        return "gateway.url"
    return "gateway.base_path" if f"{prefix}/{base_path.strip('/')}".endswith(_OLD_BASE_PATH) else ""


def url_problem(url: str) -> str:
    """Returns why this is not a gateway's address, or ''. Never quotes it, because it may contain a password."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")  # as the resolver will
        usable = parts.scheme in ("http", "https") and host and "%" not in host and parts.port != 0
    except ValueError:
        return "is not a valid URL"
    if not usable or not url.isprintable() or " " in url:
        return "must begin with http:// or https:// and name a host"
    if "@" in parts.netloc:
        return "must not contain a user name or a password"
    if "?" in url or "#" in url:
        return "must not contain a query or a fragment"
    return ""


def check_runnable(settings: Settings) -> None:
    """Checks what only a running worker needs. Raises InvalidSettings."""
    mode, processes = settings.worker.mode, settings.worker.processes
    if processes > 1 and mode == "legacy":
        raise InvalidSettings(
            f"worker.processes is {processes}, but mode legacy runs one task at a time",
            hint="run with --mode ondemand or standalone, or with --processes 1",
        )
    shared = {
        "executor.slots": settings.executor.slots,
        "fetch.concurrency_per_host": settings.fetch.concurrency_per_host,
        "browser.most": settings.browser.most or processes,  # 0: no process has one
    }
    for name, limit in shared.items():
        if processes > limit:
            raise InvalidSettings(
                f"worker.processes is {processes}, but {name} is {limit}: it is shared, and each process needs one",
                hint=f"run with --processes {limit}, or raise the limit with --set {name}={processes}",
            )
    if settings.worker.upstream == "firestore":
        if not settings.firestore.raw:
            raise InvalidSettings(
                "worker.upstream is firestore, but firestore.raw does not say where raw files go",
                hint="set it to gs://bucket/prefix, s3://bucket/prefix or a folder",
            )
    elif mode in _NEEDS_UPSTREAM and not settings.gateway.url:
        raise InvalidSettings(
            f"mode {mode} needs gateway.url, which is not set",
            hint="set --gateway URL or PARCELPOST_GATEWAY_URL, or run with --mode standalone",
        )


_FORMS = (
    ("firestore.project", re.compile(r"[a-z0-9.:-]{0,100}", re.ASCII), "must be a project ID", "my-project"),
    (
        "firestore.database",
        re.compile(r"\(default\)|[a-z][a-z0-9-]{2,62}", re.ASCII),
        "must be a database ID",
        "(default)",
    ),
)
_HEARTBEATS_A_LEASE = 4
"""The first heartbeat in a lease's second half extends it, and there must be time for another one if it fails."""
_NO_ID = re.compile(r"|\.|\.\.|__.*__", re.DOTALL)


def _check_firestore(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[Finding]:
    for name, form, rule, example in _FORMS:
        if not form.fullmatch(values[name]):
            yield _invalid(f"{origins[name]}: {name} {rule}", f"write it as {example}")
    root = values["firestore.root"]
    parts = root.strip("/").split("/")
    if root and (len(parts) % 2 or any(_NO_ID.fullmatch(part) for part in parts)):
        yield _invalid(
            f"{origins['firestore.root']}: firestore.root must be the path of a document, or empty",
            "write it as parcelpost/main: collection, document, and so on in pairs",
        )
    for problem, remedy in _raw_problems(values["firestore.raw"]):
        yield _invalid(f"{origins['firestore.raw']}: firestore.raw {problem}", remedy)
    if (
        values["worker.upstream"] == "firestore"
        and values["firestore.lease_seconds"] < _HEARTBEATS_A_LEASE * values["heartbeat.seconds"]
    ):
        yield _invalid(
            "firestore.lease_seconds must be at least 4 times heartbeat.seconds: heartbeats extend the leases",
            "change one of the two",
        )


def _raw_problems(place: str) -> Iterator[tuple[str, str]]:
    """Yields problems and remedies. They never quote the address, because it may contain a password."""
    if "://" not in place:
        return
    form = "write it as gs://bucket/prefix"
    if "@" in place:
        yield "must not contain a user name or a password", f"{form}; credentials come from the environment or a file"
    if "?" in place or "#" in place:
        yield "must not contain a query or a fragment", f"{form}; credentials come from the environment or a file"
    if place.lower().startswith("memory://"):
        yield "must be durable storage; memory is lost when the worker stops", f"{form}, or use a folder"
