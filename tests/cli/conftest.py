"""The command in this process, and stores for it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.cli.main import main
from tests.cli.support import Ran, Run, make_full_store, make_store
from tests.website import Website, website


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
def served() -> Iterator[Website]:
    """A website in a thread of its own, so that commands can run in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = website()
    one = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
    one.page("/robots.txt", b"")
    try:
        yield one
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


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
