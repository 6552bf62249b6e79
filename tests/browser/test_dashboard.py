"""The dashboard in a real browser, against the real gateway on a real ledger."""

from __future__ import annotations

import gzip
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, FilePayload, Page, expect

from parcelpost.clock import SystemClock
from parcelpost.gateway.models import ChangeFilter
from parcelpost.model import PausedSite, Target, Task
from tests.browser.conftest import a_page
from tests.gateway.filling import a_beat, a_task, an_arrival, fill
from tests.gateway.served import Served, served
from tests.gateway.test_artifacts import an_upload

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard")]

PHONE = {"width": 360, "height": 740}
SCRIPT = '<img src=x onerror="window.harmed=1;alert(1)"><script>window.harmed=1</script>'


async def filled(gateway: Served, parcels: int = 12) -> None:
    now = SystemClock().now()
    await fill(gateway.ledger, gateway.raw_store, now, parcels)
    for one in await gateway.ledger.grant("harlow-02", ["mygov_due"], 3, now, now):
        await gateway.ledger.end_task(one.task.task_id, "harlow-02", error="", again=False, now=now, not_found=True)


RATES = """async () => (await import("/dashboard/scale.js")).perMinute({
    since: "2026-01-01T12:00:00Z", bucket_seconds: 120,
    series: {done: [60, 3], failed: [2, 0], stored: [600, 250]},
}, Date.parse("2026-01-01T12:02:30Z")).series"""
"""Rates of a bucket that is over, and of one that has run for half a minute."""


async def is_live(page: Page) -> None:
    await expect(page.locator("#state")).to_have_text("Live")


async def overflow(page: Page) -> int:
    width = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert isinstance(width, int)
    return width


