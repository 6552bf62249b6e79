// One parcel: what is known of it from all its sources, where they differ, its liens, and what changed.

import { ask, save, token } from "./api.js";
import { h, on, patch } from "./dom.js";
import { duration, money, moment, NOTHING, number, plural, words } from "./format.js";
import { lienCard, mergedLiens } from "./liens.js";
import { place, platforms } from "./cells.js";
import { comparison, differences, isNothing, lists, sections, shown } from "./record.js";
import { badge, empty, scroller, section, table } from "./table.js";
import { yearChart } from "./yearly.js";

const AGAIN_MS = 15_000;
const STEPS = 12;
const CLOSE = 15;

export class ParcelPage {
  title = "Parcel";

  constructor(page, address) {
    Object.assign(this, { page, address, askedAt: -Infinity, asking: new AbortController(), steps: STEPS });
    this.root = h("div", { class: "page parcel" }, h("p", { class: "empty" }, "Loading …"));
    on(this.root, "click", "a[download]", (link, event) => {
      if (!token.get()) return;
      event.preventDefault();
      save(link.getAttribute("href"), "page.gz").catch((error) => this.page.failed(error));
    });
    on(this.root, "click", "[data-refresh]", () => this.page.refresh(this.detail.parcel));
    on(this.root, "click", "[data-more-history]", () => {
      this.steps = Infinity;
      this.draw();
    });
    this.load();
  }

  async load() {
    this.askedAt = performance.now();
    try {
      this.detail = await ask(this.address, { signal: this.asking.signal });
      this.draw();
    } catch (error) {
      if (this.asking.signal.aborted) return;
      this.askedAt = -Infinity;
      if (error.status === 404) {
        this.askedAt = Infinity;
        patch(
          this.root,
          h("h1", null, "No such parcel"),
          empty(h("p", null, "No parcel has this number here."), h("a", { href: "#/parcels" }, "Search parcels")),
        );
      } else this.page.failed(error);
    }
  }

  draw() {
    const { parcel, sources } = this.detail;
    this.page.name(parcel.parcel_id);
    const liens = mergedLiens(sources);
    const sales = mergedSales(sources);
    patch(
      this.root,
      head(parcel, sources),
      figures(parcel, sources, liens, sales),
      charts(sources),
      liens.length ? lienCard(liens) : null,
      sources.length > 1
        ? comparison(sources, differences(sources.map(({ record }) => record)))
        : sources.map(({ record }) => sections(record)),
      sales.length ? saleCard(sales) : null,
      sourceCard(sources, parcel),
      listCard(sources),
      historyCard(sources, parcel, this.steps),
    );
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS) this.load();
  }

  leave() {
    this.asking.abort();
  }
}

const head = (parcel, sources) =>
  h(
    "div",
    { class: "title" },
    h(
      "p",
      { class: "path" },
      h("a", { href: "#/parcels" }, "Parcels"),
      " / ",
      h("a", { href: `#/parcels?${new URLSearchParams({ state: parcel.state, county: parcel.county })}` }, place(parcel)),
    ),
    h("h1", null, parcel.parcel_id, " ", parcel.delinquent ? badge("bad", "Delinquent") : null),
    h("p", null, ownerAndAddress(parcel, sources)),
    h(
      "p",
      { class: "meta" },
      `From ${platforms(parcel)}; scraped `,
      moment(parcel.scraped_at),
      ", first seen ",
      moment(parcel.first_seen_at),
    ),
    h(
      "p",
      { class: "actions" },
      h("button", { type: "button", "data-admin": true, "data-refresh": "" }, "Refresh"),
    ),
  );

// The owner leads to everything that the owner has, the address to the map.
function ownerAndAddress({ owner, situs }, sources) {
  const [latitude, longitude] = [known(sources, "latitude"), known(sources, "longitude")];
  const isPlaced = typeof latitude === "number" && typeof longitude === "number";
  const parts = [
    owner ? h("a", { href: `#/parcels?${new URLSearchParams({ owner })}`, title: "All parcels of this owner" }, owner) : null,
    situs || null,
    isPlaced ? h("a", { href: `#/map?${new URLSearchParams({ at: `${latitude},${longitude},${CLOSE}`, mark: `${latitude},${longitude}` })}` }, "Show on the map") : null,
  ].filter(Boolean);
  return parts.flatMap((part, place) => (place ? [" · ", part] : [part]));
}

const dollars = (value) => (typeof value === "number" ? `$${number(value)}` : money(value));

// The newest source's value that is there.
const known = (sources, name) => sources.map(({ record }) => record[name]).find((value) => !isNothing(value));

const isUnread = (sources, name) => sources.some(({ record }) => record.unreadable?.includes?.(name));

