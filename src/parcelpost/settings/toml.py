"""Writes a commented settings file."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from parcelpost.settings.schema import KEYS, Key, as_text

_ABOUT = {
    "worker": "the worker's mode, ID and platforms",
    "gateway": "the gateway that the worker calls; the token is not a setting (see above)",
    "firestore": "used if worker.upstream is firestore",
    "storage": "the local store: its path, size limits and retention",
    "collector": "when tasks are fetched",
    "executor": "how many tasks run at a time, their time limit, and retries",
    "fetch": "how pages are fetched from counties' sites",
    "browser": "for pages that need a browser; 'parcelpost browser doctor' checks that there is one",
    "sync": "how results are delivered",
    "heartbeat": "how often the worker reports",
    "janitor": "when backup and clean-up run, local time",
    "resources": "memory limits",
    "http": "pages for probes and Prometheus",
    "server": "the gateway that 'parcelpost gateway serve' runs on this machine",
    "log": "the log on stderr",
}
_WIDTH = 100
_HEAD = """\
## Parcelpost settings. A commented key has its default value: remove the # to change it.
## Environment variables (PARCELPOST_SYNC_BATCH_SIZE for sync.batch_size) and --set override this file.
## 'parcelpost config show' prints the values in use, 'parcelpost config check' validates them.
##
## Secrets do not belong here. The gateway's token comes from the environment variable PARCELPOST_GATEWAY_TOKEN, or
## from a file with mode 600, set as gateway.token_file.
"""


def marked_meanings() -> dict[str, dict[str, str]]:
    """Returns the meaning of each key, by section and key, in Markdown."""
    return tomllib.loads(files("parcelpost.settings").joinpath("meanings.toml").read_text(encoding="utf-8"))


def meanings() -> dict[str, dict[str, str]]:
    """Returns the meanings in plain text."""
    return {section: {key: _plain(text) for key, text in keys.items()} for section, keys in marked_meanings().items()}


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")


def settings_file(chosen: Mapping[str, Any]) -> str:
    """Returns a file that sets these keys and has all others commented out."""
    texts = meanings()
    sections = dict.fromkeys(key.section for key in KEYS.values())
    return _HEAD + "".join(f"{line}\n" for section in sections for line in _section(section, texts[section], chosen))


def _section(section: str, texts: Mapping[str, str], chosen: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n\n## {_ABOUT[section]}"
    yield f"[{section}]"
    for key in KEYS.values():
        if key.section == section:
            yield ""
            yield from textwrap.wrap(texts[key.field], _WIDTH, initial_indent="## ", subsequent_indent="## ")
            sign, value = ("", chosen[key.name]) if key.name in chosen else ("#", key.default)
            yield f"{sign}{key.field} = {toml_value(key, value)}"


def toml_value(key: Key, value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(json.dumps(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = as_text(key, value)
    return json.dumps(text) if isinstance(value, str) or not text.replace(".", "").isdigit() else text
