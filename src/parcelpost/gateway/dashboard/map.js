// The map of parcels: clusters on a canvas, coloured by delinquency or lien amount, below them the operator's outline and
// tiles if there are any. It shows what the table is filtered by, and an area that is chosen on it filters the table.

import { ask } from "./api.js";
import { h, on, patch } from "./dom.js";
import { compact, money, number, percent, plural } from "./format.js";
import { boundsOf, boxOf, boxText, degreesApart, latOf, lonOf, overlap, TILE, union, viewOf, xOf, yOf } from "./mercator.js";
import { linkTo } from "./cells.js";
import { scroller } from "./table.js";

const MOST_ZOOM = 18;
const FIT_ZOOM = 15;
const FIRST_ZOOM = 3;
const MOST_LOOKS = 5;
const WORLD = { x: xOf(-96), y: yOf(38), zoom: 3.4 };
const WAIT_MS = 150;
const MOST_TILES = 300;
const MOST_LISTED = 50;
const NEAR = 6;

// Names of colours of the style sheet, from none to most.
const COLOURS = ["--map-0", "--map-1", "--map-2", "--map-3"];
const SHARES = [0, 0.1, 0.3];
const MODES = [
  ["delinquency", "Delinquency"],
  ["liens", "Lien amount"],
];

export class MapPanel {
  // `request(query, signal)` returns clusters, `onArea(text or null)` filters, `onNote(name, text)` notes in the address
  // what is shown.
  constructor({ request, onArea, onNote, onTrouble }) {
    Object.assign(this, { request, onArea, onNote, onTrouble, mark: null, missing: null });
    Object.assign(this, { view: { ...WORLD }, clusters: [], mode: "delinquency", width: 0, height: 0, pointers: new Map() });
    Object.assign(this, { query: null, box: null, tiles: new Map(), lines: [], layers: null, active: null, timer: 0 });
    this.build();
    this.listen();
    this.loadLayers();
  }

  build() {
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.hint = h("p", { class: "map-hint", hidden: true }, "Click the map first, or hold Ctrl, to zoom with the wheel.");
    this.said = h("p", { class: "unseen", role: "status" });
    this.stage = h(
      "div",
      {
        class: "stage",
        tabindex: "0",
        role: "group",
        "aria-label":
          "Map of parcels. Arrow keys move it, plus and minus zoom, 0 shows all, N and P go through the clusters, " +
          "Enter opens one, F filters the table to what the map shows.",
      },
      this.canvas,
      this.tip,
      this.hint,
    );
    const button = (action, label, text) =>
      h("button", { type: "button", class: "small", "data-action": action, "aria-label": label, title: label }, text);
    this.selecting = h(
      "button",
      { type: "button", class: "small", "data-action": "select", "aria-pressed": "false", title: "Or drag with Shift" },
      "Select an area",
    );
    this.clear = h("button", { type: "button", class: "small", "data-action": "clear", hidden: true }, "Clear the area");
    this.legend = h("ul", { class: "legend" });
    this.note = h("p", { class: "note" });
    this.list = h("details", { class: "as-table" }, h("summary", null, "Clusters as a list"), scroller("Clusters as a list", []));
    this.root = h(
      "section",
      { class: "card map", "aria-label": "Map" },
      h(
        "div",
        { class: "card-head" },
        h(
          "fieldset",
          { class: "switch" },
          h("legend", { class: "unseen" }, "Colour by"),
          MODES.map(([value, text]) =>
            h(
              "label",
              null,
              h("input", { type: "radio", name: "map-colour", value, checked: value === this.mode }),
              h("span", null, text),
            ),
          ),
        ),
        this.legend,
        h(
          "div",
          { class: "tools" },
          this.selecting,
          h("button", { type: "button", class: "small", "data-action": "filter" }, "Filter to this view"),
          this.clear,
        ),
      ),
      h(
        "div",
        { class: "stage-frame" },
        this.stage,
        h(
          "div",
          { class: "zoomers" },
          button("in", "Zoom in", "+"),
          button("out", "Zoom out", "−"),
          button("fit", "Show all", "⤢"),
        ),
      ),
      h("div", { class: "map-foot" }, this.note, this.list),
      this.said,
    );
  }

