// Tasks by state, and what an operator does with one or many: retry, refresh, delete.

import { ask } from "./api.js";
import { confirm, say } from "./commands.js";
import { h, on, patch } from "./dom.js";
import { ago, NOTHING, number, plural } from "./format.js";
import { place } from "./cells.js";
import { badge, empty, table, whole } from "./table.js";

export const STATES = {
  queued: { label: "Queued", tone: "", meaning: "Waiting for a worker." },
  leased: { label: "In progress", tone: "good", meaning: "Leased to a worker." },
  done: { label: "Done", tone: "good", meaning: "Their records are stored." },
  not_found: { label: "Not found", tone: "", meaning: "The site has no such parcel." },
  failed: { label: "Failed", tone: "bad", meaning: "A worker reported a permanent failure." },
  dead: { label: "Dead", tone: "bad", meaning: "All leases expired without a report." },
};
const WITHOUT_RECORD = ["not_found", "failed", "dead"];
const PAGE = innerWidth > 760 ? 50 : 20;
const SELECTED_AT_ONCE = 500;

export const taskLink = (taskId, text = taskId, attributes = {}) =>
  h("a", { href: `#/task/${encodeURIComponent(taskId)}`, ...attributes }, text);

export const tasksLink = (query, text) => h("a", { href: `#/tasks?${new URLSearchParams(query)}` }, text);

export const stateBadge = (state) => badge(STATES[state].tone, STATES[state].label);

const ACTIONS = {
  retry: {
    path: "/v1/tasks/requeue",
    count: "requeued",
    title: (count) => `Retry ${count}?`,
    text: "They are queued again with their attempts reset.",
    none: "None of them ended without a record, so there is nothing to retry.",
  },
  refresh: {
    path: "/v1/refresh",
    count: "queued",
    title: (count) => `Refresh ${count}?`,
    text: "Known parcels of these tasks are requested from the site again, never from a page cache.",
    none: "Their parcels are not known yet, only listed, or already being refreshed.",
  },
  delete: {
    path: "/v1/tasks/delete",
    count: "deleted",
    title: (count) => `Delete ${count}?`,
    text: "They are deleted with their attempts. Records and pages stay. This cannot be undone.",
    none: "Tasks that a worker holds cannot be deleted.",
  },
};

// Counts what the selections stand for, asks, and acts. Returns how many tasks it changed; 0 if the operator declines.
export async function act(app, name, selections) {
  const { path, count, title, text, none } = ACTIONS[name];
  const verb = name[0].toUpperCase() + name.slice(1);
  let tasks = 0;
  const asked = selections.map(name === "refresh" ? ofParcels : (selection) => selection);
  for (const selection of asked) {
    const counted = await app.post(path, { ...selection, dry_run: true }, false);
    if (!counted) return 0;
    tasks += counted[count];
  }
  if (!tasks) {
    await say(`Nothing to ${name}`, none);
    return 0;
  }
  const counted = plural(tasks, name === "refresh" ? "parcel" : "task");
  if (!(await confirm(title(counted), text, `${verb} ${counted}`, name === "delete"))) return 0;
  let changed = 0;
  for (const selection of asked) changed += (await app.post(path, selection))?.[count] ?? 0;
  return changed;
}

// A selection of tasks as /v1/refresh names their parcels.
function ofParcels({ states, site, ...selection }) {
  if (!states) return selection;
  const [state, county] = site ? site.split("/") : ["", ""];
  return { ...selection, task_states: states, state, county };
}

// The buttons that act on what is selected. `actions`: some of retry, refresh and delete.
export function actionBar(actions) {
  const said = h("span", { class: "count", role: "status" });
  const buttons = actions.map((name) =>
    h(
      "button",
      { type: "button", class: name === "delete" ? "small danger" : "small", "data-act": name },
      name[0].toUpperCase() + name.slice(1),
    ),
  );
  const root = h("div", { class: "selection", "data-admin": true, hidden: true }, said, buttons);
  return {
    root,
    show(text, disabled = []) {
      root.hidden = !text;
      if (said.textContent !== text) said.textContent = text;
      for (const button of buttons) button.disabled = disabled.includes(button.dataset.act);
    },
  };
}

