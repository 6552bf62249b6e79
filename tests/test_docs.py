"""What the documents must name. Each part compares one list in the program with one page."""

from __future__ import annotations

import ast
import contextlib
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from docs.reference import pages
from docs.reference.commands import commands
from parcelpost import errors, events
from parcelpost.chaos.breaks import BREAKS
from parcelpost.chaos.schedule import PROFILES
from parcelpost.gateway.ledger.artifacts import _MOST
from parcelpost.protocol.payloads import MAX_ARTIFACT_BYTES
from parcelpost.scrapers.counties import load_counties
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.settings.schema import KEYS, MIB, from_text
from parcelpost.settings.sources import load
from parcelpost.settings.toml import meanings
from parcelpost.settings.validation import check_runnable
from parcelpost.storage import StoreOptions, migrations
from parcelpost.telemetry import Telemetry
from tests.doc_commands import commands_in, leaf, understood
from tests.named import missing, named_tests

DOCS = Path(__file__).parents[1] / "docs"


def sections(page: str, level: int = 2) -> dict[str, str]:
    """The text under each heading of that level, by heading."""
    _, *parts = re.split(rf"^{'#' * level} (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("page", pages.PAGES)
def test_the_reference_is_what_the_code_says(page: str) -> None:
    """`make docs` writes it anew."""
    assert pages.rendered(page) == (DOCS / page).read_text(encoding="utf-8")


# Commands


def test_every_command_is_on_the_page_with_an_example_of_itself(subtests: pytest.Subtests) -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \| `(parcelpost [^`]+)` \|$", (DOCS / "commands.md").read_text(), re.MULTILINE
    )
    examples = {f"parcelpost {name}": example for name, _, example in rows}
    assert list(examples) == list(commands())
    for name, example in examples.items():
        with subtests.test(name=name):
            assert f"{example} ".startswith((f"{name} ", f"{name.removesuffix(' list')} "))
            for words in commands_in(example):
                understood(words)


# Settings, events, errors, invariants, schema


SETTINGS_PAGE = (DOCS / "settings.md").read_text(encoding="utf-8")
SECTIONS = {key.section for key in KEYS.values()}


def _rows(page: str) -> set[str]:
    """What stands in backquotes or plain in the first cell of each table row."""
    text = (DOCS / page).read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]+) \|", text, flags=re.MULTILINE)
    return {name.strip("` ") for cell in cells for name in cell.split(",")}


def test_every_option_of_the_store_is_a_setting_but_for_three() -> None:
    keys = {name.partition(".")[2] for name in KEYS}
    # The last two are from [schedules.*].
    assert set(StoreOptions.__struct_fields__) - keys == {"max_recoveries", "scheduled", "scheduled_runs"}


def test_every_setting_is_documented_with_its_real_default(subtests: pytest.Subtests) -> None:
    for name in KEYS:
        with subtests.test(name=name):
            key = KEYS[name]
            row = re.search(rf"^\| `{name}` \| ([^|]+) \| [^|]+ \|$", SETTINGS_PAGE, flags=re.MULTILINE)
            assert row, f"docs/settings.md has no row for {name}"
            assert from_text(key, "" if row[1] == "-" else row[1]) == key.default


