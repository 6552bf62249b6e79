"""Settings from a folder of their own, and an environment that holds only what a test puts there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.settings.sources import Loaded, load

Load = Callable[..., Loaded]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loading(folder: Path) -> Load:
    """Loads with this text as ./parcelpost.toml, this environment and these flags."""

    def loading(
        toml: str | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
    ) -> Loaded:
        if toml is not None:
            (folder / "parcelpost.toml").write_text(toml, encoding="utf-8")
        return load(config=None, environment=environment or {}, flags=flags or {})

    return loading


@pytest.fixture
def refused(loading: Load) -> Callable[..., str]:
    """As `loading`, for settings that cannot be used: the error's message."""

    def refused(*arguments: object, **named: object) -> str:
        with pytest.raises(InvalidSettings) as error:
            loading(*arguments, **named)
        assert error.value.hint
        return str(error.value)

    return refused
