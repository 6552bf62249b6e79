"""The command in this process, and stores for it."""

from __future__ import annotations

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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "here" / "parcelpost.db", tasks=3)


@pytest.fixture
def full_store(tmp_path: Path) -> Path:
    return make_full_store(tmp_path / "here" / "parcelpost.db")
