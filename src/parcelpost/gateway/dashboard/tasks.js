// Tasks that ended without a record, as a table.

import { h } from "./dom.js";
import { moment, NOTHING, number } from "./format.js";
import { place } from "./parcels.js";
import { table, whole } from "./table.js";

export const OUTCOMES = [
  ["not_found", "Not found", "The site has no such parcel."],
  ["failed", "Failed", "A worker reported a permanent failure."],
  ["dead", "Dead", "All leases expired without a report."],
];
const COLUMNS = [
  { label: "Parcel" },
  { label: "Place" },
  { label: "Task" },
  { label: "Attempts", class: "num" },
  { label: "Ended" },
  { label: "Reason", class: "wide" },
];

export const tasksLink = (state, platform, text) =>
  h("a", { href: `#/tasks?${new URLSearchParams({ state, platform })}` }, text);

export const taskTable = (tasks) => table("Tasks", COLUMNS, tasks.map(row));

const row = (task) => ({
  key: `task ${task.task_id}`,
  cells: [
    [h("span", { class: `name ${whole(task.target.parcel_id)}` }, task.target.parcel_id), h("small", null, task.platform)],
    place(task.target),
    task.task_id,
    number(task.attempts),
    moment(task.ended_at),
    task.error || NOTHING,
  ],
});
