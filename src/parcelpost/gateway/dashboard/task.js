// One task: what it is for, its attempts, and what an operator does with it.

import { ask, fetchFile } from "./api.js";
import { h, on, patch } from "./dom.js";
import { duration, moment, NOTHING, number } from "./format.js";
import { linkTo, place } from "./cells.js";
import { act, STATES, stateBadge } from "./tasks.js";
import { badge, command, empty, facts, section, table } from "./table.js";

const AGAIN_MS = 6_000;
const PRIORITIES = { 1: "urgent", 2: "high", 3: "normal", 4: "batch" };
const ENDS = {
  done: ["good", "Done"],
  failed: ["bad", "Failed"],
  returned: ["warn", "Returned"],
  expired: ["warn", "Lease expired"],
  superseded: ["", "Another worker delivered"],
};
const SEEN_PAGE = "The last page that the attempt saw";
const COLUMNS = [
  { label: "Attempt" },
  { label: "Worker" },
  { label: "Started" },
  { label: "Duration", class: "num" },
  { label: "Outcome" },
  { label: "Error", class: "wide" },
];

export class TaskPage {
  title = "Task";

  constructor(app, rest) {
    Object.assign(this, { app, taskId: rest, askedAt: -Infinity, asking: new AbortController(), image: {} });
    this.root = h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …"));
    on(this.root, "click", "[data-act]", (button) => this.act(button.dataset.act));
    this.load();
  }

  async load() {
    this.askedAt = performance.now();
    try {
      const task = await ask(`/v1/tasks/${encodeURIComponent(this.taskId)}`, { signal: this.asking.signal });
      const parcel = task.parcel ? await ask(task.parcel, { signal: this.asking.signal }) : null;
      this.source = parcel?.sources.find((source) => source.platform === task.platform);
      this.show(task);
      await this.showImage(task.artifacts.find((artifact) => artifact.kind === "screenshot" && artifact.path));
    } catch (error) {
      if (this.asking.signal.aborted) return;
      this.askedAt = -Infinity;
      if (error.status === 404) this.showMissing();
      else this.app.failed(error);
    }
  }

  // With a token the browser cannot load the image by itself.
  async showImage(artifact) {
    const key = artifact && `${artifact.path} ${artifact.reported_at}`;
    if (key === this.image.key) return;
    const file = artifact && (await fetchFile(artifact.path).catch(() => null));
    if (this.asking.signal.aborted) return;
    URL.revokeObjectURL(this.image.url);
    this.image = { key, url: file && URL.createObjectURL(file), isMissing: file === null };
    this.show(this.task);
  }

  showMissing() {
    this.askedAt = Infinity;
    this.app.name("No such task");
    patch(
      this.root,
      h("h1", null, "No such task"),
      empty(
        h("p", null, "There is no task ", h("code", null, this.taskId), ". Ended tasks are deleted after a while."),
        h("a", { href: "#/tasks" }, "All tasks"),
      ),
    );
  }

  show(task) {
    this.task = task;
    this.app.name(task.task_id);
    patch(
      this.root,
      this.head(task),
      task.error ? h("p", { class: "failure", "data-key": "error" }, h("b", null, "Error"), " ", task.error) : null,
      facts(this.facts(task)),
      section("Attempts", null, attempts(task.leases)),
      evidence(task, this.source, this.image),
    );
  }

  head(task) {
    const button = (name, label) =>
      h(
        "button",
        { type: "button", "data-admin": true, "data-act": name, "data-key": name, class: name === "delete" ? "danger" : null },
        label,
      );
    const hasEnded = task.ended_at !== null;
    return h(
      "div",
      { class: "title" },
      h("p", { class: "path" }, h("a", { href: `#/tasks?state=${task.state}` }, "Tasks"), ` / ${STATES[task.state].label}`),
      h("h1", null, task.task_id, " ", stateBadge(task.state)),
      h(
        "div",
        { class: "buttons start" },
        hasEnded && task.state !== "done" ? button("retry", "Retry") : null,
        task.parcel ? button("refresh", "Refresh parcel") : null,
        task.state === "leased" ? null : button("delete", "Delete"),
      ),
    );
  }

