// Routing between pages, polling, and what to do when the gateway is unreachable.

import { ask, Unreachable, Forbidden, NeedsToken, token } from "./api.js";
import { chooseCommand, confirm } from "./commands.js";
import { h, patch } from "./dom.js";
import { duration, plural } from "./format.js";
import { viewOf } from "./routes.js";
import { TokenPage } from "./token.js";

const EVERY_MS = 3_000;
const LONGEST_MS = 15_000;
const STALE_MS = 12_000;

const at = (id) => document.getElementById(id);

class Page {
  hours = "auto";
  view = null;
  overview = null;
  updatedAt = null;
  problem = null;
  isAdmin = null;
  failures = 0;
  timer = 0;
  asking = null;

  start() {
    addEventListener("hashchange", () => this.route());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.poll()));
    addEventListener("online", () => this.poll());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("main").focus();
    });
    at("menu").addEventListener("click", () => this.showMenu(at("menu").getAttribute("aria-expanded") !== "true"));
    at("sign-in").addEventListener("click", () => this.askForToken());
    at("sign-out").addEventListener("click", () => {
      token.clear();
      location.reload();
    });
    setInterval(() => this.showState(), 1_000);
    this.route();
    this.poll();
  }

  route() {
    const [path, query] = (location.hash.slice(1) || "/").split("?");
    this.showMenu(false);
    const followed = this.view?.follow?.(path, new URLSearchParams(query));
    if (followed) {
      this.markLink(followed === true ? path : followed);
      return;
    }
    const [view, link] = viewOf(this, location);
    this.show(view);
    this.markLink(link);
  }

  markLink(link) {
    for (const anchor of document.querySelectorAll("#pages a")) {
      if (link && anchor.getAttribute("href").replace(/^\/#/, "") === link) anchor.setAttribute("aria-current", "page");
      else anchor.removeAttribute("aria-current");
    }
  }

  showMenu(open) {
    at("menu").setAttribute("aria-expanded", String(open));
  }

  show(view) {
    const moved = this.view !== null;
    this.view?.leave?.();
    this.view = view;
    at("main").replaceChildren(view.root);
    this.name(view.title);
    if (moved) {
      scrollTo(0, 0);
      at("main").focus({ preventScroll: true });
    }
    if (this.overview && !(view instanceof TokenPage)) this.poll();
  }

  name(title) {
    document.title = `${title} – Parcelpost gateway`;
  }

  rest() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  async poll() {
    this.rest();
    if (document.hidden || this.view.isPublic || this.view instanceof TokenPage) return;
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      if (this.isAdmin === null) await this.learnRole(signal);
      this.overview = await ask(`/v1/overview?hours=${this.hours}`, { signal });
      await this.view.update?.(this.overview, signal);
      this.updated();
    } catch (error) {
      if (signal.aborted) return;
      this.failed(error);
    }
    if (!signal.aborted)
      this.timer = setTimeout(
        () => this.poll(),
        Math.min(LONGEST_MS, EVERY_MS * 2 ** Math.min(this.failures, 3)),
      );
  }

  // Whoever may only read sees no button with data-admin.
  async learnRole(signal) {
    const { role } = await ask("/v1/access", { signal });
    this.isAdmin = role === "admin";
    document.body.classList.toggle("admin", this.isAdmin);
    at("sign-in").hidden = this.isAdmin || Boolean(token.get());
  }

  updated() {
    this.updatedAt = performance.now();
    this.failures = 0;
    this.problem = null;
    at("version").textContent = `Gateway ${this.overview.version}`;
    this.showState();
  }

  failed(error) {
    if (!(
      error instanceof NeedsToken ||
      error instanceof Forbidden ||
      error instanceof Unreachable ||
      error.status
    )) {
      reportError(error); // a bug: keep what is shown and try again
      return;
    }
    this.failures += 1;
    this.problem = error;
    if (error instanceof NeedsToken && !(this.view instanceof TokenPage)) this.askForToken();
    this.showState();
  }

  askForToken() {
    this.rest();
    const wrong = Boolean(token.get());
    token.clear();
    this.show(
      new TokenPage(wrong, (given) => {
        token.set(given);
        this.problem = null;
        this.isAdmin = null;
        this.route();
        this.poll();
      }),
    );
  }

  showHours(hours) {
    this.hours = hours;
    this.poll();
  }

  showState() {
    const age = this.updatedAt === null ? null : performance.now() - this.updatedAt;
    const [tone, word] = this.stateNow(age);
    const state = at("state");
    if (state.textContent !== word) state.textContent = word;
    state.className = `badge ${tone}`;
    at("age").textContent = age === null || !word || word === "Live" ? "" : `${duration(age / 1_000)} old`;
    at("sign-out").hidden = !token.get();
    document.body.classList.toggle("stale", age !== null && word !== "Live");
    const shown = this.problem && !(this.problem instanceof NeedsToken);
    patch(
      at("notice"),
      shown
        ? h(
            "p",
            { class: "notice" },
            h("b", null, this.problem.message),
            " ",
            h("span", null, advice(this.problem)),
          )
        : null,
    );
  }

  stateNow(age) {
    if (this.view.isPublic) return ["", ""];
    if (this.problem instanceof NeedsToken) return ["warn", "Sign in"];
    if (this.problem instanceof Forbidden) return ["bad", "Not allowed"];
    if (this.problem)
      return ["bad", this.problem instanceof Unreachable ? "Gateway unreachable" : "Gateway error"];
    if (age === null) return ["", "Connecting"];
    return age > STALE_MS ? ["warn", "Stale"] : ["good", "Live"];
  }

  async command(workerId) {
    const alive = this.overview.workers.filter((worker) => worker.alive).length;
    const choice = await chooseCommand(
      workerId ? `Command for ${workerId}` : `Command for ${plural(alive, "worker")}`,
    );
    if (choice)
      await this.post(
        "/v1/commands",
        workerId ? { command: choice, worker_id: workerId } : { command: choice, all: true },
      );
  }

  async refresh({ state, county, parcel_id }) {
    const reply = await this.post("/v1/refresh", { state, county, parcel_id });
    if (!reply) return;
    await confirm(
      reply.queued ? "Refresh queued" : "Nothing to refresh",
      reply.queued
        ? `${plural(reply.queued, "task")} will request this parcel from the site again.`
        : "The parcel is already being refreshed, or is known only from a list.",
      "OK",
    );
  }

  async post(path, body, pollAfter = true) {
    try {
      const reply = await ask(path, { body });
      if (pollAfter) this.poll();
      return reply;
    } catch (error) {
      if (error instanceof NeedsToken || (error instanceof Forbidden && token.get())) {
        const sure = await confirm(
          "Admin token required",
          "Commands require an admin token. Enter one now?",
          "Enter token",
        );
        if (sure) this.askForToken();
      } else this.failed(error);
    }
  }
}

function advice(problem) {
  if (problem instanceof Unreachable)
    return "Retrying automatically. If this persists, check that the gateway is running: parcelpost gateway serve";
  if (problem instanceof Forbidden)
    return "Open the dashboard at the gateway's own address, or configure a read token.";
  return problem.status === 500 ? "The gateway's log says what failed." : "";
}

new Page().start();
