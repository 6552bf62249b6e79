// Parcels or liens as a table that is filtered, searched, sorted and paged by the gateway, parcels also on a map. What is
// shown is in the address: #/parcels?q=lee&county=harlow&sort=tax_due&order=desc&offset=50&columns=owner,tax_due

import { ask, save, token } from "./api.js";
import { h, on, patch, syncFields } from "./dom.js";
import { activeFilters, FILTERS, Filters } from "./filters.js";
import { number, plural } from "./format.js";
import { Grid } from "./grid.js";
import { MapPanel } from "./map.js";

const WAIT_MS = 200;
const REFRESH_MS = 5_000;
const SIZES = [25, 50, 100, 250, 500];
const SIZE = innerWidth > 760 ? 50 : 25;

const FORMATS = [
  ["csv", "CSV"],
  ["xlsx", "Excel"],
  ["parquet", "Parquet"],
  ["geojson", "GeoJSON"],
  ["jsonl", "JSON lines"],
];
const KINDS = {
  parcels: {
    title: "Parcels",
    noun: "parcel",
    hint: "Owner, address, parcel number or certificate",
    defaults: "parcel_id owner situs county delinquent tax_due lien_amount scraped_at".split(" "),
    none: "No parcels yet. They appear here as soon as a worker delivers one.",
  },
  liens: {
    title: "Liens",
    noun: "lien",
    hint: "Certificate, owner, address or parcel number",
    defaults: "certificate_number status lien_amount sold_on holder_name parcel_id owner county".split(" "),
    none: "No liens yet. They appear here with their parcels.",
  },
};

// Where a reader was in a table, by its address: Back goes there again.
const left = new Map();

export class ExplorePage {
  constructor(app, kind, query, { path = `/${kind}` } = {}) {
    Object.assign(this, KINDS[kind], { app, kind, query, path });
    Object.assign(this, { total: null, loadedAt: 0, isTyping: false, timer: 0, asking: {}, found: null });
    this.filters = new Filters(kind, {
      onChange: (change, isTyping) => this.change(change, { isTyping }),
      onFind: (facet, find) => this.findValues(facet, find),
    });
    this.grid = new Grid({
      caption: this.title,
      onSort: (name, order) =>
        this.change((asked) => {
          asked.set("sort", name);
          asked.set("order", order);
        }),
      onPage: (step) => this.turn(this.offset + step * this.limit),
      nothing: () => this.nothing(),
    });
    this.map =
      kind === "parcels"
        ? new MapPanel({
            request: (query, signal) => ask(`/v1/search/parcels/map?${query}`, { signal }),
            onArea: (box) => this.change((asked) => (box ? asked.set("bbox", box) : asked.delete("bbox"))),
            onNote: (name, text) => this.address((asked) => (text ? asked.set(name, text) : asked.delete(name))),
            onTrouble: (error) => this.trouble(error),
          })
        : null;
    this.build();
    this.listen();
    this.draw();
    this.load();
  }

  // What is asked for

  get offset() {
    return Math.max(0, Number.parseInt(this.query.get("offset") ?? "0", 10) || 0);
  }

  get limit() {
    const given = Number(this.query.get("limit"));
    return SIZES.includes(given) ? given : SIZE;
  }

  get isMap() {
    return this.path === "/map";
  }

  get sort() {
    const name = this.query.get("sort");
    return name ? { name, order: this.query.get("order") === "desc" ? "desc" : "asc" } : null;
  }

  get wanted() {
    const filters = FILTERS(this.kind);
    const given = [...this.query].filter(([name, value]) => filters.has(name) && value !== "");
    return new URLSearchParams(given);
  }

  get columns() {
    const names = (this.query.get("columns") ?? "").split(",").filter(Boolean);
    const known = this.found?.columns ?? [];
    const chosen = (names.length ? names : this.defaults).flatMap((name) => known.filter((one) => one.name === name));
    return chosen.length ? chosen : known;
  }

  // `change` edits the query. While one types, the address is replaced, so that Back does not undo single letters.
  change(change, { isTyping = false, keepsOffset = false } = {}) {
    const before = this.wanted.toString();
    change(this.query);
    if (!keepsOffset) this.query.delete("offset");
    const isFiltered = before !== this.wanted.toString();
    this.write(isTyping && this.isTyping);
    this.isTyping = isTyping;
    this.draw();
    this.load({ isFiltered });
  }