  facts(task) {
    const { target } = task;
    const county = `${task.platform}/${target.state}/${target.county}`;
    return [
      ["Parcel", task.parcel ? h("a", { href: linkTo(task.parcel) }, target.parcel_id) : target.parcel_id || NOTHING],
      ["County", h("a", { href: `#/county/${county}` }, place(target))],
      ["Platform", task.platform],
      ["Type", task.type],
      ["Priority", PRIORITIES[task.priority] ?? number(task.priority)],
      ["Attempts", `${number(task.attempts)} of ${number(task.max_attempts)}`],
      ["Added", moment(task.created_at)],
      ["Ended", task.ended_at ? moment(task.ended_at) : NOTHING],
      ...(/^https?:\/\//i.test(target.url)
        ? [["Page", h("a", { href: target.url, rel: "noopener noreferrer", target: "_blank" }, target.url)]]
        : []),
    ];
  }

  async act(name) {
    const changed = await act(this.app, name, [{ task_ids: [this.task.task_id] }]);
    if (changed && name === "delete") location.hash = `#/tasks?state=${this.task.state}`;
    else if (changed) await this.load();
  }

  update() {
    if (performance.now() - this.askedAt >= AGAIN_MS) this.load();
  }

  leave() {
    this.asking.abort();
    URL.revokeObjectURL(this.image.url);
  }
}

function attempts(leases) {
  if (!leases.length) return empty(h("p", null, "No worker has taken this task yet."));
  const rows = leases.map((lease, place) => ({
    key: `attempt ${place}`,
    cells: [
      `Attempt ${place + 1}`,
      h("a", { href: `#/worker/${encodeURIComponent(lease.worker_id)}` }, lease.worker_id),
      moment(lease.granted_at),
      lasted(lease),
      lease.end ? badge(...ENDS[lease.end]) : [badge("good", "In progress"), h("small", null, "lease ends ", moment(lease.expires_at))],
      lease.error || NOTHING,
    ],
  }));
  return table("Attempts", COLUMNS, rows.reverse());
}

function lasted({ granted_at: from, ended_at: to }) {
  const seconds = ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1_000;
  return seconds < 10 ? `${Math.max(0, seconds).toFixed(1)} s` : duration(seconds);
}

// What the last failed attempt saw, and the newest page of the parcel.
function evidence(task, source, image) {
  const last = task.leases.findLast((lease) => lease.end === "failed" || lease.end === "returned");
  const [screenshot, page] = ["screenshot", "page"].map((kind) => task.artifacts.find((artifact) => artifact.kind === kind));
  if (!last && !source?.page && !screenshot && !page) return null;
  return section(
    last || screenshot ? "Screenshot and page" : "Page",
    null,
    h(
      "div",
      { class: "prose" },
      page
        ? h(
            "p",
            { "data-key": "page" },
            page.path ? h("a", { href: pageLink(page.path) }, SEEN_PAGE) : SEEN_PAGE,
            reported(page),
          )
        : null,
      source?.page
        ? h(
            "p",
            { "data-key": "newest" },
            h("a", { href: pageLink(source.page) }, "The newest page of this parcel"),
            ", scraped ",
            moment(source.scraped_at),
            source.task_id === task.task_id ? " by this task." : ` by task ${source.task_id}.`,
          )
        : null,
      screenshot
        ? h(
            "figure",
            { class: "screenshot", "data-key": "screenshot" },
            h("figcaption", null, "What the attempt saw in its browser", reported(screenshot)),
            screenshot.path ? picture(image) : null,
          )
        : null,
      last && !screenshot?.path ? missing(task, last, screenshot) : null,
    ),
  );
}

const pageLink = (path) => `/dashboard/page.html#${path}`;
const reported = ({ path, worker_id: worker, reported_at: at }) =>
  [`, reported by ${worker} `, moment(at), path ? "." : ", is not uploaded yet."];

const picture = (image) =>
  image.url
    ? h("img", { src: image.url, alt: "Screenshot of the failed attempt" })
    : h("p", null, image.isMissing ? "It cannot be loaded." : "Loading …");

function missing(task, { worker_id: worker }, isNamed) {
  const shell = /^[\w.~-]+$/.test(task.task_id) ? task.task_id : `'${task.task_id.replaceAll("'", "'\\''")}'`;
  return [
    isNamed ? null : h("p", { "data-key": "missing" }, "There is no screenshot of the last failed attempt: only a page that was opened in a browser has one."),
    h("p", { "data-key": "worker" }, `To see what ${worker} has stored about this task, run on its machine:`),
    command(`parcelpost tasks show ${shell}`),
  ];
}
