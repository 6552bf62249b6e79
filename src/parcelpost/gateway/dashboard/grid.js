// A table of any number of rows: sorted and paged by the gateway, with a choice of columns, made to be copied.

import { h, on, patch } from "./dom.js";
import { money, number } from "./format.js";
import { linkTo, place, status } from "./cells.js";
import { empty } from "./table.js";

const TO_THE_RIGHT = new Set(["money", "number"]);
const LONG = 24;
const LARGEST_FIRST = new Set(["money", "number", "date", "time", "flag"]);

export class Grid {
  // `onSort(name, order)`, `onPage(step)`, and `nothing()`, which returns what is shown instead of no rows.
  constructor({ caption, onSort, onPage, nothing }) {
    Object.assign(this, { caption, onSort, onPage, nothing, rows: [], columns: [], sort: null });
    this.root = h("div", { class: "grid" });
    on(this.root, "click", "thead button", (button) => this.sortBy(button.dataset.name));
    this.root.addEventListener("keydown", (event) => this.move(event));
    this.root.addEventListener("copy", (event) => this.copy(event));
  }

  // `sort`: {name, order} or null.
  show({ rows, columns, sort }) {
    Object.assign(this, { rows, columns, sort });
    patch(this.root, rows.length ? this.table() : empty(this.nothing()));
  }

  table() {
    const links = this.columns.some(({ kind }) => kind === "link") ? null : this.columns[0]?.name;
    return h(
      "table",
      { class: "cards" },
      h("caption", { class: "unseen" }, this.caption),
      h("thead", null, h("tr", null, this.columns.map((column) => this.head(column)))),
      h(
        "tbody",
        null,
        this.rows.map((row) =>
          h(
            "tr",
            { "data-key": `row ${row.key}` },
            this.columns.map((column, place) => cell(column, row, place === 0, column.name === links)),
          ),
        ),
      ),
    );
  }

  head(column) {
    const { name, kind, sortable } = column;
    const title = titleOf(column);
    const order = this.sort?.name === name ? this.sort.order : null;
    const side = TO_THE_RIGHT.has(kind) ? "num" : "";
    if (!sortable) return h("th", { scope: "col", class: side }, title);
    return h(
      "th",
      { scope: "col", class: side, "aria-sort": order ? `${order}ending` : "none" },
      h(
        "button",
        { type: "button", class: "sort", "data-name": name },
        title,
        h("span", { class: "arrow", "aria-hidden": "true" }, order ? { asc: "▲", desc: "▼" }[order] : ""),
      ),
    );
  }

  sortBy(name) {
    const { kind } = this.columns.find((column) => column.name === name);
    const first = LARGEST_FIRST.has(kind) ? "desc" : "asc";
    const other = { asc: "desc", desc: "asc" }[this.sort?.order];
    this.onSort(name, this.sort?.name === name ? other : first);
  }

  // Up and down through the rows, left and right through the pages.
  move(event) {
    const row = event.target.closest("tbody tr");
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = [...row.parentElement.children];
    const to = {
      ArrowDown: row.nextElementSibling,
      ArrowUp: row.previousElementSibling,
      Home: rows[0],
      End: rows.at(-1),
    }[event.key];
    const page = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (to === undefined && !page) return;
    event.preventDefault();
    if (page) this.onPage(page);
    else to?.querySelector("a")?.focus();
  }

  focus(key) {
    const row = [...this.root.querySelectorAll("tbody tr")].find(({ dataset }) => dataset.key === key);
    row?.querySelector("a")?.focus({ preventScroll: true });
  }

  focusFirst() {
    this.root.querySelector("tbody a")?.focus();
  }

  // Rows that are selected with the mouse go to the clipboard as a spreadsheet reads them.
  copy(event) {
    const selection = getSelection();
    if (selection.isCollapsed) return;
    const range = selection.getRangeAt(0);
    const nodes = [...this.root.querySelectorAll("tbody tr")];
    const places = nodes.flatMap((node, place) => (range.intersectsNode(node) ? [place] : []));
    if (places.length < 2) return;
    const head = this.root.querySelector("thead");
    event.preventDefault();
    event.clipboardData.setData(
      "text/plain",
      this.asText(
        places.map((place) => this.rows[place]),
        range.intersectsNode(head),
      ),
    );
  }

  // Tabs between values, a line for each row; amounts without signs, so that they stay numbers.
  asText(rows = this.rows, isTitled = true) {
    const titles = this.columns.map(titleOf);
    const lines = rows.map((row) => this.columns.map(({ name, kind }) => plain(kind, row[name])));
    return [...(isTitled ? [titles] : []), ...lines].map((line) => line.join("\t")).join("\n");
  }
}

// Times are in UTC, as the filters by date are.
const titleOf = ({ title, kind }) => (kind === "time" ? `${title} (UTC)` : title);

function cell(column, row, isFirst, isLink) {
  const { name, kind } = column;
  const label = titleOf(column);
  const value = row[name];
  const content = isLink || kind === "link" ? link(row, value) : name === "county" && value ? place(row) : shown(name, kind, value);
  const title = typeof content === "string" && content.length > LONG ? content : null;
  const attributes = { class: classOf(kind), "data-label": label, title };
  return isFirst ? h("th", { scope: "row", ...attributes }, content) : h("td", attributes, content);
}

const classOf = (kind) => (TO_THE_RIGHT.has(kind) ? "num" : null);

const link = (row, value) =>
  h("a", { class: "name", href: linkTo(row.address) }, value ?? "no number");

const known = (value) => value !== null && value !== undefined && value !== "";

function shown(name, kind, value) {
  if (!known(value)) return null;
  if (kind === "money") return money(value);
  if (kind === "number") return name.endsWith("year") ? String(value) : decimals(value);
  if (kind === "flag") return value ? h("span", { class: name === "delinquent" ? "bad" : "" }, "yes") : "no";
  if (kind === "time") return h("time", { datetime: value }, minutes(value));
  if (name === "status") return status(String(value));
  return String(value);
}

const decimals = (value) => (Number.isInteger(value) ? number(value) : String(value));

const minutes = (text) => new Date(text).toISOString().slice(0, 16).replace("T", " ");

function plain(kind, value) {
  if (!known(value)) return "";
  if (kind === "flag") return value ? "yes" : "no";
  if (kind === "time") return minutes(value);
  const text = String(value).replaceAll(/[\t\r\n]+/g, " ");
  return typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text;
}