  address(change) {
    change(this.query);
    this.write(true);
  }

  write(replaces) {
    const text = this.query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
    const address = `/#${this.path}${text ? `?${text}` : ""}`;
    history[replaces ? "replaceState" : "pushState"](null, "", address);
  }

  // Back and forward: true if this page shows the new address itself.
  follow(path, query) {
    if (path !== this.path && !(this.map && ["/map", "/parcels"].includes(path))) return false;
    const before = this.wanted.toString();
    Object.assign(this, { path, query, isTyping: false });
    this.search.value = query.get("q") ?? "";
    this.draw();
    this.load({ isFiltered: before !== this.wanted.toString() });
    return true;
  }

  turn(offset) {
    if (this.total === null) return;
    const last = Math.max(0, Math.floor((this.total - 1) / this.limit) * this.limit);
    const to = Math.min(Math.max(0, offset), last);
    if (to === this.offset) return;
    this.focusRow = this.grid.root.contains(document.activeElement);
    this.change((asked) => (to ? asked.set("offset", to) : asked.delete("offset")), { keepsOffset: true });
    if (this.results.getBoundingClientRect().top < 0) this.results.scrollIntoView();
    this.grid.root.scrollTop = 0;
  }

  // The page

  build() {
    this.search = h("input", {
      type: "search",
      name: "q",
      "aria-label": this.hint,
      placeholder: this.hint,
      maxlength: 200,
      autocomplete: "off",
      spellcheck: "false",
      "aria-keyshortcuts": "/",
      value: this.query.get("q") ?? "",
    });
    this.chips = h("ul", { class: "chips", "aria-label": "Active filters" });
    this.count = h("p", { class: "count", role: "status" });
    this.said = h("p", { class: "unseen", role: "status" });
    this.pager = h("nav", { class: "pager", "aria-label": "Pages of the table" });
    this.tools = h("div", { class: "tools" });
    this.tabs = h("div", { class: "tabs" });
    this.toggle = h(
      "button",
      { type: "button", class: "filter-toggle", "aria-expanded": "false", "aria-controls": "filters" },
      "Filters",
    );
    this.side = h("aside", { id: "filters", class: "side" }, this.filters.root);
    this.mapPlace = h("div", null, this.map?.root);
    this.results = h(
      "section",
      { class: "card results", "aria-label": "Results" },
      h("div", { class: "card-head" }, this.count, this.tools),
      this.grid.root,
      this.pager,
    );
    const keys = h(
      "p",
      { class: "note keys" },
      h("kbd", null, "/"),
      " search ",
      h("kbd", null, "↑"),
      h("kbd", null, "↓"),
      " rows ",
      h("kbd", null, "←"),
      h("kbd", null, "→"),
      " pages ",
      h("kbd", null, "Enter"),
      " opens",
    );
    this.root = h(
      "div",
      { class: "page explore" },
      h("div", { class: "explore-head" }, h("h1", null, this.title), this.tabs),
      h("form", { class: "finder", role: "search" }, this.search, this.toggle),
      this.chips,
      h("div", { class: "sides" }, this.side, h("div", { class: "found" }, this.mapPlace, this.results, keys, this.said)),
    );
  }

