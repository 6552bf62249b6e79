"""What stands in deploy/: settings, commands, lines of the Containerfile."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DROP_INS = sorted((DEPLOY / "systemd").glob("*.service.d/*.conf"))
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")


def documents(path: Path) -> list[Any]:
    return list(yaml.load_all(path.read_text(encoding="utf-8"), _LOADER))


def manifests() -> list[tuple[Path, Any]]:
    return [(path, document) for path in MANIFESTS for document in documents(path)]


def manifest(file: str, kind: str) -> Any:
    (found,) = [one for one in documents(DEPLOY / "kubernetes" / file) if one["kind"] == kind]
    return found


def container_steps(stage: int) -> list[tuple[str, str]]:
    """Instructions and what they say, of one stage of the Containerfile, lines joined."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    steps = [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]
    starts = [place for place, (word, _) in enumerate(steps) if word == "FROM"]
    return steps[starts[stage] : [*starts, len(steps)][stage + 1]]


def container_settings() -> dict[str, str]:
    (text,) = [rest for word, rest in container_steps(1) if word == "ENV"]
    return dict(part.split("=", 1) for part in shlex.split(text))


def unit_lines(path: Path) -> list[tuple[str, str]]:
    """Every `Key=value` of a unit."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "=" in line and line[0] != "#"]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]
