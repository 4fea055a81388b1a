// What pages are put together from: sections, tables, tags, facts, empty states.

import { el } from "./dom.js";
import { iso, moment } from "./format.js";

export const link = (path, text) => el("a", { href: `#/${path.map(encodeURIComponent).join("/")}` }, text);
export const version = (number) =>
  number === null || number === undefined || number < 0 ? "–" : link(["versions", number], `v${number}`);
export const time = (unix) => (unix ? el("time", { datetime: iso(unix), title: iso(unix) }, moment(unix)) : "–");

/** What an agent, a tool or a user wrote: text and nothing else, kept from turning the line around it. */
export const quoted = (text) => el("bdi", { class: "quoted" }, text);

/** Long texts fold; the beginning stays. */
export function long(text, most = 320) {
  if (!text) return el("span", { class: "soft" }, "nothing");
  if (text.length <= most) return el("code", { class: "quoted" }, text);
  return el(
    "details",
    { class: "long" },
    el(
      "summary",
      {},
      el("code", { class: "quoted" }, `${text.slice(0, most / 2)} …`),
      ` all ${text.length.toLocaleString("en-GB")} characters`,
    ),
    el("pre", { class: "quoted" }, text),
  );
}

const SIGNS = { good: "✓", bad: "✕", warn: "▲", plain: "○" };

/** A word with its sign: colour says nothing that they do not. */
export const tag = (kind, text, title) =>
  el("span", { class: `tag ${kind}`, title }, el("span", { "aria-hidden": "true" }, SIGNS[kind]), "\u00a0", text);

const MOVES = { moving: "good", waiting: "warn", frozen: "bad" };

/** Whether learning goes on: green only if it moves. */
export function learning({ learning: told }) {
  if (!told?.state) return tag("plain", "learning: not known yet");
  return tag(MOVES[told.state] ?? "plain", told.state === "moving" ? "learning" : `learning: ${told.state}`);
}

export function outcome(value) {
  if (value === null || value === undefined) return tag("plain", "no outcome");
  return tag(
    value >= 0.5 ? "good" : "bad",
    value === 0 || value === 1 ? (value ? "success" : "failure") : value.toFixed(2),
  );
}

const CREDIT = { GOOD: "good", BAD: "bad", ABSTAIN: "plain" };
export const credit = (label, text = label) => tag(CREDIT[label] ?? "plain", text);

/** One mark a step, with the words for who cannot see them. */
export function strip(labels) {
  if (!labels.length) return el("span", { class: "soft" }, "none yet");
  const number = (label) => labels.filter((each) => each === label).length;
  const words = `${number("GOOD")} good, ${number("BAD")} bad, ${number("ABSTAIN")} without a label`;
  return el(
    "span",
    { class: "strip", role: "img", "aria-label": words, title: words },
    labels.slice(0, 24).map((label) => el("i", { class: label.toLowerCase() })),
    labels.length > 24 ? "…" : null,
  );
}

export function section(title, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return el("section", { "data-key": id, "aria-labelledby": id }, el("h2", { id }, title), children);
}

/** A heading with what can be done beside it. */
export const head = (title, ...actions) =>
  el(
    "div",
    { class: "head", "data-key": "head" },
    el("h1", { tabindex: "-1" }, title),
    el("div", { class: "actions" }, actions),
  );

/** Rows are {key, cells}; a column is a name, or {name, number: true}; the first cell heads its row. */
export function table(caption, columns, rows, { hidden = true } = {}) {
  const heads = columns.map((column) => (typeof column === "string" ? { name: column } : column));
  return el(
    "div",
    { class: "scroll", "data-label": caption },
    el(
      "table",
      {},
      el("caption", { class: hidden ? "unseen" : null }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((one) => el("th", { scope: "col", class: one.number ? "number" : null }, one.name)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            { "data-key": row.key },
            row.cells.map((cell, place) =>
              el(
                place ? "td" : "th",
                { scope: place ? null : "row", class: heads[place].number ? "number" : null },
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Names and values; `wide` names those that want a line of their own. */
export const facts = (pairs, ...wide) =>
  el(
    "dl",
    { class: "facts", "data-key": "facts" },
    pairs
      .filter(Boolean)
      .map(([name, ...value]) =>
        el("div", { class: wide.includes(name) ? "wide" : null }, el("dt", {}, name), el("dd", {}, value)),
      ),
  );

/** Nothing there, and what to do about it. */
export const empty = (what, ...then) =>
  el("div", { class: "empty" }, el("p", {}, el("strong", {}, what)), el("p", {}, then));

export const button = (text, onclick, attributes = {}) =>
  el("button", { type: "button", onclick, ...attributes }, text);

/** A labelled field of a filter. */
export function field(label, control) {
  const id = `f-${control.getAttribute("name")}`;
  control.id = id;
  return el("div", { class: "field" }, el("label", { for: id }, label), control);
}

export const choice = (name, value, options) =>
  el(
    "select",
    { name },
    options.map(([each, text]) => el("option", { value: each, selected: each === value }, text)),
  );

/** "18 of 27 (67 %)" */
export const share = ([tried, good]) =>
  tried ? `${good} of ${tried} (${Math.round((100 * good) / tried)} %)` : "not tried";
