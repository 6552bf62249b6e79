// Schedules, which keep counties fresh: how fresh each is, its runs, and what an operator does with it. Below them,
// who is told of changes.

import { ask } from "./api.js";
import { addSchedule, chooseAction } from "./commands.js";
import { h, on, patch } from "./dom.js";
import { compact, duration, moment, NOTHING, number, plural } from "./format.js";
import { countyLink } from "./counties.js";
import { badge, command, empty, freshTone, meter, section, table } from "./table.js";

const COLUMNS = [
  { label: "Schedule" },
  { label: "County" },
  { label: "Fresh" },
  { label: "When" },
  { label: "Status" },
  { label: "Last run" },
  { label: "", class: "act" },
];
const RUNS = [
  { label: "Due" },
  { label: "Outcome" },
  { label: "Tasks", class: "num" },
  { label: "Queued", class: "num" },
  { label: "Done", class: "num" },
  { label: "Failed", class: "num" },
  { label: "Duration", class: "num" },
];
const WEBHOOKS = [
  { label: "Webhook" },
  { label: "Sends" },
  { label: "Status" },
  { label: "Delivered", class: "num" },
  { label: "Waiting", class: "num" },
  { label: "Given up", class: "num" },
];
const WEBHOOK_STATES = { active: ["good", "Active"], failing: ["bad", "Failing"], paused: ["warn", "Paused"] };
const SCOPES = { known: "known parcels", delinquent: "delinquent parcels", file: "a file", list: "a list" };
const STATES = {
  waiting: ["", "Waiting"],
  running: ["good", "Running"],
  resting: ["warn", "Resting"],
  failing: ["bad", "Failing"],
  paused: ["warn", "Paused"],
};

export class SchedulesPage {
  title = "Schedules";

  constructor(page, query) {
    this.page = page;
    this.only = query.get("name");
    this.schedules = [];
    this.list = h("div");
    this.runs = h("div");
    this.webhooks = h("div");
    this.chosen = h("p", { hidden: true }, h("span", { class: "chip" }, this.only, " ", h("a", { href: "#/schedules" }, "Show all")));
    const add = h("button", { type: "button", class: "small", "data-admin": true, "data-add": true }, "Add schedule");
    this.root = h(
      "div",
      { class: "page" },
      h("h1", null, this.title),
      this.chosen,
      section("Refresh schedules", add, this.list),
      this.only && section("Runs", null, this.runs),
      section("Webhooks", null, this.webhooks),
    );
    on(this.root, "click", "[data-add]", () => this.add());
    this.adding = query.get("add");
    on(this.root, "click", "[data-schedule]", (button) => this.change(button.dataset.schedule));
  }

  async update({ schedules: all, webhooks }, signal) {
    const schedules = this.only ? all.filter(({ name }) => name === this.only) : all;
    this.schedules = schedules;
    this.chosen.hidden = !this.only;
    if (this.adding && this.page.isAdmin) this.add(this.adding);
    this.adding = null;
    patch(
      this.webhooks,
      webhooks.length
        ? table(
            "Webhooks",
            WEBHOOKS,
            webhooks.map((webhook) => ({ key: `webhook ${webhook.name}`, cells: webhookCells(webhook) })),
          )
        : empty(
            h("p", null, "No webhooks yet. With one, another system is notified of changes."),
            h("div", { "data-admin": true }, command("parcelpost gateway webhook add https://crm.example.org/hooks/parcelpost --kind lien")),
          ),
    );
    patch(
      this.list,
      schedules.length
        ? table(
            "Schedules",
            COLUMNS,
            schedules.map((schedule) => ({ key: `schedule ${schedule.name}`, cells: cells(schedule) })),
          )
        : empty(
            h("p", null, "No schedules yet. Without one, parcels are scraped again only when you refresh them."),
            h(
              "div",
              { "data-admin": true },
              h("p", null, "Add one above, or on the command line:"),
              command("parcelpost gateway schedule add columbia --platform grizzly_gis --state FL --county columbia --every 7d"),
            ),
          ),
    );
    if (this.only) await this.showRuns(schedules.length > 0, signal);
  }

