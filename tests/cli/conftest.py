"""The command in this process, and stores for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from parcelpost.cli.main import main
from tests.cli.support import Ran, Run, make_full_store, make_store


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line through `main`, as the installed command does."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Ran(end.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def made_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a copy takes a twentieth of the time."""
    folder = tmp_path_factory.mktemp("made")
    make_store(folder / "plain" / "parcelpost.db", tasks=3)
    make_full_store(folder / "full" / "parcelpost.db")
    return folder


@pytest.fixture
def store(tmp_path: Path, made_stores: Path) -> Path:
    return shutil.copytree(made_stores / "plain", tmp_path / "here") / "parcelpost.db"


@pytest.fixture
def full_store(tmp_path: Path, made_stores: Path) -> Path:
    return shutil.copytree(made_stores / "full", tmp_path / "here") / "parcelpost.db"
