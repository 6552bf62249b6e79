"""--config and --set mean the same for the commands that look at a store as for `run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Run, make_store


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor the folder says where a store is."""
    monkeypatch.delenv("PARCELPOST_STORE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def config(store: Path, tmp_path: Path) -> Path:
    file = tmp_path / "my settings.toml"
    file.write_text(f'[storage]\npath = "{store}"\nmax_bytes = 123_456_789\n')
    return file


@pytest.mark.parametrize(
    "words",
    [("status",), ("log",), ("store", "status"), ("store", "check"), ("tasks",), ("results",), ("top", "--once"),
     ("store", "clean"), ("store", "backup"), ("store", "migrate"), ("reparse", "--dry-run")],
)  # fmt: skip
def test_the_store_is_that_of_the_settings_file(config: Path, run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).code == 1, "there is no store where nothing was said"
    ran = run(*words, "--config", config)
    assert (ran.code, ran.err) == (0, "")


def test_the_settings_of_the_file_count_and_hints_lead_back_to_it(config: Path, store: Path, run: Run) -> None:
    found = run("status", "--config", config, "--json").document
    assert found["store"] == str(store)
    assert found["storage"]["max_bytes"] == 123_456_789
    assert f"--gateway URL --config '{config}'" in found["findings"][0]["fix"]


def test_a_flag_goes_over_the_file_and_the_environment(
    config: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_store(tmp_path / "other.db")
    monkeypatch.setenv("PARCELPOST_STORE", str(tmp_path / "none.db"))
    found = run("status", "--config", config, "--set", f"storage.path={other}", "--json").document
    assert found["store"] == str(other)
    assert run("status", "--config", config).code == 1, "the environment goes over the file"
    assert run("status", "--store", other, "--set", "storage.path=none", "--json").document["store"] == str(other)


def test_tasks_go_into_the_store_of_the_file(config: Path, store: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "p.csv"
    file.write_text("platform,parcel_id,state,county\necho,1,CT,hartford\n")
    assert run("import", file, "--config", config).code == 0
    assert run("add", "echo", "2", "--state", "CT", "--county", "hartford", "--config", config).code == 0
    assert run("store", "status", "--store", store, "--json").document["queue"]["pending"] == 5


def test_a_misspelt_variable_is_noted_by_every_command(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_SYNC_BATCHSIZE", "3")
    ran = run("tasks", "--store", store)
    assert (ran.code, ran.err.startswith("note: ")) == (0, True)
    assert ran.err.count("PARCELPOST_SYNC_BATCHSIZE") == 1


def test_an_unknown_setting_is_an_error(store: Path, run: Run) -> None:
    ran = run("status", "--store", store, "--set", "storage.pth=1")
    assert (ran.code, "storage.path" in ran.err) == (2, True)


def test_one_command_does_not_inherit_what_another_was_given(config: Path, run: Run) -> None:
    assert run("status", "--config", config).code == 0
    assert run("status").code == 1
