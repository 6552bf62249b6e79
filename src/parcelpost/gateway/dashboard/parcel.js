// One parcel, and below it what each source shows: its record, its history and its raw pages.

import { ask, save, token } from "./api.js";
import { h, on, patch } from "./dom.js";
import { duration, moment, plural, words } from "./format.js";
import { place, platforms } from "./parcels.js";
import { differences, lists, sections, shown } from "./record.js";
import { badge, empty } from "./table.js";

const AGAIN_MS = 15_000;

export class ParcelPage {
  title = "Parcel";

  constructor(page, address) {
    Object.assign(this, { page, address, askedAt: -Infinity, asking: new AbortController() });
    this.root = h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …"));
    on(this.root, "click", "a[download]", (link, event) => {
      if (!token.get()) return;
      event.preventDefault();
      save(link.getAttribute("href"), "page.gz").catch((error) => this.page.failed(error));
    });
    on(this.root, "click", "[data-refresh]", () => this.page.refresh(this.parcel));
    this.load();
  }

  async load() {
    this.askedAt = performance.now();
    try {
      this.show(await ask(this.address, { signal: this.asking.signal }));
    } catch (error) {
      if (this.asking.signal.aborted) return;
      this.askedAt = -Infinity;
      if (error.status === 404) {
        this.askedAt = Infinity;
        patch(
          this.root,
          empty(
            h("p", null, "No such parcel."),
            h("a", { href: "#/parcels" }, "Search parcels"),
          ),
        );
      } else this.page.failed(error);
    }
  }

  show({ parcel, sources }) {
    this.page.name(parcel.parcel_id);
    this.parcel = parcel;
    const differing = differences(sources.map(({ record }) => record));
    patch(
      this.root,
      head(parcel),
      sources.map((source) => sourceBlock(source, parcel, differing)),
    );
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS) this.load();
  }

  leave() {
    this.asking.abort();
  }
}

const head = (parcel) =>
  h(
    "div",
    { class: "title" },
    h("p", { class: "path" }, h("a", { href: "#/parcels" }, "Parcels"), ` / ${place(parcel)}`),
    h("h1", null, parcel.parcel_id, " ", parcel.delinquent ? badge("bad", "Delinquent") : null),
    h("p", null, [parcel.owner, parcel.situs].filter(Boolean).join(" · ")),
    h(
      "p",
      { class: "meta" },
      `From ${platforms(parcel)}; scraped `,
      moment(parcel.scraped_at),
      ", first seen ",
      moment(parcel.first_seen_at),
    ),
    h("button", { type: "button", "data-admin": true, "data-refresh": "" }, "Refresh"),
  );

function sourceBlock(source, parcel, differing) {
  const { record } = source;
  const page = /^https?:\/\//i.test(record.source_url ?? "")
    ? h("a", { href: record.source_url, rel: "noopener noreferrer", target: "_blank" }, "County page")
    : null;
  return h(
    "section",
    { class: "source", "data-key": `${source.platform} ${source.task_id}` },
    h(
      "div",
      { class: "title" },
      h("h2", null, source.platform),
      h(
        "p",
        { class: "meta" },
        source.parcel_id === parcel.parcel_id ? "" : `Listed as ${source.parcel_id}. `,
        source.partial ? "Part of the page could not be read. " : "",
        "Scraped ",
        moment(source.scraped_at),
        " ",
        source.raw ? h("a", { href: source.raw, download: "" }, "Raw file") : "No raw file stored.",
        " ",
        page,
      ),
    ),
    sections(record, differing),
    lists(record),
    changes(source, parcel),
  );
}

function changes({ history, more_history }, parcel) {
  const steps = merged(history).map((step) =>
    h(
      "li",
      { "data-key": step.scraped_at + step.task_id },
      h(
        "p",
        null,
        moment(step.scraped_at),
        h("b", null, titleOf(step)),
        " ",
        h(
          "small",
          null,
          `by ${step.worker_id}, parsed in ${step.parse_duration_ms} ms`,
          step.late ? ", delivered late" : "",
        ),
        " ",
        step.raw_sha256
          ? h("a", { href: `${parcel.address}/raw?sha256=${step.raw_sha256}`, download: "" }, "raw file")
          : null,
      ),
      list(step.changes),
    ),
  );
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", null, "History")),
    h("ol", { class: "history" }, steps),
    more_history ? h("p", { class: "empty" }, "Older scrapes exist but are not shown.") : null,
  );
}

// Consecutive scrapes without changes are shown as one.
function merged(history) {
  const steps = [];
  for (const step of history) {
    const last = steps.at(-1);
    if (last && isQuiet(last) && isQuiet(step))
      steps[steps.length - 1] = { ...last, times: last.times + 1, from: step.scraped_at };
    else steps.push({ ...step, times: 1, from: step.scraped_at });
  }
  return steps;
}

const isQuiet = (step) => !step.first && !step.changes.length;

function titleOf(step) {
  if (step.first) return "First seen";
  if (step.changes.length) return plural(step.changes.length, "change");
  if (step.times === 1) return "No change";
  const seconds = (Date.parse(step.scraped_at) - Date.parse(step.from)) / 1_000;
  return `No change in ${step.times} scrapes over ${duration(seconds)}`;
}

function list(changed) {
  if (!changed.length) return null;
  const rows = changed.map(({ field, before, after }) =>
    h(
      "div",
      null,
      h("dt", null, label(field)),
      h("dd", null, change(field.split(".").at(-1), before, after)),
    ),
  );
  return h("dl", { class: "changes" }, rows);
}

function change(name, before, after) {
  const was = h("del", null, shown(name, before));
  const is = h("ins", null, shown(name, after));
  const note = (text) => h("span", { class: "arrow" }, text);
  if (before === null) return [note("new: "), is];
  return after === null ? [note("removed: "), was] : [was, note(" → "), is];
}

// liens[2024-00172].status -> Lien 2024-00172: status
function label(field) {
  const lien = /^liens\[(.*)\](?:\.(.*))?$/s.exec(field);
  if (!lien) return words(field);
  return `Lien ${lien[1]}${lien[2] ? `: ${lien[2].replaceAll("_", " ")}` : ""}`;
}
