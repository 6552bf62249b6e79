// Search for parcels or liens. Only the response to the latest request is shown.

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
  },
  liens: {
    title: "Liens",
    table: lienTable,
    latest: "/v1/liens/latest",
    none: "No liens yet. They appear here with their parcels.",
  },
};

export class SearchPage {
  constructor(page, kind, query) {
    Object.assign(this, { page, kind, found: [], next: null, timer: 0, asking: null }, KINDS[kind]);
    this.results = h("div", { class: "results" });
    this.count = h("p", { class: "count", role: "status" });
    this.more = h("button", { type: "button", hidden: true }, "Show more");
    this.exports = h("p", { class: "exports" });
    this.form = this.fields(query);
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

  fields(query) {
    const field = (name, label, attributes) =>
      h(
        "label",
        { class: `field ${attributes.class ?? ""}` },
        h("span", null, label),
        h("input", {
          name,
          value: query.get(name) ?? "",
          autocomplete: "off",
          spellcheck: "false",
          ...attributes,
        }),
      );
    const answers = [
      ["", "any"],
      ["true", "yes"],
      ["false", "no"],
    ];
    const delinquent = h(
      "label",
      { class: "field" },
      h("span", null, "Delinquent"),
      h(
        "select",
        { name: "delinquent" },
        answers.map(([value, text]) =>
          h("option", { value, selected: (query.get("delinquent") ?? "") === value }, text),
        ),
      ),
    );
    const own =
      this.kind === "liens"
        ? [
            field("lien_status", "Status", { type: "text" }),
            field("min_amount", "From $", { inputmode: "decimal", pattern: "[0-9]+([.][0-9]{1,2})?" }),
            field("max_amount", "To $", { inputmode: "decimal", pattern: "[0-9]+([.][0-9]{1,2})?" }),
          ]
        : [delinquent];
    return h(
      "form",
      { class: "search", role: "search" },
      field("q", "Parcel number, owner or address", { type: "search", class: "grow", maxlength: 200 }),
      field("state", "State", { type: "text", maxlength: 40, class: "brief" }),
      field("county", "County", { type: "text", maxlength: 200 }),
      field("platform", "Platform", { type: "text", maxlength: 200 }),
      own,
    );
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
    const path = query.size ? `/v1/${this.kind}` : this.latest;
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

  counted(filtered) {
    const found = plural(this.found.length, this.kind.slice(0, -1));
    return `${filtered ? "" : "The latest "}${found}${this.next ? " and more" : ""}`;
  }

  show() {
    const filtered = this.asked().size > 0;
    this.more.hidden = !this.next;
    this.exports.hidden = false;
    this.count.textContent = this.found.length ? this.counted(filtered) : filtered ? "No results" : "";
    const nothing = filtered
      ? [
          h("p", null, "No matches. Try fewer words or another state."),
          h("a", { href: `#/${this.kind}`, "data-clear": true }, "Show all"),
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
    this.retry = false;
    this.load(null);
  }

  leave() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }
}
