"""Whatever deploy/ says to Parcelpost, Parcelpost understands: settings, variables, command lines."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from parcelpost.cli.main import app
from parcelpost.settings.secrets import TOKEN_VARIABLE
from parcelpost.settings.sources import load
from parcelpost.settings.validation import check_runnable
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    DROP_INS,
    ROOT,
    UNITS,
    container_settings,
    container_steps,
    documents,
    manifests,
    unit_lines,
)

SERVICES = documents(COMPOSE)[0]["services"]
PODS = {
    f"{path.name} {document['metadata']['name']}": document["spec"]["template"]["spec"]["containers"][0]
    for path, document in manifests()
    if document["kind"] in {"Deployment", "StatefulSet", "Job"}
}


def environments() -> dict[str, dict[str, str]]:
    """What each process is started with."""
    found = {"container": container_settings()}
    for unit in [*UNITS, *DROP_INS]:
        found[unit.name] = dict(value.split("=", 1) for key, value in unit_lines(unit) if key == "Environment")
    for name, service in SERVICES.items():
        found[f"compose {name}"] = {**container_settings(), **service.get("environment", {})}
    for name, container in PODS.items():
        given = {one["name"]: one.get("value", "from a secret") for one in container["env"]}
        found[name] = {**container_settings(), **given}
    return found


def commands() -> dict[str, str]:
    """Every command line, by where it stands."""
    found = {"container": "parcelpost " + " ".join(words(1, "CMD"))}
    for unit in UNITS:
        (line,) = [value for key, value in unit_lines(unit) if key == "ExecStart"]
        found[unit.name] = f"parcelpost {line.partition('/bin/parcelpost ')[2]}"
    for name, service in SERVICES.items():
        if service["image"] == "parcelpost":
            found[f"compose {name}"] = shlex.join(["parcelpost", *service["command"]])
    for name, container in PODS.items():
        found[name] = shlex.join(["parcelpost", *container["args"]])
    for path in [*(DEPLOY.rglob("*.yaml")), ROOT / "docs" / "operating.md"]:
        for place, line in enumerate(named_in(path.read_text(encoding="utf-8"))):
            found[f"{path.name} {place}"] = line
    return found


def words(stage: int, instruction: str) -> list[str]:
    (text,) = [rest for word, rest in container_steps(stage) if word == instruction]
    return [str(one) for one in re.findall(r'"([^"]*)"', text)]


def named_in(text: str) -> list[str]:
    """`parcelpost ...` in quotes of an alert, in backquotes, or on a line of its own in a block of commands."""
    quoted = re.findall(r"['`](parcelpost [a-z][^'`\n]*)['`]", text)
    blocks = re.findall(r"^```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [
        line
        for block in blocks
        for line in re.sub(r"\\\n\s*", "", block).splitlines()
        if not line.startswith("kubectl")
    ]
    started = [found[1] for line in lines if (found := re.match(r"(?:.*[ /])?(parcelpost (?:-|[a-z]).*)", line))]
    return quoted + [re.split(r" +#| [|>] |\)", line)[0] for line in started if not re.match(r"parcelpost[:@]", line)]


ENVIRONMENTS, COMMANDS = environments(), commands()


def test_every_variable_is_one_that_we_know_and_its_value_is_good(subtests: pytest.Subtests) -> None:
    for name in ENVIRONMENTS:
        with subtests.test(name=name):
            given = ENVIRONMENTS[name]
            assert TOKEN_VARIABLE not in given, "a token is handed over as a file"
            ours = {key: value.replace("%S", "/var/lib").replace("%d", "/run") for key, value in given.items()}
            loaded = load(config=None, environment=ours, flags={})
            assert not loaded.warnings
            if "worker" in name and "conf" not in name and "service" not in name:
                check_runnable(loaded.settings)


def test_every_command_line_is_understood(subtests: pytest.Subtests) -> None:
    for name in COMMANDS:
        with subtests.test(name=name):
            _, *arguments = shlex.split(re.sub(r"{{.*?}}", "vgsi", COMMANDS[name]))
            command: Any = get_command(app)
            while arguments and arguments[0] in getattr(command, "commands", {}):
                command = command.commands[arguments.pop(0)]
            assert not getattr(command, "commands", {}), f"{COMMANDS[name]} names no command"
            with command.make_context("parcelpost", arguments, resilient_parsing=False):
                pass


def test_the_commands_of_the_page_were_found() -> None:
    assert len(COMMANDS) > 30


FILES = sorted(one for one in DEPLOY.rglob("*") if one.is_file() and one.parent.name != "__pycache__")


def test_nothing_in_deploy_is_secret(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(path=path):
            text = path.read_text(encoding="utf-8")
            assert not re.search(
                r"(?i)password\s*[:=]\s*[\"']?\w{6,}(?!.*secret)", re.sub(r"(?m)^.*(_FILE|secret|/run/).*$", "", text)
            )
            assert "BEGIN" not in text
