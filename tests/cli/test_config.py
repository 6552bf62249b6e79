"""`parcelpost config show` and `check`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.support import Run

TOKEN = "s3cret-token"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run, with nothing set."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "parcelpost.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("words", ["", "show", "check"])
def test_every_help_has_examples(run: Run, words: str) -> None:
    ran = run("config", *words.split(), "--help")
    assert ran.code == 0
    assert "Examples:\n" in ran.out
    assert f"    parcelpost config {words}".rstrip() in ran.out


def test_show_hides_the_password_of_a_database(folder: Path, run: Run) -> None:
    for url, said in [
        ("postgresql://gw:hunter2@db.example.org/parcels", "postgresql://gw:***@db.example.org/parcels"),
        ("postgresql://gw@db.example.org/parcels?password=hunter2", "postgresql://gw@db.example.org/parcels?***"),
        ("postgresql://gw:hunter2?x@db.example.org/parcels", "postgresql://***"),
        ("postgresql://db.example.org/parcels?password=hunter2@x", "postgresql://***"),
    ]:
        write(folder, f'[server]\ndatabase = "{url}"\n')
        for options in ((), ("--json",)):
            ran = run("config", "show", *options)
            assert said in ran.out
            assert "hunter2" not in ran.out


def test_show_says_where_each_value_comes_from(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, '[sync]\nraw_uploads = 8\n[storage]\nmax_bytes = "20GiB"\n')
    monkeypatch.setenv("PARCELPOST_STORE", "/srv/p.db")
    ran = run("config", "show", "--set", "sync.batch_size=20", "--set", "sync.batch_size=30")
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line}
    assert (ran.code, ran.err) == (0, "")
    assert rows["sync.batch_size"] == ["30", "flag", "--set"]
    assert rows["sync.raw_uploads"] == ["8", "parcelpost.toml:2"]
    assert rows["storage.max_bytes"] == ["20GiB", "parcelpost.toml:4"]
    assert rows["storage.path"] == ["/srv/p.db", "environment", "PARCELPOST_STORE"]
    assert rows["worker.id"] == ["-", "default"]
    assert "Gateway token: not set." in ran.out


def test_show_as_json_has_every_value(folder: Path, run: Run) -> None:
    write(folder, '[worker]\nplatforms = ["a", "b"]\n')
    found = run("config", "show", "--json").document
    assert found["file"] == "parcelpost.toml"
    assert found["settings"]["worker.platforms"] == {"value": ["a", "b"], "from": "parcelpost.toml:2"}
    assert found["settings"]["sync.batch_size"] == {"value": 50, "from": "default"}
    assert (found["token"], found["warnings"]) == ("not set", [])


@pytest.mark.parametrize("command", [("show",), ("show", "--json"), ("check",), ("check", "--json")])
def test_the_token_is_never_printed(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o644)
    from_file = run("config", *command, "--set", "gateway.token_file=token", "--set", "gateway.url=http://localhost")
    monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", TOKEN)
    from_environment = run("config", *command, "--set", "worker.mode=standalone")
    on_the_line = run("config", *command, "--set", f"gateway.token={TOKEN}")
    assert (from_file.code, from_environment.code, on_the_line.code) == (0, 0, 2 if command[0] == "show" else 1)
    for ran in (from_file, from_environment, on_the_line):
        assert TOKEN not in ran.out + ran.err
    if command[0] == "show":
        assert "set (file token)" in from_file.out
        assert "set (environment)" in from_environment.out
    else:
        assert "chmod 600" in from_file.out


def test_show_says_that_a_token_cannot_be_used(run: Run) -> None:
    ran = run("config", "show", "--set", "gateway.token_file=none")
    assert ran.code == 0
    assert "Gateway token: unusable: gateway.token_file none cannot be read: No such file" in ran.out


def test_show_of_settings_that_cannot_be_used_is_an_error(run: Run) -> None:
    ran = run("config", "show", "--set", "sync.batchsize=5")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == (
        "error: flag --set: unknown setting sync.batchsize (did you mean sync.batch_size?)"
    )


def test_check_finds_nothing_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run("config", "check", "--set", "worker.mode=standalone")
    assert (ran.code, ran.out, ran.err) == (0, "No problems found.\n", "")
    monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", TOKEN)
    ran = run("config", "check", "--set", "gateway.url=http://localhost", "--json")
    assert (ran.code, ran.document) == (0, {"ok": True, "findings": []})


def test_check_lists_every_problem_with_what_to_do(folder: Path, run: Run) -> None:
    write(folder, "[sync]\nbatchsize = 5\nbatch_size = 5000\n")
    ran = run("config", "check", "--set", "log.level=loud")
    assert ran.code == 1
    assert [line.split(". Fix: ")[0] for line in ran.out.splitlines()] == [
        "Error: parcelpost.toml:2: unknown setting sync.batchsize (did you mean sync.batch_size?)",
        "Error: parcelpost.toml:3: sync.batch_size must be a whole number from 1 to 1000, not 5000",
        "Error: flag --set: log.level must be one of debug, info, warning, error, not 'loud'",
    ]
    assert all(". Fix: " in line for line in ran.out.splitlines())
    found = run("config", "check", "--json")
    assert (found.code, found.document["ok"], len(found.document["findings"])) == (1, False, 2)


def test_check_finds_a_token_file_that_cannot_be_read(run: Run) -> None:
    ran = run("config", "check", "--set", "gateway.url=http://localhost", "--set", "gateway.token_file=none")
    assert ran.code == 1
    assert ran.out.startswith("Error: gateway.token_file none cannot be read: No such file or directory.")


def test_a_warning_is_no_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_SYNC_BATCHSIZE", "5")
    ran = run("config", "check", "--set", "gateway.url=http://localhost")
    assert ran.code == 0
    warnings = ran.out.splitlines()
    assert [warning.split()[0] for warning in warnings] == ["Warning:", "Warning:"]
    assert "PARCELPOST_SYNC_BATCH_SIZE" in warnings[0]
    assert "no token is set for the gateway" in warnings[1]


COUNTY = '[[county]]\nplatform = "arcgis"\nstate = "MN"\ncounty = "x"\nsite = "https://example.org/0"\n'
FIELD_MAP = 'has = ["PIN"]\n[fields]\nparcel_id = { text = ["PIN"] }\n'
WRONG = {
    "": "mode ondemand needs gateway.url, which is not set",
    "gateway.url=https://gateway.example.org": "gateway.url is set, but there is no token",
    "gateway.token_file=none": "gateway.token_file none cannot be read",
    "worker.platforms=vgsi,no_such": "worker.platforms names no_such, which is not installed",
    "fetch.counties_file=none": "fetch.counties_file none cannot be read",
    "fetch.counties_file=county.toml": "the entry of arcgis MN/x names the field map 'theirs', which does not exist",
    "fetch.field_maps_folder=none": "the field maps in none cannot be read: No such file",
    "fetch.field_maps_folder=maps": "maps/mine.toml: the field map mine has 'owner', which is not a field of a record",
    "fetch.proxy=ftp://proxy": "fetch.proxy must look like",
    "fetch.allow_private=10.0.0.0/99": "fetch.allow_private",
}


@pytest.mark.parametrize(("setting", "problem"), WRONG.items())
def test_what_would_end_a_worker_at_once_is_a_fault(folder: Path, run: Run, setting: str, problem: str) -> None:
    (folder / "county.toml").write_text(f'{COUNTY}field_map = "theirs"\n')
    (folder / "maps").mkdir()
    (folder / "maps" / "mine.toml").write_text(f'{FIELD_MAP}owner = {{ texts = ["OWNER"] }}\n')
    mode = () if not setting or setting.startswith("gateway.url") else ("--set", "worker.mode=standalone")
    flags = ("--set", setting, *mode) if setting else mode
    ran = run("config", "check", *flags)
    assert ran.code == 1, ran.out
    assert ran.out.startswith(f"Error: {problem}"), ran.out
    ran = run("run", "--until-empty", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {problem}"), ran.err
    assert not (folder / "local_data").exists()


def test_the_operators_field_maps_are_shown_and_may_be_named_by_a_county(folder: Path, run: Run) -> None:
    (folder / "county.toml").write_text(f'{COUNTY}field_map = "theirs"\n')
    write(folder, '[worker]\nmode = "standalone"\n[fetch]\ncounties_file = "county.toml"\n[field_maps.theirs]\n')
    assert "parcelpost.toml:5: the field map theirs needs [fields] with a parcel_id" in run("config", "check").out
    with (folder / "parcelpost.toml").open("a") as file:
        file.write('[field_maps.theirs.fields]\nparcel_id = { text = ["PIN"] }\n')
    assert run("config", "check").out == "No problems found.\n"
    assert "field_maps.theirs" in run("config", "show").out
    shown = run("config", "show", "--json").document["settings"]["field_maps.theirs"]
    assert shown == {"value": "parcel_id", "from": "parcelpost.toml:5"}


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_named_file_is_used_and_must_be_there(folder: Path, run: Run, command: str) -> None:
    (folder / "other.toml").write_text("[worker]\nmode = 'standalone'\n")
    assert run("config", command, "--config", "other.toml").code == 0
    ran = run("config", command, "--config", "none.toml")
    assert ran.code == (2 if command == "show" else 1)
    assert "the settings file none.toml cannot be read: No such file or directory" in ran.out + ran.err


def test_what_the_file_says_cannot_move_the_cursor(folder: Path, run: Run) -> None:
    write(folder, '[sync]\n"\\u001b[2J" = 1\n')
    out = run("config", "check").out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
    assert "\\u001b" in json.dumps(run("config", "check", "--json").document)


def test_show_names_the_platforms_of_the_file(folder: Path, run: Run) -> None:
    write(folder, '[platforms.mine]\nscrape = "m:f"\n')
    assert "platforms.mine.scrape" in run("config", "show").out
    shown = run("config", "show", "--json").document["settings"]["platforms.mine.scrape"]
    assert shown == {"value": "m:f", "from": "parcelpost.toml:2"}
