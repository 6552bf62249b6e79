"""Every command of README and docs is understood by the real command line, and those that can be run here are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parcelpost.errors import InvalidSettings
from tests.doc_commands import commands_in, inline, leaf, typed, understood


@pytest.mark.parametrize("line", sorted({one.line for one in typed() if "parcelpost" in one.line}))
def test_the_command_line_understands_it(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands_in(line):
        try:
            understood(words)
        except InvalidSettings:
            assert "--config" in words, "only a settings file may be missing here"


@pytest.mark.parametrize("words", sorted({words for _, words in inline()}))
def test_the_text_names_commands_and_options_that_are_there(words: str) -> None:
    command, _, _ = leaf(words.split()[1:])
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<=\s)--[a-z-]+", words)) <= options | {"--help"}
