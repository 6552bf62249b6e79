// A parcel's liens, each merged from its sources, with what happened to it: sold, sub-taxed, auctioned, redeemed.

import { h } from "./dom.js";
import { day, money, NOTHING } from "./format.js";
import { status } from "./cells.js";
import { badge, scroller, table, whole } from "./table.js";
import { lienChart } from "./yearly.js";

const MOST_DRAWN = 30;
const ENDED = /redeem|paid|cancel|expired|void|struck|foreclos|deed/i;
const DATE = /^\d{4}-\d{2}-\d{2}$/;

// The liens of all sources, newest sale first. `sources` are newest first: each field is the newest one's that has it.
export function mergedLiens(sources) {
  const merged = new Map();
  for (const { platform, record, lien_keys: keys } of sources) {
    keys.forEach((known, place) => {
      const row = record.liens[place];
      if (!row || typeof row !== "object") return;
      const key = known || `${platform} ${place}`;
      const number = row.certificate_number ?? row.case_number ?? null;
      const lien = merged.get(key) ?? { key, number, platforms: [], statuses: new Map(), subs: new Map() };
      merged.set(key, lien);
      if (row.subsequent_tax) {
        lien.subs.set(`${row.tax_year} ${row.sale_date}`, row);
        return;
      }
      for (const [name, value] of Object.entries(row))
        if (value !== null && value !== "" && !(name in lien)) lien[name] = value;
      if (!lien.platforms.includes(platform)) lien.platforms.push(platform);
      if (row.status) lien.statuses.set(platform, String(row.status));
    });
  }
  for (const { history } of sources) notice(merged, history);
  return [...merged.values()].map(withLife).toSorted((a, b) => (b.from ?? "").localeCompare(a.from ?? ""));
}

// Changes of status that scrapes noticed.
function notice(merged, history) {
  for (const step of history)
    for (const { field, lien: key, before, after } of step.changes) {
      const lien = field.endsWith("].status") && merged.get(key);
      if (!lien || typeof before !== "string" || typeof after !== "string") continue;
      lien.noticed ??= [];
      lien.noticed.push({ date: step.scraped_at.slice(0, 10), kind: "noticed", text: `${before} → ${after} noticed` });
    }
}

function withLife(lien) {
  const sold = dated(lien.certificate_sale_date) ?? dated(lien.sale_date);
  const events = [];
  const add = (date, kind, text, amount) => {
    if (dated(date)) events.push({ date, kind, text: amount ? `${text} ${money(amount)}` : text });
  };
  add(sold, "sold", "Sold", lien.face_amount);
  for (const sub of lien.subs.values())
    add(sub.sale_date, "sub", `Tax ${sub.tax_year ?? ""} added`.replace("  ", " "), sub.face_amount);
  add(lien.auction_date, "auction", "Auction", lien.high_bid ?? lien.opening_bid);
  add(lien.redemption_date, "redeemed", "Redeemed", lien.redemption_amount);
  events.push(...(lien.noticed ?? []));
  events.sort((a, b) => a.date.localeCompare(b.date));
  const redeemed = dated(lien.redemption_date);
  const isOpen = !redeemed && !ENDED.test(lien.status ?? "");
  const noticed = lien.noticed?.map(({ date }) => date).toSorted().at(-1);
  return { ...lien, from: sold, to: redeemed ?? (isOpen ? null : (noticed ?? sold)), isOpen, events };
}

const dated = (text) => (DATE.test(text ?? "") && !Number.isNaN(Date.parse(text)) ? text : null);

const COLUMNS = [
  { label: "Certificate" },
  { label: "Tax year", class: "num" },
  { label: "Status" },
  { label: "Amount", class: "num" },
  { label: "Rate", class: "num" },
  { label: "Holder" },
  { label: "What happened", class: "wide" },
  { label: "Sources" },
];

export function lienCard(liens) {
  const drawn = liens.filter(({ from }) => from).slice(0, MOST_DRAWN);
  const open = liens.filter(({ isOpen }) => isOpen).length;
  const today = new Date().toISOString().slice(0, 10);
  const rows = liens.map((lien) => ({ key: `lien ${lien.key}`, cells: cells(lien) }));
  return h(
    "section",
    { class: "card liens" },
    h(
      "div",
      { class: "card-head" },
      h("h2", null, "Liens"),
      h("p", { class: "note" }, liens.length ? `${open} open of ${liens.length}` : "none known"),
    ),
    drawn.length
      ? h(
          "figure",
          { class: "life-lines" },
          h(
            "ul",
            { class: "legend" },
            ["sold", "sub", "auction", "redeemed", "noticed"]
              .filter((kind) => drawn.some(({ events }) => events.some((event) => event.kind === kind)))
              .map((kind) => h("li", { class: `event-${kind}` }, LEGEND[kind])),
          ),
          lienChart(
            drawn.map((lien) => ({ ...lien, label: lien.number ?? "no number" })),
            today,
          ),
        )
      : null,
    liens.length ? scroller("Liens", table("Liens", COLUMNS, rows)) : null,
  );
}

const LEGEND = {
  sold: "sold",
  sub: "later tax added",
  auction: "auction",
  redeemed: "redeemed",
  noticed: "change of status noticed",
};

function cells(lien) {
  const statuses = new Set([...lien.statuses.values()].map((text) => text.toLowerCase()));
  const rate = lien.interest_rate_pct;
  const deadline = lien.isOpen && dated(lien.redemption_deadline);
  return [
    h("span", { class: "name" }, lien.number ?? NOTHING),
    lien.tax_year ?? lien.certificate_year ?? NOTHING,
    [
      status(lien.status && String(lien.status)),
      statuses.size > 1
        ? h("small", null, [...lien.statuses].map(([platform, text]) => `${platform}: ${text}`).join(", "), " ", differs())
        : null,
    ],
    money(lien.face_amount ?? lien.opening_bid),
    rate === undefined ? NOTHING : `${rate}%`,
    lien.holder_name ?? NOTHING,
    lien.events.length || deadline
      ? h(
          "ol",
          { class: "events" },
          lien.events.map(({ date, kind, text }) =>
            h("li", { class: `event-${kind}` }, h("span", { class: "whole" }, day(date)), " ", text),
          ),
          deadline ? h("li", null, h("span", { class: "whole" }, deadline), " redemption deadline") : null,
        )
      : NOTHING,
    h("span", { class: whole(lien.platforms.join(", ")) }, lien.platforms.join(", ") || NOTHING),
  ];
}

const differs = () => badge("warn", "differs");
