// Tables, which become cards on narrow screens, and other parts that several pages share.

import { h } from "./dom.js";

// `columns`: [{label, class?}], `rows`: [{key?, cells}]; the first cell names its row.
export function table(caption, columns, rows) {
  const head = columns.map(({ label, ...rest }) => h("th", { scope: "col", class: rest.class }, label));
  const body = rows.map(({ key, cells }) =>
    h(
      "tr",
      { "data-key": key },
      cells.map((cell, place) => {
        const { label, ...rest } = columns[place];
        const attributes = { class: rest.class, "data-label": label };
        return place === 0
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

export const command = (text) => h("code", { class: "command" }, text);

export const section = (title, aside, body) =>
  h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, title), aside), body);
