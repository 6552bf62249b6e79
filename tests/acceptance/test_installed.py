"""The package as a stranger has it: built, installed into an environment of its own, used in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import uv

PROJECT = Path(__file__).parents[2]
RUN = "import parcelpost.__main__ as own; print(own.__file__, flush=True); own.main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its command. What it depends on is lent by this environment: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    place = folder / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    install = [uv.find_uv_bin(), "pip", "install", "--python", str(place), "--offline", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return place / "bin" / "parcelpost"


def test_init_leads_to_a_worker_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PARCELPOST_", "PYTHON"))}

    def use(*words: object) -> str:
        done = subprocess.run(
            list(map(str, words)),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "Wrote parcelpost.toml (standalone)." in use(installed, "init", "--yes")
    where, *told = use(installed.with_name("python"), "-c", RUN, "run", "--until-empty").splitlines()
    assert Path(where).is_relative_to(installed.parents[1]), "and not this checkout"
    assert told == ["0 completed, 0 failed, 0 expired in this run; 0 to deliver, 0 rejected in the store"]
