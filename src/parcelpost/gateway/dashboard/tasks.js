// Tasks that ended without a record: which, when and why.

import { ask } from "./api.js";
import { h, patch } from "./dom.js";
import { moment, NOTHING, number, plural } from "./format.js";
import { place } from "./parcels.js";
import { empty, table, whole } from "./table.js";

const PAGE = 50;
const STATES = [
  ["not_found", "Not found", "The site has no such parcel."],
  ["failed", "Failed", "A worker reported a permanent failure."],
  ["dead", "Dead", "All leases expired without a report."],
];
const COLUMNS = [
  { label: "Parcel" },
  { label: "Place" },
  { label: "Task" },
  { label: "Attempts", class: "num" },
  { label: "Ended" },
  { label: "Reason", class: "wide" },
];

export const tasksLink = (state, platform, text) =>
  h("a", { href: `#/tasks?${new URLSearchParams({ state, platform })}` }, text);

export class TasksPage {
  title = "Tasks";
  found = [];
  next = null;
  pages = 1;
  asking = null;

  constructor(page, query) {
    this.page = page;
    this.state = h(
      "select",
      { name: "state" },
      STATES.map(([value, text]) => h("option", { value, selected: query.get("state") === value }, text)),
    );
    this.platform = h("input", {
      name: "platform",
      value: query.get("platform") ?? "",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 200,
    });
    this.form = h("form", { class: "search", role: "search" }, field("Outcome", this.state), field("Platform", this.platform));
    this.count = h("p", { class: "count", role: "status" });
    this.results = h("div", { class: "results" });
    this.more = h("button", { type: "button", hidden: true }, "Show more");
    this.root = h(
      "div",
      { class: "page" },
      h("h1", null, this.title),
      this.form,
      h(
        "section",
        { class: "card", "aria-label": "Results" },
        h("div", { class: "card-head" }, this.count),
        this.results,
        this.more,
      ),
    );
    this.form.addEventListener("change", () => this.search());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.search();
    });
    this.more.addEventListener("click", () => this.load(this.next));
    this.search();
  }

  search() {
    history.replaceState(null, "", `#/tasks?${this.asked()}`);
    this.load(null);
  }

  asked() {
    const platform = this.platform.value.trim();
    return new URLSearchParams({ state: this.state.value, ...(platform ? { platform } : {}) });
  }

  async load(cursor) {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const query = this.asked();
    query.set("limit", PAGE);
    if (cursor) query.set("cursor", cursor);
    try {
      const answer = await ask(`/v1/tasks?${query}`, { signal });
      this.pages = cursor ? this.pages + 1 : 1;
      this.found = [...(cursor ? this.found : []), ...answer.tasks];
      this.next = answer.next;
      this.show();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status) patch(this.results, empty(h("p", null, "The gateway rejected this request: ", error.message)));
      else this.page.failed(error);
    }
  }

  show() {
    const [, , meaning] = STATES.find(([value]) => value === this.state.value);
    this.more.hidden = !this.next;
    this.count.textContent = `${plural(this.found.length, "task")}${this.next ? " and more" : ""}. ${meaning}`;
    const none = h("p", null, "No such tasks.");
    patch(this.results, this.found.length ? table("Tasks", COLUMNS, this.found.map(row)) : empty(none));
  }

  // Called after every successful poll: new tasks appear, unless the reader has loaded older ones.
  async update() {
    if (this.pages === 1) await this.load(null);
  }

  leave() {
    this.asking?.abort();
  }
}

const field = (label, input) => h("label", { class: "field" }, h("span", null, label), input);

const row = (task) => ({
  key: `task ${task.task_id}`,
  cells: [
    [h("span", { class: `name ${whole(task.target.parcel_id)}` }, task.target.parcel_id), h("small", null, task.platform)],
    place(task.target),
    task.task_id,
    number(task.attempts),
    moment(task.ended_at),
    task.error || NOTHING,
  ],
});