  listen() {
    new ResizeObserver(() => this.resize()).observe(this.stage);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.draw();
    this.dark.addEventListener("change", this.repaint);
    on(this.root, "click", "[data-action]", ({ dataset }) => this.act(dataset.action));
    on(this.root, "change", "[name=map-colour]", ({ value }) => {
      this.mode = value;
      this.onNote("colour", value === "delinquency" ? "" : value);
      this.draw();
      this.describe();
    });
    on(this.list, "click", "[data-place]", ({ dataset }) => this.open(this.clusters[Number(dataset.place)]));
    this.list.addEventListener("toggle", () => this.describe());
    const { stage } = this;
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.drag(event));
    for (const type of ["pointerup", "pointercancel"]) stage.addEventListener(type, (event) => this.release(event));
    stage.addEventListener("pointerleave", () => this.pointers.size || this.point(null));
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("dblclick", (event) => this.zoomBy(1, this.placeOf(event)));
    stage.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("focusout", () => (this.hint.hidden = true));
  }

  async loadLayers() {
    try {
      this.layers = await ask("/v1/map");
      if (this.layers.outline) this.lines = outlined((await ask(this.layers.outline)).lines);
    } catch (error) {
      this.onTrouble(error);
    }
    this.draw();
  }

  // What is shown

  // `query`: the filters of the table; `at`: the center and zoom, `mark`: a parcel's place, and `colour`, of the address;
  // `isFiltered`: the filters have changed.
  show(query, { at, mark, colour }, isFiltered) {
    this.mark = mark?.split(",").map(Number) ?? null;
    this.mode = MODES.some(([value]) => value === colour) ? colour : "delinquency";
    for (const input of this.root.querySelectorAll("[name=map-colour]")) input.checked = input.value === this.mode;
    const before = this.query?.toString();
    this.box = boxOf(query.get("bbox"));
    query.delete("bbox");
    this.query = query;
    this.clear.hidden = !this.box;
    const isNew = before !== query.toString();
    if (isNew || isFiltered) this.missing = null;
    if (!isNew && !isFiltered && this.clusters.length) {
      this.draw();
      return;
    }
    const place = isNew && before !== undefined ? null : placed(at);
    if (place) {
      this.isUnfitted = false;
      this.view = place;
      this.load();
    } else if (isNew) this.fit();
    else this.load();
  }

  // The gateway names the cells in which clusters are, so a closer look shows better where they end.
  async fit() {
    this.isUnfitted = true;
    if (!this.width) return;
    let [area, zoom] = [this.box, FIRST_ZOOM];
    for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
      const answer = await this.fetch(area, zoom);
      if (!answer) return;
      area = this.box ?? union(answer.clusters.map(({ bbox }) => bbox));
      if (!area) break;
      this.view = viewOf(area, this.width, this.height, FIT_ZOOM);
      if (this.box || this.view.zoom < zoom + 0.5) break;
      zoom = this.view.zoom;
    }
    this.isUnfitted = false;
    await this.load();
  }

  // The clusters of what is in view, and how many parcels no area has.
  async load() {
    clearTimeout(this.timer);
    if (!this.width) return;
    const seen = boundsOf(this.view, this.width, this.height);
    const wanted = this.box ? (overlap(this.box, seen) ?? this.box) : seen;
    this.isPart = this.box !== null && boxText(wanted) !== boxText(this.box);
    const answer = await this.fetch(wanted, this.view.zoom);
    if (!answer) return;
    this.clusters = apart(answer.clusters, TILE * 2 ** this.view.zoom);
    this.total = answer.total;
    this.active = null;
    this.tip.hidden = true;
    this.draw();
    this.describe();
    if (this.missing !== null || this.box) return;
    const everywhere = await this.fetch(null, FIRST_ZOOM);
    if (!everywhere) return;
    this.missing = everywhere.without_coordinates;
    this.describe();
  }

  async fetch(box, zoom) {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const query = new URLSearchParams(this.query);
    query.set("zoom", Math.round(zoom));
    if (box) query.set("bbox", boxText(box));
    try {
      const answer = await this.request(query, signal);
      return signal.aborted ? null : answer;
    } catch (error) {
      if (!signal.aborted) this.onTrouble(error);
      return null;
    }
  }

  moved() {
    this.isUnfitted = false;
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const { x, y, zoom } = this.view;
      this.onNote("at", [latOf(y).toFixed(4), lonOf(x).toFixed(4), zoom.toFixed(2)].join(","));
      this.load();
    }, WAIT_MS);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || (width === this.width && height === this.height)) return;
    Object.assign(this, { width, height });
    const dense = Math.min(3, devicePixelRatio || 1);
    Object.assign(this.canvas, { width: width * dense, height: height * dense });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.dense = dense;
    this.draw();
    if (this.query) this.isUnfitted ? this.fit() : this.load();
  }

  // Moving it

  placeOf({ clientX, clientY }) {
    const { left, top } = this.stage.getBoundingClientRect();
    return [clientX - left, clientY - top];
  }

  worldAt([left, top]) {
    const scale = TILE * 2 ** this.view.zoom;
    return [this.view.x + (left - this.width / 2) / scale, this.view.y + (top - this.height / 2) / scale];
  }

  pixelAt([x, y]) {
    const scale = TILE * 2 ** this.view.zoom;
    return [(x - this.view.x) * scale + this.width / 2, (y - this.view.y) * scale + this.height / 2];
  }

  panBy(right, down) {
    const scale = TILE * 2 ** this.view.zoom;
    this.view.x = within(this.view.x + right / scale, 0, 1);
    this.view.y = within(this.view.y + down / scale, 0, 1);
    this.moved();
  }

  // What is under that place stays there.
  zoomBy(steps, place = [this.width / 2, this.height / 2]) {
    const before = this.worldAt(place);
    this.view.zoom = within(this.view.zoom + steps, 1, MOST_ZOOM);
    const after = this.worldAt(place);
    this.view.x = within(this.view.x + before[0] - after[0], 0, 1);
    this.view.y = within(this.view.y + before[1] - after[1], 0, 1);
    this.moved();
  }

  press(event) {
    if (event.button || this.tip.contains(event.target)) return;
    this.stage.setPointerCapture(event.pointerId);
    const place = this.placeOf(event);
    this.pointers.set(event.pointerId, place);
    this.pressedAt = place;
    this.wasDragged = false;
    const isArea = event.shiftKey || this.selecting.getAttribute("aria-pressed") === "true";
    this.corner = isArea && this.pointers.size === 1 ? place : null;
  }

  drag(event) {
    const place = this.placeOf(event);
    const last = this.pointers.get(event.pointerId);
    if (!last) {
      if (event.pointerType === "mouse") this.point(this.nearest(place));
      return;
    }
    if (Math.hypot(place[0] - this.pressedAt[0], place[1] - this.pressedAt[1]) > 4) this.wasDragged = true;
    if (this.pointers.size === 2) this.pinch(event.pointerId, last, place);
    else if (this.corner) this.drawArea(this.corner, place);
    else if (this.wasDragged) this.panBy(last[0] - place[0], last[1] - place[1]);
    this.pointers.set(event.pointerId, place);
  }

  pinch(id, last, place) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, at]) => at);
    const far = (at) => Math.max(1, Math.hypot(at[0] - other[0], at[1] - other[1]));
    const middle = (at) => [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2];
    this.corner = null;
    this.wasDragged = true;
    const [before, after] = [middle(last), middle(place)];
    this.zoomBy(Math.log2(far(place) / far(last)), after);
    this.panBy(before[0] - after[0], before[1] - after[1]);
  }

  release(event) {
    const place = this.placeOf(event);
    if (!this.pointers.delete(event.pointerId) || event.type === "pointercancel") return;
    if (this.corner && this.wasDragged) this.chooseArea(this.corner, place);
    else if (!this.wasDragged && !this.pointers.size) this.tapped(place, event.pointerType);
    this.corner = null;
  }

  // A finger cannot hover: the first tap on a parcel shows what it is, with a link.
  tapped(place, pointer) {
    const cluster = this.nearest(place);
    if (!cluster) this.point(null);
    else if (cluster.count > 1 || pointer === "mouse") this.open(cluster);
    else this.point(cluster);
  }

  wheel(event) {
    const isWanted = event.ctrlKey || event.metaKey || this.stage.contains(document.activeElement);
    this.hint.hidden = isWanted;
    if (!isWanted) return;
    event.preventDefault();
    this.zoomBy(within(-event.deltaY * (event.deltaMode ? 0.1 : 0.004), -1, 1), this.placeOf(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.stage) return;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const actions = { "+": "in", "=": "in", "-": "out", 0: "fit", f: "filter", n: "next", p: "previous", Escape: "leave" };
    const action = actions[event.key] ?? (event.key === "Enter" && this.active ? "open" : null);
    const step = steps[event.key];
    if (!step && !action) return;
    event.preventDefault();
    if (step) this.panBy((step[0] * this.width) / 5, (step[1] * this.height) / 5);
    else this.act(action);
  }

  act(action) {
    if (action === "in") this.zoomBy(1);
    else if (action === "out") this.zoomBy(-1);
    else if (action === "fit") this.fit();
    else if (action === "filter") this.onArea(boxText(boundsOf(this.view, this.width, this.height)));
    else if (action === "clear") this.onArea(null);
    else if (action === "next") this.step(1);
    else if (action === "previous") this.step(-1);
    else if (action === "open") this.open(this.active);
    else if (action === "leave") this.point(null);
    else this.select(this.selecting.getAttribute("aria-pressed") !== "true");
  }

  select(isOn) {
    this.selecting.setAttribute("aria-pressed", String(isOn));
    this.stage.classList.toggle("selecting", isOn);
  }

  chooseArea(a, b) {
    const [from, to] = [this.worldAt(a), this.worldAt(b)];
    const [w, e] = [from[0], to[0]].toSorted((one, two) => one - two).map(lonOf);
    const [s, n] = [from[1], to[1]].map(latOf).toSorted((one, two) => one - two);
    this.select(false);
    this.onArea(boxText([within(w, -180, 180), s, within(e, -180, 180), n]));
  }

  // Clusters

  nearest(place) {
    let best = null;
    for (const cluster of this.clusters) {
      const at = this.pixelAt([xOf(cluster.lon), yOf(cluster.lat)]);
      const far = Math.hypot(at[0] - place[0], at[1] - place[1]) - radius(cluster);
      if (far < NEAR && (!best || far < best.far)) best = { cluster, far };
    }
    return best?.cluster ?? null;
  }

  step(by) {
    if (!this.clusters.length) return;
    const order = this.clusters.toSorted((a, b) => b.count - a.count);
    const place = order.indexOf(this.active);
    const next = order[(place + by + (place < 0 && by < 0 ? 1 : 0) + order.length) % order.length];
    this.point(next);
    this.said.textContent = told(next);
  }

  open(cluster) {
    if (!cluster) return;
    if (cluster.parcel) {
      location.hash = linkTo(cluster.parcel.address).slice(1);
      return;
    }
    const [west, south, east, north] = cluster.bbox;
    const isOnePlace = east - west < 1e-6 && north - south < 1e-6;
    if (isOnePlace || this.view.zoom >= MOST_ZOOM - 0.5)
      this.onArea(boxText([west - 1e-5, south - 1e-5, east + 1e-5, north + 1e-5]));
    else {
      const wanted = viewOf(cluster.bbox, this.width, this.height, MOST_ZOOM);
      this.view = { ...wanted, zoom: within(wanted.zoom, Math.min(this.view.zoom + 1, MOST_ZOOM), MOST_ZOOM) };
      this.moved();
    }
  }

  point(cluster) {
    if (cluster === this.active) return;
    this.active = cluster;
    this.stage.classList.toggle("pointing", Boolean(cluster));
    this.draw();
    this.tip.hidden = !cluster;
    if (!cluster) return;
    patch(this.tip, tipOf(cluster));
    const [left, top] = this.pixelAt([xOf(cluster.lon), yOf(cluster.lat)]);
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const beside = left + 14 + width < this.width ? left + 14 : left - 14 - width;
    this.tip.style.left = `${within(beside, 4, this.width - width - 4)}px`;
    this.tip.style.top = `${within(top - height / 2, 4, this.height - height - 4)}px`;
  }

  // Drawing

  draw() {
    if (!this.width || !this.canvas.isConnected) return;
    const brush = this.canvas.getContext("2d");
    const style = getComputedStyle(this.root);
    const colour = (name) => style.getPropertyValue(name).trim();
    brush.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    brush.fillStyle = colour("--map-ground");
    brush.fillRect(0, 0, this.width, this.height);
    if (this.layers?.tiles) this.drawTiles(brush);
    else this.drawGrid(brush, colour);
    this.drawOutline(brush, colour);
    if (this.box) this.drawBox(brush, colour, this.box);
    this.drawClusters(brush, colour);
    if (this.mark) this.drawMark(brush, colour, this.mark);
    if (this.layers?.tiles) this.attribute(brush, colour);
  }

  drawGrid(brush, colour) {
    const step = degreesApart(this.view.zoom, 130);
    const [west, south, east, north] = boundsOf(this.view, this.width, this.height);
    brush.strokeStyle = colour("--line");
    brush.fillStyle = colour("--muted");
    brush.font = "10px system-ui, sans-serif";
    brush.lineWidth = 1;
    brush.beginPath();
    for (let lon = Math.ceil(west / step) * step; lon <= east; lon += step) {
      const [left] = this.pixelAt([xOf(lon), 0.5]);
      brush.moveTo(Math.round(left) + 0.5, 0);
      brush.lineTo(Math.round(left) + 0.5, this.height);
      brush.fillText(degrees(lon, "E", "W"), left + 3, this.height - 4);
    }
    for (let lat = Math.ceil(south / step) * step; lat <= north; lat += step) {
      const [, top] = this.pixelAt([0.5, yOf(lat)]);
      brush.moveTo(0, Math.round(top) + 0.5);
      brush.lineTo(this.width, Math.round(top) + 0.5);
      brush.fillText(degrees(lat, "N", "S"), 4, top - 3);
    }
    brush.stroke();
  }

  drawOutline(brush, colour) {
    if (!this.lines.length) return;
    const [west, south, east, north] = boundsOf(this.view, this.width, this.height);
    const [w, e, n, s] = [xOf(west), xOf(east), yOf(north), yOf(south)];
    brush.strokeStyle = colour("--line-strong");
    brush.lineWidth = 1;
    brush.beginPath();
    for (const { box, points } of this.lines) {
      if (box[0] > e || box[2] < w || box[1] > s || box[3] < n) continue;
      for (let place = 0; place < points.length; place += 2) {
        const [left, top] = this.pixelAt([points[place], points[place + 1]]);
        if (place) brush.lineTo(left, top);
        else brush.moveTo(left, top);
      }
    }
    brush.stroke();
  }

  drawTiles(brush) {
    const zoom = within(Math.round(this.view.zoom), 0, MOST_ZOOM);
    const count = 2 ** zoom;
    const size = TILE * 2 ** (this.view.zoom - zoom);
    const [left, top] = this.worldAt([0, 0]);
    const [right, bottom] = this.worldAt([this.width, this.height]);
    for (let x = Math.max(0, Math.floor(left * count)); x < Math.min(count, right * count); x += 1)
      for (let y = Math.max(0, Math.floor(top * count)); y < Math.min(count, bottom * count); y += 1) {
        const image = this.tile(zoom, x, y);
        if (!image.complete || !image.naturalWidth) continue;
        const [across, down] = this.pixelAt([x / count, y / count]);
        brush.drawImage(image, across, down, size + 0.5, size + 0.5);
      }
  }

  tile(zoom, x, y) {
    const key = `${zoom}/${x}/${y}`;
    const known = this.tiles.get(key);
    this.tiles.delete(key);
    const image = known ?? new Image();
    this.tiles.set(key, image);
    if (known) return known;
    image.referrerPolicy = "no-referrer";
    image.addEventListener("load", () => this.draw());
    image.src = this.layers.tiles.replaceAll("{z}", zoom).replaceAll("{x}", x).replaceAll("{y}", y);
    if (this.tiles.size > MOST_TILES) this.tiles.delete(this.tiles.keys().next().value);
    return image;
  }

  attribute(brush, colour) {
    const text = `Tiles: ${new URL(this.layers.tiles.replaceAll(/[{}]/g, "")).host}`;
    brush.font = "11px system-ui, sans-serif";
    const width = brush.measureText(text).width + 8;
    brush.fillStyle = colour("--surface");
    brush.fillRect(this.width - width, this.height - 18, width, 18);
    brush.fillStyle = colour("--muted");
    brush.fillText(text, this.width - width + 4, this.height - 5);
  }

  drawBox(brush, colour, [west, south, east, north]) {
    const [left, top] = this.pixelAt([xOf(west), yOf(north)]);
    const [right, bottom] = this.pixelAt([xOf(east), yOf(south)]);
    brush.strokeStyle = colour("--accent");
    brush.lineWidth = 2;
    brush.setLineDash([6, 4]);
    brush.strokeRect(left, top, right - left, bottom - top);
    brush.setLineDash([]);
  }

  drawMark(brush, colour, [latitude, longitude]) {
    brush.beginPath();
    brush.arc(...this.pixelAt([xOf(longitude), yOf(latitude)]), 12, 0, 2 * Math.PI);
    brush.strokeStyle = colour("--accent");
    brush.lineWidth = 3;
    brush.stroke();
  }

  drawArea(from, to) {
    this.draw();
    const brush = this.canvas.getContext("2d");
    const colour = getComputedStyle(this.root).getPropertyValue("--accent").trim();
    brush.globalAlpha = 0.15;
    brush.fillStyle = colour;
    brush.fillRect(from[0], from[1], to[0] - from[0], to[1] - from[1]);
    brush.globalAlpha = 1;
    brush.strokeStyle = colour;
    brush.strokeRect(from[0], from[1], to[0] - from[0], to[1] - from[1]);
  }

  drawClusters(brush, colour) {
    const colours = COLOURS.map(colour);
    const texts = COLOURS.map((name) => colour(`${name}-text`));
    const surface = colour("--surface");
    const levelOf = this.levels();
    brush.textAlign = "center";
    brush.textBaseline = "middle";
    for (const cluster of this.clusters.toSorted((a, b) => b.count - a.count)) {
      const [left, top] = this.pixelAt([xOf(cluster.lon), yOf(cluster.lat)]);
      const size = radius(cluster);
      if (left < -size || top < -size || left > this.width + size || top > this.height + size) continue;
      const level = levelOf(cluster);
      brush.beginPath();
      brush.arc(left, top, size, 0, 2 * Math.PI);
      brush.fillStyle = colours[level];
      brush.fill();
      brush.lineWidth = cluster === this.active ? 3 : 1.5;
      brush.strokeStyle = cluster === this.active ? colour("--text") : surface;
      brush.stroke();
      if (cluster.count === 1) continue;
      brush.fillStyle = texts[level];
      brush.font = `600 ${size > 13 ? 11 : 10}px system-ui, sans-serif`;
      brush.fillText(shortCount(cluster.count), left, top + 0.5);
    }
    brush.textAlign = "start";
    brush.textBaseline = "alphabetic";
  }

  // Returns the level of a cluster's colour. Amounts are compared with the largest in view.
  levels() {
    if (this.mode === "delinquency")
      return ({ count, delinquent }) => (delinquent ? SHARES.filter((least) => delinquent / count > least).length : 0);
    const tops = this.amounts();
    return ({ lien_amount: amount }) => (amount > 0 ? 1 + tops.filter((least) => amount >= least).length : 0);
  }

  amounts() {
    const most = Math.max(0, ...this.clusters.map(({ lien_amount: amount }) => amount));
    const power = 10 ** Math.floor(Math.log10(Math.max(most, 100)));
    return [power / 10, power];
  }

  describe() {
    const [some, many] = this.amounts();
    const texts =
      this.mode === "delinquency"
        ? ["none delinquent", "up to 10%", "up to 30%", "over 30%"]
        : ["no liens", `below $${compact(some)}`, `from $${compact(some)}`, `from $${compact(many)}`];
    patch(this.legend, texts.map((text, place) => h("li", { class: `map-level-${place}` }, text)));
    const missing = this.missing && !this.box ? `; ${plural(this.missing, "matching parcel")} without coordinates` : "";
    const text = `${plural(this.total ?? 0, "parcel")} ${this.box && !this.isPart ? "in the area" : this.box ? "of the area in view" : "in view"}${missing}.`;
    if (this.note.textContent !== text) this.note.textContent = text;
    if (this.list.open) patch(this.list.lastChild, this.listed());
  }

  listed() {
    const order = this.clusters.map((cluster, place) => ({ cluster, place }));
    const largest = order.toSorted((a, b) => b.cluster.count - a.cluster.count).slice(0, MOST_LISTED);
    const heads = [["Place"], ["Parcels", "num"], ["Delinquent", "num"], ["Liens", "num"], [""]];
    return h(
      "table",
      { class: "plain" },
      h("thead", null, h("tr", null, heads.map(([text, side]) => h("th", { scope: "col", class: side }, text)))),
      h(
        "tbody",
        null,
        largest.map(({ cluster, place }) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, cluster.parcel?.parcel_id ?? placeText(cluster)),
            h("td", { class: "num" }, number(cluster.count)),
            h("td", { class: "num" }, number(cluster.delinquent)),
            h("td", { class: "num" }, money(cluster.lien_amount)),
            h(
              "td",
              null,
              h(
                "button",
                { type: "button", class: "quiet", "data-place": place },
                cluster.count === 1 ? "Open" : "Zoom in",
              ),
            ),
          ),
        ),
      ),
    );
  }

  leave() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.dark.removeEventListener("change", this.repaint);
  }
}

