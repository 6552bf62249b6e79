// What changed in parcels, the last found first.

import { ask } from "./api.js";
import { h, patch } from "./dom.js";
import { ago, money, NOTHING, plural, words } from "./format.js";
import { linkTo, place } from "./cells.js";
import { empty, table, whole } from "./table.js";

const PAGE = innerWidth > 760 ? 50 : 20;
const AGAIN_MS = 15_000;
const KINDS = [
  ["", "any change"],
  ["parcel", "new parcels"],
  ["owner", "owners"],
  ["value", "values"],
  ["tax", "taxes"],
  ["sale", "sales"],
  ["lien", "liens"],
];
const COLUMNS = [
  { label: "Parcel" },
  { label: "Change", class: "whole" },
  { label: "What", class: "full" },
  { label: "Found" },
];
const AMOUNT = /(amount|value|price|due|tax)$/;

export class ChangesPage {
  title = "Changes";

  constructor(app, query) {
    Object.assign(this, { app, changes: [], next: null, askedAt: -Infinity });
    this.form = h(
      "form",
      { class: "search" },
      h(
        "label",
        { class: "field" },
        h("span", null, "Change"),
        h("select", { name: "kind" }, KINDS.map(([value, text]) => h("option", { value, selected: query.get("kind") === value }, text))),
      ),
      ["platform", "state", "county"].map((name) =>
        h(
          "label",
          { class: name === "state" ? "field brief" : "field" },
          h("span", null, words(name)),
          h("input", { name, value: query.get(name) ?? "", placeholder: "any", maxlength: 200, autocomplete: "off", spellcheck: "false" }),
        ),
      ),
      h("button", { type: "submit" }, "Apply"),
    );
    this.count = h("p", { class: "count", role: "status" });
    this.results = h("div", { class: "results" });
    this.more = h("button", { type: "button", class: "more", hidden: true }, "Show more");
    this.root = h(
      "div",
      { class: "page" },
      h("h1", null, this.title),
      this.form,
      this.count,
      h("section", { class: "card" }, this.results, this.more),
    );
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("submit", () => this.search());
    this.form.elements.kind.addEventListener("change", () => this.search());
    this.more.addEventListener("click", () => this.load(this.next));
    this.load(0);
  }

  query() {
    return new URLSearchParams([...new FormData(this.form)].map(([name, text]) => [name, text.trim()]).filter(([, text]) => text));
  }

  search() {
    history.replaceState(null, "", `#/changes?${this.query()}`);
    this.load(0);
  }

  async load(before) {
    this.askedAt = performance.now();
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const query = this.query();
    query.set("limit", PAGE);
    if (before) query.set("before", before);
    try {
      const answer = await ask(`/v1/changes/latest?${query}`, { signal });
      this.changes = [...(before ? this.changes : []), ...answer.changes];
      this.next = answer.next;
      this.show();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status) patch(this.results, empty(h("p", null, "The gateway rejected this filter: ", error.message)));
      else {
        this.askedAt = -Infinity;
        this.app.failed(error);
      }
    }
  }

  show() {
    this.more.hidden = !this.next;
    const { length } = this.changes;
    this.count.textContent = length ? this.next ? `The latest ${plural(length, "change")}; older ones follow.` : plural(length, "change") : "";
    patch(
      this.results,
      length
        ? table("Changes", COLUMNS, this.changes.map(row))
        : empty(
            h("p", null, this.next ? "No match among the latest changes." : "No changes yet. They are found when a parcel is scraped again."),
          ),
    );
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS && this.changes.length <= PAGE) this.load(0);
  }

  leave() {
    this.asking?.abort();
  }
}

const row = (change) => ({
  key: `change ${change.number}`,
  cells: [
    [
      h("a", { class: `name ${whole(change.parcel_id)}`, href: linkTo(change.address) }, change.parcel_id),
      h("small", null, `${place(change)}, ${change.platform}`),
    ],
    [kindText(change.kind), change.subject ? h("small", null, change.subject) : null],
    differences(change.before, change.after),
    ago(change.found_at),
  ],
});

// lien.new -> New lien, owner.changed -> Owner changed
const kindText = (kind) => words(kind.endsWith(".new") ? `new_${kind.slice(0, -4)}` : kind.replace(".", "_"));

// What differs between two objects, or all of one if there is no other.
function differences(before, after) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const lines = names
    .map((name) => [name, before?.[name] ?? null, after?.[name] ?? null])
    .filter(([, was, is]) => JSON.stringify(was) !== JSON.stringify(is))
    .map(([name, was, is]) =>
      h(
        "li",
        null,
        h("small", { class: "inline" }, words(name)),
        " ",
        was === null ? null : h("del", null, text(name, was)),
        was === null || is === null ? null : h("span", { class: "arrow" }, " → "),
        is === null ? null : h("ins", null, text(name, is)),
      ),
    );
  return lines.length ? h("ul", { class: "inline-list" }, lines) : NOTHING;
}

function text(name, value) {
  if (Array.isArray(value)) return value.map((item) => text(name, item)).join("; ");
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  return typeof value === "number" && AMOUNT.test(name) ? money(value) : String(value);
}
