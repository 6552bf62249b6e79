// Dialogs for commands and confirmations.

import { h, patch } from "./dom.js";

const COMMANDS = [
  ["pause", "Pause", "Start no new tasks until resumed. Results are still delivered."],
  ["resume", "Resume", "End a pause."],
  ["sync-now", "Sync now", "Deliver all waiting results now."],
  ["drain", "Drain", "Finish running tasks, deliver the results, then exit."],
  ["stop", "Stop", "Exit immediately. Nothing is lost: unfinished tasks are run later."],
];
const PLATFORMS = "platforms";

const dialog = document.getElementById("dialog");

// Resolves to the chosen command, or null.
export function chooseCommand(title) {
  const choices = COMMANDS.map(([value, label, meaning], place) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "choice", value, required: true, autofocus: place === 0 }),
      h("span", null, h("b", null, label), h("small", null, meaning)),
    ),
  );
  const fields = h("fieldset", null, h("legend", { class: "unseen" }, "Command"), choices);
  addPlatforms(fields);
  return open(title, [fields], "Send", commandOf);
}

function addPlatforms(fields) {
  const radio = h("input", { type: "radio", name: "choice", value: PLATFORMS });
  const names = h("input", {
    type: "text",
    name: "names",
    "aria-label": "Platforms, separated by commas",
    placeholder: "vgsi, beacon",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 800,
    pattern: String.raw`\s*[\w.\-]+(\s*,\s*[\w.\-]+)*\s*`,
  });
  names.addEventListener("input", () => {
    radio.checked = true;
  });
  fields.addEventListener("change", () => {
    if (!radio.checked) names.value = "";
  });
  const note = h(
    "small",
    null,
    "Take only tasks for these platforms. Leave empty to allow all.",
  );
  fields.append(
    h("label", { class: "choice" }, radio, h("span", null, h("b", null, "Platforms"), note, names)),
  );
}

function commandOf(given) {
  const choice = given.get("choice");
  return choice === PLATFORMS ? `platforms:${given.get("names").replaceAll(/\s/g, "")}` : choice;
}

const ACTIONS = {
  "run-now": ["Run now", "Start a run now. Later runs stay as scheduled."],
  pause: ["Pause", "Start no runs. A run in progress queues no more tasks."],
  resume: ["Resume", "A run that was missed starts immediately."],
  delete: ["Delete", "Also delete its runs, and its tasks that no worker has taken. Parcels and changes are kept."],
};

// Resolves to what to do with a schedule, or null.
export function chooseAction({ name, status }) {
  const actions = status === "paused" ? ["resume", "delete"] : ["run-now", "pause", "delete"];
  const fitting = actions.filter((action) => action !== "run-now" || status === "waiting");
  const choices = fitting.map((value, place) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "choice", value, required: true, autofocus: place === 0 }),
      h("span", null, h("b", null, ACTIONS[value][0]), h("small", null, ACTIONS[value][1])),
    ),
  );
  const fields = h("fieldset", null, h("legend", { class: "unseen" }, "Action"), choices);
  return open(`Schedule ${name}`, [fields], "Continue", (given) => given.get("choice"));
}

// Resolves to a new schedule, or null. `place`: platform/state/county that it is for, or ''.
export async function addSchedule(place) {
  const [county, state, ...platform] = place.split("/").reverse();
  const input = (name, label, attributes = {}) =>
    h(
      "label",
      { class: "field" },
      h("span", null, label),
      h("input", { name, type: "text", autocomplete: "off", spellcheck: "false", maxlength: 200, ...attributes }),
    );
  const scope = h(
    "label",
    { class: "field" },
    h("span", null, "Parcels"),
    h(
      "select",
      { name: "scope" },
      h("option", { value: "known" }, "all known parcels"),
      h("option", { value: "delinquent" }, "delinquent parcels"),
      h("option", { value: "list" }, "a whole list"),
    ),
  );
  const fields = [
    input("name", "Name", { required: true, value: county.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-"), pattern: "[a-z0-9][a-z0-9._\\-]{0,63}", placeholder: "columbia-weekly" }),
    input("platform", "Platform", { required: true, value: platform.reverse().join("/"), placeholder: "grizzly_gis" }),
    input("state", "State", { required: true, value: state, placeholder: "FL" }),
    input("county", "County", { required: true, value: county, placeholder: "columbia" }),
    input("every", "Every", { value: "7d", pattern: "\\s*[0-9]+\\s*(m|min|h|d|w)\\s*" }),
    input("cron", "Cron expression (instead of Every and At)", { placeholder: "0 2 * * 1", maxlength: 100 }),
    input("at", "At (whole days only)", { pattern: "([01][0-9]|2[0-3]):[0-5][0-9]", placeholder: "02:00" }),
    input("timezone", "Time zone", { value: Intl.DateTimeFormat().resolvedOptions().timeZone }),
    input("window", "Spread over", { pattern: "\\s*[0-9]+\\s*(m|min|h|d|w)\\s*", placeholder: "6h" }),
    input("pace_seconds", "Seconds between tasks", { type: "number", min: 0, step: "any", placeholder: "the site's pace" }),
    scope,
    input("url", "URL of the list", { type: "url" }),
  ];
  const text = await open("Add schedule", [h("div", { class: "form" }, fields)], "Add", (form) => {
    const given = Object.fromEntries(form);
    const pace = given.pace_seconds ? Number(given.pace_seconds) : null;
    const every = given.cron ? "" : given.every;
    return JSON.stringify({ ...given, every, pace_seconds: pace });
  });
  return text && JSON.parse(text);
}

export const confirm = (title, text, verb, isDangerous = false) =>
  open(title, [h("p", null, text)], verb, () => "yes", isDangerous ? "primary danger" : "primary");

// Shows a text that needs no decision.
export const say = (title, text) => open(title, [h("p", null, text)], "OK", () => "yes", "primary", false);

// `answer` turns the submitted form into the result.
function open(title, content, verb, answer, style = "primary", canCancel = true) {
  const cancel = h("button", { type: "button", value: "" }, "Cancel");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    content,
    h("div", { class: "buttons" }, canCancel ? cancel : null, h("button", { type: "submit", class: style }, verb)),
  );
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.replaceChildren();
  patch(dialog, form);
  dialog.returnValue = "";
  return new Promise((resolve) => {
    cancel.addEventListener("click", () => dialog.close(""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close(answer(new FormData(form)));
    });
    dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
    dialog.showModal();
  });
}