function figures(parcel, sources, liens, sales) {
  const valueYear = sources.map(({ record }) => record).find(({ market_value }) => !isNothing(market_value))?.value_year;
  const open = liens.filter(({ isOpen }) => isOpen);
  const owed = open.reduce((sum, lien) => sum + (Number(lien.face_amount) || 0), 0);
  const acres = known(sources, "land_area_acres");
  const built = known(sources, "year_built");
  const sale = sales[0];
  const orUnread = (name, value) => (value === NOTHING && isUnread(sources, name) ? "not readable" : value);
  const all = [
    ["Tax due", orUnread("tax_due", money(parcel.tax_due)), parcel.tax_due > 0 ? ["bad", "unpaid"] : null],
    ["Market value", orUnread("market_value", dollars(known(sources, "market_value"))), valueYear ? ["", `of ${valueYear}`] : null],
    liens.length || !isUnread(sources, "liens")
      ? ["Open liens", number(open.length), open.length ? ["warn", money(owed)] : ["", `${number(liens.length)} total`]]
      : ["Open liens", "not readable", parcel.lien_count ? ["", `${number(parcel.lien_count)} known from before`] : null],
    ["Last sale", orUnread("sales", sale ? dollars(sale.price) : NOTHING), sale?.date ? ["", sale.date] : null],
    ["Use", known(sources, "land_use_desc") ?? NOTHING, built ? ["", `built ${built}`] : null],
    ["Land", acres ? `${acres} acres` : NOTHING, null],
  ];
  return h(
    "dl",
    { class: "figures" },
    all.map(([label, value, note]) =>
      h(
        "div",
        null,
        h("dt", null, label),
        h("dd", { class: String(value).length > 12 ? "long" : "" }, value),
        note ? h("dd", { class: `note ${note[0]}` }, note[1]) : null,
      ),
    ),
  );
}

// Charts by year

const TAXES = [
  { name: "paid", label: "Paid", kind: "bar" },
  { name: "billed", label: "Billed", kind: "bar" },
  { name: "due", label: "Still due", kind: "bar" },
];
const VALUES = [
  { name: "market", label: "Market value", kind: "bar" },
  { name: "assessed", label: "Assessed value", kind: "dot" },
  { name: "taxable", label: "Taxable value", kind: "dot" },
];

function charts(sources) {
  const drawn = [
    ["Taxes by year", TAXES, taxesByYear(sources)],
    ["Values by year", VALUES, valuesByYear(sources)],
  ].filter(([, , rows]) => rows.length);
  if (!drawn.length) return null;
  return h(
    "section",
    { class: "card charts", "aria-label": "By year" },
    drawn.map(([title, series, rows]) => yearChart({ title, series, rows })),
  );
}

const isAmount = (value) => typeof value === "number" && value > 0;
const isYear = (value) => Number.isInteger(value) && value > 1700 && value < 2200;

// The newest source that shows bills of a year says what was billed and what of it is paid, if it shows what is due; records of earlier scrapes fill in other years.
function taxesByYear(sources) {
  const years = new Map();
  for (const { record } of sources) {
    const ofSource = new Map();
    for (const bill of Array.isArray(record.tax_bills) ? record.tax_bills : []) {
      if (!isYear(bill?.tax_year) || !isAmount(bill.tax_amount)) continue;
      const sums = ofSource.get(bill.tax_year) ?? { paid: 0, billed: 0, due: 0 };
      ofSource.set(bill.tax_year, sums);
      if (typeof bill.tax_due === "number") {
        sums.due += Math.max(0, bill.tax_due);
        sums.paid += Math.max(0, bill.tax_amount - Math.max(0, bill.tax_due));
      } else sums.billed += bill.tax_amount;
    }
    for (const [year, sums] of ofSource) if (!years.has(year)) years.set(year, sums);
  }
  for (const record of records(sources))
    if (isYear(record.tax_year) && isAmount(record.tax_amount) && !years.has(record.tax_year))
      years.set(record.tax_year, { billed: record.tax_amount });
  return byYear(years);
}

function valuesByYear(sources) {
  const years = new Map();
  const add = (year, { market_value, assessed_value, taxable_value }) => {
    if (!isYear(year)) return;
    const values = years.get(year) ?? {};
    if (isAmount(market_value)) values.market ??= market_value;
    if (isAmount(assessed_value)) values.assessed ??= assessed_value;
    if (isAmount(taxable_value)) values.taxable ??= taxable_value;
    if (Object.keys(values).length) years.set(year, values);
  };
  for (const { record } of sources) {
    add(record.value_year, record);
    for (const valuation of Array.isArray(record.valuations) ? record.valuations : [])
      if (valuation) add(valuation.year, valuation);
  }
  for (const record of records(sources)) add(record.value_year, record);
  return byYear(years);
}

const byYear = (years) => [...years].toSorted(([a], [b]) => a - b).map(([year, values]) => ({ year, values }));

// Every record that the sources had, newest first: the changes, undone one scrape at a time.
function* records(sources) {
  for (const { record, history } of sources) {
    let version = record;
    for (const { changes } of history) {
      yield version;
      version = { ...version };
      for (const { field, before } of changes) version[field] = before;
    }
  }
}

// Sales