  listen() {
    this.root.querySelector(".finder").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
      this.grid.focusFirst();
    });
    this.search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.find(), WAIT_MS);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.grid.focusFirst();
    });
    this.search.addEventListener("blur", () => (this.isTyping = false));
    this.toggle.addEventListener("click", () => {
      const open = this.toggle.getAttribute("aria-expanded") !== "true";
      this.toggle.setAttribute("aria-expanded", String(open));
    });
    on(this.chips, "click", "button", ({ dataset }) => this.drop(dataset));
    on(this.pager, "click", "button", ({ dataset }) => this.turn(Number(dataset.offset)));
    this.pager.addEventListener("change", ({ target }) => {
      if (target.name === "limit") this.change((asked) => asked.set("limit", target.value));
      else if (target.name === "page") this.turn((Number.parseInt(target.value, 10) - 1) * this.limit || 0);
    });
    on(this.tabs, "click", "button", ({ dataset }) => this.open(dataset.path));
    on(this.tools, "change", "[name=column]", () => this.choose());
    on(this.tools, "change", "[name=sort]", ({ value }) => {
      const [name, order] = value.split(" ");
      this.change((asked) => {
        asked.set("sort", name);
        asked.set("order", order);
      });
    });
    on(this.tools, "click", "[data-columns]", ({ dataset }) =>
      this.change((asked) => (dataset.columns ? asked.set("columns", dataset.columns) : asked.delete("columns")), {
        keepsOffset: true,
      }),
    );
    on(this.tools, "click", "[data-copy]", () => this.copy());
    on(this.grid.root, "click", "tbody a", (link) =>
      left.set(location.hash, {
        inPage: scrollY,
        inTable: this.grid.root.scrollTop,
        key: link.closest("tr").dataset.key,
      }),
    );
    on(this.tools, "click", "a[download]", (link, event) => {
      if (!token.get()) return;
      event.preventDefault();
      save(link.getAttribute("href"), link.getAttribute("download")).catch((error) => this.app.failed(error));
    });
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    this.clicks = ({ target }) => {
      for (const menu of this.tools.querySelectorAll("details[open]")) if (!menu.contains(target)) menu.open = false;
    };
    document.addEventListener("click", this.clicks);
  }

  key(event) {
    const isInField = event.target instanceof Element && event.target.closest("input:not([type=checkbox]), select, dialog");
    if (event.key === "/" && !isInField && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.search.focus();
      this.search.select();
    }
    const menu = event.key === "Escape" && this.tools.querySelector("details[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }

  find() {
    clearTimeout(this.timer);
    const text = this.search.value.trim();
    if (text === (this.query.get("q") ?? "")) return;
    this.change((asked) => (text ? asked.set("q", text) : asked.delete("q")), { isTyping: true });
  }

  drop({ name, value }) {
    this.change((asked) => {
      const rest = asked.getAll(name).filter((other) => other !== value);
      if (!name) for (const each of FILTERS(this.kind)) asked.delete(each);
      else asked.delete(name);
      for (const other of rest) asked.append(name, other);
    });
    this.search.value = this.query.get("q") ?? "";
    this.search.focus();
  }

  open(path) {
    this.path = path;
    this.write(false);
    this.draw();
    this.load();
    this.app.markLink?.(path);
  }

  choose() {
    const names = [...this.tools.querySelectorAll("[name=column]:checked")].map(({ value }) => value);
    this.change((asked) => (names.length ? asked.set("columns", names.join(",")) : asked.delete("columns")), {
      keepsOffset: true,
    });
  }

  async copy() {
    const text = this.grid.asText();
    try {
      await navigator.clipboard.writeText(text);
      this.say(`Copied ${plural(this.grid.rows.length, "row")}.`);
    } catch {
      getSelection().selectAllChildren(this.grid.root);
      this.say("Selected the rows: copy them with the browser.");
    }
  }

  say(text) {
    this.said.textContent = text;
    const button = this.tools.querySelector("[data-copy]");
    if (!button) return;
    button.textContent = text.startsWith("Copied") ? "Copied" : "Selected";
    setTimeout(() => (button.textContent = "Copy"), 2_000);
  }

  // Requests: only the response to the latest one of each kind is shown.

  // Returns the response, or null if a later request has replaced it.
  async latest(name, path) {
    this.asking[name]?.abort();
    const asking = (this.asking[name] = new AbortController());
    try {
      const answer = await ask(path, { signal: asking.signal });
      return asking.signal.aborted ? null : answer;
    } catch (error) {
      if (!asking.signal.aborted) this.trouble(error);
      return null;
    }
  }

  load({ isFiltered = false } = {}) {
    this.loadedAt = performance.now();
    this.counts = this.app.overview?.counts[this.kind];
    this.loadRows();
    if (isFiltered || !this.facets) this.loadFacets();
    if (this.isMap) this.map.show(this.wanted, Object.fromEntries(this.query), isFiltered);
  }

  async loadRows() {
    const query = this.wanted;
    if (this.sort) {
      query.set("sort", this.sort.name);
      query.set("order", this.sort.order);
    }
    query.set("offset", this.offset);
    query.set("limit", this.limit);
    this.results.setAttribute("aria-busy", "true");
    const answer = await this.latest("rows", `/v1/search/${this.kind}?${query}`);
    if (!answer) return;
    this.results.removeAttribute("aria-busy");
    this.found = answer;
    this.total = answer.total;
    this.plus = answer.is_exact ? "" : "+"; // more match than are counted
    this.isRejected = "";
    if (!answer.rows.length && this.total && this.offset) {
      this.turn(this.total);
      return;
    }
    this.draw();
    if (this.focusRow) this.grid.focusFirst();
    this.focusRow = false;
    this.comeBack();
  }

  comeBack() {
    const place = left.get(location.hash);
    left.delete(location.hash);
    if (!place) return;
    this.grid.root.scrollTop = place.inTable;
    scrollTo(0, place.inPage);
    this.grid.focus(place.key);
  }

  async loadFacets() {
    const answer = await this.latest("facets", `/v1/search/${this.kind}/facets?${this.wanted}`);
    if (!answer) return;
    this.facets = answer;
    this.filters.show(this.query, answer);
  }

  // Returns the values of one facet that contain a text, or null if a later request has replaced it.
  async findValues(facet, find) {
    const query = this.wanted;
    query.set("facet", facet);
    query.set("find", find);
    const answer = await this.latest(`find ${facet}`, `/v1/search/${this.kind}/facets?${query}`);
    return answer && answer.facets[facet];
  }

  trouble(error) {
    this.results.removeAttribute("aria-busy");
    if (error.status) {
      this.isRejected = error.message;
      this.found &&= { ...this.found, rows: [] };
      this.total = null;
      this.draw();
      return;
    }
    this.app.failed(error);
    this.retry = true;
    this.draw();
  }

  // Drawing

  draw() {
    const filters = activeFilters(this.kind, this.query);
    patch(
      this.chips,
      filters.map(([text, name, value]) =>
        h(
          "li",
          { "data-key": `${name}=${value}` },
          h(
            "button",
            { type: "button", "data-name": name, "data-value": value, "aria-label": `Remove the filter ${text}` },
            text,
            h("span", { "aria-hidden": "true" }, " ×"),
          ),
        ),
      ),
      filters.length > 1
        ? h("li", { "data-key": "all" }, h("button", { type: "button", class: "quiet", "data-name": "" }, "Clear all"))
        : null,
    );
    this.chips.hidden = !filters.length;
    this.toggle.textContent = filters.length ? `Filters (${filters.length})` : "Filters";
    this.filters.show(this.query, this.facets ?? null);
    this.mapPlace.hidden = !this.isMap;
    if (this.map) patch(this.tabs, this.tab("/parcels", "Table"), this.tab("/map", "Map and table"));
    const columns = this.columns;
    if (this.found || this.isRejected) this.grid.show({ rows: this.found?.rows ?? [], columns, sort: this.sort });
    this.drawCount();
    patch(this.tools, this.found && !this.isRejected ? this.toolButtons(columns) : null);
    patch(this.pager, this.total ? this.pages() : null);
    for (const part of [this.tools, this.pager]) syncFields(part);
    this.pager.hidden = !this.total;
  }

  tab(path, text) {
    return h(
      "button",
      { type: "button", "data-path": path, "aria-pressed": String(this.path === path) },
      text,
    );
  }

  drawCount() {
    const text = this.counted();
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  counted() {
    if (this.isRejected) return "";
    if (this.total === null) return this.retry ? "Waiting for the gateway" : "Loading …";
    if (!this.total) return activeFilters(this.kind, this.query).length ? "No results" : "";
    return plural(this.total, this.noun, this.plus);
  }

  nothing() {
    if (this.isRejected) return h("p", null, "The gateway rejected this search: ", this.isRejected);
    if (!activeFilters(this.kind, this.query).length) return h("p", null, this.none);
    return [
      h("p", null, "No matches. Remove a filter above, or search for fewer words."),
      h("a", { href: `/#${this.path}` }, "Show all"),
    ];
  }

  toolButtons(columns) {
    const shown = new Set(columns.map(({ name }) => name));
    const all = this.found.columns;
    return [
      h(
        "label",
        { class: "sort-by" },
        h("span", { class: "unseen" }, "Sort by"),
        h(
          "select",
          { name: "sort" },
          h("option", { value: "", selected: !this.sort, disabled: true }, "Sort by"),
          all.flatMap(({ name, title }) =>
            ["asc", "desc"].map((order) =>
              h(
                "option",
                { value: `${name} ${order}`, selected: this.sort?.name === name && this.sort.order === order },
                `${title} ${order === "asc" ? "▲" : "▼"}`,
              ),
            ),
          ),
        ),
      ),
      h(
        "details",
        { class: "menu", "data-key": "columns" },
        h("summary", { class: "button" }, "Columns"),
        h(
          "fieldset",
          null,
          h("legend", { class: "unseen" }, "Columns"),
          all.map(({ name, title }) =>
            h(
              "label",
              { class: "check", "data-key": name },
              h("input", { type: "checkbox", name: "column", value: name, checked: shown.has(name) }),
              title,
            ),
          ),
          h(
            "div",
            { class: "buttons" },
            h(
              "button",
              { type: "button", class: "quiet", "data-columns": all.map(({ name }) => name).join(",") },
              "All",
            ),
            h("button", { type: "button", class: "quiet", "data-columns": "" }, "Default"),
          ),
        ),
      ),
      h(
        "details",
        { class: "menu", "data-key": "download" },
        h("summary", { class: "button" }, "Download"),
        h(
          "div",
          null,
          h("p", { class: "note" }, `${plural(this.total, "row", this.plus)} with the columns shown, in this order`),
          FORMATS.filter(([form]) => this.found.formats.includes(form)).map(([form, text]) => this.download(form, text, columns)),
        ),
      ),
      h("button", { type: "button", "data-copy": "", title: "Copy the rows shown, for a spreadsheet" }, "Copy"),
    ];
  }

  download(form, text, columns) {
    const query = this.wanted;
    if (this.sort) {
      query.set("sort", this.sort.name);
      query.set("order", this.sort.order);
    }
    query.set("columns", columns.map(({ name }) => name).join(","));
    const file = `${this.kind}.${form}`;
    return h("a", { href: `/v1/search/${file}?${query.toString().replaceAll("%2C", ",")}`, download: file }, text);
  }

  pages() {
    const { total, plus, limit, offset } = this;
    const last = Math.floor((total - 1) / limit) * limit;
    const step = (text, label, to, isOff) =>
      h(
        "button",
        { type: "button", class: "small", "data-offset": to, "aria-label": label, disabled: isOff, "data-key": label },
        text,
      );
    return [
      h("span", { class: "whole" }, `${number(offset + 1)}–${number(Math.min(offset + limit, total))} of ${number(total)}${plus}`),
      h(
        "span",
        { class: "steps" },
        step("«", "First page", 0, !offset),
        step("‹ Previous", "Previous page", offset - limit, !offset),
        h(
          "label",
          { class: "page-of" },
          "Page ",
          h("input", {
            name: "page",
            inputmode: "numeric",
            pattern: "[0-9]+",
            value: offset / limit + 1,
            "aria-label": "Page",
          }),
          ` of ${number(last / limit + 1)}`,
        ),
        step("Next ›", "Next page", offset + limit, offset >= last),
        step("»", "Last page", last, offset >= last),
      ),
      h(
        "label",
        { class: "size" },
        h("select", { name: "limit" }, SIZES.map((size) => h("option", { value: size, selected: size === limit }, size))),
        " a page",
      ),
    ];
  }

  // Called after every successful poll: repeats a request that failed, and shows what came in meanwhile.
  update(overview) {
    const known = overview.counts[this.kind];
    const isIndexed = this.total || this.wanted.size || !known; // the index follows within seconds
    const isStale = (known !== this.counts || !isIndexed) && performance.now() - this.loadedAt > REFRESH_MS;
    if (!this.retry && !isStale) return;
    this.retry = false;
    this.load({ isFiltered: true });
  }

  leave() {
    clearTimeout(this.timer);
    this.filters.leave();
    this.map?.leave();
    for (const asking of Object.values(this.asking)) asking.abort();
    document.removeEventListener("keydown", this.keys);
    document.removeEventListener("click", this.clicks);
  }
}
