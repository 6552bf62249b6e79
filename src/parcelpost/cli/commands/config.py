"""The `parcelpost config` commands: show and check the settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from parcelpost.cli.output import examples, print_json, print_lines, printable, table
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, parse_set
from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import SECTIONS_OF_NAMES
from parcelpost.settings.secrets import without_password

if TYPE_CHECKING:
    from parcelpost.settings.sources import Loaded


app = typer.Typer(
    help="Show and check the settings.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples("parcelpost config show", "parcelpost config check --config /etc/parcelpost.toml"),
)

SHOW_EXAMPLES = examples(
    "parcelpost config show",
    "parcelpost config show --set sync.batch_size=20",
    "parcelpost config show --json | jq '.settings[\"sync.batch_size\"]'",
)
CHECK_EXAMPLES = examples("parcelpost config check", "parcelpost config check --config /etc/parcelpost.toml")


@app.command("show", epilog=SHOW_EXAMPLES)
def show(config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False) -> None:
    """Show every setting with its value and origin. Tokens and passwords are never shown."""
    from parcelpost.settings import sources

    loaded = sources.load(config=config, environment=os.environ, flags=parse_set(set_ or []))
    print_json(settings_document(loaded)) if as_json else print_lines(_lines(loaded))


@app.command("check", epilog=CHECK_EXAMPLES)
def check(config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False) -> None:
    """Check whether a worker can run with these settings.

    Exits with 1 if there is an error, but not for warnings. Does not connect to the gateway or open the store.
    """
    from parcelpost.cli.health.settings import settings_findings
    from parcelpost.cli.output import finding_lines
    from parcelpost.health_checks import is_ok
    from parcelpost.settings import sources

    diagnosis = sources.diagnose(config=config, environment=os.environ, flags=parse_set(set_ or []))
    findings = settings_findings(diagnosis)
    print_json({"ok": is_ok(findings), "findings": findings}) if as_json else print_lines(finding_lines(findings))
    if not is_ok(findings):
        raise typer.Exit(1)


def _setting_values(loaded: Loaded) -> Iterator[tuple[str, Any]]:
    for section in loaded.settings.__struct_fields__:
        if section in SECTIONS_OF_NAMES:
            continue
        values = getattr(loaded.settings, section)
        for field in values.__struct_fields__:
            value = getattr(values, field)
            yield f"{section}.{field}", without_password(value) if isinstance(value, str) else value


def _named_sections(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    for name, platform in loaded.settings.platforms.items():
        for key, value in (("class", platform.class_), ("scrape", platform.scrape), ("parse", platform.parse)):
            if value:
                yield f"platforms.{name}.{key}", value, loaded.origins[f"platforms.{name}.{key}"]
    for name, written in loaded.settings.field_maps.items():
        fields = written.given.get("fields")
        yield f"field_maps.{name}", ", ".join(fields) if isinstance(fields, dict) else "", written.origin
    for name, schedule in loaded.settings.schedules.items():
        site = f"{schedule.platform} {schedule.state}/{schedule.county}"
        yield f"schedules.{name}", f"{site} {schedule.timing.text}", loaded.origins[f"schedules.{name}"]


def settings_document(loaded: Loaded) -> dict[str, Any]:
    settings = {name: {"value": value, "from": loaded.origins[name]} for name, value in _setting_values(loaded)}
    settings |= {name: {"value": value, "from": origin} for name, value, origin in _named_sections(loaded)}
    file: Path | None = loaded.file
    return {
        "file": None if file is None else str(file),
        "settings": settings,
        "token": _token(loaded),
        "warnings": loaded.warnings,
    }


def _lines(loaded: Loaded) -> Iterator[str]:
    from parcelpost.settings.schema import KEYS, as_text

    rows = [(name, as_text(KEYS[name], value) or None, loaded.origins[name]) for name, value in _setting_values(loaded)]
    rows += _named_sections(loaded)
    yield from table(("setting", "value", "from"), rows)
    yield ""
    yield f"Gateway token: {printable(_token(loaded))}."
    for warning in loaded.warnings:
        yield f"Warning: {printable(warning)}."


def _token(loaded: Loaded) -> str:
    from parcelpost.settings.secrets import read_token

    try:
        return read_token(loaded.settings.gateway, os.environ).state
    except InvalidSettings as error:
        return f"unusable: {error}"