function mergedSales(sources) {
  const merged = new Map();
  for (const { platform, record } of sources) {
    const listed = Array.isArray(record.sales) ? record.sales.filter(Boolean) : [];
    const last = record.last_sale_date
      ? [
          {
            date: record.last_sale_date,
            price: record.last_sale_price,
            instrument: record.last_sale_instrument,
            book_page: record.last_sale_book_page,
          },
        ]
      : [];
    for (const sale of listed.length ? listed : last) {
      const key = `${sale.date} ${sale.price}`;
      const known = merged.get(key) ?? { date: null, price: null, platforms: [] };
      merged.set(key, known);
      for (const [name, value] of Object.entries(sale)) if (!isNothing(value)) known[name] ??= value;
      if (!known.platforms.includes(platform)) known.platforms.push(platform);
    }
  }
  return [...merged.values()].toSorted((a, b) => String(b.date ?? "").localeCompare(String(a.date ?? "")));
}

const SALE = [
  { label: "Date" },
  { label: "Price", class: "num" },
  { label: "Instrument" },
  { label: "Book and page" },
  { label: "Grantor" },
  { label: "Grantee" },
  { label: "Sources" },
];

const saleCard = (sales) =>
  section(
    "Sales",
    h("p", { class: "note" }, plural(sales.length, "sale")),
    scroller(
      "Sales",
      table(
        "Sales",
        SALE,
        sales.map((sale) => ({
          cells: [
            h("span", { class: "whole" }, sale.date ?? NOTHING),
            money(sale.price),
            [sale.instrument, sale.qualified === "U" ? "(not qualified)" : null].filter(Boolean).join(" ") || NOTHING,
            sale.book_page ?? sale.clerk_number ?? NOTHING,
            sale.grantor ?? NOTHING,
            sale.grantee ?? NOTHING,
            sale.platforms.join(", "),
          ],
        })),
      ),
    ),
  );

// Sources

const SOURCE = [
  { label: "Source" },
  { label: "Parcel number at source" },
  { label: "Scraped" },
  { label: "First seen" },
  { label: "Page" },
];

const pageLink = (path, text) => h("a", { href: `/dashboard/page.html#${path}` }, text);

function sourceCard(sources, parcel) {
  const rows = sources.map((source) => ({
    key: `source ${source.platform}`,
    cells: [
      [h("span", { class: "name" }, source.platform), source.partial ? h("small", { class: "warn" }, "incomplete page") : null],
      source.parcel_id || parcel.parcel_id,
      [moment(source.scraped_at), source.record.data_date ? h("small", null, `data as of ${source.record.data_date}`) : null],
      moment(source.first_seen_at),
      h("span", { class: "links" }, pageLinks(source)),
    ],
  }));
  return section(
    "Sources",
    h("p", { class: "note" }, plural(sources.length, "source")),
    scroller("Sources", table("Sources", SOURCE, rows)),
  );
}

function pageLinks({ page, raw, record }) {
  const links = page ? [pageLink(page, "Show raw page"), h("a", { href: raw, download: "" }, "Download")] : [];
  if (/^https?:\/\//i.test(record.source_url ?? ""))
    links.push(
      h("a", { href: record.source_url, rel: "noopener noreferrer", target: "_blank" }, "County’s site"),
    );
  return links.length ? links : "no page stored";
}

function listCard(sources) {
  const listed = lists(sources);
  return listed.length ? section("Lists by source", null, h("div", { class: "listings" }, listed)) : null;
}

// History

function historyCard(sources, parcel, most) {
  const steps = sources
    .flatMap(({ platform, history }) => merged(history).map((step) => ({ ...step, platform })))
    .toSorted((a, b) => b.scraped_at.localeCompare(a.scraped_at));
  const rest = steps.length - most;
  return h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "card-head" },
      h("h2", null, "History"),
      h("p", { class: "note" }, plural(steps.reduce((sum, { changes }) => sum + changes.length, 0), "change")),
    ),
    h(
      "ol",
      { class: "history" },
      steps.slice(0, most).map((step) => historyStep(step, parcel)),
    ),
    rest > 0
      ? h("button", { type: "button", class: "more", "data-more-history": "" }, `Show ${plural(rest, "older step")}`)
      : null,
    sources.some(({ more_history }) => more_history)
      ? h("p", { class: "empty" }, "Older scrapes exist but are not shown.")
      : null,
  );
}

const historyStep = (step, parcel) =>
  h(
    "li",
    { "data-key": step.platform + step.scraped_at + step.task_id, class: step.changes.length ? "changed" : "" },
    h(
      "p",
      null,
      moment(step.scraped_at),
      h("b", null, titleOf(step)),
      ` on ${step.platform} `,
      h(
        "small",
        null,
        `by ${step.worker_id}, parsed in ${step.parse_duration_ms} ms`,
        step.late ? ", delivered late" : "",
      ),
      " ",
      step.raw_sha256 ? pageLink(`${parcel.address}/page?sha256=${step.raw_sha256}`, "raw page") : null,
    ),
    changeList(step.changes),
  );

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

function changeList(changed) {
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
