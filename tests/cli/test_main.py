"""The command itself: help, version, errors, interrupts, broken pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parcelpost import __version__
from parcelpost.cli.main import COMMANDS as LATER
from tests.cli.support import COMMAND, Run, make_old, make_store, run_process


@cache
def commands() -> dict[str, Any]:
    """Every command by its words, with those of the groups."""
    found: dict[str, Any] = {later.name or "": later.real() for later in LATER}
    return found | {
        f"{group} {name}": command
        for group in ("store", "tasks", "results")
        for name, command in found[group].commands.items()
        if not command.hidden
    }


def leaves_below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands that do something, by their words: groups only lead to others."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
    else:
        for name, inner in below.items():
            yield from leaves_below(f"{words} {name}".strip(), inner)


def test_the_version_is_printed(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"parcelpost {__version__}\n")


def test_every_help_has_examples_and_h_is_help_everywhere(subtests: pytest.Subtests, run: Run) -> None:
    for words in ["", *commands()]:
        with subtests.test(words=words):
            ran = run(*words.split(), "--help")
            assert ran.code == 0
            assert "Examples:\n" in ran.out
            assert f"    parcelpost {words}".rstrip() in ran.out
            assert "\b" not in ran.out
            assert run(*words.split(), "-h").out == ran.out, "-h is help everywhere"


def test_the_list_of_commands_of_a_group_shows_whole_sentences(subtests: pytest.Subtests, run: Run) -> None:
    groups = [later.name or "" for later in LATER if hasattr(later.real(), "commands")]
    for words in ["gateway schedule", "gateway webhook", *groups]:
        with subtests.test(words=words):
            listed = run(*words.split(), "--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
            assert listed
            assert "..." not in listed


def test_every_command_on_a_store_takes_json_store_and_settings(subtests: pytest.Subtests) -> None:
    for words in [words for words in commands() if words.startswith(("store ", "tasks ", "results "))]:
        with subtests.test(words=words):
            options = {name for parameter in commands()[words].params for name in parameter.opts}
            assert {"--json", "--store", "--config", "--set"} <= options


def test_every_command_that_reads_settings_takes_config_and_set(subtests: pytest.Subtests) -> None:
    without = {"init", "demo", "simulate county", "firestore show", "gateway token", "gateway webhook secret"}
    without |= {"chaos run", "chaos recovery"}
    leaves = {words: command for later in LATER for words, command in leaves_below(later.name or "", later.real())}
    assert without <= leaves.keys()
    for words, command in leaves.items():
        with subtests.test(words=words):
            options = {name for parameter in command.params for name in parameter.opts}
            assert {"--config", "--set"} <= options or words in without


@pytest.mark.parametrize("words", ["parse", "platforms", "reparse", "status", "scrape", "tasks list", "results delete"])
def test_help_names_values_in_words(run: Run, words: str) -> None:
    out = run(*words.split(), "--help").out
    assert not re.search(r"\[\[|\.\.\.\}|%Y|--[a-z]+ <(str|int|path)", out), out


def test_a_shell_completes_commands_options_and_values(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--install-completion" in run("--help").out
    monkeypatch.setenv("_PARCELPOST_COMPLETE", "complete_bash")
    for line, expected in [
        ("parcelpost exp", {"export"}),
        ("parcelpost tasks re", {"retry", "reject"}),
        ("parcelpost platforms pa", {"pause"}),
        ("parcelpost gateway workers --con", {"--config"}),
        ("parcelpost tasks list --status not", {"not_found"}),
    ]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert set(run().out.split()) == expected, line


def test_help_loads_neither_the_store_nor_rich() -> None:
    script = (
        "import sys\nfrom parcelpost.cli.main import main\ntry:\n    main(['store', '--help'])\nfinally:\n"
        "    print([name for name in sys.modules if name.split('.')[0] in ('rich', 'aiosqlite', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_exits_with_2(run: Run) -> None:
    ran = run("store", "stauts")
    assert ran.code == 2
    assert "Did you mean 'status'" in ran.err


def test_an_error_is_two_lines_and_exit_code_1(tmp_path: Path) -> None:
    ran = run_process("store", "status", "--store", tmp_path / "none.db")
    assert ran.code == 1
    assert ran.out == ""
    first, second = ran.err.splitlines()
    assert first == f"error: there is no store at {tmp_path / 'none.db'}"
    assert second.startswith("hint: ")


def test_the_store_may_come_from_the_environment(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_STORE", str(store))
    ran = run("tasks", "--json")
    assert [one["task"]["task_id"] for one in ran.document["tasks"]] == ["t0", "t1", "t2"]


def test_a_remedy_names_the_store_unless_the_environment_does(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(store, hours=27)
    assert f"'parcelpost store backup --store {store}'" in run("store", "status", "--store", store).out
    monkeypatch.setenv("PARCELPOST_STORE", str(store))
    assert "'parcelpost store backup'" in run("store", "status").out


def test_a_reader_that_left_is_no_error_worth_a_word(tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=2_000)
    for arguments in (("--limit", "10000"), ("--limit", "1"), ("--limit", "10000", "--json")):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            done = subprocess.run(
                [COMMAND, "tasks", "--store", store, *arguments],
                stdout=pipe,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, b""), arguments


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_is_full_is_an_error_in_one_line(store: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "status", "--store", store], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.stderr == b"error: cannot write the output: No space left on device\n"
    assert done.returncode == 1


def test_letters_that_the_terminal_lacks_are_escaped(full_store: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = run_process("results", "show", "saved", "--store", full_store, environment=ascii_only)
    assert ran.code == 0
    assert "M\\xfcller" in ran.out
    as_json = run_process("results", "show", "saved", "--json", "--store", full_store, environment=ascii_only)
    assert as_json.document["data"]["owner"] == "Müller, Ann"


def test_ctrl_c_at_a_question_changes_nothing_and_exits_with_130(full_store: Path, run: Run) -> None:
    arguments = [COMMAND, "tasks", "retry", "--all", "--store", str(full_store)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        asked = b""
        while not asked.endswith(b"[y/N] "):
            asked += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err + out
    failed = run("tasks", "show", "failed", "--json", "--store", full_store)
    assert failed.document["status"] == "failed"


def test_ctrl_c_while_it_loads_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "parcelpost", "status"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"")
