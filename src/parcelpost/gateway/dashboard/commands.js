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

export const confirm = (title, text, verb) => open(title, [h("p", null, text)], verb, () => "yes");

// `answer` turns the submitted form into the result.
function open(title, content, verb, answer) {
  const cancel = h("button", { type: "button", value: "" }, "Cancel");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    content,
    h("div", { class: "buttons" }, cancel, h("button", { type: "submit", class: "primary" }, verb)),
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
