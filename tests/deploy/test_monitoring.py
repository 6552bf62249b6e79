"""Alerts and dashboard use only metrics that a real worker and a real gateway show."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from msgspec import convert
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana.dashboard import FILE, KNOWN, dashboard, series
from parcelpost.cli.worker_setup import open_worker
from parcelpost.gateway.api.health import metrics_page
from parcelpost.gateway.schedules import NewSchedule, make_schedule
from parcelpost.settings.sources import load
from parcelpost.worker.control import Control
from parcelpost.worker.runner import OndemandRunner
from tests.acceptance.processes import FAST, eventually
from tests.deploy.alert_cases import CASES, promtool_file
from tests.deploy.files import DEPLOY, ROOT, documents
from tests.gateway.stage import a_client, a_task, add_tasks, some_context
from tests.hostile import HostileGateway
from tests.hostile import a_task as an_offer

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here (it comes with Prometheus)")
RULES = DEPLOY / "prometheus" / "parcelpost.rules.yaml"
DASHBOARD = json.loads(FILE.read_text(encoding="utf-8"))
ALERTS = [rule for group in documents(RULES)[0]["groups"] for rule in group["rules"]]


def test_the_dashboard_is_what_the_code_says() -> None:
    assert FILE.read_text(encoding="utf-8") == dashboard(), "run `make docs`"


def test_a_metric_or_a_label_that_is_not_there_is_an_error() -> None:
    assert series("outbox", state="unsynced", over="5m") == 'parcelpost_outbox{state="unsynced"}[5m]'
    for name, labels in (("no_such", {}), ("outbox", {"platform": "vgsi"})):
        with pytest.raises(KeyError):
            series(name, **labels)


# What a page shows


def labels_on(page: str) -> dict[str, set[str]]:
    """Name of each series -> its labels."""
    samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
    return {one.name: set(one.labels) for one in samples}


def values_on(page: str) -> dict[tuple[str, str], set[str]]:
    """Name and label -> its values."""
    found: dict[tuple[str, str], set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            for label, value in sample.labels.items():
                found.setdefault((sample.name, label), set()).add(value)
    return found


async def page_of_a_worker(folder: Path) -> str:
    """One that has scraped, failed, been blocked, delivered and been refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with HostileGateway(many_at_once=True) as gateway, httpx2.AsyncClient(trust_env=False) as client:
        ends = ("done", "give_up", "retry", "blocked", "not_found")
        gateway.offer(*(an_offer(end, target={} if end == "done" else {"fail": end}) for end in ends))
        flags = {
            **FAST,
            "executor.slots": "8",
            "gateway.url": gateway.url,
            "storage.path": str(folder / "store.db"),
            "http.port": str(port),
        }
        settings = load(config=None, environment={}, flags=flags).settings
        control, page = Control(), ""
        async with open_worker(
            settings, {"PARCELPOST_GATEWAY_TOKEN": gateway.token}, control, progress_seconds=60
        ) as worker:
            running = asyncio.create_task(OndemandRunner(worker).run())

            async def has_all() -> bool:
                nonlocal page
                page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
                ended = values_on(page).get(("parcelpost_attempts_total", "outcome"), set())
                return ended >= set(ends) and all(
                    text in page for text in ("results_synced_total{", "platform_paused{")
                )

            await eventually(has_all)
            control.leave("the end of the test", at_once=True)
            await running
    return page


async def page_of_a_gateway(folder: Path) -> str:
    async with some_context(folder) as context, a_client(context) as client:
        await add_tasks(context, a_task("t1"), a_task("t2"))
        await client.get("/internal/work?platforms=echo")
        await client.post("/internal/heartbeat", json={})
        await client.get("/nowhere")
        await client.post("/v1/webhooks", json={"url": "https://example.org/hook"})
        site = {"platform": "echo", "state": "CT", "county": "hartford"}
        new = convert({"name": "weekly", "every": "7d", "scope": "file", "parcels": ["1"], **site}, NewSchedule)
        past = context.clock.now() - timedelta(days=30)
        schedule, targets = make_schedule(new, past, None)
        assert await context.ledger.add_schedule(schedule, targets, past)
        return (await metrics_page(context)).decode()


