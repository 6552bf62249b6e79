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
    "worker": "how this worker works, and on what",
    "gateway": "the gateway that it calls; the token is no setting (see above)",
    "firestore": "used where worker.upstream is firestore",
    "storage": "the local store: where it is, how large it may be, how long things are kept",
    "collector": "when tasks are fetched",
    "executor": "how many tasks run at a time, how long they may take, when they are tried again",
    "fetch": "how pages are fetched from counties' sites",
    "browser": "for pages that need a browser: 'parcelpost browser doctor' says whether there is one",
    "sync": "how results are delivered",
    "heartbeat": "how often the worker reports",
    "janitor": "when backups and clean-up are made, local time",
    "resources": "how much of the memory may be used",
    "http": "pages for probes and Prometheus",
    "server": "the gateway that 'parcelpost gateway serve' runs on this machine",
    "log": "what is written to stderr",
}
_WIDTH = 100
_HEAD = """\
## Settings of Parcelpost. A key behind a comment sign stands at its default: take the sign away to change it.
## Environment variables (PARCELPOST_SYNC_BATCH_SIZE for sync.batch_size) and --set go over what is written here.
## 'parcelpost config show' says what holds, 'parcelpost config check' whether it can be used.
##
## Secrets do not belong here. The gateway's token comes from the environment variable PARCELPOST_GATEWAY_TOKEN, or
## from a file of mode 600 that gateway.token_file names.
"""


def marked_meanings() -> dict[str, dict[str, str]]:
    """What each key means, by section and key, with the marks and links of a page."""
    return tomllib.loads(files("parcelpost.settings").joinpath("meanings.toml").read_text(encoding="utf-8"))


def meanings() -> dict[str, dict[str, str]]:
    """The same without them."""
    return {section: {key: _plain(text) for key, text in told.items()} for section, told in marked_meanings().items()}


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")


def settings_file(chosen: Mapping[str, Any]) -> str:
    """The text of a file that sets these keys. Without one `#` at the beginning of its lines, it sets all of them."""
    told = meanings()
    sections = dict.fromkeys(key.section for key in KEYS.values())
    return _HEAD + "".join(f"{line}\n" for section in sections for line in _section(section, told[section], chosen))


def _section(section: str, told: Mapping[str, str], chosen: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n\n## {_ABOUT[section]}"
    yield f"[{section}]"
    for key in KEYS.values():
        if key.section == section:
            yield ""
            yield from textwrap.wrap(told[key.field], _WIDTH, initial_indent="## ", subsequent_indent="## ")
            sign, value = ("", chosen[key.name]) if key.name in chosen else ("#", key.default)
            yield f"{sign}{key.field} = {toml_value(key, value)}"


def toml_value(key: Key, value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(json.dumps(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = as_text(key, value)
    return json.dumps(text) if isinstance(value, str) or not text.replace(".", "").isdigit() else text