def test_a_new_settings_file_says_of_each_setting_what_the_page_says(subtests: pytest.Subtests) -> None:
    for name in KEYS:
        with subtests.test(name=name):
            key = KEYS[name]
            (row,) = re.findall(rf"^\| `{name}` \| [^|]+ \| ([^|]+) \|$", SETTINGS_PAGE, re.MULTILINE)
            plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", row).replace("`", "")
            assert meanings()[key.section][key.field] == plain, (
                "src/parcelpost/settings/meanings.toml and docs/settings.md differ"
            )


def test_no_setting_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `(\w+\.\w+)` \|", SETTINGS_PAGE, flags=re.MULTILINE)) == set(KEYS)


def test_the_example_of_the_settings_page_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", SETTINGS_PAGE, flags=re.DOTALL)
    file = tmp_path / "parcelpost.toml"
    file.write_text(example)
    loaded = load(config=file, environment={}, flags={})
    check_runnable(loaded.settings)
    assert loaded.settings.executor.slots == 8


def test_every_metric_is_documented_and_no_other() -> None:
    found = Telemetry().registry.collect()
    names = {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in found}
    own = {name for name in _rows("events.md") if name.startswith("parcelpost_gateway_")}  # see tests/gateway
    assert {name for name in _rows("events.md") if name.startswith("parcelpost_")} - own == names


EVENTS = {name: one for name, one in vars(events).items() if isinstance(one, type) and issubclass(one, events.Event)}


def test_every_event_and_each_of_its_fields_is_documented(subtests: pytest.Subtests) -> None:
    for name in sorted(set(EVENTS) - {"Event"}):
        with subtests.test(name=name):
            text = (DOCS / "events.md").read_text(encoding="utf-8")
            row = re.search(rf"^\| `{name}` \|.*\|$", text, flags=re.MULTILINE)
            assert row, f"docs/events.md has no row for {name}"
            assert [field for field in EVENTS[name].__struct_fields__ if field not in row[0]] == []


def test_the_limits_of_the_gateway_are_documented() -> None:
    limits = sections("gateway.md")["Limits"]
    assert f"| {MAX_ARTIFACT_BYTES // MIB} MiB, then 413; the newest {_MOST:,} are kept |" in limits
    proxies = sections("gateway.md")["TLS and reverse proxies"]
    for setting in ("server.max_body_bytes", "server.max_raw_bytes"):
        assert f"`{setting}`" in limits
        assert f"`{setting}`" in proxies


def test_every_store_error_is_documented() -> None:
    assert {error.__name__ for error in errors.StoreError.__subclasses__()} <= _rows("store.md")


@pytest.mark.parametrize("number", range(1, 10))
def test_every_invariant_is_documented_and_named_where_it_is_held(number: int) -> None:
    text = (DOCS / "invariants.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| I{number} \|.*\|$", text, flags=re.MULTILINE)
    assert row, f"docs/invariants.md has no row for I{number}"
    assert named_tests(row[0]), f"no test is named for I{number}"
    assert missing(row[0]) == []
    if number != 7:  # holds by what the store does not do
        sources = [*(DOCS.parent / "src").rglob("*.py"), *(DOCS.parent / "src").rglob("*.sql")]
        assert any(re.search(rf"\bI{number}\b", path.read_text(encoding="utf-8")) for path in sources)


def test_every_profile_and_break_is_documented() -> None:
    text = (DOCS / "invariants.md").read_text(encoding="utf-8")
    assert [name for name in (*PROFILES, *BREAKS) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("text", ["000", "001", "002", "003", "004"])
def test_every_requirement_of_the_first_texts_is_met_somewhere_and_shown_by_something(text: str) -> None:
    (body,) = (body for title, body in sections("seeds.md").items() if title.startswith(f"{text}:"))
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", body, flags=re.MULTILINE)[1:]
    assert len(rows) >= 12
    assert missing(body) == []
    assert [asked for asked, _, shown in rows if not re.fullmatch(r"(`(tests|bench)/[^`]+`(, )?)+|-", shown)] == []
    for words in re.findall(r"`(parcelpost [a-z][^`]*)`", body):
        leaf(words.split()[1:])
    settings = {name for name in re.findall(r"`([a-z]+\.[a-z_]+)`", body) if name.partition(".")[0] in SECTIONS}
    assert settings <= set(KEYS)


def test_every_table_and_column_is_documented(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db:
        migrations.apply(db, migrations.load(), "2026-01-01T00:00:00.000Z")
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        page = sections("store.md", 3)
        for (table,) in tables.fetchall():
            row = re.search(rf"^\| {table} \|.*$", page["The other tables"], re.MULTILINE)
            text = row[0] if row else page[table]
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            assert [column for column in columns if not re.search(rf"\b{column}\b", text)] == []


def test_the_example_of_the_stores_page_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "store.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    example = tmp_path / "example.py"
    example.write_text(code)
    for _ in range(2):
        done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "example_data" / "store.db").exists()
    assert not (tmp_path / "local_data").exists(), "the store of a worker is left alone"


ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def test_readme_names_every_platform_and_county_that_is_included() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    platforms = ScraperFactory(sites=CountySites(), installed=list).names()
    assert len(platforms) > 10
    assert [name for name in platforms if f"`{name}`" not in readme] == []
    assert [name for name in {entry.county for entry in load_counties()} if name.title() not in readme] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_that_a_page_for_contributors_names_exists(page: str) -> None:
    assert missing((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_path_of_a_task_names_files_and_functions_that_exist() -> None:
    page = (DOCS / "data-path.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "parcelpost"
    assert [path for path in re.findall(r"`([\w/]+(?:\.py|/))`", page) if not (source / path).exists()] == []
    path = re.findall(r"`([\w/]+\.py)` \(`([\w.]+)`\)", page)
    assert [f"{name} in {file}" for file, name in path if name not in _definitions(source / file)] == []
    assert f"these are {len({file for file, _ in path})} files" in page


def _definitions(file: Path) -> set[str]:
    """Functions of the module, and methods such as `Class.method`."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        names |= {f"{prefix}{m.name}" for m in members if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return names


def test_every_peer_of_the_scrape_benchmark_can_be_read_from_its_page() -> None:
    text = sections("benchmarks.md")["The peers of `bench scrape`"]
    peers = {path.name for path in (ROOT / "bench/scrape/peers").glob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"\(\.\./bench/scrape/peers/(\w+\.py)\)", text)) == peers


def test_links_lead_somewhere_and_words_are_plain(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page=page):
            text = page.read_text(encoding="utf-8")
            links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
            assert [link for link in links if not (page.parent / link).exists()] == []
            anchors = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text)
            assert [
                (to, anchor) for to, anchor in anchors if anchor not in _anchors(page.parent / to if to else page)
            ] == []
            boasts = r"(?i)\b(robust|production-grade|battle-tested|comprehensive|blazing|seamless|state-of-the-art)\b"
            assert re.findall(boasts, text) == []


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