// Clusters that would hide each other become one. `scale`: pixels of the whole world.
function apart(clusters, scale) {
  const kept = [];
  for (const cluster of clusters.toSorted((a, b) => b.count - a.count)) {
    const near = kept.find(
      (other) =>
        Math.hypot(xOf(cluster.lon) - xOf(other.lon), yOf(cluster.lat) - yOf(other.lat)) * scale <
        (radius(cluster) + radius(other)) * 0.75,
    );
    if (near) Object.assign(near, joined(near, cluster));
    else kept.push({ ...cluster });
  }
  return kept;
}

function joined(a, b) {
  const count = a.count + b.count;
  return {
    lon: (a.lon * a.count + b.lon * b.count) / count,
    lat: (a.lat * a.count + b.lat * b.count) / count,
    count,
    delinquent: a.delinquent + b.delinquent,
    lien_amount: a.lien_amount + b.lien_amount,
    bbox: union([a.bbox, b.bbox]),
    parcel: undefined,
  };
}

const within = (value, least, most) => Math.min(Math.max(value, least), Math.max(least, most));

const radius = ({ count }) => (count === 1 ? 5 : Math.min(17, 8 + 2.4 * Math.log10(count)));

const shortCount = (count) => (count < 1_000 ? String(count) : count < 10_000 ? `${(count / 1_000).toFixed(1)}k` : `${Math.round(count / 1_000)}k`);

