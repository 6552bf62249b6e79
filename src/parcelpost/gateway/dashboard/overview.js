// The first page: live state of fleet, queue and platforms.

import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { h, on, patch } from "./dom.js";
import { fleet } from "./fleet.js";
import { compact, duration, number } from "./format.js";
import { lienTable, parcelTable } from "./parcels.js";
import { platforms } from "./platforms.js";
import { legend, queue } from "./queue.js";
import { perMinute } from "./scale.js";
import { empty, section } from "./table.js";

const HOURS = [
  ["1", "1 h"],
  ["3", "3 h"],
  ["6", "6 h"],
  ["24", "24 h"],
];
const LATEST_EVERY_MS = 9_000;
const QUIET = "No activity in this period. Data appears as soon as workers request tasks.";

export class OverviewPage {
  title = "Overview";

  constructor(page) {
    this.page = page;
    this.latestAt = -Infinity;
    this.figures = h("dl", { class: "figures" });
    this.findings = h("ul", { class: "findings", "aria-label": "Needs attention" });
    this.fleet = h("div");
    this.queue = h("div");
    this.requeue = h(
      "button",
      { type: "button", class: "small", "data-admin": true, "data-requeue": true, hidden: true },
      "Retry failed",
    );
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
      section(
        "Fleet",
        h("button", { type: "button", class: "small", "data-admin": true, "data-command": "", hidden: true }, "Command for all workers"),
        this.fleet,
      ),
      h(
        "div",
        { class: "pair" },
        section("Queue", [legend(), this.requeue], this.queue),
        section("Platforms", null, this.platforms),
      ),
      section("Latest parcels", all("#/parcels", "Search parcels"), this.parcels),
      section("Latest liens", all("#/liens", "Search liens"), this.liens),
    );
  }

  listen() {
    on(this.root, "change", "[name=hours]", (input) => this.page.showHours(input.value));
    on(this.root, "click", "[data-command]", (button) => this.page.command(button.dataset.command));
    on(this.root, "click", "[data-requeue]", () => this.page.requeue());
  }

  async update(overview, signal) {
    const rates = perMinute(overview.activity, Date.parse(overview.now));
    patch(this.findings, overview.findings.map(finding));
    patch(this.figures, figures(overview));
    this.throughput.update(rates);
    this.outcomes.update(rates);
    this.records.update(rates);
    patch(this.fleet, fleet(overview.workers));
    this.root.querySelector("[data-command='']").hidden = overview.workers.length < 2;
    patch(this.queue, queue(overview.queue, overview.unclaimed_platforms));
    this.requeue.hidden = !overview.totals.failed && !overview.totals.dead;
    patch(this.platforms, platforms(overview.platforms, overview.queue));
    if (performance.now() - this.latestAt >= LATEST_EVERY_MS) await this.showLatest(signal);
  }

  async showLatest(signal) {
    const [{ parcels }, { liens }] = await Promise.all([
      ask("/v1/parcels/latest?limit=8", { signal }),
      ask("/v1/liens/latest?limit=8", { signal }),
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

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const finding = ({ id, severity, message, fix }) =>
  h(
    "li",
    { class: severity, title: id },
    h("strong", null, severity),
    ` ${sentence(message)} `,
    h("span", null, sentence(fix)),
  );

function figures({ fleet: { alive, stopped, offline }, totals, activity, sync, counts }) {
  const recent = Math.round(3_600 / activity.bucket_seconds);
  const stored = (activity.series.stored ?? []).slice(-recent).reduce((sum, count) => sum + count, 0);
  const failed = totals.failed + totals.dead;
  return [
    figure(
      "Workers online",
      number(alive),
      fleetNote(alive + stopped + offline, stopped, offline),
      offline > 0,
    ),
    figure(
      "Queued",
      compact(totals.queued),
      failed ? `${compact(failed)} failed or dead` : "none failed",
    ),
    figure("In progress", compact(totals.leased), "leased to workers"),
    figure("Records stored", compact(stored), "in the last hour"),
    figure(
      "Undelivered",
      compact(sync.unsynced),
      sync.unsynced ? `oldest ${duration(sync.lag_seconds)}` : "all delivered",
      sync.lag_seconds > 600,
    ),
    figure("Parcels", compact(counts.parcels ?? 0), `${compact(counts.liens ?? 0)} liens`),
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
