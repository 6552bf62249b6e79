"""The dashboard's pages for tasks, failures, counties, changes and the API, in a real browser.

All pages work with keyboards, screen readers and phones, by day and night.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.async_api import Browser, Page, expect

from parcelpost.clock import SystemClock
from parcelpost.gateway.models import TaskFilter, TaskState
from parcelpost.model import Broken, Target, Task
from tests.browser.conftest import a_page
from tests.browser.test_dashboard import CONTRASTS, filled, is_live, overflow
from tests.gateway.filling import a_beat, an_arrival
from tests.gateway.served import Served, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("dashboard")]

ERRORS = ("vgsi.example: HTTP 503", "vgsi.example: HTTP 503", "https://vgsi.example/p?id=12345: no owner")


async def with_failures(gateway: Served) -> None:
    """Three failed tasks of vgsi in Salem, CT, and one of Essex, CT; with two reasons."""
    now = SystemClock().now()
    counties = {"a": "salem", "b": "salem", "c": "salem", "d": "essex"}
    targets = {name: Target(parcel_id=f"P-{name}", state="CT", county=county) for name, county in counties.items()}
    tasks = [Task(task_id=f"run/{name}", platform="vgsi", target=target) for name, target in targets.items()]
    await gateway.ledger.add_tasks(tasks, now)
    await gateway.ledger.grant("w1", ["vgsi"], 10, now, now)
    for task, error in zip(tasks, (*ERRORS, ERRORS[0]), strict=True):
        await gateway.ledger.end_task(task.task_id, "w1", error=error, again=False, now=now)


async def states(gateway: Served) -> dict[TaskState, int]:
    counted = {state: await gateway.ledger.count_tasks(TaskFilter(states=[state])) for state in TaskState}
    return {state: count for state, count in counted.items() if count}


async def test_failures_are_grouped_and_those_selected_are_retried(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await with_failures(gateway)
        async with a_page(browser, f"{gateway.address}/#/failures") as watched:
            page = watched.page
            groups = page.get_by_role("table", name="Failures").get_by_role("rowheader")
            await expect(groups).to_have_count(2)
            await expect(groups.first).to_contain_text("vgsi.example: HTTP 503")
            await expect(page.locator(".count").first).to_have_text("4 tasks without a record.")
            await page.get_by_role("radio", name="County").check()
            await expect(groups).to_have_count(2)
            await expect(groups.first).to_contain_text("Salem, CT")
            assert "by=county" in page.url
            await page.get_by_role("radio", name="Reason").check()
            await page.get_by_role("checkbox", name="Select vgsi.example: HTTP 503").check()
            await expect(page.get_by_text("1 group with 3 tasks selected")).to_be_visible()
            await page.get_by_role("button", name="Refresh", exact=True).click()
            await expect(page.get_by_role("dialog")).to_contain_text("Their parcels are not known yet")
            await page.get_by_role("button", name="OK").click()
            await page.get_by_role("button", name="Retry", exact=True).click()
            await expect(page.get_by_role("dialog")).to_contain_text("Retry 3 tasks?")
            await page.get_by_role("button", name="Cancel").click()
            await page.get_by_role("button", name="Retry", exact=True).click()
            await page.get_by_role("button", name="Retry 3 tasks").click()
            await expect(groups).to_have_count(1)
            assert await states(gateway) == {TaskState.QUEUED: 3, TaskState.FAILED: 1}
            await page.get_by_role("link", name="Salem, CT").click()
            await expect(page.locator(".results tbody tr")).to_have_count(1)
            await expect(page.get_by_label("County")).to_have_value("CT/salem")


async def test_tasks_are_listed_by_state_and_one_or_all_are_deleted(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await with_failures(gateway)
        waiting = [
            Task(task_id=f"w{n}", platform="echo", target=Target(parcel_id="9", state="CT", county="salem"))
            for n in range(60)
        ]
        await gateway.ledger.add_tasks(waiting, SystemClock().now())
        async with a_page(browser, f"{gateway.address}/#/tasks?state=failed") as watched:
            page = watched.page
            rows = page.locator(".results tbody tr")
            await expect(rows).to_have_count(4)
            await page.get_by_role("checkbox", name="Select run/d").check()
            await page.get_by_role("button", name="Delete").click()
            await page.get_by_role("button", name="Delete 1 task").click()
            await expect(rows).to_have_count(3)
            await page.get_by_role("navigation", name="States").get_by_role("link", name="Queued").click()
            await expect(rows).to_have_count(50)
            await page.get_by_role("checkbox", name="Select all shown").check()
            await expect(page.get_by_role("button", name="Retry")).to_be_disabled()
            await page.get_by_role("button", name="Select all 60").click()
            await expect(page.get_by_role("button", name="Refresh")).to_be_enabled()
            await page.get_by_role("button", name="Delete").click()
            await expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
            await page.get_by_role("button", name="Delete 60 tasks").click()
            await expect(page.get_by_text("No tasks in this state match.")).to_be_visible()
            assert await states(gateway) == {TaskState.FAILED: 3}


async def test_a_task_shows_its_attempts_and_is_retried(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await with_failures(gateway)
        async with a_page(browser, f"{gateway.address}/#/tasks?state=failed") as watched:
            page = watched.page
            await page.get_by_role("link", name="P-c").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("run/c")
            attempts = page.get_by_role("table", name="Attempts")
            await expect(attempts.get_by_role("row").nth(1)).to_contain_text("no owner")
            await expect(attempts.get_by_role("link", name="w1")).to_be_visible()
            await expect(page.get_by_text("parcelpost tasks show 'run/c'")).to_be_visible()
            await page.get_by_role("button", name="Retry").click()
            await page.get_by_role("button", name="Retry 1 task").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Queued")
            await page.goto(f"{gateway.address}/#/task/gone")
            await expect(page.get_by_role("heading", name="No such task")).to_be_visible()


async def test_a_county_shows_what_its_failing_selectors_find_now(browser: Browser, tmp_path: Path) -> None:
    text = b"<html><body><b class=who>ANN LEE</b><script>window.harmed = 1</script></body></html>"
    sha256 = hashlib.sha256(text).hexdigest()
    record = {"platform": "vgsi", "state": "CT", "county": "salem", "parcel_id": "P-a"}
    broken = Broken(
        platform="vgsi",
        state="CT",
        county="salem",
        field="owner_names",
        success_rate=0.1,
        used_to=1.0,
        failing=("css .owner", "css .who"),
        example="run/a",
    )
    async with served(tmp_path) as gateway:
        now = SystemClock().now()
        await with_failures(gateway)
        await gateway.raw_store.put(sha256, io.BytesIO(gzip.compress(text)), "page.html.gz", b"{}")
        await gateway.ledger.store([an_arrival(record, now, "t1", text)], "w1", now)
        await gateway.ledger.record_heartbeat(a_beat("w1", broken=(broken,)), now, now, now)
        async with a_page(browser, f"{gateway.address}/#/counties") as watched:
            page = watched.page
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Salem, CT"))
            await expect(row).to_contain_text("1 field no longer found: owner_names.")
            await page.get_by_role("button", name="Parcels").click()
            await expect(page.get_by_role("columnheader", name="Parcels")).to_have_attribute("aria-sort", "descending")
            await page.get_by_role("searchbox").fill("essex")
            await expect(page.locator("tbody tr")).to_have_count(1)
            await page.get_by_role("searchbox").fill("")
            await page.get_by_role("link", name="Salem, CT").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Salem, CT")
            await page.get_by_role("button", name="See what the newest stored page shows").click()
            found = page.get_by_role("table", name="What the selectors find").get_by_role("row")
            await expect(found.nth(1)).to_contain_text("nothing")
            await expect(found.nth(2)).to_contain_text("1 element, the first says: ANN LEE")
            assert await page.evaluate("window.harmed") is None
            await expect(page.get_by_role("table", name="Failures")).to_contain_text("HTTP 503")


async def test_the_address_holds_what_is_shown_of_counties_and_of_the_overview(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        phone = {"width": 390, "height": 780}
        async with a_page(browser, f"{gateway.address}/#/counties", viewport=phone) as watched:
            page = watched.page
            places = page.locator("tbody th")
            await page.get_by_role("searchbox").fill("harlow")
            await page.get_by_label("Sort by").select_option("Queued \N{BLACK DOWN-POINTING TRIANGLE}")
            await expect(page).to_have_url(re.compile("#/counties\\?q=harlow&sort=Queued&order=desc$"))
            shown = await page.locator("[data-label=Queued]").all_inner_texts()
            counts = [int(text.split()[-1]) for text in shown]
            assert counts == sorted(counts, reverse=True)
            assert len(counts) > 2
            await page.reload()
            await expect(places).to_have_count(len(counts))
            assert await page.locator("[data-label=Queued]").all_inner_texts() == shown
            await page.goto(f"{gateway.address}/#/?hours=6")
            await expect(page.get_by_role("radio", name="6 h")).to_be_checked()
            await page.get_by_role("radio", name="24 h").check()
            await expect(page).to_have_url(re.compile("#/\\?hours=24$"))


async def test_a_county_without_a_schedule_leads_to_a_form_for_it(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, f"{gateway.address}/#/county/qpublic/GA/alder") as watched:
            page = watched.page
            await page.get_by_role("link", name="add one").click()
            dialog = page.get_by_role("dialog")
            for label, value in {"Name": "alder", "Platform": "qpublic", "State": "GA", "County": "alder"}.items():
                await expect(dialog.get_by_label(label, exact=True)).to_have_value(value)
            await dialog.get_by_role("button", name="Add", exact=True).click()
            await expect(page.get_by_role("rowheader", name="alder")).to_be_visible()


async def test_changes_are_shown_the_last_first(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await filled(gateway, parcels=2)
        async with a_page(browser, f"{gateway.address}/#/changes") as watched:
            page = watched.page
            row = page.get_by_role("row").filter(has_text="Owner changed").first
            await expect(row.locator("del")).to_have_text("HOLLOWAY JUNE")
            await page.get_by_label("Change").select_option("new parcels")
            await expect(page.get_by_text("Owner changed")).to_have_count(0)
            assert "kind=parcel" in page.url


async def test_the_reference_shows_every_route_and_tries_it(browser: Browser, tmp_path: Path) -> None:
    tokens = {"PARCELPOST_READ_TOKENS": "reading", "PARCELPOST_ADMIN_TOKENS": "ruling"}
    async with served(tmp_path, tokens) as gateway:
        await with_failures(gateway)
        async with a_page(browser, f"{gateway.address}/docs#get/v1/tasks") as watched:
            page = watched.page
            headings = page.locator(".operations h2")
            await expect(headings.first).to_have_text("Parcels and liens")
            await expect(headings.last).to_have_text("Worker protocol")
            listed = page.locator("[id='get/v1/tasks']")
            await expect(listed).to_contain_text("ListedTask")
            await expect(listed).to_contain_text("the page has no owner")
            await listed.get_by_label("state (required)").select_option("failed")
            await listed.get_by_role("button", name="Send").click()
            await expect(listed.locator(".answer")).to_contain_text("401")
            await listed.get_by_label("Token").fill("reading")
            await listed.get_by_role("button", name="Send").click()
            await expect(listed.locator(".answer")).to_contain_text('"total": 4')
            await expect(listed.locator(".answer")).to_contain_text('curl -s -H "Authorization: Bearer $TOKEN"')
            await expect(listed.locator(".answer")).not_to_contain_text("reading")
            await page.get_by_role("searchbox").fill("requeue")
            await expect(page.locator("details.operation")).to_have_count(1)
            requeue = page.locator("details.operation")
            await requeue.locator("summary").first.click()
            await requeue.get_by_label("Body").fill('{"states": ["failed"]}')
            await requeue.get_by_label("Token").fill("ruling")
            await requeue.get_by_role("button", name="Send").click()
            await page.get_by_role("dialog").get_by_role("button", name="Send").click()
            await expect(requeue.locator(".answer")).to_contain_text('"requeued": 4')


async def test_whoever_may_only_read_sees_no_button_that_acts(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, {"PARCELPOST_READ_TOKENS": "reading", "PARCELPOST_ADMIN_TOKENS": "ruling"}) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address) as watched:
            page = watched.page
            await page.get_by_label("Read or admin token").fill("reading")
            await page.keyboard.press("Enter")
            await is_live(page)
            for path in PAGES:
                await show(page, f"{gateway.address}{path}")
                await expect(page.locator("main [data-admin]:visible")).to_have_count(0)


PAGES = (
    *("/#/", "/#/counties", "/#/county/qpublic/GA/alder", "/#/changes", "/#/tasks?state=failed"),
    *("/#/task/grizzly_gis-10000", "/#/failures", "/#/workers", "/#/worker/harlow-02", "/#/schedules", "/#/nowhere"),
)


async def show(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.locator("main h1")).to_have_count(1)
    await expect(page.locator("main")).not_to_contain_text("Loading")
    await page.wait_for_load_state("networkidle")


UNFIT = """() => {
  const found = [];
  const seen = (node) => node.checkVisibility({visibilityProperty: true});
  const nameOf = (node) => node.getAttribute("aria-label") || (node.getAttribute("aria-labelledby") || "").split(" ")
      .map((id) => document.getElementById(id)?.textContent ?? "").join("").trim()
    || [...(node.labels ?? [])].map((label) => label.textContent).join("").trim()
    || node.textContent.trim() || node.title;
  for (const node of document.querySelectorAll("a[href], button, input, select, textarea, summary, iframe, [role=img]"))
    if (seen(node) && !nameOf(node)) found.push(`without a name: ${node.outerHTML.slice(0, 100)}`);
  for (const node of document.querySelectorAll("img:not([alt])")) found.push(`without alt: ${node.outerHTML}`);
  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(seen).map((node) => +node.tagName[1]);
  if (levels.filter((level) => level === 1).length !== 1) found.push(`h1: ${levels}`);
  levels.forEach((level, at) => at && level > levels[at - 1] + 1 && found.push(`a heading is skipped: ${levels}`));
  for (const [mark, most] of [["main", 1], ["header", 1]])
    if (document.querySelectorAll(`body > ${mark}`).length !== most) found.push(`landmark: ${mark}`);
  for (const nav of document.querySelectorAll("nav")) if (!nav.ariaLabel) found.push("a nav without a name");
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption && !table.ariaLabel && !table.closest("figure")) found.push("a table without a caption");
    for (const cell of table.querySelectorAll("th:not([scope])")) found.push(`without scope: ${cell.textContent}`);
    for (const cell of table.querySelectorAll("thead th"))
      if (!cell.textContent.trim() && !cell.querySelector("[aria-label]"))
        found.push(`an empty head in ${table.caption?.textContent}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) found.push(`ids twice: ${ids.filter((id, at) => ids.indexOf(id) !== at)}`);
  for (const node of document.querySelectorAll("ul, ol"))
    for (const child of node.children) if (child.tagName !== "LI") found.push(`in a list: ${child.tagName}`);
  for (const node of document.querySelectorAll("dl > *"))
    if (!["DT", "DD", "DIV"].includes(node.tagName)) found.push(`in a dl: ${node.tagName}`);
  for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) found.push("a positive tabindex");
  if (document.querySelector("[aria-hidden=true] :is(a, button, input)")) found.push("hidden, but focusable");
  return found;
}"""
"""What a screen reader could not use: controls without names, tables without heads, headings out of order."""

FOCUS = """async () => {
  const found = [];
  for (const node of document.querySelectorAll("main :is(a[href], button, summary, select, input:not([type=radio]))")) {
    if (!node.checkVisibility() || node.disabled) continue;
    node.focus({focusVisible: true});
    const style = getComputedStyle(node);
    if (document.activeElement === node && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1))
      found.push(node.outerHTML.slice(0, 100));
  }
  document.activeElement.blur();
  return found;
}"""
"""Controls that do not show that they have the focus."""


async def unfit(page: Page) -> list[str]:
    """What hinders readers of this page, by our own rules and those of axe-core."""
    found: list[str] = []
    for check in (UNFIT, CONTRASTS, FOCUS):
        found += await page.evaluate(check)
    await page.evaluate(AXE_SCRIPT)
    for violation in (await page.evaluate("axe.run({resultTypes: ['violations'], iframes: false})"))["violations"]:
        if violation["impact"] in ("serious", "critical"):
            found.append(f"{violation['id']}: {[node['html'][:160] for node in violation['nodes']]}")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_serves_phones_screen_readers_and_the_night(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    phone = {"width": 390, "height": 780}
    async with served(tmp_path) as gateway:
        await filled(gateway)
        async with a_page(browser, gateway.address, viewport=phone, color_scheme=scheme) as watched:
            page = watched.page
            await is_live(page)
            await page.get_by_role("button", name="Menu").click()
            await page.get_by_role("link", name="Failures", exact=True).click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Failures")
            await expect(page.get_by_role("link", name="Workers", exact=True)).to_be_hidden()
            latest = await (await page.request.get(f"{gateway.address}/v1/parcels/latest?limit=1")).json()
            parcel = latest["parcels"][0]["address"].replace("/v1/parcels", "/#/parcel")
            explored = ("/#/parcels", "/#/liens", "/#/map", "/#/parcel/FL/harlow/nothing", parcel)
            found: dict[str, list[str]] = {}
            for path in (*PAGES, "/docs#get/v1/tasks", *explored):
                await show(page, f"{gateway.address}{path}")
                assert await overflow(page) == 0, path
                found[path] = await unfit(page)
            await page.get_by_role("link", name="Show raw page").first.click()
            await expect(page.locator("iframe")).to_be_visible()
            found["raw page"] = await unfit(page)
            assert all("sandboxed" in error for error in watched.errors)  # the page's own script does not run
            watched.errors.clear()
            assert {path: problems for path, problems in found.items() if problems} == {}
