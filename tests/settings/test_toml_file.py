"""The file: where it is looked for, what can be wrong with it, and on which line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parcelpost.errors import InvalidSettings
from parcelpost.settings.sources import Loaded, diagnose, lines, load

Load = Callable[..., Loaded]
Refused = Callable[..., str]


def slots(config: Path | None, **environment: str) -> int:
    return load(config=config, environment=environment, flags={}).settings.executor.slots


def test_the_named_file_goes_before_the_environments_and_that_before_the_one_that_lies_here(folder: Path) -> None:
    for number, name in enumerate(("parcelpost.toml", "b.toml", "c.toml"), 1):
        (folder / name).write_text(f"[executor]\nslots = {number}\n")
    assert slots(None) == 1
    assert slots(None, PARCELPOST_CONFIG="b.toml") == 2
    assert slots(folder / "c.toml", PARCELPOST_CONFIG="b.toml") == 3
    loaded = load(config=Path("c.toml"), environment={}, flags={})
    assert (loaded.file, loaded.origins["executor.slots"]) == (Path("c.toml"), "c.toml:2")


@pytest.mark.parametrize("environment", [{}, {"PARCELPOST_CONFIG": "none.toml"}])
def test_a_named_file_that_is_missing_is_an_error(folder: Path, environment: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings) as error:
        load(config=None if environment else Path("none.toml"), environment=environment, flags={})
    assert str(error.value) == "the settings file none.toml cannot be read: No such file or directory"
    assert "PARCELPOST_CONFIG" in error.value.hint


def test_a_folder_or_an_impossible_path_is_an_error(folder: Path) -> None:
    for path in (folder, Path("a\0b")):
        with pytest.raises(InvalidSettings, match="cannot be read"):
            load(config=path, environment={}, flags={})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error(folder: Path) -> None:
    (folder / "parcelpost.toml").touch(mode=0)
    with pytest.raises(InvalidSettings, match="cannot be read: Permission denied"):
        slots(None)


def test_a_link_to_nowhere_is_an_error(folder: Path) -> None:
    (folder / "parcelpost.toml").symlink_to("none")
    with pytest.raises(InvalidSettings, match="cannot be read: No such file"):
        slots(None)


def test_an_endless_file_is_an_error(folder: Path) -> None:
    with pytest.raises(InvalidSettings, match="is larger than 1 MiB"):
        load(config=Path("/dev/zero"), environment={}, flags={})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[sync]\nbatch_size = \n", "parcelpost.toml:2: not valid TOML: Invalid value"),
        (
            b"[sync]\n\nbatch_size 5\n",
            "parcelpost.toml:3: not valid TOML: Expected '=' after a key in a key/value pair",
        ),
        (b"[sync]\n[sync]\n", "parcelpost.toml:2: not valid TOML: Cannot declare ('sync',) twice"),
        (b"[janitor]\nbackup_at = 02:00\n", "parcelpost.toml:2: not valid TOML: "),
        (b"[sync]\nbatch_size = 5", ""),
        (b"[sync]\nbatch_size =", "parcelpost.toml:2: not valid TOML: Invalid value"),
        (b"a = 1\nb = '\xff'\n", "parcelpost.toml:2: not UTF-8"),
        (b"a = " + b"[" * 50_000, "parcelpost.toml: not valid TOML: too deeply nested"),
        (b"a = " + b"9" * 5_000, "parcelpost.toml: not valid TOML: Exceeds the limit"),
        (b"\xef\xbb\xbf[sync]\r\nbatch_size = 7\r\n", ""),
        (b"", ""),
        (b"[sync]\n", ""),
    ],
)
def test_what_is_not_toml_is_an_error_with_its_line(folder: Path, content: bytes, message: str) -> None:
    (folder / "parcelpost.toml").write_bytes(content)
    if not message:
        slots(None)
        return
    with pytest.raises(InvalidSettings) as error:
        slots(None)
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        ("[sync]\n# batch_size = 1\nbatch_size = 0\n", "parcelpost.toml:3"),
        ("sync.batch_size = 0\n", "parcelpost.toml:1"),
        ("[sync]\n'batch_size' = 0\n", "parcelpost.toml:2"),
        ("\n  [ sync ]  # here\n\tbatch_size=0", "parcelpost.toml:3"),
        ("[collector]\nlow_water = 1\n\nsync = 5\n[sync]\nbatch_size = 0", "parcelpost.toml:6"),
        ("\nsync = { batch_size = 0 }\n", "parcelpost.toml:2"),
    ],
)
def test_the_line_of_a_bad_value_is_named(folder: Path, toml: str, where: str) -> None:
    (folder / "parcelpost.toml").write_text(toml)
    assert any(what.startswith(f"{where}: sync.batch_size must be") for what in problems())


def problems() -> list[str]:
    return [problem.message for problem in diagnose(config=None, environment={}, flags={}).problems]


def test_a_section_that_is_no_section_is_told_so(refused: Refused) -> None:
    assert refused("sync = 5\n") == "parcelpost.toml:1: sync is a section, not a setting"
    assert refused("[snyc]\n").startswith("parcelpost.toml:1: unknown setting snyc")
    assert refused("[[sync]]\nbatch_size = 5\n").endswith("sync is a section, not a setting")


def test_every_key_of_an_unknown_section_is_named_with_its_line(folder: Path) -> None:
    (folder / "parcelpost.toml").write_text("[snyc]\nbatch_size = 5\nraw_uploads = 1\n")
    assert problems() == [
        "parcelpost.toml:2: unknown setting snyc.batch_size (did you mean sync.batch_size?)",
        "parcelpost.toml:3: unknown setting snyc.raw_uploads (did you mean sync.raw_uploads?)",
    ]


def test_a_token_in_the_file_has_its_own_error(refused: Refused) -> None:
    message = refused('[gateway]\nurl = "https://example.org"\ntoken = "s3cret"\n')
    assert message == "parcelpost.toml:3: gateway.token looks like a secret, and secrets are not settings"


def test_lines_are_those_of_the_first_place() -> None:
    assert lines("a = 1\n[b]\nc = 2\nd.e = 3\n[b]\nc = 4\n") == {"a": 1, "b": 2, "b.c": 3, "b.d.e": 4}


@given(st.binary(max_size=200) | st.text(alphabet="[]sync.batchize_=\"'\n\\u0d{},# 15", max_size=200).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_settings_or_an_error_that_names_the_file(folder: Path, content: bytes) -> None:
    (folder / "parcelpost.toml").write_bytes(content)
    try:
        slots(None)
    except InvalidSettings as error:
        assert str(error).startswith("parcelpost.toml")
