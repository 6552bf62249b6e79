// Asks for the reader's token. It is kept for this tab only.

import { h } from "./dom.js";

export class TokenPage {
  title = "Token";

  constructor(wrong, given) {
    const input = h("input", {
      type: "password",
      id: "token",
      name: "token",
      autocomplete: "off",
      required: true,
      "aria-describedby": "token-help",
      "aria-invalid": wrong ? "true" : null,
    });
    const form = h(
      "form",
      { class: "card token" },
      h("h1", null, "This gateway asks for a token"),
      wrong ? h("p", { class: "bad", role: "alert" }, "That token is not known here.") : null,
      h("label", { for: "token" }, "Read or admin token"),
      input,
      h(
        "p",
        { id: "token-help", class: "note" },
        "It stays in this tab and goes nowhere but to this gateway. " +
          "Tokens are in the file that server.read_tokens_file or server.admin_tokens_file names.",
      ),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Open")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) given(input.value.trim());
    });
    this.root = h("div", { class: "page" }, form);
    requestAnimationFrame(() => input.focus());
  }
}
