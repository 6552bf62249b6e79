// What a list is filtered by: choices with counts, and ranges.

import { h, on, patch, syncFields } from "./dom.js";
import { compact } from "./format.js";
import { titled } from "./cells.js";

const FEW = 6;
const WAIT_MS = 400;

const FLAG = { true: "yes", false: "no" };
const AMOUNT = { inputmode: "decimal", placeholder: "any" };

const FACETS = {
  parcels: [
    ["state", "State"],
    ["county", "County"],
    ["delinquent", "Delinquent"],
    ["has_liens", "Has liens"],
    ["status", "Tax status"],
    ["use", "Use"],
    ["tax_year", "Tax year"],
    ["platform", "Platform"],
    ["freshness", "Freshness"],
  ],
  liens: [
    ["status", "Status"],
    ["state", "State"],
    ["county", "County"],
    ["tax_year", "Tax year"],
    ["use", "Use of the parcel"],
    ["delinquent", "Delinquent"],
    ["platform", "Platform"],
    ["freshness", "Freshness"],
  ],
};
const RANGES = {
  parcels: [
    ["tax_due", "Tax due", "$"],
    ["lien_amount", "Lien amount", "$"],
    ["market_value", "Market value", "$"],
    ["acres", "Acres", ""],
    ["sold", "Last sale", "date"],
    ["scraped", "Scraped (UTC)", "date"],
  ],
  liens: [
    ["lien_amount", "Amount", "$"],
    ["sold", "Sold", "date"],
    ["tax_due", "Tax due", "$"],
    ["market_value", "Market value", "$"],
    ["acres", "Acres", ""],
    ["scraped", "Scraped (UTC)", "date"],
  ],
};
const FLAGS = new Set(["delinquent", "has_liens"]);

const ends = (name, unit) => (unit === "date" ? [`${name}_from`, `${name}_to`] : [`min_${name}`, `max_${name}`]);

export const valueText = (name, value) => {
  if (FLAGS.has(name)) return FLAG[value];
  return name === "county" ? titled(String(value)) : String(value);
};

// The active filters as [label, name, value]: what the chips above the table show.
export function activeFilters(kind, query) {
  const labels = new Map(FACETS[kind]);
  for (const [name, label, unit] of RANGES[kind]) {
    const sign = unit === "$" ? "$" : "";
    const [from, to] = ends(name, unit);
    labels.set(from, `${label} from ${sign}`.trimEnd());
    labels.set(to, `${label} to ${sign}`.trimEnd());
  }
  labels.set("q", "Search").set("owner", "Owner").set("bbox", "Area").set("changed_since", "Changed since");
  return [...query]
    .filter(([name]) => labels.has(name))
    .map(([name, value]) => {
      const label = labels.get(name);
      if (name === "bbox") return ["Area on the map", name, value];
      const text = valueText(name, value);
      if (label.endsWith("$")) return [`${label}${Number(text).toLocaleString("en-US")}`, name, value];
      return [`${label}: ${text}`, name, value];
    });
}

export const FILTERS = (kind) =>
  new Set([
    ...FACETS[kind].map(([name]) => name),
    ...RANGES[kind].flatMap(([name, , unit]) => ends(name, unit)),
    ...["q", "owner", "bbox", "changed_since"],
  ]);

export class Filters {
  // `onChange(change, isTyping)`, where change(query) edits the query; `onFind(facet, text)` returns the facet's values
  // that contain the text.
  constructor(kind, { onChange, onFind }) {
    Object.assign(this, { kind, onChange, onFind, facets: null, open: new Set(), finds: new Map(), timers: new Map() });
    this.choices = h("div", { class: "facets" });
    this.ranges = h("div", { class: "ranges" }, RANGES[kind].map(rangeFields));
    this.root = h("form", { class: "filters", "aria-label": "Filters" }, this.choices, this.ranges);
    this.root.addEventListener("submit", (event) => event.preventDefault());
    on(this.choices, "change", "[type=checkbox]", ({ name, value, checked }) => this.choose(name, value, checked));
    on(this.choices, "input", "[data-find]", ({ dataset, value }) =>
      this.wait(`find ${dataset.find}`, () => this.find(dataset.find, value.trim())),
    );
    on(this.choices, "click", "[data-all]", (button) => {
      const { all } = button.dataset;
      this.open.has(all) ? this.open.delete(all) : this.open.add(all);
      this.show(this.query, this.answer);
    });
    on(this.ranges, "input", "input", (input) => this.typed(input));
  }

