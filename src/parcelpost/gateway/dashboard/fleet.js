// The workers: their state, how far behind they are, and the commands sent to them.

import { h } from "./dom.js";
import { bytes, compact, duration, NOTHING, number } from "./format.js";
import { place } from "./cells.js";
import { badge, command, empty, table } from "./table.js";

const COLUMNS = [
  { label: "Worker" },
  { label: "State" },
  { label: "Last seen", class: "num" },
  { label: "In progress", class: "num" },
  { label: "Done / failed per minute", class: "num" },
  { label: "Pending", class: "num" },
  { label: "Undelivered", class: "num" },
  { label: "Lag", class: "num" },
  { label: "CPU / memory / free disk", class: "num" },
  { label: "", class: "act" },
];

// `known`: how many workers there are, if not all are shown.
export function fleet(workers, known = workers.length) {
  if (!known) {
    return empty(
      h("p", null, "No worker has connected yet. Start one:"),
      command(`parcelpost run --gateway ${location.origin}`),
    );
  }
  return table(
    "Workers",
    COLUMNS,
    workers.map((worker) => ({ key: `worker ${worker.worker_id}`, cells: cells(worker) })),
  );
}

function cells(worker) {
  return [
    [h("a", { class: "name", href: `#/worker/${encodeURIComponent(worker.worker_id)}` }, worker.worker_id), h("small", null, worker.version || "unknown version")],
    [stateOf(worker), pendingCommands(worker), blocked(worker)],
    `${duration(worker.silent_seconds)} ago`,
    number(worker.active_tasks),
    worker.alive ? lastMinute(worker) : NOTHING,
    worker.queue ? compact(worker.queue.pending ?? 0) : NOTHING,
    worker.queue ? compact(worker.unsynced) : NOTHING,
    worker.unsynced
      ? h("span", { class: worker.lag_seconds > 600 ? "warn" : "" }, duration(worker.lag_seconds))
      : NOTHING,
    worker.alive ? load(worker) : NOTHING,
    worker.alive
      ? h(
          "button",
          {
            type: "button",
            class: "small",
            "data-admin": true,
            "data-command": worker.worker_id,
            "aria-label": `Command for ${worker.worker_id}`,
          },
          "Command",
        )
      : null,
  ];
}

const lastMinute = (worker) => [
  number(worker.completed_last_minute),
  " / ",
  h("span", { class: worker.failed_last_minute ? "bad" : "" }, number(worker.failed_last_minute)),
];

function load(worker) {
  const [cpu, memory] = [worker.cpu_percent, worker.memory_percent].map((share) => `${Math.round(share)}%`);
  return `${cpu} / ${memory} / ${worker.disk_free_bytes ? bytes(worker.disk_free_bytes) : NOTHING}`;
}

export function stateOf(worker) {
  if (worker.state === "stopped") return badge("", "Stopped");
  if (worker.state === "offline") return badge("bad", "Offline");
  if (worker.paused) return badge("warn", "Paused");
  return badge("good", "Online");
}

// A site that is paused: a county, or a whole platform.
export const siteName = (site) => (site.county || site.state ? `${place(site)} on ${site.platform}` : site.platform);

function blocked({ alive, blocked: names }) {
  return alive && names.length ? h("small", { class: "warn" }, `blocked: ${names.slice(0, 3).map(siteName).join("; ")}`) : null;
}

function pendingCommands(worker) {
  if (!worker.pending_commands.length) return null;
  return h("small", null, `pending: ${worker.pending_commands.join(", ")}`);
}
