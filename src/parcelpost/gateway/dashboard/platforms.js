// Platform health: success rates, blocks and failing selectors.

import { h } from "./dom.js";
import { compact, NOTHING, number, plural } from "./format.js";
import { badge, empty, meter, table } from "./table.js";

const COLUMNS = [
  { label: "Platform" },
  { label: "Success (24 h)", class: "num" },
  { label: "Succeeded / failed", class: "num" },
  { label: "Blocked" },
  { label: "Failing selectors" },
];

const TONES = { healthy: "good", degraded: "warn", failing: "bad" };

// Platforms with tasks, results or problems; the rest are collapsed.
export function platforms(rows, queue) {
  if (!rows.length)
    return empty(h("p", null, "No platforms yet. They appear with the first worker."));
  const withTasks = new Set(queue.map(({ platform }) => platform));
  const busy = rows.filter((row) => withTasks.has(row.platform) || hasNews(row));
  const idle = rows.filter((row) => !busy.includes(row)).map(({ platform }) => platform);
  return [
    busy.length
      ? table(
          "Platform health",
          COLUMNS,
          busy.map((row) => ({ key: `platform ${row.platform}`, cells: cells(row) })),
        )
      : empty(h("p", null, "No platform has had tasks yet.")),
    idle.length
      ? h(
          "details",
          { class: "idle", "data-key": "idle platforms" },
          h("summary", null, `${number(idle.length)}${busy.length ? " more" : ""} without tasks`),
          h("p", null, idle.join(", ")),
        )
      : null,
  ];
}

const hasNews = (row) =>
  row.succeeded ||
  row.failed ||
  row.blocked_workers.length ||
  row.failing_selectors.length ||
  row.outdated_selectors.length;

function cells(row) {
  return [
    h("span", { class: "name" }, row.platform),
    success(row),
    `${compact(row.succeeded)} / ${compact(row.failed)}`,
    row.blocked_workers.length
      ? [
          badge("warn", plural(row.blocked_workers.length, "worker")),
          h("small", null, row.blocked_workers.slice(0, 3).join(", ")),
        ]
      : NOTHING,
    selectors(row),
  ];
}

function success({ success_rate: share, state }) {
  if (share === null) return NOTHING;
  return meter(share, TONES[state]);
}

// If another selector still finds the field, no data is lost: the selector is only outdated.
function selectors({ failing_selectors: failing, outdated_selectors: outdated }) {
  if (!failing.length && !outdated.length) return NOTHING;
  return [
    folded(failing, plural(failing.length, "selector")),
    folded(outdated, `${number(outdated.length)} outdated, field still found`),
  ];
}

function folded(selectors, summary) {
  if (!selectors.length) return null;
  const items = selectors
    .slice(0, 20)
    .map(({ field, selector, site }) =>
      h("li", null, h("b", null, field), " ", h("code", null, selector), h("small", null, site)),
    );
  return h("details", { class: "selectors" }, h("summary", null, summary), h("ul", null, items));
}
