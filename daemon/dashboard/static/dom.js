// Elements out of text, and new ones fitted into the old: what the reader has focused, opened, typed or scrolled stays.
// Whatever came from elsewhere is a text node; there is no markup from strings anywhere (Trusted Types would throw).

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "onchange"];
const OWN = new Set(["open", "tabindex"]); // the reader's, or ours after the fact: never taken back by a refresh

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) node[name] = value;
    else if (name === "value") (node.setAttribute("value", value), (node.value = value));
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (name, attributes = {}, ...children) => made(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  made(document.createElementNS(SVG, name), attributes, children);

/** Make `parent`'s children those of `fresh`; `values` also takes over what fields hold. */
export function morph(parent, fresh, values = false) {
  const wanted = fresh.flat(Infinity).filter(Boolean);
  const keys = new Set(wanted.map(keyOf).filter(Boolean));
  const old = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key && !keys.has(key)) child.remove();
    else if (key) old.set(key, child);
  }
  let place = parent.firstChild;
  for (const node of wanted) {
    const key = keyOf(node);
    const match = key ? old.get(key) : place && !keyOf(place) && place.nodeName === node.nodeName ? place : null;
    if (!match || match.nodeName !== node.nodeName) {
      parent.insertBefore(node, place);
      continue;
    }
    if (match === place) place = place.nextSibling;
    else parent.insertBefore(match, place);
    patch(match, node, values);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function patch(old, fresh, values) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const name of old.getAttributeNames())
    if (!fresh.hasAttribute(name) && !OWN.has(name)) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) {
    const value = fresh.getAttribute(name);
    if (old.getAttribute(name) !== value && !(OWN.has(name) && name === "open")) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (old.nodeName !== "TEXTAREA") morph(old, [...fresh.childNodes], values);
  if (values && "value" in fresh && old.nodeName !== "LI" && old.value !== fresh.value) old.value = fresh.value;
}
