// Tasks that ended without a record, grouped by reason, platform or county.

import { ask } from "./api.js";
import { h, on, patch } from "./dom.js";
import { ago, number, plural } from "./format.js";
import { place } from "./cells.js";
import { act, actionBar, checkbox, STATES, stateBadge, taskLink, tasksLink } from "./tasks.js";
import { empty, table } from "./table.js";

const AGAIN_MS = 12_000;
const KEYS = {
  reason: { label: "Reason", of: (group) => `${group.outcome}\n${group.reason}` },
  platform: { label: "Platform", of: (group) => group.platform },
  county: { label: "County", of: (group) => `${group.platform}/${group.state}/${group.county}` },
};
const OUTCOMES = ["failed", "dead", "not_found"];

export class FailuresPage {
  title = "Failures";

  constructor(app, query) {
    Object.assign(this, { app, groups: null, total: 0, askedAt: -Infinity, selected: new Set() });
    this.by = KEYS[query.get("by")] ? query.get("by") : "reason";
    this.outcomes = query.has("outcome") ? query.getAll("outcome").filter((name) => OUTCOMES.includes(name)) : ["failed", "dead"];
    this.filter = ["platform", "site"].filter((name) => query.has(name)).map((name) => [name, query.get(name)]);
    this.count = h("p", { class: "count", role: "status" });
    this.bar = actionBar(["retry", "refresh", "delete"]);
    this.results = h("div", { class: "results" });
    this.root = this.layout();
    this.listen();
    this.load();
  }

  layout() {
    const radio = (value, { label }) =>
      h("label", null, h("input", { type: "radio", name: "by", value, checked: value === this.by }), h("span", null, label));
    const box = (outcome) =>
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "outcome", value: outcome, checked: this.outcomes.includes(outcome) }),
        STATES[outcome].label,
      );
    return h(
      "div",
      { class: "page" },
      h("h1", null, "Failures"),
      h(
        "form",
        { class: "toolbar" },
        h("fieldset", { class: "switch" }, h("legend", { class: "unseen" }, "Group by"), Object.entries(KEYS).map((key) => radio(...key))),
        h("fieldset", { class: "checks" }, h("legend", { class: "unseen" }, "Outcomes"), OUTCOMES.map(box)),
        this.filter.length
          ? h("span", { class: "chip" }, this.filter.map(([, text]) => text).join(", "), " ", h("a", { href: "#/failures" }, "Show all"))
          : null,
      ),
      this.count,
      h("section", { class: "card" }, this.bar.root, this.results),
    );
  }

  listen() {
    const form = this.root.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => this.changed(new FormData(form)));
    on(this.results, "change", "[data-one]", (box) => {
      if (box.checked) this.selected.add(box.value);
      else this.selected.delete(box.value);
      this.showSelection();
    });
    on(this.bar.root, "click", "[data-act]", (button) => this.act(button.dataset.act));
  }

  changed(given) {
    this.by = given.get("by");
    this.outcomes = given.getAll("outcome");
    this.selected.clear();
    const query = new URLSearchParams([["by", this.by], ...this.outcomes.map((name) => ["outcome", name]), ...this.filter]);
    history.replaceState(null, "", `#/failures?${query}`);
    this.load();
  }

  async load() {
    this.askedAt = performance.now();
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    if (!this.outcomes.length) return this.show([], 0);
    const query = new URLSearchParams([...this.outcomes.map((name) => ["outcome", name]), ...this.filter]);
    try {
      const { groups, total } = await ask(`/v1/failures?${query}`, { signal });
      this.show(groups, total);
    } catch (error) {
      if (signal.aborted) return;
      this.askedAt = -Infinity;
      this.app.failed(error);
    }
  }

  show(groups, total) {
    this.groups = rolledUp(groups, KEYS[this.by].of);
    const listed = groups.reduce((sum, group) => sum + group.tasks, 0);
    const rest = total > listed ? ` ${number(total - listed)} of them in smaller groups are not shown.` : "";
    this.count.textContent = total ? `${plural(total, "task")} without a record.${rest}` : "";
    patch(
      this.results,
      this.groups.length
        ? table("Failures", columns(KEYS[this.by].label), this.groups.map((group) => this.row(group, total)))
        : empty(h("p", null, this.outcomes.length ? "No failures: no task that ended has one of these outcomes." : "Choose an outcome.")),
    );
    this.results.querySelectorAll("[data-one]").forEach((box) => (box.checked = this.selected.has(box.value)));
    this.showSelection();
  }

  row({ key, parts, tasks, last, example }, total) {
    const name = { reason: example.reason || "no reason given", platform: example.platform, county: place(example) }[this.by];
    const outcomes = [...new Set(parts.map((part) => part.outcome))];
    return {
      key,
      cells: [
        checkbox(key, `Select ${name}`, this.selected.has(key), { "data-one": true }),
        [h("span", { class: "name" }, name), " ", outcomes.map(stateBadge), this.by === "county" ? h("small", null, example.platform) : null],
        [number(tasks), h("small", null, `${Math.round((tasks / total) * 100)}%`)],
        spread(parts, this.by),
        ago(last),
        [taskLink(example.example), example.example_error === example.reason ? null : h("small", { class: "error-text" }, example.example_error)],
      ],
    };
  }

  get chosen() {
    return (this.groups ?? []).filter(({ key }) => this.selected.has(key));
  }

  showSelection() {
    const tasks = this.chosen.reduce((sum, group) => sum + group.tasks, 0);
    this.bar.show(tasks ? `${plural(this.chosen.length, "group")} with ${plural(tasks, "task")} selected` : "");
  }

  async act(name) {
    const parts = this.chosen.flatMap((group) => group.parts);
    const selections = parts.map((part) => ({
      states: [part.outcome],
      platform: part.platform,
      site: `${part.state}/${part.county}`,
      reason: part.reason,
    }));
    if (!(await act(this.app, name, selections))) return;
    this.selected.clear();
    await this.load();
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS && !this.selected.size) this.load();
  }

  leave() {
    this.asking?.abort();
  }
}

const columns = (label) => [
  { label: "Select", class: "pick", head: h("span", { class: "unseen" }, "Select") },
  { label, class: "wide" },
  { label: "Tasks", class: "num" },
  { label: label === "County" ? "Reasons" : "Counties", class: "medium full" },
  { label: "Last" },
  { label: "Example", class: "medium full" },
];

function rolledUp(groups, keyOf) {
  const found = new Map();
  for (const group of groups) {
    const key = keyOf(group);
    const known = found.get(key);
    if (!known) found.set(key, { key, parts: [group], tasks: group.tasks, last: group.last_ended_at, example: group });
    else {
      known.parts.push(group);
      known.tasks += group.tasks;
      if (group.last_ended_at > known.last) known.last = group.last_ended_at;
    }
  }
  return [...found.values()].sort((one, other) => other.tasks - one.tasks);
}

// The counties of a reason or platform, the reasons of a county, each with a link to its tasks.
function spread(parts, by) {
  const nameOf = by === "county" ? (part) => part.reason || "no reason given" : (part) => place(part);
  const links = parts.slice(0, 4).map((part) => {
    const query = { state: part.outcome, platform: part.platform, site: `${part.state}/${part.county}`, reason: part.reason };
    return h("li", null, tasksLink(query, nameOf(part)), by === "reason" ? ` on ${part.platform}` : "", `: ${number(part.tasks)}`);
  });
  const rest = parts.length > 4 ? h("li", null, `and ${number(parts.length - 4)} more`) : null;
  return h("ul", { class: "spread" }, links, rest);
}
