// The API reference, made from the gateway's OpenAPI document: by group, with schemas, examples and a form to try each.

import { ask, token } from "./api.js";
import { confirm } from "./commands.js";
import { h, on, patch } from "./dom.js";
import { badge, empty } from "./table.js";

const METHODS = ["get", "post", "put", "delete"];
const GROUPS = ["Parcels and liens", "Downloads", "Changes and webhooks", "Tasks", "Schedules", "Fleet", "Monitoring", "Worker protocol"];
const DEPTH = 6;
const SHOWN_CHARS = 200_000;

const idOf = ({ method, path }) => `${method}${path.replaceAll(/[{}]/g, "")}`;

export class DocsPage {
  title = "API reference";
  isPublic = true;

  constructor() {
    this.search = h("input", { type: "search", placeholder: "Path or word", autocomplete: "off", spellcheck: "false" });
    this.index = h("nav", { "aria-label": "Operations" });
    this.list = h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …"));
    this.root = h(
      "div",
      { class: "docs" },
      h("details", { class: "docs-index", open: innerWidth > 760 }, h("summary", null, "Contents"), this.index),
      h("div", { class: "page" }, h("h1", null, this.title), this.intro(), this.list),
    );
    this.search.addEventListener("input", () => this.show());
    on(this.root, "submit", "form.try", (form, event) => {
      event.preventDefault();
      this.try(form);
    });
    this.root.addEventListener("toggle", (event) => this.toggled(event.target), true);
    this.load();
  }

  intro() {
    return h(
      "div",
      { class: "page" },
      h(
        "p",
        null,
        "Requests and responses are JSON. Reading needs a read or admin token, changes need an admin token: ",
        h("code", null, "Authorization: Bearer TOKEN"),
        ". Workers send ",
        h("code", null, "X-Worker-Token"),
        ". The same as ",
        h("a", { href: "/openapi.json" }, "openapi.json"),
        ".",
      ),
      h("label", { class: "field grow" }, h("span", null, "Filter"), this.search),
    );
  }

  async load() {
    try {
      this.document = await ask("/openapi.json");
    } catch (error) {
      patch(this.list, empty(h("p", null, error.message)));
      return;
    }
    this.operations = Object.entries(this.document.paths).flatMap(([path, methods]) =>
      METHODS.filter((method) => methods[method]).map((method) => ({ method, path, ...methods[method] })),
    );
    this.show();
    this.follow();
  }

  show() {
    const wanted = this.search.value.trim().toLowerCase();
    const matches = (one) => `${one.method} ${one.path} ${one.summary} ${one.description}`.toLowerCase().includes(wanted);
    const groups = GROUPS.map((group) => [group, this.operations.filter((one) => one.tags[0] === group && matches(one))]).filter(
      ([, operations]) => operations.length,
    );
    patch(
      this.index,
      groups.map(([group, operations]) => [
        h("h2", null, group),
        h("ul", null, operations.map((one) => h("li", null, h("a", { href: `#${idOf(one)}` }, method(one), " ", breakable(one.path))))),
      ]),
    );
    patch(
      this.list,
      groups.length
        ? groups.map(([group, operations]) =>
            h(
              "section",
              { class: "card operations", "data-key": group },
              h("div", { class: "card-head" }, h("h2", null, group)),
              operations.map((one) => this.operation(one)),
            ),
          )
        : empty(h("p", null, "Nothing matches.")),
    );
  }

  operation(one) {
    const id = idOf(one);
    const open = this.list.querySelector(`details[id="${CSS.escape(id)}"]`)?.open;
    return h(
      "details",
      { id, class: "operation", "data-key": id, open },
      h("summary", null, method(one), " ", h("code", null, breakable(one.path)), " ", h("span", { class: "note" }, prose(one.summary))),
      h("div", { class: "operation-body" }, open ? this.body(one) : null),
    );
  }

  // What an operation says is made when it is opened.
  toggled(details) {
    if (!details.open || !details.classList.contains("operation")) return;
    const body = details.querySelector(".operation-body");
    const one = this.operations.find((operation) => idOf(operation) === details.id);
    if (!body.childElementCount) body.append(...this.body(one));
  }

  follow() {
    const details = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (details) {
      details.open = true;
      this.toggled(details);
      details.scrollIntoView();
      details.querySelector("summary").focus({ preventScroll: true });
    }
    return "/docs";
  }

  body(one) {
    const paragraphs = one.description.split("\n\n").filter(Boolean).map((text) => h("p", null, prose(text)));
    return [
      ...paragraphs,
      h("p", { class: "note" }, "Access: ", access(one)),
      one.parameters.length ? [h("h3", null, "Parameters"), parameters(one.parameters)] : null,
      one.requestBody ? [h("h3", null, "Body"), this.content(one.requestBody.content)] : null,
      h("h3", null, "Responses"),
      Object.entries(one.responses).map(([status, response]) => this.response(status, response)),
      this.form(one),
    ]
      .flat(2)
      .filter(Boolean);
  }

