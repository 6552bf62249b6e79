// The sign-in page. The token is kept for this tab only.

import { h } from "./dom.js";

export class TokenPage {
  title = "Sign in";

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
      h("h1", null, "This gateway requires a token"),
      wrong ? h("p", { class: "bad", role: "alert" }, "This token is not valid.") : null,
      h("label", { for: "token" }, "Read or admin token"),
      input,
      h(
        "p",
        { id: "token-help", class: "note" },
        "The token is kept in this tab and sent only to this gateway. " +
          "Tokens are listed in the files set by server.read_tokens_file and server.admin_tokens_file.",
      ),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Sign in")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) given(input.value.trim());
    });
    this.root = h("div", { class: "page" }, form);
    requestAnimationFrame(() => input.focus());
  }
}