async def test_an_address_without_a_page_says_so(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, a_page(browser, f"{gateway.address}/#/parcles") as watched:
        await expect(watched.page.get_by_role("heading", name="Page not found")).to_be_visible()
        await expect(watched.page.locator("#pages [aria-current]")).to_have_count(0)
        await watched.page.get_by_role("link", name="Go to the overview").click()
        await expect(watched.page.locator("#pages [aria-current]")).to_have_text("Overview")


async def test_an_empty_gateway_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, a_page(browser, gateway.address) as watched:
        await is_live(watched.page)
        await expect(watched.page.get_by_text(f"parcelpost run --gateway {gateway.address}")).to_be_visible()
        await expect(watched.page.get_by_text("parcelpost gateway add tasks.csv")).to_be_visible()
        await expect(watched.page.get_by_text("No parcels yet")).to_be_visible()
        assert await overflow(watched.page) == 0


async def test_a_full_one_shows_fleet_queue_activity_and_health(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await is_live(page)
            workers = page.get_by_role("table", name="Workers").get_by_role("rowheader")
            await expect(workers).to_have_text([re.compile("^attic"), re.compile("^boat-17"), re.compile("^harlow-02")])
            await expect(page.locator(".figures")).to_contain_text("1 stopped, 1 offline")
            await expect(page.get_by_role("heading", name="Needs attention (5)")).to_be_visible()
            await expect(page.locator(".findings")).to_contain_text("Workers gave up on 3 tasks.")
            await expect(page.get_by_role("img", name="urgent 0, high 9, normal 140, batch 0")).to_be_visible()
            await expect(page.locator("[data-key='queue mygov_due'] [data-label='Not found']")).to_have_text("3")
            await expect(page.get_by_role("row", name="qpublic").filter(has_text="1 worker")).to_contain_text(
                "2 selectors"
            )
            await expect(page.locator("figure svg")).to_have_count(3)
            units = ["Throughput tasks per minute", "Outcomes tasks per minute", "Records records per minute"]
            await expect(page.locator("figure h3")).to_have_text(units)
            for newest in ("figure polyline.running", "figure rect.running"):
                await expect(page.locator(newest).first).to_be_attached()
            assert await page.evaluate(RATES) == {
                "done": [30, 18],
                "failed": [1, 0.5],
                "stored": [300, 400],
                "ended": [31, 18.5],
            }
            await page.locator("figure svg").first.hover(position={"x": 200, "y": 60})
            await expect(page.locator(".tip").first).to_contain_text("finished")
            await page.locator("figure summary").first.click()
            await expect(page.locator("figure table tbody tr").nth(40)).to_be_attached()
            await expect(page.locator("figure table tbody tr").first).to_contain_text("so far")


async def test_the_fleet_shows_who_is_away_and_who_was_stopped_on_purpose(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/workers") as watched:
            page = watched.page
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="boat-17"))
            await expect(row).to_contain_text("Paused")
            await expect(row).to_contain_text("pending: sync-now")
            await expect(page.get_by_role("row", name="attic").locator(".badge.bad")).to_have_text("Offline")
            stopped = page.get_by_role("row", name="cellar").locator(".badge")
            await expect(stopped).to_have_text("Stopped")
            await expect(stopped).to_have_class("badge ")
            for gone in ("attic", "cellar"):
                rate = page.locator(f"[data-key='worker {gone}'] [data-label='Done / failed per minute']")
                await expect(rate).to_have_text("\N{EN DASH}")
            await page.get_by_role("link", name="harlow-02").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("harlow-02")
            await expect(page.locator(".facts")).to_contain_text("38 done, 6 failed")
            await expect(page.get_by_role("table", name="Failing selectors")).to_contain_text("css td.due > span")


async def test_a_young_gateway_shows_minutes_and_not_hours(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        for back in (0, 1):
            counts = {("vgsi", "done"): 30, ("vgsi", "granted"): 32}
            await gateway.ledger.add_activity(counts, now.replace(second=0, microsecond=0) - timedelta(minutes=back))
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await page.locator("figure summary").first.click()
            await expect(page.locator("figure").first.locator("tbody tr")).to_have_count(15)
            await expect(page.locator("figure").first.locator("tbody tr").nth(1)).to_contain_text("32")
            await page.get_by_role("radio", name="3 h").check()
            await expect(page.locator("figure").first.locator("tbody tr")).to_have_count(90)


async def test_what_comes_in_appears_by_itself_and_keeps_the_focus(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/workers") as watched:
            await is_live(watched.page)
            button = watched.page.get_by_role("button", name="Command for harlow-01")
            await button.focus()
            now = SystemClock().now()
            await gateway.ledger.record_heartbeat(a_beat("aaa-new", queue=None), now, now, now)
            await expect(watched.page.get_by_role("rowheader", name="aaa-new")).to_be_visible()
            await expect(button).to_be_focused()


async def test_markup_from_pages_and_workers_stays_text(browser: Browser, tmp_path: Path) -> None:
    record: dict[str, Any] = {
        "platform": SCRIPT,
        "state": "<b>",
        "county": "amp",
        "parcel_id": f"1/{SCRIPT}",
        "owner_names": [SCRIPT],
        "situs_address": SCRIPT,
        "source_url": "javascript:window.harmed=1",
        "legal_description": SCRIPT,
        SCRIPT: SCRIPT,
        "liens": [{"certificate_number": SCRIPT, "status": SCRIPT, SCRIPT: {"a": SCRIPT}}],
    }
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        await gateway.ledger.store([an_arrival(record, now, "t1")], SCRIPT, now)
        await gateway.ledger.record_heartbeat(
            a_beat(SCRIPT, version=SCRIPT, platforms=(SCRIPT,), blocked=(PausedSite(SCRIPT, SCRIPT, SCRIPT),)),
            now,
            now,
            now,
        )
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await is_live(page)
            await expect(page.get_by_text(SCRIPT).first).to_be_visible()
            await page.goto(f"{gateway.address}/#/liens")
            await expect(page.locator(".results")).to_contain_text(SCRIPT)
            await page.locator(".results tbody a").first.click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(SCRIPT)
            assert await page.evaluate("window.harmed") is None
            assert await page.locator("main img, main script, a[href^='javascript']").count() == 0
            await page.set_viewport_size({"width": 360, "height": 740})
            assert await overflow(page) == 0


async def test_it_says_when_the_gateway_is_away_and_recovers_by_itself(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        port = int(gateway.address.rpartition(":")[2])
        async with a_page(browser, gateway.address) as watched:
            await is_live(watched.page)
            with closing(sqlite3.connect(tmp_path / "gateway.db")) as ledger:
                ledger.execute("ALTER TABLE workers RENAME TO hidden")
                await expect(watched.page.locator("#state")).to_have_text("Gateway error")
                await expect(watched.page.get_by_role("alert")).to_contain_text("The gateway's log")
                ledger.execute("ALTER TABLE hidden RENAME TO workers")
            await is_live(watched.page)
            gateway.stop.set()
            await expect(watched.page.locator("#state")).to_have_text("Gateway unreachable")
            await expect(watched.page.get_by_role("alert")).to_contain_text("parcelpost gateway serve")
            await expect(watched.page.get_by_role("rowheader", name="boat-17")).to_be_visible()
            async with served(tmp_path, port=port):
                await is_live(watched.page)
                await expect(watched.page.locator("#notice")).to_be_empty()


async def test_a_search_while_the_gateway_is_away_says_so_and_offers_no_export(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        port = int(gateway.address.rpartition(":")[2])
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await is_live(page)
            gateway.stop.set()
            await expect(page.locator("#state")).to_have_text("Gateway unreachable")
            await page.get_by_role("link", name="Parcels", exact=True).click()
            await expect(page.locator(".count")).to_have_text("Waiting for the gateway")
            await expect(page.get_by_text("Download", exact=True)).to_have_count(0)
            async with served(tmp_path, port=port):
                await expect(page.locator(".results tbody tr")).to_have_count(12)
                await expect(page.get_by_text("Download", exact=True)).to_be_visible()


async def test_platforms_without_work_are_folded_and_tasks_without_a_worker_marked(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        many = ("vgsi", "beacon", *(f"quiet_{number}" for number in range(13)))
        beat = a_beat("w1", platforms=many, blocked=(PausedSite("beacon"),))
        await gateway.ledger.record_heartbeat(beat, now, now, now)
        await gateway.ledger.add_tasks([a_task(1, "vgsi"), a_task(2, "vgsii")], now)
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await is_live(page)
            health = page.get_by_role("table", name="Platform health")
            await expect(health.get_by_role("rowheader")).to_have_text(["beacon", "vgsi"])
            await expect(page.get_by_text("quiet_12")).to_be_hidden()
            await page.get_by_text("13 more without tasks").click()
            await expect(page.get_by_text("quiet_12")).to_be_visible()
            queue = page.get_by_role("table", name="Tasks by platform")
            await expect(queue.get_by_role("row", name="vgsii")).to_contain_text("no worker")
            await expect(queue.get_by_role("row").filter(has_text="no worker")).to_have_count(1)


async def test_it_asks_for_a_token_says_when_it_is_wrong_and_keeps_it_for_the_tab(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = {"PARCELPOST_READ_TOKENS": "reading", "PARCELPOST_ADMIN_TOKENS": "ruling"}
    async with served(tmp_path, tokens) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await page.get_by_label("Read or admin token").fill("wrong")
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("alert").filter(has_text="not valid")).to_be_visible()
            await page.get_by_label("Read or admin token").fill("reading")
            await page.keyboard.press("Enter")
            await is_live(page)
            await page.reload()
            await is_live(page)
            await expect(page.get_by_role("button", name="Command for boat-17")).to_be_hidden()
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_label("Read or admin token").fill("ruling")
            await page.keyboard.press("Enter")
            await is_live(page)
            await expect(page.get_by_role("button", name="Command for boat-17")).to_be_visible()
            await page.goto(f"{gateway.address}/#/parcels?delinquent=true")
            await page.get_by_text("Download", exact=True).click()
            async with page.expect_download() as download:
                await page.get_by_role("link", name="JSON lines").click()
            assert (await download.value).suggested_filename == "parcels.jsonl"
            assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


async def test_a_command_is_sent_after_it_was_confirmed(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/workers") as watched:
            page = watched.page
            await is_live(page)
            command = page.get_by_role("button", name="Command for harlow-01")
            await command.click()
            await page.get_by_role("radio", name="Drain").check()
            await page.get_by_role("button", name="Cancel").click()
            await command.click()
            await page.get_by_role("radio", name="Pause Start").check()
            await page.get_by_role("button", name="Send").click()
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="harlow-01"))
            await expect(row).to_contain_text("pending: pause")
    pending = {worker.heartbeat.worker_id: worker.pending_commands for worker in await _workers(tmp_path)}
    assert pending["harlow-01"] == ("pause",)


async def test_workers_are_told_which_platforms_to_take(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/workers") as watched:
            page = watched.page
            await is_live(page)
            await page.get_by_role("button", name="Command for harlow-01").click()
            await page.get_by_role("textbox", name="Platforms, separated by commas").fill("vgsi, qpublic")
            await page.get_by_role("button", name="Send").click()
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="harlow-01"))
            await expect(row).to_contain_text("pending: platforms:vgsi,qpublic")


async def _workers(folder: Path) -> Any:
    async with served(folder) as gateway:
        return await gateway.ledger.workers()


async def test_everything_is_reached_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await is_live(page)
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(page.locator("main")).to_be_focused()
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="See failures").first).to_be_focused()
            await page.get_by_role("radio", name="Auto").focus()
            await page.keyboard.press("ArrowRight")
            await expect(page.get_by_role("radio", name="1 h")).to_be_checked()
            await page.keyboard.press("Tab")
            await expect(page.locator("figure svg").first).to_be_focused()
            await page.keyboard.press("ArrowLeft")
            await expect(page.locator(".tip").first).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(page.locator(".tip").first).to_be_hidden()
            await page.goto(f"{gateway.address}/#/workers")
            await page.get_by_role("button", name="Command for all workers").focus()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("dialog")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("button", name="Command for all workers")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_reads_well_by_day_and_night(browser: Browser, tmp_path: Path, scheme: str) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address, viewport=PHONE, color_scheme=scheme) as watched:
            page = watched.page
            await is_live(page)
            await page.locator(".results, .short tbody a").first.wait_for()
            assert await overflow(page) == 0
            address = await page.locator(".short tbody a").first.get_attribute("href")
            assert await page.evaluate(CONTRASTS) == []
            for path in ("#/parcels", "#/map?delinquent=true", "#/liens?sort=sold_on", address or ""):
                await page.goto(f"{gateway.address}/{path}")
                await page.locator("h1").wait_for()
                await expect(page.locator("main")).not_to_contain_text("Loading")
                assert await overflow(page) == 0
                assert await page.evaluate(CONTRASTS) == []


CONTRASTS = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const rgb = channels(getComputedStyle(at).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg")) continue;
    const [a, b] = [light(channels(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${node.className} ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return found;
}"""
"""Every text below WCAG AA's 4.5."""


async def test_webhooks_are_listed_with_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        ledger, now = gateway.ledger, SystemClock().now()
        await ledger.add_webhook("crm", "https://crm.example.org/hidden", "V", ChangeFilter(kinds=("lien",)), 0, now)
        webhook = await ledger.webhook("crm")
        assert webhook is not None
        await ledger.pause_webhook(webhook.webhook_no, "the receiver <b>wants</b> no more")
        async with a_page(browser, f"{gateway.address}/#/schedules") as watched:
            await is_live(watched.page)
            row = watched.page.get_by_role("row").filter(has=watched.page.get_by_role("rowheader", name="crm"))
            await expect(row).to_contain_text("https://crm.example.org")
            await expect(row).to_contain_text("Paused")
            await expect(row).to_contain_text("the receiver <b>wants</b> no more")
            await expect(row).not_to_contain_text("hidden")
            assert watched.errors == []


async def test_a_schedule_is_added_paused_and_deleted(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/schedules") as watched:
            page = watched.page
            await is_live(page)
            await expect(page.get_by_text("No schedules yet")).to_be_visible()
            await page.get_by_role("button", name="Add schedule").click()
            for label, text in {"Name": "weekly", "Platform": "qpublic", "State": "FL", "County": "harlow"}.items():
                await page.get_by_label(label, exact=True).fill(text)
            await page.locator("select[name=scope]").select_option("list")
            await page.get_by_role("button", name="Add", exact=True).click()
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="weekly"))
            await expect(row).to_contain_text("every 7 days")
            await page.get_by_role("button", name="Add schedule").click()
            texts = {"Name": "nightly", "Platform": "qpublic", "State": "FL", "County": "harlow"}
            texts |= {
                "Spread over": "6h",
                "Seconds between tasks": "5",
                "Cron expression (instead of Every and At)": "0 2 * * *",
            }
            for label, text in texts.items():
                await page.get_by_label(label, exact=True).fill(text)
            await page.get_by_role("button", name="Add", exact=True).click()
            nightly = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="nightly"))
            await expect(nightly).to_contain_text("0 2 * * *")
            await nightly.get_by_role("button", name="Change nightly").click()
            await page.get_by_label("Delete").check()
            await page.get_by_role("button", name="Continue").click()
            await expect(nightly).to_have_count(0)
            await expect(row).to_contain_text("Running")
            for action, shown in {"Pause": "Paused", "Resume": "Running"}.items():
                await row.get_by_role("button", name="Change weekly").click()
                await page.get_by_label(action).check()
                await page.get_by_role("button", name="Continue").click()
                await expect(row).to_contain_text(shown)
            await page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
            assert await overflow(page) == 0
            await row.get_by_role("button", name="Change weekly").click()
            await page.get_by_label("Delete").check()
            await page.get_by_role("button", name="Continue").click()
            await expect(page.get_by_text("No schedules yet")).to_be_visible()
            assert watched.errors == []


async def test_a_schedule_of_a_file_is_added_and_its_runs_are_listed(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/schedules") as watched:
            page = watched.page
            await is_live(page)
            await page.get_by_role("button", name="Add schedule").click()
            for label, text in {"Name": "few", "Platform": "qpublic", "State": "FL", "County": "harlow"}.items():
                await page.get_by_label(label, exact=True).fill(text)
            await page.locator("select[name=scope]").select_option("file")
            content = b'\xef\xbb\xbfowner,Parcel_ID\r\n"ANN, BO",01-02\r\nBO,"03-04"\r\n'
            file = FilePayload(name="parcels.csv", mimeType="text/csv", buffer=content)
            await page.get_by_label("File of parcels").set_input_files(file)
            await page.get_by_role("button", name="Add", exact=True).click()
            await page.get_by_role("link", name="few").click()
            run = page.get_by_role("table", name="Runs").locator("tbody tr")
            await expect(run).to_contain_text("running")
            (row,) = await gateway.ledger.schedules("few")
            assert (row.targets, row.run and row.run.total) == (2, 2)
            assert watched.errors == []


async def test_a_failed_task_shows_what_its_attempt_saw_and_its_page_does_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        target = Target(parcel_id="07-11", state="NH", county="alder")
        names = ("seen 1", "unseen")
        await gateway.ledger.add_tasks([Task(task_id=name, platform="vgsi", target=target) for name in names], now)
        async with (
            a_page(browser, f"{gateway.address}/#/task/seen%201") as watched,
            httpx2.AsyncClient(base_url=gateway.address, headers={"X-Worker-ID": "w-1"}, trust_env=False) as worker,
        ):
            page = watched.page
            await is_live(page)
            picture = await page.screenshot(type="png")
            html = gzip.compress(f"<html><body>Terms of use {SCRIPT}</body></html>".encode())
            await worker.get("/internal/work?platforms=vgsi&capacity=9")
            await worker.get("/internal/work?platforms=vgsi&capacity=9")
            for task, kinds in (("seen%201", ["screenshot", "page"]), ("unseen", [])):
                body = {"error": "the page has no owner", "artifacts": kinds}
                assert (await worker.post(f"/internal/tasks/{task}/fail", json=body)).json()["success"]
            await expect(page.get_by_text("What the attempt saw in its browser")).to_contain_text("is not uploaded yet")
            await expect(page.get_by_text("The last page that the attempt saw")).to_contain_text("is not uploaded yet")
            await expect(page.get_by_role("link", name="The last page")).to_have_count(0)
            await expect(page.get_by_text("There is no screenshot")).to_have_count(0)
            await expect(page.get_by_text("parcelpost tasks show 'seen 1'")).to_be_visible()
            for kind, content in (("screenshot", picture), ("page", html)):
                upload = an_upload(kind, content, task_id="seen 1")
                assert (await worker.post("/internal/artifacts", **upload)).status_code == 200
            image = page.get_by_role("img", name="Screenshot of the failed attempt")
            await expect(image).to_be_visible()
            assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1280
            assert await overflow(page) == 0
            await page.get_by_role("link", name="The last page that the attempt saw").click()
            await expect(page.locator("h1")).to_have_text("seen 1")
            frame = page.frame_locator("iframe")
            await expect(frame.get_by_text("Terms of use")).to_be_visible()
            assert await page.evaluate("window.harmed") is None
            await page.get_by_role("link", name="Back to the task").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("seen 1")
            await gateway.raw_store.delete_artifact("seen 1", "screenshot")
            await page.reload()
            await expect(page.get_by_text("It cannot be loaded.")).to_be_visible()
            await page.goto(f"{gateway.address}/#/task/unseen")
            await expect(page.get_by_text("There is no screenshot of the last failed attempt")).to_be_visible()
            await expect(page.get_by_role("link", name="The last page")).to_have_count(0)
            watched.errors[:] = [
                error for error in watched.errors if "sandboxed" not in error and "Security" not in error
            ]
