// Trajectories, newest first, a page at a time.

import { get, withQuery } from "../api.js";
import { el } from "../dom.js";
import { plural, seconds } from "../format.js";
import { choice, empty, field, head, link, outcome, quoted, strip, table, tag, time, version } from "../parts.js";

const NAMES = ["source", "outcome", "q", "version", "tenant"];

export const load = ({ query }, signal) => get(withQuery("api/trajectories", { ...query, limit: "25" }), signal);

export function draw(data, { query, go }) {
  const found = data.trajectories;
  const asked = Object.fromEntries(NAMES.map((name) => [name, query[name] ?? ""]));
  const filtered = NAMES.some((name) => asked[name]);
  return {
    title: "Trajectories",
    count: found.length
      ? `${plural(found.length, "trajectory", "trajectories")} on this page`
      : "No trajectory on this page",
    nodes: [
      head("Trajectories"),
      form(asked, go),
      found.length ? list(found) : nothing(filtered, data),
      pager(data, query, asked),
    ],
  };
}

function form(asked, go) {
  const search = el("input", {
    type: "search",
    name: "q",
    value: asked.q,
    placeholder: "words, or the beginning of an id",
  });
  const version = el("input", {
    type: "text",
    inputmode: "numeric",
    pattern: "[0-9]*",
    name: "version",
    value: asked.version,
    size: "5",
  });
  const submit = (event) => {
    event.preventDefault();
    go(
      withQuery(
        "#/trajectories",
        Object.fromEntries(NAMES.map((name) => [name, event.currentTarget.elements[name]?.value.trim() ?? ""])),
      ),
    );
  };
  return el(
    "form",
    { class: "filters", role: "search", "aria-label": "Filter trajectories", "data-key": "form", onsubmit: submit },
    field(
      "Source",
      choice("source", asked.source, [
        ["", "all"],
        ["production", "production"],
        ["sandbox", "sandbox"],
        ["probe", "probe"],
      ]),
    ),
    field(
      "Outcome",
      choice("outcome", asked.outcome, [
        ["", "all"],
        ["success", "success"],
        ["failure", "failure"],
        ["unknown", "no outcome"],
      ]),
    ),
    field("Goal or id", search),
    field("Version", version),
    el("button", { type: "submit", class: "primary" }, "Show"),
    el("a", { href: "#/trajectories", class: "buttonlike" }, "Clear"),
  );
}

function list(found) {
  return table(
    "Trajectories, newest first",
    [
      "goal",
      "outcome",
      "credit of steps",
      { name: "steps", number: true },
      "source",
      "version",
      { name: "took", number: true },
      "ended",
      "learning",
    ],
    found.map((each) => ({
      key: each.id,
      cells: [
        link(
          ["trajectories", each.id],
          each.goal ? quoted(each.goal.slice(0, 160)) : el("code", {}, each.id.slice(0, 12)),
        ),
        outcome(each.outcome),
        strip(each.labels),
        String(each.steps),
        [each.source, each.guided ? el("span", { class: "soft" }, ", guided") : null],
        each.min_version === each.max_version
          ? version(each.max_version)
          : [version(each.min_version), "–", version(each.max_version)],
        seconds(each.ended - each.started),
        time(each.ended),
        learning(each),
      ],
    })),
  );
}

function learning(each) {
  if (each.batch_id) return tag("good", "in a batch");
  if (each.came) return tag("plain", each.came.replaceAll("_", " "));
  if (!each.trainable) return tag("plain", each.why_not || "not trainable");
  return el("span", { class: "soft" }, each.labels.length ? "waits" : "not judged yet");
}

function nothing(filtered, data) {
  if (data.after) return empty("None among the newest 20,000.", "Look further back with “Older”, or ask for less.");
  return filtered
    ? empty("No trajectory fits.", el("a", { href: "#/trajectories" }, "Show all"), ", or look for fewer words.")
    : empty(
        "No trajectory yet.",
        "A trajectory closes when its outcome is reported, or after a while without a call. Point agents at the tap to begin.",
      );
}

function pager(data, query, asked) {
  return el(
    "nav",
    { class: "pager", "aria-label": "Pages of the list", "data-key": "pager" },
    query.after ? el("a", { href: withQuery("#/trajectories", asked) }, "Newest") : null,
    data.after ? el("a", { href: withQuery("#/trajectories", { ...asked, after: data.after }) }, "Older") : null,
  );
}