  response(status, { description, content }) {
    return h(
      "details",
      { class: "response", open: status === "200" },
      h("summary", null, badge(status < 300 ? "good" : status < 500 ? "warn" : "bad", status), " ", description),
      content ? this.content(content) : null,
    );
  }

  content(content) {
    return Object.entries(content).map(([type, { schema }]) => {
      const example = this.example(schema);
      return h(
        "div",
        { class: "content" },
        h("p", { class: "note" }, type),
        this.schema(schema),
        example === undefined ? null : [h("h4", null, "Example"), h("pre", { tabindex: "0", "aria-label": "Example" }, JSON.stringify(example, null, 2))],
      );
    });
  }

  resolved(schema) {
    const name = schema.$ref?.split("/").at(-1);
    return name ? { name, ...this.document.components.schemas[name] } : schema;
  }

  example(schema) {
    const whole = this.resolved(schema);
    if (whole.examples) return whole.examples[0];
    const item = whole.type === "array" ? this.example(whole.items) : undefined;
    return item === undefined ? undefined : [item];
  }

  schema(schema, depth = 0) {
    const whole = this.resolved(schema);
    if (whole.type === "array") return this.schema(whole.items ?? {}, depth);
    if (!whole.properties || depth > DEPTH) return h("p", null, h("code", null, this.typeOf(schema)));
    const rows = Object.entries(whole.properties).map(([name, field]) => {
      const inner = this.inner(field);
      return h(
        "li",
        null,
        h("code", { class: "name" }, name),
        " ",
        h("small", { class: "inline" }, this.typeOf(field), whole.required?.includes(name) ? "" : ", optional"),
        field.description ? h("div", null, prose(field.description)) : null,
        inner ? h("details", null, h("summary", null, inner.name), this.schema(inner, depth + 1)) : null,
      );
    });
    return [whole.description ? h("p", { class: "note" }, prose(whole.description)) : null, h("ul", { class: "schema" }, rows)];
  }

  // The struct in a field, if there is one.
  inner(field) {
    const candidates = [field, field.items, field.additionalProperties, ...(field.anyOf ?? []), ...(field.anyOf ?? []).map((one) => one.items)];
    const found = candidates.map((one) => (one?.$ref ? this.resolved(one) : null)).find((one) => one?.properties);
    return found ?? null;
  }

  typeOf(schema) {
    const whole = this.resolved(schema);
    if (whole.enum) return whole.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (whole.anyOf) return whole.anyOf.map((one) => this.typeOf(one)).join(" or ");
    if (whole.type === "array") return whole.items ? `array of ${this.typeOf(whole.items)}` : "array";
    if (whole.name && whole.properties) return whole.name;
    const limits = [
      whole.format,
      whole.minimum !== undefined && `from ${whole.minimum}`,
      whole.maximum !== undefined && `up to ${whole.maximum}`,
      whole.maxLength !== undefined && `up to ${whole.maxLength} characters`,
      whole.maxItems !== undefined && `up to ${whole.maxItems}`,
    ].filter(Boolean);
    return `${whole.type ?? "any"}${limits.length ? ` (${limits.join(", ")})` : ""}`;
  }

  form(one) {
    const id = idOf(one);
    const fields = one.parameters.map((parameter) => {
      const schema = parameter.schema.anyOf?.[0] ?? parameter.schema;
      const isList = schema.type === "array";
      const choices = (isList ? schema.items.enum : schema.enum) ?? (schema.type === "boolean" ? ["true", "false"] : null);
      const attributes = { name: `${parameter.in} ${parameter.name}`, required: parameter.required, multiple: isList && choices };
      return h(
        "label",
        { class: "field" },
        h("span", null, parameter.name, parameter.required ? " (required)" : isList && !choices ? " (one per line)" : ""),
        isList && !choices
          ? h("textarea", { name: attributes.name, rows: 2, spellcheck: "false" })
          : choices
          ? h("select", attributes, parameter.required || isList ? null : h("option", { value: "" }, ""), choices.map((value) => h("option", null, value)))
          : h("input", { ...attributes, type: "text", autocomplete: "off", spellcheck: "false", placeholder: presetOf(parameter) }),
      );
    });
    const isWorker = one.security.some((scheme) => scheme.workerToken);
    const key = isWorker ? "X-Worker-Token" : "Token";
    const asksToken = one.security.length > 0;
    const type = one.requestBody && Object.keys(one.requestBody.content)[0];
    const canSend = type !== "multipart/form-data";
    const body = type && canSend ? JSON.stringify(this.example(one.requestBody.content[type].schema) ?? {}, null, 2) : null;
    return h(
      "form",
      { class: "try", "data-operation": id },
      h("h3", null, "Try it"),
      h("div", { class: "form" }, fields),
      asksToken
        ? h(
            "label",
            { class: "field" },
            h("span", null, key, isWorker ? "" : " (leave empty to use this tab's token)"),
            h("input", { name: "token", type: "password", autocomplete: "off" }),
          )
        : null,
      body === null ? null : h("label", { class: "field grow" }, h("span", null, `Body (${type})`), h("textarea", { name: "body", rows: Math.min(14, body.split("\n").length + 1), spellcheck: "false" }, body)),
      canSend
        ? h("div", { class: "buttons start" }, h("button", { type: "submit", class: "primary" }, "Send"))
        : h("p", { class: "note" }, "A file cannot be sent from here."),
      h("div", { class: "answer", role: "status" }),
    );
  }

