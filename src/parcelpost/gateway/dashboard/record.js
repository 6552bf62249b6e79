// A record as sections. Fields that no section names are shown at the end, so that nothing is hidden.

import { h } from "./dom.js";
import { money, NOTHING, number, words } from "./format.js";
import { status } from "./cells.js";
import { badge, scroller, table, whole } from "./table.js";

const SECTIONS = [
  ["Owner", "owner_names ownership_type owner_lines mailing_lines mailing_city mailing_state mailing_zip mailing_country"],
  [
    "Property",
    "situs_address situs_city situs_zip legal_description subdivision map_block_lot block lot sec_twp_rng " +
      "land_use_code land_use_desc zoning flood_zone land_area_acres building_area_sqft year_built " +
      "building_count bedrooms bathrooms permit_count latitude longitude",
  ],
  [
    "Value",
    "value_year value_status land_value building_value extra_feature_value classified_land_value " +
      "market_value classified_use_value assessment_cap_value assessed_value exemptions exemption_value " +
      "taxable_value taxable_value_school homestead",
  ],
  [
    "Tax and sale",
    "tax_account alternate_id tax_district millage_rate tax_year tax_amount tax_status tax_due delinquent " +
      "delinquent_years last_sale_date last_sale_price last_sale_instrument last_sale_book_page",
  ],
].map(([title, names]) => [title, names.split(" ")]);
const LISTS = [
  ["tax_bills", "Tax bills"],
  ["valuations", "Valuations"],
  ["buildings", "Buildings"],
  ["liens", "Liens"],
  ["sales", "Sales"],
];
const KNOWN_ELSEWHERE = new Set(["parcel_id", "state", "county", "platform", "scraped_at", "source_url"]);
const MONEY = /(_value|_amount|_price|_bid|^surplus|^price|^value|^premium|tax_due|taxable_value_school)$/;
const PLAIN_NUMBER = /(year|code|zip|latitude|longitude|number|installment)/;

const OF_THE_SCRAPE = new Set([
  ...KNOWN_ELSEWHERE,
  "parcel_id_norm",
  "raw_html_hash",
  "parser_version",
  "record_kind",
  "county_fips",
  "data_date",
  "completeness",
  "unreadable",
]);

// The fields for which two of the records have values that do not read the same.
export function differences(records) {
  const names = new Set(records.flatMap(Object.keys));
  const isList = (name) => LISTS.some(([list]) => list === name);
  return new Set(
    [...names].filter((name) => {
      if (OF_THE_SCRAPE.has(name) || isList(name)) return false;
      const given = records.map((record) => record[name]).filter((value) => !isNothing(value));
      return new Set(given.map((value) => essence(shown(name, value)))).size > 1;
    }),
  );
}

// Without case, spaces and punctuation: sources write the same in many ways.
const essence = (text) => text.toLowerCase().replaceAll(/(?![.-]\d)[^\p{L}\p{N}]/gu, "");

// The fields of one source.
export function sections(record) {
  const blocks = groups([record])
    .map(([title, names]) => fieldList(title, names, record))
    .filter(Boolean);
  return h("div", { class: "fields" }, blocks);
}

// The fields of several sources side by side; those in `differing` are marked.
export function comparison(sources, differing) {
  const records = sources.map(({ record }) => record);
  const bodies = groups(records).map(([title, names]) => {
    const given = names.filter((name) => records.some((record) => !isNothing(record[name])));
    if (!given.length) return null;
    const isSame = !given.some((name) => differing.has(name));
    return h(
      "tbody",
      { class: isSame ? "same" : "" },
      h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: sources.length + 1 }, title)),
      given.map((name) => comparedRow(name, sources, differing.has(name))),
    );
  });
  const only = h(
    "label",
    { class: "check" },
    h("input", { type: "checkbox", name: "only-differing" }),
    ` Show differences only (${differing.size})`,
  );
  return h(
    "section",
    { class: "card comparison" },
    h("div", { class: "card-head" }, h("h2", null, "Source comparison"), differing.size ? only : null),
    differing.size ? null : h("p", { class: "note padded" }, "All sources agree."),
    scroller(
      "Source comparison",
      h(
        "table",
        { class: "compared" },
        h("caption", { class: "unseen" }, "Source comparison"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "Field"),
            sources.map(({ platform }) => h("th", { scope: "col" }, platform)),
          ),
        ),
        bodies,
      ),
    ),
  );
}

