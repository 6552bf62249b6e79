// The counties: how fresh, successful and quick each is, whether it is blocked, and which fields fail.

import { ask, fetchFile } from "./api.js";
import { h, on, patch } from "./dom.js";
import { ago, compact, duration, moment, NOTHING, number, percent, plural, words } from "./format.js";
import { linkTo, place } from "./cells.js";
import { badge, empty, facts, findingList, freshTone, meter, problems, section, sentence, SEVERITY_TONES, SortedTable, table } from "./table.js";
import { taskLink, tasksLink } from "./tasks.js";

const AGAIN_MS = 12_000;
const MAX_TEXT = 300;
const COLUMNS = [
  { label: "County", sort: (county) => place(county) },
  { label: "Platform", class: "whole", sort: (county) => county.platform },
  { label: "Parcels", class: "num", sort: (county) => county.parcels },
  { label: "Fresh", sort: (county) => county.fresh_share },
  { label: "Success (24 h)", sort: (county) => county.success_rate },
  { label: "Tasks per hour", class: "num", sort: (county) => county.ended_last_hour },
  { label: "Queued", class: "num", sort: (county) => county.queued },
  { label: "Last change", sort: (county) => county.changed_at },
  { label: "Needs attention", class: "full", sort: (county) => -problems(county.findings).length },
];

const addressOf = ({ platform, state, county }) => `${platform}/${state}/${county}`;

export const countyLink = (county, text = place(county)) => h("a", { class: "name", href: `#/county/${addressOf(county)}` }, text);

const TONES = { healthy: "good", degraded: "warn", failing: "bad" };
const isStale = ({ findings }) => findings.some(({ id }) => id === "schedule.stale");

class CountiesView {
  constructor(app) {
    Object.assign(this, { app, askedAt: -Infinity, asking: new AbortController() });
  }

  async load() {
    this.askedAt = performance.now();
    try {
      const { counties } = await ask("/v1/counties", { signal: this.asking.signal });
      this.show(counties);
    } catch (error) {
      if (this.asking.signal.aborted) return;
      this.askedAt = -Infinity;
      this.app.failed(error);
    }
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS) this.load();
  }

  leave() {
    this.asking.abort();
  }
}

export class CountiesPage extends CountiesView {
  title = "Counties";

  constructor(app, query) {
    super(app);
    this.counties = [];
    this.count = h("p", { class: "count", role: "status" });
    this.table = new SortedTable("Counties", COLUMNS, (county) => ({ key: addressOf(county), cells: cells(county) }), {
      by: query.get("sort"),
      isDescending: query.get("order") === "desc",
      onSort: () => this.write(),
    });
    this.results = h("div");
    this.search = h("input", { type: "search", autocomplete: "off", spellcheck: "false", placeholder: "County, state or platform", value: query.get("q") ?? "" });
    this.root = h(
      "div",
      { class: "page" },
      h("h1", null, this.title),
      h("div", { class: "search" }, h("label", { class: "field grow" }, h("span", null, "Filter"), this.search)),
      this.count,
      h("section", { class: "card" }, this.results),
    );
    this.search.addEventListener("input", () => {
      this.write();
      this.show(this.counties);
    });
    this.load();
  }

  // What is shown is in the address.
  write() {
    const { by, isDescending } = this.table;
    const given = { q: this.search.value.trim(), sort: by, order: by && isDescending ? "desc" : "" };
    const query = new URLSearchParams(Object.entries(given).filter(([, text]) => text));
    history.replaceState(null, "", `#/counties${query.size ? `?${query}` : ""}`);
  }

  show(counties) {
    this.counties = [...counties].sort((one, other) => problems(other.findings).length - problems(one.findings).length);
    const wanted = this.search.value.trim().toLowerCase();
    const shown = this.counties.filter((county) => `${place(county)} ${addressOf(county)}`.toLowerCase().includes(wanted));
    const bad = shown.filter((county) => problems(county.findings).length).length;
    const places = new Set(shown.map((county) => `${county.state}/${county.county}`)).size;
    const sources = shown.length > places ? `, ${plural(shown.length, "source")}` : "";
    const noun = places === 1 ? "county" : "counties";
    this.count.textContent = shown.length ? `${number(places)} ${noun}${sources}, ${bad ? `${number(bad)} with problems` : "no problems"}` : "";
    if (shown.length) {
      this.table.show(shown);
      if (!this.table.root.isConnected) this.results.replaceChildren(this.table.root);
    } else
      this.results.replaceChildren(
        empty(h("p", null, counties.length ? "No county matches." : "No counties yet. They appear with the first task or parcel.")),
      );
  }
}

