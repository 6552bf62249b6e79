"""The Containerfile: what its lines name is there, and its steps can be followed in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parcelpost import __version__
from tests.deploy.files import CONTAINERFILE, ROOT, container_steps

BUILD, IMAGE = 0, 1
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def said(stage: int, instruction: str) -> list[str]:
    return [rest for word, rest in container_steps(stage) if word == instruction]


def copied(stage: int) -> list[list[str]]:
    return [line.split() for line in said(stage, "COPY") if not line.startswith("--from")]


def test_everything_that_is_copied_is_there_and_not_ignored() -> None:
    allowed = re.findall(r"^!(\S+)", CONTAINERFILE.with_name("Containerfile.dockerignore").read_text(), re.MULTILINE)
    for *sources, _ in [*copied(BUILD), *copied(IMAGE)]:
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == one or source.startswith(f"{one}/") for one in allowed), source


def test_it_runs_as_nobody_in_particular_and_can_be_stopped() -> None:
    assert said(IMAGE, "USER") == ["10001:10001"]
    assert said(IMAGE, "STOPSIGNAL") == ["SIGTERM"]
    assert said(IMAGE, "VOLUME") == ["/var/lib/parcelpost"]
    assert json.loads(said(IMAGE, "ENTRYPOINT")[0]) == ["parcelpost"]
    assert "CMD" in said(IMAGE, "HEALTHCHECK")[0]


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_every_package_is_pinned_to_what_the_tests_run_with(name: str) -> None:
    text = CONTAINERFILE.with_name(name).read_text(encoding="utf-8")
    pins = dict(PIN.findall(text))
    tested = dict(PIN.findall((ROOT / "requirements-dev.txt").read_text(encoding="utf-8")))
    assert pins
    assert {package: version for package, version in pins.items() if tested.get(package) != version} == {}
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    assert [block.splitlines()[0] for block in blocks if PIN.match(block) and "--hash=sha256:" not in block] == []


def test_every_dependency_of_worker_and_gateway_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in ("gateway", "postgres", "browser", "export", "firestore") for one in extras[name]),
    ]
    pins = {name.lower() for name, _ in PIN.findall(CONTAINERFILE.with_name("requirements.txt").read_text())}
    assert {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower() for one in wanted} - pins == set()  # type: ignore[index]


@pytest.mark.skipif(
    not os.environ.get("PARCELPOST_TRY_CONTAINER"), reason="installs packages: PARCELPOST_TRY_CONTAINER=1 runs it"
)
@pytest.mark.timeout(600)
def test_the_steps_of_the_build_can_be_followed(tmp_path: Path) -> None:
    """In an empty folder in place of the container's root."""
    here = tmp_path / "build"
    for word, text in container_steps(BUILD):
        line = text.replace("/opt/parcelpost", str(tmp_path / "opt" / "parcelpost"))
        if word == "WORKDIR":
            here.mkdir()
        elif word == "COPY":
            *sources, target = line.split()
            for source in sources:
                place = here / target / (Path(source).name if target == "./" else "")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, place)
        elif word == "RUN":
            line = re.sub(r"^python\b|(?<=&& )python\b", sys.executable, line)
            done = subprocess.run(["sh", "-ec", line], cwd=here, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    program = tmp_path / "opt" / "parcelpost" / "bin" / "parcelpost"
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"parcelpost {__version__}\n"
    check = [str(program), "gateway", "serve", "--help"]
    assert subprocess.run(check, capture_output=True, check=True, cwd=tmp_path).stdout
