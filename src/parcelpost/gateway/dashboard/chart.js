// Charts as SVG: axes, grid, legend, values under the pointer or the arrow keys, and the same as a table.

import { h, patch, s } from "./dom.js";
import { compact, rate, timeOfDay } from "./format.js";
import { marks, moments } from "./scale.js";
import { scroller } from "./table.js";

const HEIGHT = 200;
const EDGE = { top: 10, right: 8, bottom: 22, left: 40 };

export class Chart {
  // `series`: [{name, label}] from the bottom up; `stacked` bars, or lines.
  constructor({ title, unit, series, stacked, empty }) {
    Object.assign(this, { title, unit, series, stacked, empty, data: null, place: null, width: 0 });
    this.drawing = h("div", { class: "drawing" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.spoken = h("p", { class: "unseen", "aria-live": "polite" });
    this.legend = h("ul", { class: "legend" });
    this.table = h(
      "details",
      { class: "as-table" },
      h("summary", null, "Show as table"),
      scroller(`${title} as a table`, []),
    );
    const head = h(
      "div",
      { class: "chart-head" },
      h("h3", null, title, " ", h("small", null, unit)),
      this.legend,
    );
    this.root = h(
      "figure",
      { class: "chart" },
      head,
      h("div", { class: "plot" }, this.drawing, this.tip),
      this.spoken,
      this.table,
    );
    this.listen();
  }

  listen() {
    new ResizeObserver(() => this.resize()).observe(this.drawing);
    this.drawing.addEventListener("pointermove", (event) => this.show(this.placeAt(event.clientX)));
    this.drawing.addEventListener("pointerleave", () => this.hide());
    this.drawing.addEventListener("focusout", () => this.hide());
    this.drawing.addEventListener("keydown", (event) => this.step(event));
    this.table.addEventListener("toggle", () => this.drawTable());
  }

  // `data`: what perMinute() makes.
  update(data) {
    this.data = data;
    this.shown = this.series.filter(({ name }) => !this.stacked || data.series[name]?.some(Boolean));
    if (this.place !== null && this.place >= data.length) this.place = null;
    this.draw();
    if (this.table.open) this.drawTable();
  }

  resize() {
    const width = Math.floor(this.drawing.clientWidth);
    if (width === this.width) return;
    this.width = width;
    if (this.data) this.draw();
  }

  values(name) {
    return this.data.series[name] ?? Array(this.data.length).fill(0);
  }

  draw() {
    if (!this.width) return;
    const { length } = this.data;
    const tops = Array.from({ length }, (_, place) => this.topAt(place));
    if (!tops.some(Boolean)) {
      patch(this.legend);
      this.table.hidden = true;
      patch(this.drawing, h("p", { class: "empty" }, this.empty));
      return;
    }
    this.table.hidden = false;
    patch(
      this.legend,
      this.shown.map(({ name, label }) => h("li", { class: `tone-${name}` }, label)),
    );
    this.ticks = marks(Math.max(...tops));
    const label = `${this.title}, ${this.unit}. ${this.summary()} Use the arrow keys to read the values.`;
    const box = { viewBox: `0 0 ${this.width} ${HEIGHT}`, width: this.width, height: HEIGHT };
    patch(
      this.drawing,
      s(
        "svg",
        { ...box, role: "img", "aria-label": label, tabindex: "0" },
        this.grid(),
        this.stacked ? this.bars() : this.lines(),
        this.cursor(),
      ),
    );
  }

  topAt(place) {
    const values = this.shown.map(({ name }) => this.values(name)[place]);
    return this.stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
  }

  x(place) {
    const inner = this.width - EDGE.left - EDGE.right;
    return EDGE.left + (inner * (place + 0.5)) / this.data.length;
  }

  y(value) {
    return HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / this.ticks.at(-1);
  }

  grid() {
    const { since, bucketMs, length } = this.data;
    const end = since + bucketMs * length;
    const inner = this.width - EDGE.left - EDGE.right;
    const across = this.ticks.map((tick) => [
      s("line", {
        class: tick ? "rule" : "axis",
        x1: EDGE.left,
        x2: this.width - EDGE.right,
        y1: this.y(tick),
        y2: this.y(tick),
      }),
      s(
        "text",
        { class: "tick", x: EDGE.left - 6, y: this.y(tick) + 4, "text-anchor": "end" },
        compact(tick) === "0" && tick ? rate(tick) : tick < 10 ? rate(tick) : compact(tick),
      ),
    ]);
    const along = moments(since, end, Math.max(2, Math.floor(inner / 80))).map((at) => {
      const x = EDGE.left + (inner * (at - since)) / (end - since);
      const anchor = x > this.width - 26 ? "end" : x < EDGE.left + 10 ? "start" : "middle";
      return s("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": anchor }, timeOfDay(at));
    });
    return s("g", { "aria-hidden": "true" }, across, along);
  }

  lines() {
    return this.shown.map(({ name }) => {
      const points = this.values(name).map(
        (value, place) => `${this.x(place).toFixed(1)},${this.y(value).toFixed(1)}`,
      );
      return [
        s("polyline", { class: `line tone-${name}`, points: points.slice(0, -1).join(" ") }),
        s("polyline", { class: `line tone-${name} running`, points: points.slice(-2).join(" ") }),
        s("circle", { class: `dot tone-${name}`, cx: points.at(-1).split(",")[0], cy: points.at(-1).split(",")[1], r: 2.5 }),
      ];
    });
  }

  bars() {
    const each = (this.width - EDGE.left - EDGE.right) / this.data.length;
    const width = Math.max(1, each - (each > 5 ? 1.5 : 0.5));
    const below = Array(this.data.length).fill(0);
    return this.shown.map(({ name }) =>
      s(
        "g",
        { class: `bars tone-${name}` },
        this.values(name).map((value, place) => {
          if (!value) return null;
          const top = this.y(below[place] + value);
          const height = this.y(below[place]) - top;
          below[place] += value;
          return s("rect", {
            class: place === this.data.length - 1 ? "running" : null,
            x: (this.x(place) - width / 2).toFixed(1),
            y: top.toFixed(1),
            width: width.toFixed(1),
            height: height.toFixed(1),
          });
        }),
      ),
    );
  }

  cursor() {
    if (this.place === null) return s("g", { class: "cursor" });
    const x = this.x(this.place);
    const dots = this.stacked
      ? []
      : this.shown.map(({ name }) =>
          s("circle", {
            class: `dot tone-${name}`,
            cx: x,
            cy: this.y(this.values(name)[this.place]),
            r: 3.5,
          }),
        );
    return s(
      "g",
      { class: "cursor" },
      s("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }),
      dots,
    );
  }

  placeAt(clientX) {
    if (!this.data?.length) return null;
    const inner = this.width - EDGE.left - EDGE.right;
    const share = (clientX - this.drawing.getBoundingClientRect().left - EDGE.left) / inner;
    return Math.min(this.data.length - 1, Math.max(0, Math.floor(share * this.data.length)));
  }

  step(event) {
    const last = (this.data?.length ?? 0) - 1;
    if (last < 0) return;
    const from = this.place ?? last + (event.key === "ArrowLeft" ? 1 : 0);
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.hide();
    if (to === undefined) return;
    event.preventDefault();
    this.show(Math.min(last, Math.max(0, to)));
    this.spoken.textContent = `${this.timeAt(this.place)}: ${this.read(this.place)
      .map(([, label, value]) => `${label} ${value}`)
      .join(", ")}`;
  }

  show(place) {
    if (place === null || !this.drawing.querySelector("svg")) return;
    this.place = place;
    this.draw();
    const rows = this.read(place).map(([name, label, value]) =>
      h("div", { class: `tone-${name}` }, h("span", null, label), h("b", null, value)),
    );
    patch(this.tip, h("p", null, this.timeAt(place)), rows);
    this.tip.hidden = false;
    const left = this.x(place) + 12;
    const fits = left + this.tip.offsetWidth < this.width;
    this.tip.style.left = `${fits ? left : Math.max(0, this.x(place) - 12 - this.tip.offsetWidth)}px`;
  }

  hide() {
    this.place = null;
    this.tip.hidden = true;
    this.spoken.textContent = "";
    if (this.data) this.draw();
  }

  timeAt(place) {
    const time = timeOfDay(this.data.since + place * this.data.bucketMs);
    return place === this.data.length - 1 ? `${time}, so far` : time;
  }

  read(place) {
    const values = this.shown.map(({ name, label }) => [name, label, rate(this.values(name)[place])]);
    return this.stacked ? values.reverse() : values;
  }

  summary() {
    const last = this.data.length - 1;
    return `At ${this.timeAt(last)}: ${this.read(last)
      .map(([, label, value]) => `${label} ${value}`)
      .join(", ")}.`;
  }

  drawTable() {
    if (!this.data) return;
    const head = h(
      "tr",
      null,
      h("th", { scope: "col" }, "From"),
      this.shown.map(({ label }) => h("th", { scope: "col", class: "num" }, label)),
    );
    const rows = Array.from({ length: this.data.length }, (_, back) => {
      const place = this.data.length - 1 - back;
      const cells = this.shown.map(({ name }) => h("td", { class: "num" }, rate(this.values(name)[place])));
      return h("tr", null, h("th", { scope: "row" }, this.timeAt(place)), cells);
    });
    patch(
      this.table.lastChild,
      h("table", { class: "plain" }, h("thead", null, head), h("tbody", null, rows)),
    );
  }
}
