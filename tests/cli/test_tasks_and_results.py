"""`parcelpost tasks` and `results`: filters, pages, details."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run, make_store, task


def task_ids(run: Run, store: Path, *arguments: str) -> list[str]:
    document = run("tasks", "list", *arguments, "--json", "--store", store).document
    return [one["task"]["task_id"] for one in document["tasks"]]


def result_ids(run: Run, store: Path, *arguments: str) -> list[str]:
    document = run("results", "list", *arguments, "--json", "--store", store).document
    return [one["task_id"] for one in document["results"]]


TASK_FILTERS = [
    ((), ["saved", "sent", "refused", "failed", "expired", "later", "waiting"]),
    (("--status", "pending", "--status", "failed", "--since", "1h"), ["failed", "later", "waiting"]),
    (("--platform", "beacon", "--error", "NO TABLE"), ["failed"]),
    (("--state", "ct", "--county", "Hartford", "--delivery", "synced"), ["sent"]),
    (("--source", "gateway", "--parcel", "p-waiting", "--priority", "batch"), ["waiting"]),
    (("--since", "2099-01-01"), []),
]


@pytest.mark.parametrize(("arguments", "expected"), TASK_FILTERS)
def test_tasks_are_filtered(full_store: Path, run: Run, arguments: tuple[str, ...], expected: list[str]) -> None:
    assert task_ids(run, full_store, *arguments) == expected


RESULT_FILTERS = [
    ((), ["saved", "sent", "refused", "failed", "expired"]),
    (("--delivery", "unsynced", "--status", "completed"), ["saved"]),
    (("--delivery", "rejected", "--error", "422"), ["refused"]),
    (("--platform", "beacon", "--since", "1d"), ["failed"]),
]


@pytest.mark.parametrize(("arguments", "expected"), RESULT_FILTERS)
def test_results_are_filtered(full_store: Path, run: Run, arguments: tuple[str, ...], expected: list[str]) -> None:
    assert result_ids(run, full_store, *arguments) == expected


def test_a_parcel_that_its_site_does_not_have_is_listed_as_not_found(tmp_path: Path, run: Run) -> None:
    async def make() -> None:
        async with LocalPersistenceManager.open(tmp_path / "parcelpost.db") as lpm:
            for name in ("gone", "there"):
                await lpm.add_task(task(name))
            (claim, _) = await lpm.claim(2)
            await lpm.finish(claim, "no such parcel")

    asyncio.run(make())
    store = ("--store", tmp_path / "parcelpost.db")
    for what, listed in (("tasks", ["gone", "there"]), ("results", ["gone"])):
        lines = run(what, "list", *store).out.splitlines()[1:]
        assert [line.split()[1] for line in lines] == listed
        assert "  not found  " in lines[0]
        assert lines[0].endswith("no such parcel")
        (line,) = run(what, "list", "--status", "not_found", *store).out.splitlines()[1:]
        assert line.split() == lines[0].split()


def test_pages_cover_all_tasks_once(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=6)
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = run("tasks", "--limit", 2, "--after", after, "--json", "--store", store).document
        found += [one["task"]["task_id"] for one in page["tasks"]]
        after = page["next_after"]
    assert found == ["t0", "t1", "t2", "t3", "t4", "t5"]


def test_a_list_that_goes_on_says_so(full_store: Path, run: Run) -> None:
    for what in ("tasks", "results"):
        page = run(what, "--limit", 2, "--store", full_store).out.splitlines()
        assert len(page) == 4
        assert page[-1].startswith("More: --after ")
        rest = run(what, "--after", page[-1].split()[-1], "--store", full_store).out
        assert "More: " not in rest


def test_an_empty_list_says_so(store: Path, run: Run) -> None:
    assert run("results", "--store", store).out == "No results.\n"
    assert run("results", "--json", "--store", store).document == {"results": [], "next_after": None}


def test_a_table_is_never_cut(full_store: Path, run: Run) -> None:
    header, *lines = run("results", "--store", full_store).out.splitlines()
    assert header.split()[:4] == ["seq", "task", "end", "delivery"]
    assert [line.split()[1:4] for line in lines][2] == ["refused", "completed", "rejected"]
    assert lines[2].endswith("422: amount_due is not a number")


@pytest.mark.parametrize("width", [80, 120])
def test_a_list_fits_the_terminal(full_store: Path, run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("parcelpost.cli.paging.terminal_width", lambda: width)
    for what in ("tasks", "results"):
        header, *lines = run(what, "--store", full_store).out.splitlines()
        assert max(map(len, [header, *lines])) <= width
        assert {"seq", "task", "parcel", "error"} <= set(header.split())
        if width == 80:
            assert lines[-1].startswith("Columns not shown: ")
            assert lines[-1].endswith(" (see --json).")
        assert [line.split()[1] for line in lines][:3] == ["saved", "sent", "refused"], "ids are never cut"
    narrow = run("results", "--delivery", "rejected", "--store", full_store).out
    assert "422: amount_due" in narrow


def test_one_task_in_detail(full_store: Path, run: Run) -> None:
    out = run("tasks", "show", "failed", "--store", full_store).out
    assert "status    failed\n" in out
    assert "url       https://example.org/failed\n" in out
    assert "error     the page has no table\n" in out
    assert "attempts  1\n" in out
    assert run("tasks", "show", "failed", "--json", "--store", full_store).document["error"] == "the page has no table"


def test_refusals_of_a_result_are_not_called_attempts_at_its_task(full_store: Path, run: Run) -> None:
    out = run("results", "show", "refused", "--store", full_store).out
    assert "refused          1 time by the upstream\n" in out
    assert "attempts" not in out + run("results", "--store", full_store).out


def test_one_result_with_its_data(full_store: Path, run: Run) -> None:
    out = run("results", "show", "saved", "--store", full_store).out
    assert "delivery         unsynced\n" in out
    assert '  "owner": "Müller, Ann",\n' in out
    page = next(line for line in out.splitlines() if line.startswith("page  ")).split(maxsplit=1)[1]
    assert Path(page).is_file()
    assert "page state       intact, 43 B\n" in out
    assert out.index("History\n") < out.index("  record stored\n") < out.index("Record\n")
    document = run("results", "show", "saved", "--json", "--store", full_store).document
    assert document["data"] == {"owner": "Müller, Ann", "amount_due": "12.50", "task": "saved"}


@pytest.mark.parametrize("what", ["tasks", "results"])
def test_an_unknown_id_is_an_error(full_store: Path, run: Run, what: str) -> None:
    ran = run(what, "show", "nobody", "--store", full_store)
    assert ran.code == 1
    assert "'nobody'" in ran.err
    assert f"hint: list them with 'parcelpost {what} list" in ran.err


def test_text_from_elsewhere_cannot_reach_the_terminal(tmp_path: Path, run: Run) -> None:
    import asyncio

    from parcelpost.storage import LocalPersistenceManager

    async def fill(path: Path) -> None:
        async with LocalPersistenceManager.open(path) as lpm:
            await lpm.add_task(task("evil\x1b[2J\n"))

    store = tmp_path / "parcelpost.db"
    asyncio.run(fill(store))
    out = run("tasks", "--store", store).out
    assert "\x1b" not in out
    assert "evil\\x1b[2J\\n" in out


def test_a_failed_task_and_its_report_say_where_the_evidence_is(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=1)

    async def fail() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            (claim,) = await lpm.claim()
            await lpm.artifacts.put("t0", b"\x89PNG\r\n\x1a\n", "no table")
            await lpm.give_up(claim, "no table")

    asyncio.run(fail())
    for what in ("tasks", "results"):
        facts, _, history = run(what, "show", "t0", "--store", store).out.partition("\n\nHistory\n")
        assert [line.split("UTC  ")[1] for line in history.splitlines()][:2] == ["stored, from gateway", "last started"]
        shown = dict(line.split(maxsplit=1) for line in facts.splitlines())
        assert Path(shown["screenshot"]).read_bytes().startswith(b"\x89PNG")
        assert Path(shown["log"]).read_text() == "no table"
    kept = run("tasks", "show", "t0", "--json", "--store", store).document["artifacts"]
    report = run("results", "show", "t0", "--json", "--store", store).document
    assert kept["log_path"] == report["log_path"]
    assert kept["log_path"].startswith("artifacts/t0~")
