"""The reference pages with their tables as the code has them now."""

from __future__ import annotations

from pathlib import Path

from docs.reference import commands
from docs.reference.tables import joined, sections, with_table
from docs.reference.words import Described, classes
from parcelpost.gateway.api.health import METRICS
from parcelpost.health import CHECKS
from parcelpost.settings.schema import KEYS, Key, as_text
from parcelpost.settings.toml import marked_meanings
from parcelpost.telemetry import Telemetry

FOLDER = Path(__file__).parents[1]


def rendered(name: str) -> str:
    """The text of that page of docs."""
    return PAGES[name]((FOLDER / name).read_text(encoding="utf-8"))


def _settings(text: str) -> str:
    told = marked_meanings()
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for key in KEYS.values():
        rows.setdefault(key.section, []).append((f"`{key.name}`", _default(key), told[key.section][key.field]))
    return joined(
        (title, with_table(body, ("key", "default", "meaning"), rows[title]) if title in rows else body)
        for title, body in sections(text)
    )


def _default(key: Key) -> str:
    if isinstance(key.default, bool):
        return str(key.default).lower()
    return as_text(key, key.default) or "-"


def _events(text: str) -> str:
    header = ("event", "when", "fields")
    middle = "## Gateway events"
    workers, gateways = text.split(middle, maxsplit=1)
    found = [event for event in classes("events.py").values() if event.name != "Event"]
    first = next(number for number, event in enumerate(found) if event.name == "GatewayStarted")
    return _metrics(
        middle.join(
            with_table(part, header, map(_event_row, events))
            for part, events in ((workers, found[:first]), (gateways, found[first:]))
        )
    )


def _event_row(event: Described) -> tuple[str, str, str]:
    fields = (f"{name} ({_note(about)})" if about else name for name, about in event.fields.items())
    return f"`{event.name}`", event.about, ", ".join(fields) or "-"


def _note(about: str) -> str:
    return (about[:1].lower() + about[1:]).removesuffix(".")


def _metrics(text: str) -> str:
    found = Telemetry().registry.collect()
    own = [(f"`{_series(metric.name, metric.type)}`", metric.type, metric.documentation) for metric in found]
    text = with_table(text, ("metric", "kind", "meaning"), own)
    of_gateway = [(f"`{name}`", ", ".join(labels), about) for name, (about, labels) in METRICS.items()]
    return with_table(text, ("metric", "labels", "meaning"), of_gateway)


def _operating(text: str) -> str:
    rows = [
        (f"`{name}`", check.severity, "503" if check.blocks_work else "", check.meaning)
        for name, check in CHECKS.items()
    ]
    return with_table(text, ("check", "severity", "`/readyz`", "meaning"), rows)


def _series(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


PAGES = {"commands.md": commands.rendered, "settings.md": _settings, "events.md": _events, "operating.md": _operating}