  choose(name, value, checked) {
    this.onChange((query) => {
      const rest = query.getAll(name).filter((other) => other !== value && !FLAGS.has(name));
      query.delete(name);
      for (const other of checked ? [...rest, value] : rest) query.append(name, other);
    });
  }

  async find(name, text) {
    const values = text ? await this.onFind(name, text) : [];
    if (!values) return;
    if (text) this.finds.set(name, { text, values });
    else this.finds.delete(name);
    this.show(this.query, this.answer);
  }

  typed(input) {
    const text = input.type === "date" ? input.value : input.value.replaceAll(/[$,\s]/g, "");
    const isValid = input.type === "date" ? input.validity.valid : /^(\d+(\.\d{0,2})?)?$/.test(text);
    input.setAttribute("aria-invalid", String(!isValid));
    this.wait(input.name, () => {
      if (!isValid) return;
      this.onChange((query) => {
        if (text) query.set(input.name, text);
        else query.delete(input.name);
      }, true);
    });
  }

  // Until nothing was typed into this input for a moment.
  wait(name, action) {
    clearTimeout(this.timers.get(name));
    this.timers.set(name, setTimeout(action, WAIT_MS));
  }

  // `answer`: the gateway's, or null while there is none.
  show(query, answer) {
    if (answer !== this.answer) for (const [name, { text }] of this.finds) this.find(name, text);
    const { facets = null, total = 0 } = answer ?? {};
    Object.assign(this, { query, answer, facets, total });
    for (const input of this.ranges.querySelectorAll("input")) {
      const given = query.get(input.name) ?? "";
      if (document.activeElement !== input && input.value !== given) input.value = given;
    }
    if (!facets) return;
    const note = answer.is_exact ? null : h("p", { class: "note" }, "More match than are counted: there may be more of each.");
    patch(this.choices, note, FACETS[this.kind].map(([name, label]) => this.facet(name, label)));
    syncFields(this.choices);
  }

  facet(name, label) {
    const chosen = new Set(this.query.getAll(name));
    const found = this.finds.get(name);
    const isLong = (this.facets[name] ?? []).length >= this.answer.max_values;
    const counted = (found?.values ?? this.facets[name] ?? []).filter(({ value }) => value !== null && value !== "");
    if (name === "tax_year" || FLAGS.has(name)) counted.sort((a, b) => Number(b.value) - Number(a.value));
    if (counted.length === 1 && counted[0].count === this.total && !chosen.size) return null; // no choice
    const there = new Set(counted.map(({ value }) => String(value)));
    const gone = [...chosen].filter((value) => !there.has(value)).map((value) => ({ value, count: 0 }));
    const all = [...counted, ...gone];
    if (!all.length && !found) return null;
    const few = this.open.has(name)
      ? all
      : all.filter(({ value }, place) => place < FEW || chosen.has(String(value)));
    const more = all.length - few.length;
    return h(
      "fieldset",
      { "data-key": `facet ${name}` },
      h("legend", null, label),
      isLong || found
        ? h("input", {
            type: "search",
            "data-find": name,
            "data-key": "find",
            "aria-label": `Find in ${label}`,
            placeholder: `Find; the top ${this.answer.max_values} are listed`,
            value: found?.text ?? "",
            autocomplete: "off",
            spellcheck: "false",
          })
        : null,
      found && !all.length ? h("small", null, "No match") : null,
      few.map(({ value, count }) => choice(name, String(value), this.answer.is_exact, count, chosen.has(String(value)))),
      more || (this.open.has(name) && all.length > FEW)
        ? h("button", { type: "button", class: "quiet", "data-all": name }, more ? `Show ${more} more` : "Show fewer")
        : null,
    );
  }

  leave() {
    for (const timer of this.timers.values()) clearTimeout(timer);
  }
}

function choice(name, value, isExact, count, checked) {
  const input = h("input", { type: "checkbox", name, value, checked });
  return h(
    "label",
    { class: "check", "data-key": `${name}=${value}` },
    input,
    h("span", null, valueText(name, value)),
    h("small", null, isExact ? compact(count) : `${compact(count)}+`),
  );
}

function rangeFields([name, label, unit]) {
  const [from, to] = ends(name, unit);
  const attributes = unit === "date" ? { type: "date" } : { type: "text", autocomplete: "off", maxlength: 20, ...AMOUNT };
  const input = (key, end) => h("input", { name: key, "aria-label": `${label} ${end}`, ...attributes });
  return h(
    "fieldset",
    { class: unit === "date" ? "range dates" : "range" },
    h("legend", null, label, unit === "$" ? h("small", null, " in $") : null),
    input(from, "from"),
    h("span", { "aria-hidden": "true" }, "to"),
    input(to, "to"),
  );
}