// On a narrow screen, a value that another source has shown in the row is not repeated.
function comparedRow(name, sources, isDiffering) {
  let isShown = false;
  return h(
    "tr",
    { class: isDiffering ? "differing" : "same" },
    h("th", { scope: "row" }, words(name), isDiffering ? [" ", badge("warn", "differs")] : null),
    sources.map(({ platform, record }) => {
      const isMissing = isNothing(record[name]);
      const isRepeated = isShown && !isDiffering && !isMissing;
      isShown ||= !isMissing;
      const attributes = { "data-label": platform, class: isRepeated ? "repeated" : null };
      return h("td", attributes, isMissing ? null : shown(name, record[name]));
    }),
  );
}

// [title, names of fields]; fields that no section names are at the end.
function groups(records) {
  const ofLiens = records.filter((record) => record.record_kind === "lien").flatMap(({ liens }) => liens ?? []);
  const used = new Set([
    ...SECTIONS.flatMap(([, names]) => names),
    ...LISTS.map(([name]) => name),
    ...ofLiens.flatMap((lien) => Object.keys(lien ?? {})),
    ...OF_THE_SCRAPE,
  ]);
  const others = [...new Set(records.flatMap(Object.keys))].filter((name) => !used.has(name));
  const ofTheScrape = [...OF_THE_SCRAPE].filter((name) => !KNOWN_ELSEWHERE.has(name));
  return [...SECTIONS, ["Other", others], ["Scrape details", ofTheScrape]];
}

// The lists that are not shown merged, as each source has them.
export const lists = (sources) =>
  LISTS.flatMap(([name, title]) => {
    const given = sources.filter(({ record }) => Array.isArray(record[name]) && record[name].length);
    return given.map(({ platform, record }) =>
      h(
        "details",
        { class: "listed", "data-key": `${name} ${platform}` },
        h("summary", null, h("b", null, title), ` of ${platform} (${record[name].length})`),
        scroller(`${title} of ${platform}`, list(`${title} of ${platform}`, record[name]), "scroll list"),
      ),
    );
  });

function fieldList(title, names, record) {
  const given = names.filter((name) => !isNothing(record[name]));
  if (!given.length) return null;
  const rows = given.map((name) =>
    h(
      "div",
      null,
      h("dt", null, words(name)),
      h("dd", null, shown(name, record[name])),
    ),
  );
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", null, title)),
    h("dl", { class: "pairs" }, rows),
  );
}

function list(title, rows) {
  const objects = rows.map((row) =>
    row && typeof row === "object" && !Array.isArray(row) ? row : { value: row },
  );
  const names = [...new Set(objects.flatMap(Object.keys))].filter((name) =>
    objects.some((row) => !isNothing(row[name])),
  );
  const isFigure = (name) =>
    !PLAIN_NUMBER.test(name) && objects.every((row) => isNothing(row[name]) || typeof row[name] === "number");
  const columns = names.map((name) => ({ label: words(name), class: isFigure(name) ? "num" : "" }));
  return table(
    title,
    columns,
    objects.map((row) => ({
      cells: names.map((name) =>
        name === "status" ? status(row[name] && String(row[name])) : cell(name, row[name]),
      ),
    })),
  );
}

function cell(name, value) {
  const text = shown(name, value);
  return h("span", { class: whole(text) }, text);
}

export const isNothing = (value) =>
  value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);

export function shown(name, value) {
  if (isNothing(value)) return NOTHING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (MONEY.test(name)) return money(value);
    return PLAIN_NUMBER.test(name) ? String(value) : Number.isInteger(value) ? number(value) : String(value);
  }
  if (Array.isArray(value) && value.every((item) => typeof item !== "object"))
    return value.join(name === "mailing_lines" ? ", " : "; ");
  if (typeof value === "string") return value;
  const members = Array.isArray(value) ? value.map((item) => ["", item]) : Object.entries(value);
  return members
    .filter(([, item]) => !isNothing(item))
    .map(([key, item]) => `${key ? `${words(key)} ` : ""}${shown(key, item)}`)
    .join(", ");
}