  async try(form) {
    const one = this.operations.find((operation) => idOf(operation) === form.dataset.operation);
    const fields = new FormData(form);
    const given = Object.fromEntries(fields);
    const lists = new Set(one.parameters.filter(({ schema }) => schema.type === "array").map(({ name }) => `query ${name}`));
    const answer = form.querySelector(".answer");
    const values = (place) =>
      [...fields]
        .flatMap(([name, text]) => (lists.has(name) ? text.split("\n").map((line) => [name, line.trim()]) : [[name, text]]))
        .filter(([name, text]) => name.startsWith(`${place} `) && text !== "")
        .map(([name, text]) => [name.slice(place.length + 1), text]);
    let path = one.path;
    for (const [name, text] of values("path")) path = path.replace(`{${name}}`, encodeURIComponent(text));
    const query = new URLSearchParams(values("query")).toString();
    const address = query ? `${path}?${query}` : path;
    const changes = one.method !== "get" && !one.tags.includes("Worker protocol");
    if (changes && !(await confirm(`Send ${one.method.toUpperCase()} ${path}?`, "This changes the gateway's data.", "Send"))) return;
    const headers = Object.fromEntries(values("header"));
    const secret = given.token || token.get();
    const isWorker = one.security.some((scheme) => scheme.workerToken);
    if (isWorker && given.token) headers["X-Worker-Token"] = given.token;
    else if (!isWorker && secret && one.security.length) headers.Authorization = `Bearer ${secret}`;
    if (given.body) headers["Content-Type"] = "application/json";
    patch(answer, h("p", { class: "note" }, "Waiting …"));
    const began = performance.now();
    try {
      const options = { method: one.method.toUpperCase(), headers, body: given.body || undefined, cache: "no-store" };
      const response = await fetch(address, options);
      patch(answer, await shownAnswer(response, performance.now() - began, curl(one, address, given.body, isWorker)));
    } catch (error) {
      patch(answer, h("p", { class: "bad" }, `No response: ${error.message}`));
    }
  }
}

async function shownAnswer(response, milliseconds, command) {
  const type = response.headers.get("content-type") ?? "";
  const text = /json|text|csv/.test(type) ? (await response.text()).slice(0, SHOWN_CHARS) : `(${type || "no content type"})`;
  return [
    h("p", null, badge(response.ok ? "good" : "bad", String(response.status)), ` in ${Math.round(milliseconds)} ms, ${type}`),
    h("pre", { tabindex: "0", "aria-label": "Response" }, indented(text)),
    h("p", { class: "note" }, "The same on the command line:"),
    h("code", { class: "command" }, command),
  ];
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Tokens are never shown: the command names a variable.
function curl(one, address, body, isWorker) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const header = isWorker ? `-H "X-Worker-Token: $TOKEN"` : `-H "Authorization: Bearer $TOKEN"`;
  const parts = ["curl -s", one.method === "get" ? "" : `-X ${one.method.toUpperCase()}`, one.security.length ? header : "", quoted(location.origin + address)];
  return [...parts, body ? `-d ${quoted(body)}` : ""].filter(Boolean).join(" ");
}

const method = (one) => h("span", { class: `method ${one.method}` }, one.method.toUpperCase());

const ACCESS = { readToken: "read token", adminToken: "admin token", workerToken: "worker token" };

const access = (one) => one.security.map((scheme) => ACCESS[Object.keys(scheme)[0]]).join(" or ") || "anyone";

function parameters(list) {
  const rows = list.map((parameter) => {
    const schema = parameter.schema.anyOf?.[0] ?? parameter.schema;
    const single = schema.type === "array" ? schema.items : schema;
    const kind = `${single.enum ? single.enum.join(" | ") : (single.type ?? "string")}${single === schema ? "" : ", repeatable"}`;
    const preset = presetOf(parameter);
    return h(
      "li",
      null,
      h("code", { class: "name" }, parameter.name),
      " ",
      h("small", { class: "inline" }, `${kind}, in the ${parameter.in}${parameter.required ? ", required" : ""}${preset === "" ? "" : `, default ${preset}`}`),
      parameter.description ? h("div", null, prose(parameter.description)) : null,
    );
  });
  return h("ul", { class: "schema" }, rows);
}

const presetOf = ({ schema: { default: preset } }) => String(preset ?? "");

// A path, which breaks lines only after a slash.
const breakable = (path) => path.split("/").flatMap((part, place) => (place ? ["/", h("wbr"), part] : [part]));

// Text with `code` in it.
const prose = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));
