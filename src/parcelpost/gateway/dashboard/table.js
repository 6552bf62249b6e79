// Tables, which become cards on narrow screens, and other parts that several pages share.

import { h, on, patch, s, syncFields } from "./dom.js";
import { NOTHING, percent } from "./format.js";

// `columns`: [{label, class?, head?}], `rows`: [{key?, cells}]. The first cell names its row; a column of class `pick`
// may stand before it. `head` replaces the label.
export function table(caption, columns, rows) {
  const head = columns.map(({ label, head: own, order, ...rest }) =>
    h("th", { scope: "col", class: rest.class, "aria-sort": order }, own ?? (label || h("span", { class: "unseen" }, "Actions"))),
  );
  const naming = columns.findIndex((column) => column.class !== "pick");
  const body = rows.map(({ key, cells }) =>
    h(
      "tr",
      { "data-key": key },
      cells.map((cell, place) => {
        const { label, class: style } = columns[place];
        const isNothing = cell === NOTHING || cell === null || (Array.isArray(cell) && !cell.length);
        const rest = { class: isNothing ? `${style ?? ""} none` : style };
        const attributes = { class: rest.class, "data-label": label };
        return place === naming
          ? h("th", { scope: "row", ...attributes }, h("div", null, cell))
          : h("td", attributes, h("div", null, cell));
      }),
    ),
  );
  return h(
    "table",
    { class: "cards" },
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, head)),
    h("tbody", null, body),
  );
}

// Do not break lines at hyphens in numbers and dates, unless the text is long.
export const whole = (text) => (String(text).length <= 24 ? "whole" : "");

export const badge = (tone, text) => h("span", { class: `badge ${tone}` }, text);

export const empty = (...children) => h("div", { class: "empty" }, children);

// A wide table scrolls on its own, also by keyboard.
export const scroller = (label, child, style = "scroll") => h("div", { class: style, tabindex: "0", role: "region", "aria-label": label }, child);

// Lines break between words, not after the first hyphen of an option.
export const command = (text) =>
  h("code", { class: "command" }, text.split(" ").map((word, place) => [place ? " " : "", h("span", null, word)]));

// A new schedule is not stale before it has had its time, and not fresh either.
export const freshTone = (share, isStale) => (isStale ? "warn" : share < 0.9 ? "" : "good");

// A share from 0 to 1 as a bar with its percentage.
export const meter = (share, tone) =>
  h(
    "span",
    { class: `success ${tone}` },
    s(
      "svg",
      { class: "meter", width: 48, height: 6, "aria-hidden": "true" },
      s("rect", { class: "track", width: 48, height: 6, rx: 3 }),
      s("rect", { class: `fill ${tone}`, width: 48 * share, height: 6, rx: 3 }),
    ),
    percent(share),
  );

// Names and values side by side.
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts card" },
    pairs.map(([name, ...value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

// A table whose columns with `sort` (a function of the row) sort by a click on their head.
export class SortedTable {
  // `by`: the label of a column; `onSort()` is called when another is chosen.
  constructor(caption, columns, rowOf, { by = null, isDescending = false, onSort = () => {} } = {}) {
    Object.assign(this, { caption, columns, rowOf, onSort, rows: [], isDescending });
    this.by = columns.some(({ label }) => label === by) ? by : null;
    this.root = h("div");
    on(this.root, "click", "[data-sort]", (button) => this.sort(button.dataset.sort));
    on(this.root, "change", "[name=sort]", ({ value }) => {
      const [label, order] = value.split("|");
      this.order(label, order === "desc");
    });
  }

  sort(label) {
    const first = this.columns.find((column) => column.label === label).class === "num";
    this.order(label, this.by === label ? !this.isDescending : first);
  }

  order(label, isDescending) {
    Object.assign(this, { by: label, isDescending });
    this.onSort();
    this.show(this.rows);
  }

  // `rows` are in the order that is shown until a column is chosen.
  show(rows) {
    this.rows = rows;
    const chosen = this.columns.find((column) => column.label === this.by);
    const ordered = chosen ? [...rows].sort((one, other) => this.compare(chosen.sort(one), chosen.sort(other))) : rows;
    const heads = this.columns.map((column) => this.headed(column));
    patch(this.root, this.chooser(), table(this.caption, heads, ordered.map(this.rowOf)));
    syncFields(this.root);
  }

  // Narrow tables have no heads to click.
  chooser() {
    const options = this.columns
      .filter(({ sort }) => sort)
      .flatMap(({ label }) =>
        ["asc", "desc"].map((order) => {
          const selected = this.by === label && this.isDescending === (order === "desc");
          return h("option", { value: `${label}|${order}`, selected }, `${label} ${order === "asc" ? "▲" : "▼"}`);
        }),
      );
    const first = h("option", { value: "", disabled: true, selected: !this.by }, "Sort by");
    return h("label", { class: "sort-by" }, h("span", { class: "unseen" }, "Sort by"), h("select", { name: "sort" }, first, options));
  }

  // Missing values are last in either order.
  compare(one, other) {
    if (one === null || other === null) return (one === null) - (other === null);
    const order = typeof one === "string" ? one.localeCompare(other) : one - other;
    return this.isDescending ? -order : order;
  }

  headed(column) {
    if (!column.sort) return column;
    const order = column.label !== this.by ? null : this.isDescending ? "descending" : "ascending";
    const head = h("button", { type: "button", class: "order", "data-sort": column.label }, column.label);
    return { ...column, order, head };
  }
}

export const section = (title, aside, body) =>
  h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, title), aside), body);

// Findings of the health checks

export const SEVERITY_TONES = { error: "bad", warning: "warn", note: "" };

export const problems = (findings) => findings.filter(({ severity }) => severity !== "note");

export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

// Where an operator looks into a finding, by its id or the first part of it.
const PLACES = {
  "queue.failed": ["#/failures?outcome=failed", "See failures"],
  "queue.dead": ["#/failures?outcome=dead", "See failures"],
  "queue.unclaimed": ["#/workers", "See workers"],
  tasks: ["#/failures?by=county", "See failures"],
  fleet: ["#/workers", "See workers"],
  schedule: ["#/schedules", "See schedules"],
  webhook: ["#/schedules", "See webhooks"],
  site: ["#/counties", "See counties"],
};

// Without links to the page `here`.
export const findingList = (findings, here = "") =>
  h("ul", { class: "findings", "aria-label": "Findings" }, findings.map((found) => finding(found, here)));

function finding({ id, severity, message, fix }, here) {
  const [href, label] = PLACES[id] ?? PLACES[id.split(".")[0]] ?? [];
  return h(
    "li",
    { class: severity, "data-key": `${id} ${message}` },
    badge(SEVERITY_TONES[severity], severity),
    h("div", null, h("p", { class: "name" }, sentence(message)), h("p", { class: "note" }, sentence(fix))),
    href && href !== here ? h("a", { href }, label) : null,
  );
}