const degrees = (value, plus, minus) => {
  const text = Number(Math.abs(value).toFixed(4));
  return `${text}°${value > 0 ? plus : value < 0 ? minus : ""}`;
};

const placeText = ({ lat, lon }) => `${degrees(Number(lat.toFixed(3)), "N", "S")} ${degrees(Number(lon.toFixed(3)), "E", "W")}`;

const told = (cluster) =>
  cluster.parcel
    ? `Parcel ${cluster.parcel.parcel_id}, ${cluster.parcel.owner ?? "owner unknown"}`
    : `${plural(cluster.count, "parcel")}, ${number(cluster.delinquent)} delinquent, liens of ${money(cluster.lien_amount)}`;

function tipOf({ count, delinquent, lien_amount: amount, parcel }) {
  if (parcel)
    return [
      h("a", { href: linkTo(parcel.address), class: "name" }, parcel.parcel_id),
      h("p", null, [parcel.owner, parcel.situs].filter(Boolean).join(" · ")),
      parcel.tax_due ? h("p", { class: parcel.delinquent ? "bad" : "" }, `${money(parcel.tax_due)} tax due`) : null,
      amount ? h("p", null, `${money(amount)} in liens`) : null,
    ];
  return [
    h("b", { class: "whole" }, plural(count, "parcel")),
    h("p", null, `${number(delinquent)} delinquent (${percent(delinquent / count)})`),
    h("p", null, `${money(amount)} in liens`),
  ];
}

// Lines as corners of the map's square, with the area of each, so that those out of view are left out.
function outlined(lines) {
  return lines.map((line) => {
    const points = new Float64Array(line.length * 2);
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    line.forEach(([lon, lat], place) => {
      const [x, y] = [xOf(lon), yOf(lat)];
      points.set([x, y], place * 2);
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    });
    return { box, points };
  });
}

// latitude,longitude,zoom of the address
function placed(text) {
  const [lat, lon, zoom] = (text ?? "").split(",").map(Number);
  if (![lat, lon, zoom].every(Number.isFinite) || !text) return null;
  return { x: within(xOf(lon), 0, 1), y: yOf(lat), zoom: within(zoom, 1, MOST_ZOOM) };
}