export const checkbox = (value, label, checked, attributes = {}) =>
  h("input", { type: "checkbox", value, "aria-label": label, checked, "data-admin": true, ...attributes });

export class TasksPage {
  title = "Tasks";

  constructor(app, query) {
    this.app = app;
    this.filter = { state: STATES[query.get("state")] ? query.get("state") : "queued" };
    for (const name of ["platform", "site", "reason"]) if (query.has(name)) this.filter[name] = query.get(name);
    Object.assign(this, { tasks: [], next: null, total: 0, loaded: false, selected: new Set(), all: false });
    this.tabs = h("nav", { class: "state-tabs", "aria-label": "States" });
    this.count = h("p", { class: "count", role: "status" });
    this.bar = actionBar(["retry", "refresh", "delete"]);
    this.results = h("div", { class: "results" });
    this.more = h("button", { type: "button", hidden: true, class: "more" }, "Show more");
    this.root = this.layout();
    this.listen();
    this.load(null);
  }

  layout() {
    const field = (name, label, attributes = {}) =>
      h(
        "label",
        { class: "field" },
        h("span", null, label),
        h("input", { name, value: this.filter[name] ?? "", maxlength: 200, spellcheck: "false", autocomplete: "off", ...attributes }),
      );
    return h(
      "div",
      { class: "page" },
      h("h1", null, "Tasks"),
      this.tabs,
      h(
        "form",
        { class: "search" },
        field("platform", "Platform", { placeholder: "any" }),
        field("site", "County", { placeholder: "FL/columbia" }),
        this.filter.reason === undefined ? null : field("reason", "Reason"),
        field("task", "Open a task by ID", { type: "search" }),
        h("button", { type: "submit" }, "Apply"),
      ),
      this.count,
      h("section", { class: "card" }, this.bar.root, this.results, this.more),
    );
  }