def expressions() -> dict[str, str]:
    """Everything that is asked of Prometheus, by where it stands."""
    found = {rule["alert"]: rule["expr"] for rule in ALERTS}
    for panel in DASHBOARD["panels"]:
        found |= {f"{panel['title']} {one['refId']}": one["expr"] for one in panel.get("targets", [])}
    (worker,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "worker"]
    found["choice"] = worker["query"]["query"]
    keda = documents(DEPLOY / "kubernetes" / "autoscaler-keda.yaml")[0]
    return found | {"keda": keda["spec"]["triggers"][0]["metadata"]["query"]}


async def test_what_rules_and_dashboard_ask_for_is_on_the_pages(tmp_path: Path) -> None:
    page = await page_of_a_worker(tmp_path) + await page_of_a_gateway(tmp_path)
    shown, values = labels_on(page), values_on(page)
    seldom = {name for name in KNOWN if name.endswith("broken_fields") or "loop_failures" in name}
    for place, text in expressions().items():
        for name, chosen in re.findall(r"(parcelpost_\w+)(?:\{([^}]*)\})?", text):
            assert name in KNOWN, place
            assert name in shown or name in seldom, f"{place}: no page shows {name}"
            for label, how, wanted in re.findall(r'(\w+)(=~|=)"([^"]*)"', chosen):
                if label not in {"instance", "job"}:
                    assert label in KNOWN[name], place
                    known = values.get((name, label), set()) | WORDS.get((name, label), set())
                    assert set(wanted.split("|") if how == "=~" else [wanted]) <= known, f"{place}: {label}={wanted}"


WORDS = {
    ("parcelpost_gateway_tasks", "state"): {"dead"},
    ("parcelpost_gateway_events_total", "outcome"): {"expired", "rejected"},
}
"""Values that a young page does not show yet; docs/events.md names them."""


def test_words_that_no_young_page_shows_are_documented() -> None:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    for (name, _), words in WORDS.items():
        (row,) = re.findall(rf"^\| `{name}` .*$", page, re.MULTILINE)
        assert {word for word in words if word not in row and word != "dead"} == set()


def test_every_series_that_the_code_knows_is_of_a_worker_or_a_gateway() -> None:
    assert all(name.startswith("parcelpost_") for name in KNOWN)
    jobs = {one["job_name"] for one in documents(DEPLOY / "prometheus" / "scrape.yaml")[0]["scrape_configs"]}
    assert jobs == {"parcelpost-worker", "parcelpost-gateway"}
    assert {name for text in expressions().values() for name in re.findall(r'job="([^"]+)"', text)} <= jobs


def test_every_alert_is_on_the_page_about_deploying() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    names = [rule["alert"] for rule in ALERTS]
    assert sorted(re.findall(r"`(Parcelpost\w+)`", page)) == sorted(names)
    assert len(set(names)) == len(names)


# Grafana


def test_the_dashboards_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_a_panel_is_whole(subtests: pytest.Subtests) -> None:
    for panel in DASHBOARD["panels"]:
        with subtests.test(panel=panel):
            if panel["type"] == "row":
                return
            assert panel["type"] in {"stat", "timeseries"}
            assert panel["datasource"]["uid"] == "${datasource}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


# Prometheus' own tool


def promtool(*arguments: str) -> None:
    done = subprocess.run([str(PROMTOOL), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_can_read_rules_and_scrape_file() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus" / "scrape.yaml"))


@needs_promtool
def test_alerts_come_when_they_should_and_not_before(tmp_path: Path) -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
    file = tmp_path / "alerts_test.yaml"
    file.write_text(json.dumps(promtool_file(str(RULES), severities)))
    promtool("test", "rules", str(file))


def test_every_alert_has_a_case_in_which_it_comes() -> None:
    assert set(CASES) == {rule["alert"] for rule in ALERTS}


@needs_promtool
def test_every_panel_asks_in_words_that_prometheus_knows(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel_{place}", "expr": text}
        for place, text in enumerate(expressions().values())
        if "label_values" not in text
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))