// Tasks that found their parcel, and those that ended because the site has none, are both done.
const ended = ({ succeeded, failed }) => `${compact(succeeded)} succeeded, ${compact(failed)} failed`;

const cells = (county) => [
  countyLink(county),
  county.platform,
  compact(county.parcels),
  freshness(county),
  county.success_rate === null
    ? NOTHING
    : [
        meter(county.success_rate, TONES[county.health]),
        h("small", null, ended(county)),
      ],
  number(county.ended_last_hour),
  compact(county.queued),
  county.changed_at ? ago(county.changed_at) : NOTHING,
  county.findings.map(({ id, severity, message }) =>
    h("div", { "data-key": id + message, class: SEVERITY_TONES[severity] }, sentence(message)),
  ),
];

function freshness(county) {
  const { fresh_share: share, max_age_seconds: seconds, newest_at: newest, schedules } = county;
  if (share !== null)
    return [meter(share, freshTone(share, isStale(county))), h("small", null, `within ${duration(seconds)}`)];
  return [newest ? ago(newest) : "never scraped", h("small", null, schedules.length ? "scheduled" : "no schedule")];
}

// One county, with what its failing selectors find on the newest page.
export class CountyPage extends CountiesView {
  title = "County";

  constructor(app, rest) {
    super(app);
    const [county, state, ...platform] = rest.split("/").reverse();
    Object.assign(this, { county, state, platform: platform.reverse().join("/"), failures: null, evidence: new Map() });
    this.root = h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …"));
    on(this.root, "click", "[data-look]", (button) => this.look(button.dataset.look));
    this.load();
  }

  async load() {
    const site = `${this.state}/${this.county}`;
    const query = new URLSearchParams({ platform: this.platform, site, limit: 10 });
    this.failures = await ask(`/v1/failures?${query}`, { signal: this.asking.signal }).catch(() => null);
    await super.load();
  }

  show(counties) {
    const found = counties.find((one) => addressOf(one).toLowerCase() === addressOf(this).toLowerCase());
    if (!found) {
      this.askedAt = Infinity;
      patch(
        this.root,
        h("h1", null, "No such county"),
        empty(h("p", null, "No data for ", h("code", null, addressOf(this)), "."), h("a", { href: "#/counties" }, "All counties")),
      );
      return;
    }
    this.found = found;
    this.app.name(place(found));
    const wrong = problems(found.findings);
    patch(
      this.root,
      h(
        "div",
        { class: "title" },
        h("p", { class: "path" }, h("a", { href: "#/counties" }, "Counties"), ` / ${found.platform}`),
        h("h1", null, place(found), " ", wrong.length ? badge(SEVERITY_TONES[wrong[0].severity], "Needs attention") : badge("good", "Healthy")),
        h("p", { class: "meta" }, this.links(found)),
      ),
      found.findings.length ? h("section", { class: "card", "aria-label": "Findings" }, findingList(found.findings, "#/counties")) : null,
      facts(this.facts(found)),
      this.failing(found),
      this.failed(found),
    );
  }

  links({ platform, state, county }) {
    const parcels = new URLSearchParams({ platform, state, county });
    const changes = new URLSearchParams({ platform, state, county });
    return [
      h("a", { href: `#/parcels?${parcels}` }, "Parcels"),
      h("a", { href: `#/changes?${changes}` }, "Changes"),
      tasksLink({ state: "queued", platform, site: `${state}/${county}` }, "Tasks"),
    ];
  }

  facts(county) {
    const schedules = county.schedules.map((name, place) => [place ? ", " : "", h("a", { href: `#/schedules?name=${encodeURIComponent(name)}` }, name)]);
    return [
      ["Parcels", number(county.parcels)],
      ["Schedule", schedules.length ? schedules : ["none ", h("a", { href: `#/schedules?${new URLSearchParams({ add: addressOf(county) })}`, "data-admin": true }, "add one")]],
      ["Fresh", county.fresh_share === null ? NOTHING : `${percent(county.fresh_share)} within ${duration(county.max_age_seconds)}`],
      ["Newest scrape", county.newest_at ? moment(county.newest_at) : NOTHING],
      ["Oldest scrape", county.oldest_at ? moment(county.oldest_at) : NOTHING],
      ["Last change", county.changed_at ? moment(county.changed_at) : NOTHING],
      ["Last 24 hours", ended(county)],
      ["Pace", `${number(county.ended_last_hour)} tasks in the last hour`],
      ["Queued", number(county.queued)],
      ["Blocked", county.blocked_workers.length ? h("span", { class: "warn" }, county.blocked_workers.join(", ")) : "no worker"],
    ];
  }

