// The dialogs that ask before anything is done.

import { h, patch } from "./dom.js";

const COMMANDS = [
  ["pause", "Pause", "Starts no task until it is resumed. What it has scraped is still delivered."],
  ["resume", "Resume", "Ends a pause."],
  ["sync-now", "Sync now", "Delivers what waits, at once."],
  ["drain", "Drain", "Finishes what runs, delivers it, and ends."],
  ["stop", "Stop", "Ends at once. Nothing is lost; unfinished tasks are done later."],
];

const dialog = document.getElementById("dialog");

// What was chosen, or null.
export function chooseCommand(title) {
  const choices = COMMANDS.map(([value, label, meaning], place) =>
    h("label", { class: "choice" },
      h("input", { type: "radio", name: "choice", value, required: true, autofocus: place === 0 }),
      h("span", null, h("b", null, label), h("small", null, meaning))));
  return open(title, [h("fieldset", null, h("legend", { class: "unseen" }, "Command"), choices)], "Send");
}

export const confirm = (title, text, verb) => open(title, [h("p", null, text)], verb);

function open(title, content, verb) {
  const cancel = h("button", { type: "button", value: "" }, "Cancel");
  const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), content,
    h("div", { class: "buttons" }, cancel, h("button", { type: "submit", class: "primary" }, verb)));
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.replaceChildren();
  patch(dialog, form);
  dialog.returnValue = "";
  return new Promise((resolve) => {
    cancel.addEventListener("click", () => dialog.close(""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close(new FormData(form).get("choice") ?? "yes");
    });
    dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
    dialog.showModal();
  });
}
