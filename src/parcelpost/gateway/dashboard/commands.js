// The dialogs that ask before anything is done.

import { h, patch } from "./dom.js";

const COMMANDS = [
  ["pause", "Pause", "Starts no task until it is resumed. What it has scraped is still delivered."],
  ["resume", "Resume", "Ends a pause."],
  ["sync-now", "Sync now", "Delivers what waits, at once."],
  ["drain", "Drain", "Finishes what runs, delivers it, and ends."],
  ["stop", "Stop", "Ends at once. Nothing is lost; unfinished tasks are done later."],
];
const PLATFORMS = "platforms";

const dialog = document.getElementById("dialog");

// What was chosen, or null.
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
    "Takes tasks of these only until it is told others; of all it knows if none is named.",
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

// `answer` makes the answer of what was filled in.
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
