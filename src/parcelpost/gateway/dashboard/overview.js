// The first page: live state of fleet, queue and platforms.

import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { h, on, patch } from "./dom.js";
import { fleet } from "./fleet.js";
import { compact, duration, number, plural } from "./format.js";
import { lienTable, parcelTable } from "./latest.js";
import { platforms } from "./platforms.js";
import { legend, queue } from "./queue.js";
import { perMinute } from "./scale.js";
import { empty, findingList, problems, section } from "./table.js";

const HOURS = [
  ["auto", "Auto"],
  ["1", "1 h"],
  ["3", "3 h"],
  ["6", "6 h"],
  ["24", "24 h"],
];
const LATEST_EVERY_MS = 9_000;
const LAGGING_SECONDS = 600;
const QUIET = "No activity in this period. Data appears as soon as workers request tasks.";

export class OverviewPage {
  title = "Overview";

  constructor(page, query) {
    this.page = page;
    page.hours = HOURS.some(([value]) => value === query.get("hours")) ? query.get("hours") : "auto";
    this.latestAt = -Infinity;
    this.figures = h("dl", { class: "figures" });
    this.findings = h("div");
    this.fleet = h("div");
    this.queue = h("div");
    this.platforms = h("div");
    this.parcels = h("div", { class: "short" });
    this.liens = h("div", { class: "short" });
    this.throughput = new Chart({
      title: "Throughput",
      unit: "tasks per minute",
      empty: QUIET,
      series: [
        { name: "granted", label: "granted" },
        { name: "ended", label: "finished" },
      ],
    });
    this.outcomes = new Chart({
      title: "Outcomes",
      unit: "tasks per minute",
      empty: QUIET,
      stacked: true,
      series: [
        { name: "done", label: "done" },
        { name: "not_found", label: "not found" },
        { name: "failed", label: "failed" },
        { name: "expired", label: "lease expired" },
        { name: "dead", label: "dead" },
      ],
    });
    this.records = new Chart({
      title: "Records",
      unit: "records per minute",
      empty: QUIET,
      stacked: true,
      series: [
        { name: "stored", label: "stored" },
        { name: "duplicate", label: "duplicate" },
        { name: "rejected", label: "rejected" },
      ],
    });
    this.root = this.layout();
    this.listen();
  }

  layout() {
    const hours = HOURS.map(([value, label]) =>
      h(
        "label",
        null,
        h("input", { type: "radio", name: "hours", value, checked: value === this.page.hours }),
        h("span", null, label),
      ),
    );
    const all = (href, text) => h("a", { href }, text);
    return h(
      "div",
      { class: "page" },
      h("h1", { class: "unseen" }, "Overview"),
      this.findings,
      this.figures,
      section(
        "Activity",
        h("fieldset", { class: "switch" }, h("legend", { class: "unseen" }, "Time range"), hours),
        h("div", { class: "charts" }, this.throughput.root, this.outcomes.root, this.records.root),
      ),
      h(
        "div",
        { class: "pair" },
        section("Queue", legend(), this.queue),
        section("Platforms", null, this.platforms),
      ),
      section("Workers", all("#/workers", "All workers"), this.fleet),
      section("Latest parcels", all("#/parcels", "All parcels"), this.parcels),
      section("Latest liens", all("#/liens", "All liens"), this.liens),
    );
  }

  listen() {
    on(this.root, "change", "[name=hours]", ({ value }) => {
      history.replaceState(null, "", value === "auto" ? "#/" : `#/?hours=${value}`);
      this.page.showHours(value);
    });
    on(this.root, "click", "[data-command]", (button) => this.page.command(button.dataset.command));
  }

  async update(overview, signal) {
    const rates = perMinute(overview.activity, Date.parse(overview.now));
    patch(this.findings, attention(overview));
    patch(this.figures, figures(overview));
    this.throughput.update(rates);
    this.outcomes.update(rates);
    this.records.update(rates);
    patch(this.fleet, workers(overview.workers));
    patch(this.queue, queue(overview.queue, overview.unclaimed_platforms));
    patch(this.platforms, platforms(overview.platforms, overview.queue));
    if (performance.now() - this.latestAt >= LATEST_EVERY_MS) await this.showLatest(signal);
  }

  async showLatest(signal) {
    const [{ parcels }, { liens }] = await Promise.all([
      ask("/v1/parcels/latest?limit=5", { signal }),
      ask("/v1/liens/latest?limit=5", { signal }),
    ]);
    this.latestAt = performance.now();
    patch(
      this.parcels,
      parcels.length
        ? parcelTable(parcels)
        : empty(
            h("p", null, "No parcels yet. They appear here as soon as a worker delivers one."),
          ),
    );
    patch(
      this.liens,
      liens.length
        ? lienTable(liens)
        : empty(h("p", null, "No liens yet. They appear here with their parcels.")),
    );
  }
}

// What needs attention, in the words of the health checks.
function attention({ findings, ok, workers, queue }) {
  const count = problems(findings).length;
  const quiet = workers.length || queue.length ? "No problems found" : "Ready: add tasks and start a worker";
  const title = count ? `Needs attention (${count})` : quiet;
  return h(
    "section",
    { class: `card attention ${ok ? (count ? "warning" : "well") : "error"}` },
    h("h2", null, title),
    findings.length ? findingList(findings) : null,
  );
}

// The workers that an operator may have to look after; the others are a number.
function workers(all) {
  const noted = all.filter((worker) => worker.state === "offline" || worker.paused || worker.blocked.length || worker.lag_seconds > LAGGING_SECONDS);
  if (!all.length || noted.length) return fleet(noted.slice(0, 8), all.length);
  const online = all.filter((worker) => worker.alive).length;
  const text = online ? `${plural(online, "worker")} online, none offline, paused, blocked or behind.` : "Every worker was stopped on purpose.";
  return empty(h("p", null, text));
}

function figures({ fleet: { alive, stopped, offline }, totals, ended_last_hour: ended, sync, counts }) {
  const failed = totals.failed + totals.dead;
  return [
    figure(
      "Workers online",
      h("a", { href: "#/workers" }, number(alive)),
      fleetNote(alive + stopped + offline, stopped, offline),
      offline > 0,
    ),
    figure(
      "Queued",
      h("a", { href: "#/tasks?state=queued" }, compact(totals.queued)),
      failed ? h("a", { href: "#/failures" }, `${compact(failed)} failed or dead`) : "none failed",
    ),
    figure("In progress", h("a", { href: "#/tasks?state=leased" }, compact(totals.leased)), "leased to workers"),
    figure("Tasks finished", compact(ended), "in the last hour"),
    figure(
      "Undelivered results",
      compact(sync.unsynced),
      sync.unsynced ? `oldest ${duration(sync.lag_seconds)}` : "all delivered",
      sync.lag_seconds > 600,
    ),
    figure("Parcels", h("a", { href: "#/parcels" }, compact(counts.parcels ?? 0)), h("a", { href: "#/liens" }, `${compact(counts.liens ?? 0)} liens`)),
  ];
}

function fleetNote(known, stopped, offline) {
  if (!known) return "none connected yet";
  const notes = [stopped ? `${number(stopped)} stopped` : "", offline ? `${number(offline)} offline` : ""];
  return notes.filter(Boolean).join(", ") || "none offline";
}

const figure = (name, value, note, warn = false) =>
  h(
    "div",
    null,
    h("dt", null, name),
    h("dd", null, value),
    h("dd", { class: warn ? "note warn" : "note" }, note),
  );
