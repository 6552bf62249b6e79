// All workers, and one worker with what it reports.

import { h, on, patch } from "./dom.js";
import { fleet, siteName, stateOf } from "./fleet.js";
import { bytes, duration, moment, NOTHING, number, plural, words } from "./format.js";
import { countyLink } from "./counties.js";
import { empty, facts, section, table } from "./table.js";
import { taskLink } from "./tasks.js";

export class WorkersPage {
  title = "Workers";

  constructor(app) {
    this.app = app;
    this.count = h("p", { class: "count", role: "status" });
    this.list = h("div");
    this.all = h("button", { type: "button", class: "small", "data-admin": true, "data-command": "", hidden: true }, "Command for all workers");
    this.root = h("div", { class: "page" }, h("h1", null, this.title), this.count, section("Fleet", this.all, this.list));
    on(this.root, "click", "[data-command]", (button) => app.command(button.dataset.command));
  }

  update({ workers, fleet: { alive, paused, stopped, offline } }) {
    const parts = [`${number(alive)} online`, paused && `${number(paused)} of them paused`, stopped && `${number(stopped)} stopped`, offline && `${number(offline)} offline`];
    this.count.textContent = workers.length ? `${parts.filter(Boolean).join(", ")}, in the last 7 days` : "";
    this.all.hidden = workers.length < 2;
    patch(this.list, fleet(workers));
  }
}

export class WorkerPage {
  title = "Worker";

  constructor(app, rest) {
    Object.assign(this, { app, workerId: rest });
    this.root = h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …"));
    on(this.root, "click", "[data-command]", (button) => app.command(button.dataset.command));
  }

  update({ workers }) {
    const worker = workers.find((one) => one.worker_id === this.workerId);
    this.app.name(this.workerId);
    if (!worker) {
      patch(
        this.root,
        h("h1", null, "Worker not listed"),
        empty(h("p", null, h("code", null, this.workerId), " did not report in the last 7 days."), h("a", { href: "#/workers" }, "All workers")),
      );
      return;
    }
    patch(
      this.root,
      h(
        "div",
        { class: "title" },
        h("p", { class: "path" }, h("a", { href: "#/workers" }, "Workers")),
        h("h1", null, worker.worker_id, " ", stateOf(worker)),
        worker.alive
          ? h(
              "div",
              { class: "buttons start" },
              h("button", { type: "button", "data-admin": true, "data-command": worker.worker_id }, "Command"),
            )
          : null,
      ),
      facts(factsOf(worker)),
      failing(worker),
    );
  }
}

const listed = (names) => (names.length ? names.join(", ") : NOTHING);

const factsOf = (worker) => [
  ["Last seen", `${duration(worker.silent_seconds)} ago`],
  ["First seen", moment(worker.first_seen_at)],
  ["Version", worker.version || "unknown"],
  ["Pending commands", listed(worker.pending_commands)],
  ["In progress", plural(worker.active_tasks, "task")],
  ["Leases", number(worker.leases)],
  ["Last minute", worker.alive ? `${number(worker.completed_last_minute)} done, ${number(worker.failed_last_minute)} failed` : NOTHING],
  ["Undelivered", worker.unsynced ? `${number(worker.unsynced)}, the oldest ${duration(worker.lag_seconds)}` : "none"],
  ...Object.entries(worker.queue ?? {})
    .filter(([name]) => name !== "unsynced")
    .map(([name, count]) => [`Store: ${words(name).toLowerCase()}`, number(count)]),
  ["CPU / memory", worker.alive ? `${Math.round(worker.cpu_percent)}% / ${Math.round(worker.memory_percent)}%` : NOTHING],
  ["Free disk", worker.disk_free_bytes ? bytes(worker.disk_free_bytes) : NOTHING],
  ["Blocked", worker.blocked.length ? h("span", { class: "warn" }, worker.blocked.map(siteName).join("; ")) : "nowhere"],
  ["Platforms", worker.platforms.length ? worker.platforms.join(", ") : "any"],
];

function failing({ broken }) {
  if (!broken.length) return null;
  const rows = broken.map((field) => ({
    key: `${field.platform} ${field.state} ${field.county} ${field.field}`,
    cells: [
      words(field.field),
      [countyLink(field), h("small", null, field.platform)],
      field.failing.map((selector) => h("div", null, h("code", null, selector))),
      field.example ? taskLink(field.example) : NOTHING,
    ],
  }));
  return section(
    "Failing selectors",
    null,
    table("Failing selectors", [{ label: "Field" }, { label: "County" }, { label: "Selectors", class: "wide" }, { label: "Example" }], rows),
  );
}
