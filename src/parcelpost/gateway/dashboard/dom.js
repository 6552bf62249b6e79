// Builds and updates DOM nodes. Text always becomes text nodes: foreign text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) throw new Error(`listen with on(), not with ${name}`);
    if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...texts(children));
  return node;
}

const texts = (children) =>
  children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));

// Delegates events: calls back for descendants that match the selector, now or later.
export function on(node, type, selector, callback) {
  node.addEventListener(type, (event) => {
    const target = event.target instanceof Element ? event.target.closest(selector) : null;
    if (target && node.contains(target)) callback(target, event);
  });
}

// Updates the parent's children to those given, in place: focus, selection and open details stay.
export function patch(parent, ...given) {
  const fresh = texts(given).map((child) => (child instanceof Node ? child : document.createTextNode(child)));
  const keyed = new Map([...parent.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let place = parent.firstChild;
  for (const node of fresh) {
    const key = keyOf(node);
    const match = key ? keyed.get(key) : place && !keyOf(place) ? place : null;
    if (!match || match.nodeName !== node.nodeName) {
      parent.insertBefore(node, place);
      continue;
    }
    if (match === place) place = place.nextSibling;
    else parent.insertBefore(match, place);
    update(match, node);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const keyOf = (node) => (node instanceof Element ? node.getAttribute("data-key") : null);

function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (!(old instanceof Element)) {
    old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patch(old, [...fresh.childNodes]);
}

// What a reader has chosen or typed stays when attributes change: this sets fields to what their attributes say.
export function syncFields(root) {
  for (const input of root.querySelectorAll("input")) {
    if (input.type === "checkbox") input.checked = input.hasAttribute("checked");
    else if (document.activeElement !== input) input.value = input.getAttribute("value") ?? "";
  }
  for (const select of root.querySelectorAll("select"))
    select.selectedIndex = [...select.options].findIndex((option) => option.hasAttribute("selected"));
}