  listen() {
    const form = this.root.querySelector("form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { task, ...given } = Object.fromEntries([...new FormData(form)].map(([name, text]) => [name, text.trim()]));
      if (task) location.hash = `#/task/${encodeURIComponent(task)}`;
      else location.hash = `#/tasks?${new URLSearchParams(this.query(given))}`;
    });
    this.more.addEventListener("click", () => this.load(this.next));
    on(this.results, "change", "[data-all]", (box) => this.selectShown(box.checked));
    on(this.results, "change", "[data-one]", (box) => this.select(box.value, box.checked));
    on(this.bar.root, "click", "[data-act]", (button) => this.act(button.dataset.act));
    on(this.root, "click", "[data-select-all]", () => {
      this.all = true;
      this.showSelection();
    });
  }

  query(changes) {
    const query = { ...this.filter, ...changes };
    return Object.fromEntries(Object.entries(query).filter(([name, text]) => text || (name === "reason" && text === "")));
  }

  async load(cursor, isRefresh = false) {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const query = new URLSearchParams({ ...this.query({}), limit: PAGE, ...(cursor ? { cursor } : {}) });
    if (!isRefresh) this.results.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(`/v1/tasks?${query}`, { signal });
      this.tasks = [...(cursor ? this.tasks : []), ...answer.tasks];
      Object.assign(this, { next: answer.next, total: answer.total, loaded: true });
      this.show();
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    } finally {
      if (!signal.aborted) this.results.removeAttribute("aria-busy");
    }
  }

  failed(error) {
    if (error.status) patch(this.results, empty(h("p", null, "The gateway rejected this filter: ", error.message)));
    else this.app.failed(error);
    this.loaded = Boolean(error.status);
  }

  show() {
    const { meaning } = STATES[this.filter.state];
    this.more.hidden = !this.next;
    const shown = this.next ? `, the first ${number(this.tasks.length)} are shown` : "";
    this.count.textContent = `${plural(this.total, "task")}${shown}. ${meaning}`;
    patch(
      this.results,
      this.tasks.length
        ? table("Tasks", columns(this.filter.state, this.isEveryShownSelected()), this.tasks.map((task) => this.row(task)))
        : empty(h("p", null, "No tasks in this state match.")),
    );
    this.results.querySelectorAll("[data-one]").forEach((box) => (box.checked = this.selected.has(box.value)));
    this.showSelection();
  }

  row(task) {
    const { task_id: taskId, target } = task;
    const chosen = checkbox(taskId, `Select ${taskId}`, this.selected.has(taskId), { "data-one": true });
    return {
      key: `task ${taskId}`,
      cells: [
        chosen,
        [taskLink(taskId, target.parcel_id || taskId, { class: `name ${whole(target.parcel_id)}` }), h("small", null, taskId)],
        [place(target), h("small", null, task.platform)],
        `${number(task.attempts)} of ${number(task.max_attempts)}`,
        ago(task.ended_at ?? task.created_at),
        task.error || NOTHING,
      ],
    };
  }

  isEveryShownSelected() {
    return this.tasks.length > 0 && this.tasks.every((task) => this.selected.has(task.task_id));
  }

  select(taskId, isSelected) {
    this.all = false;
    if (isSelected) this.selected.add(taskId);
    else this.selected.delete(taskId);
    const every = this.results.querySelector("[data-all]");
    if (every) every.checked = this.isEveryShownSelected();
    this.showSelection();
  }

  selectShown(isSelected) {
    this.selected = new Set(isSelected ? this.tasks.slice(0, SELECTED_AT_ONCE).map((task) => task.task_id) : []);
    this.all = false;
    this.results.querySelectorAll("[data-one]").forEach((box) => (box.checked = this.selected.has(box.value)));
    this.showSelection();
  }

  showSelection() {
    const { state } = this.filter;
    const canRetry = WITHOUT_RECORD.includes(state);
    const disabled = [canRetry ? "" : "retry", state === "leased" ? "delete" : ""];
    const text = this.all ? `All ${plural(this.total, "task")} selected` : `${plural(this.selected.size, "task")} selected`;
    this.bar.show(this.selected.size ? text : "", disabled);
    const more = this.selected.size && !this.all && this.total > this.selected.size && state !== "leased";
    this.bar.root.querySelector("[data-select-all]")?.remove();
    if (more) {
      const label = `Select all ${number(this.total)}`;
      this.bar.root.append(h("button", { type: "button", class: "quiet", "data-select-all": true }, label));
    }
  }

  async act(name) {
    const { state, platform = "", site = "", reason } = this.filter;
    const every = { states: [state], platform, site, ...(reason === undefined ? {} : { reason }) };
    const selection = this.all ? every : { task_ids: [...this.selected] };
    if (!(await act(this.app, name, [selection]))) return;
    this.selected.clear();
    this.all = false;
    await this.load(null);
  }

  update({ totals }) {
    patch(
      this.tabs,
      Object.entries(STATES).map(([state, { label }]) =>
        h(
          "a",
          {
            href: `#/tasks?${new URLSearchParams(this.query({ state, reason: undefined }))}`,
            "aria-current": state === this.filter.state ? "page" : null,
          },
          label,
          " ",
          h("small", null, number(totals[state])),
        ),
      ),
    );
    if (!this.loaded || (this.tasks.length <= PAGE && !this.selected.size)) this.load(null, true);
  }

  leave() {
    this.asking?.abort();
  }
}

const columns = (state, isEverySelected) => [
  {
    label: "Select",
    class: "pick",
    head: checkbox("", "Select all shown", isEverySelected, { "data-all": true }),
  },
  { label: "Parcel" },
  { label: "County" },
  { label: "Attempts", class: "num" },
  { label: WITHOUT_RECORD.includes(state) || state === "done" ? "Ended" : "Added" },
  { label: WITHOUT_RECORD.includes(state) ? "Error" : "Last error", class: "wide" },
];
