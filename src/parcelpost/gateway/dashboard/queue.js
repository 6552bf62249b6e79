// Queued tasks by platform and priority.

import { h, s } from "./dom.js";
import { compact, duration, NOTHING, number } from "./format.js";
import { badge, command, empty, table } from "./table.js";
import { tasksLink } from "./tasks.js";

const PRIORITIES = [
  [1, "urgent"],
  [2, "high"],
  [3, "normal"],
  [4, "batch"],
];
const COLUMNS = [
  { label: "Platform" },
  { label: "Queued", class: "wide" },
  { label: "Tasks", class: "num" },
  { label: "Oldest", class: "num" },
  { label: "Leased", class: "num" },
  { label: "Not found", class: "num" },
  { label: "Failed", class: "num" },
  { label: "Dead", class: "num" },
];

export const legend = () =>
  h(
    "ul",
    { class: "legend" },
    PRIORITIES.map(([level, name]) => h("li", { class: `level-${level}` }, name)),
  );

export function queue(rows, unclaimed) {
  const platforms = gather(rows);
  if (!platforms.length) {
    return empty(
      h("p", null, "No tasks yet. Add some:"),
      command("parcelpost gateway add tasks.csv"),
    );
  }
  const most = Math.max(1, ...platforms.map(({ queued }) => queued));
  return table(
    "Tasks by platform and priority",
    COLUMNS,
    platforms.map((row) => ({
      key: `queue ${row.platform}`,
      cells: cells(row, most, unclaimed.includes(row.platform)),
    })),
  );
}

const inState = (rows, state) =>
  rows.filter((row) => row.state === state).reduce((sum, row) => sum + row.tasks, 0);

function gather(rows) {
  const names = [...new Set(rows.map((row) => row.platform))].sort();
  return names.map((platform) => {
    const own = rows.filter((row) => row.platform === platform);
    const levels = PRIORITIES.map(([level]) =>
      inState(
        own.filter((row) => row.priority === level),
        "queued",
      ),
    );
    const ages = own.map((row) => row.oldest_seconds).filter((age) => age !== null);
    return {
      platform,
      levels,
      queued: inState(own, "queued"),
      oldest: ages.length ? Math.max(...ages) : null,
      leased: inState(own, "leased"),
      notFound: inState(own, "not_found"),
      failed: inState(own, "failed"),
      dead: inState(own, "dead"),
    };
  });
}

function cells(row, most, isUnclaimed) {
  const name = h("span", { class: "name" }, row.platform);
  return [
    isUnclaimed ? [name, badge("warn", "no worker")] : name,
    bar(row, most),
    row.queued ? tasksLink({ state: "queued", platform: row.platform }, compact(row.queued)) : "0",
    row.oldest === null ? NOTHING : duration(row.oldest),
    row.leased ? tasksLink({ state: "leased", platform: row.platform }, compact(row.leased)) : "0",
    row.notFound ? tasksLink({ state: "not_found", platform: row.platform }, compact(row.notFound)) : "0",
    row.failed ? h("span", { class: "bad" }, tasksLink({ state: "failed", platform: row.platform }, compact(row.failed))) : "0",
    row.dead ? h("span", { class: "bad" }, tasksLink({ state: "dead", platform: row.platform }, compact(row.dead))) : "0",
  ];
}

function bar({ levels }, most) {
  const label = levels.map((count, place) => `${PRIORITIES[place][1]} ${number(count)}`).join(", ");
  let left = 0;
  const parts = levels.map((count, place) => {
    const width = (count / most) * 100;
    const part = count
      ? s("rect", { class: `level-${place + 1}`, x: `${left}%`, y: 0, width: `${width}%`, height: 10 })
      : null;
    left += width;
    return part;
  });
  return s(
    "svg",
    { class: "bar-line", height: 10, role: "img", "aria-label": label },
    s("title", null, label),
    parts,
  );
}
