// Search for parcels and liens. Only the response to the latest request is shown.

import { ask, save, token } from "./api.js";
import { h, on, patch } from "./dom.js";
import { plural } from "./format.js";
import { lienTable, parcelTable } from "./parcels.js";
import { empty } from "./table.js";

const WAIT_MS = 250;
const PAGE = 50;

const KINDS = {
  parcels: {
    title: "Parcels",
    table: parcelTable,
    latest: "/v1/parcels/latest",
    none: "No parcels yet. They appear here as soon as a worker delivers one.",
    fields: (query) => [...placeFields(query), select(query, "delinquent", "Delinquent", YES_OR_NO)],
  },
  liens: {
    title: "Liens",
    table: lienTable,
    latest: "/v1/liens/latest",
    none: "No liens yet. They appear here with their parcels.",
    fields: (query) => [
      ...placeFields(query),
      field(query, "lien_status", "Status", { type: "text" }),
      field(query, "min_amount", "From $", AMOUNT),
      field(query, "max_amount", "To $", AMOUNT),
    ],
  },
};
const YES_OR_NO = [
  ["", "any"],
  ["true", "yes"],
  ["false", "no"],
];
const AMOUNT = { inputmode: "decimal", pattern: "[0-9]+([.][0-9]{1,2})?" };

const labelled = (label, input, style = "") => h("label", { class: `field ${style}` }, h("span", null, label), input);

const field = (query, name, label, attributes) =>
  labelled(
    label,
    h("input", { name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...attributes }),
    attributes.class,
  );

const select = (query, name, label, options) =>
  labelled(
    label,
    h(
      "select",
      { name },
      options.map(([value, text]) => h("option", { value, selected: (query.get(name) ?? "") === value }, text)),
    ),
  );

const platformField = (query) => field(query, "platform", "Platform", { type: "text", maxlength: 200 });

const placeFields = (query) => [
  field(query, "q", "Parcel number, owner or address", { type: "search", class: "grow", maxlength: 200 }),
  field(query, "state", "State", { type: "text", maxlength: 40, class: "brief" }),
  field(query, "county", "County", { type: "text", maxlength: 200 }),
  platformField(query),
];

export class SearchPage {
  constructor(page, kind, query) {
    Object.assign(this, { page, kind, found: [], next: null, timer: 0, asking: null }, KINDS[kind]);
    this.results = h("div", { class: "results" });
    this.count = h("p", { class: "count", role: "status" });
    this.more = h("button", { type: "button", hidden: true }, "Show more");
    this.exports = h("p", { class: "exports" });
    this.form = h("form", { class: "search", role: "search" }, this.fields(query));
    this.root = h(
      "div",
      { class: "page" },
      h("h1", null, this.title),
      this.form,
      h(
        "section",
        { class: "card", "aria-label": "Results" },
        h("div", { class: "card-head" }, this.count, this.exports),
        this.results,
        this.more,
      ),
    );
    this.listen();
    this.search();
  }

  listen() {
    this.form.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), WAIT_MS);
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(this.timer);
      this.search();
    });
    this.more.addEventListener("click", () => this.load(this.next));
    on(this.exports, "click", "a", (link, event) => {
      if (!token.get()) return;
      event.preventDefault();
      save(link.getAttribute("href"), link.getAttribute("download")).catch((error) =>
        this.page.failed(error),
      );
    });
  }

  get isFiltered() {
    return this.asked().size > 0;
  }

  asked() {
    const given = [...new FormData(this.form)]
      .map(([name, value]) => [name, value.trim()])
      .filter(([, value]) => value);
    return new URLSearchParams(given);
  }

  search() {
    if (!this.form.checkValidity()) {
      this.count.textContent = "Enter amounts as 1234.50.";
      return;
    }
    const query = this.asked().toString();
    history.replaceState(null, "", `#/${this.kind}${query ? `?${query}` : ""}`);
    const download = (form) =>
      h(
        "a",
        {
          href: `/v1/export/${this.kind}.${form}${query ? `?${query}` : ""}`,
          download: `${this.kind}.${form}`,
        },
        form.toUpperCase(),
      );
    patch(this.exports, "Export ", download("csv"), " ", download("jsonl"));
    this.load(null);
  }

  async load(cursor) {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const query = this.asked();
    const path = this.isFiltered ? `/v1/${this.kind}` : this.latest;
    query.set("limit", PAGE);
    if (cursor) query.set("cursor", cursor);
    this.results.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(`${path}?${query}`, { signal });
      this.found = [...(cursor ? this.found : []), ...answer[this.kind]];
      this.next = answer.next;
      this.show();
    } catch (error) {
      if (!signal.aborted) this.trouble(error);
    } finally {
      if (!signal.aborted) this.results.removeAttribute("aria-busy");
    }
  }

  counted() {
    const count = plural(this.found.length, this.kind.slice(0, -1)) + (this.next ? " and more" : "");
    if (!this.found.length) return this.isFiltered ? "No results" : "";
    return this.isFiltered ? count : `The latest ${count}`;
  }

  show() {
    this.more.hidden = !this.next;
    this.exports.hidden = false;
    this.count.textContent = this.counted();
    const nothing = this.isFiltered
      ? [
          h("p", null, "No matches. Try fewer words or another state."),
          h("a", { href: `#/${this.kind}` }, "Show all"),
        ]
      : h("p", null, this.none);
    patch(this.results, this.found.length ? this.table(this.found) : empty(nothing));
  }

  trouble(error) {
    this.more.hidden = true;
    if (error.status) {
      this.count.textContent = "";
      patch(this.results, empty(h("p", null, "The gateway rejected this search: ", error.message)));
    } else {
      this.page.failed(error);
      this.retry = true;
      this.exports.hidden = true;
      if (!this.found.length) {
        this.count.textContent = "Waiting for the gateway";
        patch(this.results, empty(h("p", null, `${this.title} appear here as soon as the gateway responds.`)));
      }
    }
  }

  // Called after every successful poll: repeats a request that failed.
  update() {
    if (!this.retry) return;
    this.load(null);
    this.retry = false;
  }

  leave() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }
}