  async showRuns(exists, signal) {
    const { runs } = exists ? await ask(`/v1/schedules/${encodeURIComponent(this.only)}`, { signal }) : { runs: [] };
    patch(
      this.runs,
      runs.length
        ? table("Runs", RUNS, runs.map((run) => ({ key: `run ${run.due_at}`, cells: runCells(run) })))
        : empty(h("p", null, "No runs yet.")),
    );
  }

  // `county`: platform/state/county that the form is filled in with.
  async add(county = "") {
    const given = await addSchedule(county);
    if (given) await this.page.post("/v1/schedules", given);
  }

  async change(name) {
    const schedule = this.schedules.find((schedule) => schedule.name === name);
    const action = schedule && (await chooseAction(schedule));
    if (action) await this.page.post(`/v1/schedules/${encodeURIComponent(name)}`, { action });
  }
}

const cells = (schedule) => [
  [
    h("a", { class: "name", href: `#/schedules?name=${encodeURIComponent(schedule.name)}` }, schedule.name),
    h("small", null, SCOPES[schedule.scope]),
  ],
  [countyLink(schedule), h("small", null, schedule.platform)],
  fresh(schedule),
  [schedule.timing, schedule.next_run_at && h("small", null, "next ", moment(schedule.next_run_at))],
  status(schedule),
  lastRun(schedule.last_run),
  h(
    "button",
    { type: "button", class: "small", "data-admin": true, "data-schedule": schedule.name, "aria-label": `Change ${schedule.name}` },
    "Change",
  ),
];

const webhookCells = (webhook) => [
  [h("span", { class: "name" }, webhook.name), h("small", null, webhook.receiver)],
  [...webhook.kinds, webhook.platform, webhook.county, webhook.state, webhook.field].filter(Boolean).join(", ") ||
    "all changes",
  [
    badge(...WEBHOOK_STATES[webhook.status]),
    webhook.error && h("small", null, webhook.error),
    webhook.failing_since && h("small", null, "since ", moment(webhook.failing_since)),
  ],
  [number(webhook.delivered), webhook.delivered_at && h("small", null, moment(webhook.delivered_at))],
  number(webhook.behind + webhook.waiting),
  number(webhook.gave_up),
];

const runCells = (run) => [
  moment(run.due_at),
  run.outcome,
  number(run.total),
  number(run.queued),
  run.ended_at ? number(run.done) : NOTHING,
  run.failed ? h("span", { class: "bad" }, number(run.failed)) : run.ended_at ? number(0) : NOTHING,
  run.outcome === "ended" ? duration((Date.parse(run.ended_at) - Date.parse(run.started_at)) / 1000) : NOTHING,
];

function fresh({ fresh_share: share, fresh: count, not_found: gone, parcels, max_age_seconds: seconds, is_stale: isStale }) {
  if (share === null) return [NOTHING, h("small", null, gone ? `${number(gone)} not found` : "no parcels yet")];
  return [
    meter(share, freshTone(share, isStale)),
    h("small", null, `${compact(count)} of ${compact(parcels)} within ${duration(seconds)}`),
    gone ? h("small", null, `${number(gone)} not found`) : null,
  ];
}

function status({ status: state, message, run, open_tasks: open }) {
  const [tone, label] = STATES[state];
  const progress = run ? `${number(run.queued)} of ${number(run.total)} queued, ${number(open)} unfinished` : "";
  return [badge(tone, label), progress && h("small", null, progress), message && h("small", null, message)];
}

function lastRun(run) {
  if (!run) return NOTHING;
  const failed = run.failed ? [", ", h("span", { class: "bad" }, `${plural(run.failed, "task")} failed`)] : [];
  return [`${number(run.done)} done`, failed, h("small", null, moment(run.ended_at))];
}
