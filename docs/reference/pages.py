"""The reference pages, with tables generated from the code."""

from __future__ import annotations

from pathlib import Path

from docs.reference import commands
from docs.reference.docstrings import Described, classes
from docs.reference.tables import joined, sections, with_table
from parcelpost.gateway.api.health import METRICS
from parcelpost.health_checks import CHECKS
from parcelpost.settings.schema import KEYS, Key, as_text
from parcelpost.settings.toml import marked_meanings
from parcelpost.telemetry import Telemetry

FOLDER = Path(__file__).parents[1]
_SETTINGS = {
    "Worker": ("worker", "collector", "executor", "heartbeat", "janitor", "resources", "http", "log"),
    "Upstream": ("gateway", "firestore", "sync"),
    "Storage": ("storage",),
    "Sites and browsers": ("fetch", "browser"),
    "Gateway": ("server",),
}
"""The sections of the settings by the table that lists them."""


def rendered(name: str) -> str:
    """Returns the text of a page with current tables."""
    return PAGES[name]((FOLDER / name).read_text(encoding="utf-8"))


def _settings(text: str) -> str:
    texts = marked_meanings()
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for key in KEYS.values():
        title = next(title for title, names in _SETTINGS.items() if key.section in names)
        rows.setdefault(title, []).append((f"`{key.name}`", _default(key), texts[key.section][key.field]))
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
    described = [event for event in classes("events.py").values() if event.name != "Event"]
    first = next(number for number, event in enumerate(described) if event.name == "GatewayStarted")
    return _metrics(
        middle.join(
            with_table(part, header, map(_event_row, events))
            for part, events in ((workers, described[:first]), (gateways, described[first:]))
        )
    )


def _event_row(event: Described) -> tuple[str, str, str]:
    fields = (f"{name} ({_note(about)})" if about else name for name, about in event.fields.items())
    return f"`{event.name}`", event.about, ", ".join(fields) or "-"


def _note(about: str) -> str:
    return (about[:1].lower() + about[1:]).removesuffix(".")


def _metrics(text: str) -> str:
    metrics = Telemetry().registry.collect()
    worker = [(f"`{_series(metric.name, metric.type)}`", metric.type, metric.documentation) for metric in metrics]
    text = with_table(text, ("metric", "kind", "meaning"), worker)
    gateway = [(f"`{name}`", ", ".join(labels), about) for name, (about, labels) in METRICS.items()]
    return with_table(text, ("metric", "labels", "meaning"), gateway)


def _operating(text: str) -> str:
    """Health checks by area and severity."""
    severities = ("error", "warning", "note")
    areas: dict[str, dict[str, list[str]]] = {}
    for name, check in CHECKS.items():
        area, _, rest = name.partition(".")
        note = " (503)" if check.blocks_work else ""
        areas.setdefault(area, {}).setdefault(check.severity, []).append(f"`{rest}`{note}")
    rows = ((f"`{area}`", *(", ".join(found.get(one, ())) for one in severities)) for area, found in areas.items())
    return with_table(text, ("area", *severities), rows)


def _series(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


PAGES = {
    "commands.md": commands.rendered,
    "events.md": _events,
    "operating.md": _operating,
    "settings.md": _settings,
}