  failing({ failing_fields: fields }) {
    if (!fields.length) return null;
    const items = fields.map((field) =>
      h(
        "li",
        { "data-key": field.field },
        h("h3", null, words(field.field), " ", field.found_otherwise ? badge("", "found by another selector") : badge("bad", "no longer found")),
        h(
          "p",
          { class: "note" },
          `Found on ${percent(field.success_rate)} of the pages, before on ${percent(field.used_to)}`,
          field.since ? [", since ", moment(field.since)] : "",
          ". ",
          field.example ? ["Last seen in task ", taskLink(field.example), "."] : "",
        ),
        h("p", null, field.selectors.map((selector) => [h("code", { class: "command" }, selector), " "])),
        field.example
          ? h("button", { type: "button", class: "small", "data-look": field.field, "data-key": "look" }, "See what the newest stored page shows")
          : null,
        h("div", { "data-key": "seen", role: "status" }, this.evidence.get(field.field)?.map((node) => node.cloneNode(true))),
      ),
    );
    return section("Failing selectors", null, h("ul", { class: "failing" }, items));
  }

  // Applies the selectors to the page of the parcel on which they failed last. The page is parsed, never shown or run.
  async look(name) {
    const field = this.found.failing_fields.find((one) => one.field === name);
    this.evidence.set(name, [h("p", { class: "note" }, "Loading …")]);
    this.show([this.found]);
    try {
      this.evidence.set(name, await this.seen(field));
    } catch (error) {
      this.evidence.set(name, [h("p", { class: "note" }, `The page cannot be read: ${error.message}`)]);
    }
    this.show([this.found]);
  }

  async seen(field) {
    const { parcel } = await ask(`/v1/tasks/${encodeURIComponent(field.example)}`);
    if (!parcel) return [h("p", { class: "note" }, "The parcel of that task has no page here yet.")];
    const { sources } = await ask(parcel);
    const source = sources.find((one) => one.platform === this.platform);
    if (!source?.raw) return [h("p", { class: "note" }, "No page of that parcel is stored.")];
    const text = await readPage(source.raw);
    const page = new DOMParser().parseFromString(text, "text/html");
    const rows = field.selectors.map((selector) => ({ key: selector, cells: [h("code", null, selector), h("span", null, finds(page, selector))] }));
    return [
      table("What the selectors find", [{ label: "Selector" }, { label: "Finds on this page" }], rows),
      h(
        "p",
        { class: "note" },
        "On the newest page of ",
        h("a", { href: linkTo(parcel) }, source.parcel_id),
        ", scraped ",
        moment(source.scraped_at),
        ".",
      ),
    ];
  }

  failed({ platform, state, county }) {
    if (!this.failures?.groups.length) return null;
    const rows = this.failures.groups.map((group) => ({
      key: `${group.outcome} ${group.reason}`,
      cells: [
        group.reason || "no reason given",
        tasksLink({ state: group.outcome, platform, site: `${state}/${county}`, reason: group.reason }, number(group.tasks)),
        moment(group.last_ended_at),
        taskLink(group.example),
      ],
    }));
    const head = [{ label: "Reason" }, { label: "Tasks", class: "num" }, { label: "Last" }, { label: "Example" }];
    const all = h("a", { href: `#/failures?${new URLSearchParams({ platform, site: `${state}/${county}` })}` }, "All failures");
    return section("Failures", all, table("Failures", head, rows));
  }
}

async function readPage(path) {
  const packed = await fetchFile(path);
  const bytes = new Uint8Array(await packed.slice(0, 2).arrayBuffer());
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return packed.text();
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// Selectors are written `css #lblOwner` or `xpath //td`.
function finds(page, selector) {
  const [, kind, path] = /^(css|xpath) (.*)$/s.exec(selector) ?? [];
  let nodes;
  try {
    if (kind === "css") nodes = [...page.querySelectorAll(path)];
    else if (kind === "xpath") {
      const found = page.evaluate(path, page, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
      nodes = Array.from({ length: found.snapshotLength }, (_, at) => found.snapshotItem(at));
    } else return "A browser cannot apply this kind of selector.";
  } catch {
    return "A browser cannot apply this selector.";
  }
  if (!nodes.length) return "nothing";
  const text = nodes[0].textContent.replaceAll(/\s+/g, " ").trim().slice(0, MAX_TEXT);
  return `${plural(nodes.length, "element")}, the first ${text ? `says: ${text}` : "is empty"}`;
}
