// Small charts by year and of liens over time, as SVG, each with the same figures as a table.

import { h, s } from "./dom.js";
import { compact, money, NOTHING } from "./format.js";
import { marks } from "./scale.js";
import { scroller } from "./table.js";

const WIDTH = 460;
const HEIGHT = 150;
const EDGE = { top: 8, right: 4, bottom: 20, left: 44 };
const MOST_YEARS = 12;

const dollars = (value) => `$${compact(value)}`;

// `rows`: [{year, values: {name: number}}], the last years are shown; `series`: [{name, label, kind}], bars of which are
// stacked, and dots.
export function yearChart({ title, series, rows }) {
  const shown = withGaps(rows);
  const used = series.filter(({ name }) => rows.some(({ values }) => values[name]));
  const bars = used.filter(({ kind }) => kind === "bar");
  const dots = used.filter(({ kind }) => kind === "dot");
  const topOf = ({ values }) =>
    Math.max(sum(bars.map(({ name }) => values[name])), ...dots.map(({ name }) => values[name] ?? 0));
  const ticks = marks(Math.max(...shown.map(topOf)), 3);
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / ticks.at(-1);
  const step = (WIDTH - EDGE.left - EDGE.right) / shown.length;
  const x = (place) => EDGE.left + step * (place + 0.5);
  const last = shown.at(-1);
  const spoken = used.map(({ name, label }) => `${label} ${money(last.values[name])}`).join(", ");
  return figure(
    title,
    used.map(({ name, label, kind }) => h("li", { class: `tone-${name} kind-${kind}` }, label)),
    s(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${last.year}: ${spoken}.` },
      ticks.map((tick) => [
        s("line", { class: tick ? "rule" : "axis", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick) }),
        s("text", { class: "tick", x: EDGE.left - 6, y: y(tick) + 4, "text-anchor": "end" }, dollars(tick)),
      ]),
      shown.map((row, place) => column(row, x(place), Math.min(34, step * 0.62), y, bars, dots)),
      shown.map(({ year }, place) =>
        s("text", { class: "tick", x: x(place), y: HEIGHT - 5, "text-anchor": "middle" }, year),
      ),
    ),
    ["Year", ...used.map(({ label }) => label)],
    rows.toReversed().map(({ year, values }) => [year, ...used.map(({ name }) => money(values[name]))]),
  );
}

// Years without values keep their place, unless there are too many.
function withGaps(rows) {
  const [first, last] = [rows[0].year, rows.at(-1).year];
  if (last - first >= MOST_YEARS) return rows.slice(-MOST_YEARS);
  const years = new Map(rows.map((row) => [row.year, row]));
  const all = Array.from({ length: last - first + 1 }, (_, place) => first + place);
  return all.map((year) => years.get(year) ?? { year, values: {} });
}

function column({ year, values }, middle, width, y, bars, dots) {
  let below = 0;
  const told = ({ name, label }) => s("title", null, `${year}: ${label.toLowerCase()} ${money(values[name])}`);
  const stacked = bars.map((one) => {
    const value = values[one.name];
    if (!value) return null;
    const top = y(below + value);
    const height = y(below) - top;
    below += value;
    return s("rect", { class: `fill tone-${one.name}`, x: middle - width / 2, y: top, width, height }, told(one));
  });
  const marked = dots
    .filter(({ name }) => values[name])
    .map((one) =>
      s("circle", { class: `dot tone-${one.name}`, cx: middle, cy: y(values[one.name]), r: 4 }, told(one)),
    );
  return [stacked, marked];
}

const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);

const ROW = 24;
const LABELS = 96;

// The life of liens: a line from the sale to the redemption, or on to today, with a dot for each event.
// `liens`: [{label, from, to, isOpen, events: [{date, kind, text}]}] with dates as text.
export function lienChart(liens, today) {
  const dates = liens.flatMap(({ from, to, events }) => [from, to, ...events.map(({ date }) => date)]).filter(Boolean);
  const first = dates.reduce((a, b) => (a < b ? a : b)).slice(0, 4);
  const end = dates.reduce((a, b) => (a > b ? a : b), today).slice(0, 4);
  const [since, until] = [Date.UTC(Number(first), 0), Date.UTC(Number(end) + 1, 0)];
  const right = WIDTH - 8;
  const x = (date) => LABELS + ((Date.parse(date) - since) / (until - since)) * (right - LABELS);
  const height = liens.length * ROW + 22;
  const years = Number(end) - Number(first) + 1;
  const every = Math.ceil(years / 8);
  const ticks = Array.from({ length: years }, (_, place) => Number(first) + place).filter(
    (year) => (year - Number(first)) % every === 0,
  );
  return s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, "aria-hidden": "true" },
    ticks.map((year) => [
      s("line", { class: "rule", x1: x(`${year}-01-01`), x2: x(`${year}-01-01`), y1: 4, y2: height - 18 }),
      s("text", { class: "tick", x: x(`${year}-01-01`) + 3, y: height - 5 }, year),
    ]),
    s("line", { class: "today", x1: x(today), x2: x(today), y1: 4, y2: height - 18 }),
    liens.map((lien, place) => {
      const middle = place * ROW + ROW / 2 + 4;
      return [
        s("text", { class: "tick", x: LABELS - 8, y: middle + 4, "text-anchor": "end" }, shortened(lien.label)),
        lien.from
          ? s("line", {
              class: `life ${lien.isOpen ? "open" : "ended"}`,
              x1: x(lien.from),
              x2: Math.max(x(lien.to ?? today), x(lien.from) + 2),
              y1: middle,
              y2: middle,
            })
          : null,
        lien.events.map(({ date, kind, text }) =>
          s("circle", { class: `event ${kind}`, cx: x(date), cy: middle, r: 4.5 }, s("title", null, `${text}, ${date}`)),
        ),
      ];
    }),
  );
}

const shortened = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);

function figure(title, legend, drawing, names, rows) {
  const heads = names.map((name, place) => h("th", { scope: "col", class: place ? "num" : "" }, name));
  const body = rows.map(([year, ...texts]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, year),
      texts.map((text) => h("td", { class: "num" }, text ?? NOTHING)),
    ),
  );
  return h(
    "figure",
    { class: "chart yearly" },
    h("div", { class: "chart-head" }, h("h2", null, title), h("ul", { class: "legend" }, legend)),
    drawing,
    h(
      "details",
      { class: "as-table" },
      h("summary", null, "Show as table"),
      scroller(title, h("table", { class: "plain" }, h("thead", null, h("tr", null, heads)), h("tbody", null, body))),
    ),
  );
}
