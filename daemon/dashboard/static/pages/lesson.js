// One lesson: how it fared, what was said of it, where it comes from; approve it, retire it, let it out of quarantine.

import { get } from "../api.js";
import { confirmed } from "../dialog.js";
import { el } from "../dom.js";
import { button, facts, head, link, long, outcome, quoted, section, share, table, tag, time } from "../parts.js";
import { state } from "./experience.js";

const CHANGES = {
  activate: [
    "Approve",
    ["candidate", "retired"],
    "From now on it is put before agents whose task it fits.",
    "Approved",
  ],
  release: ["Release from quarantine", ["quarantined"], "It is tried again, as a candidate.", "Released"],
  retire: [
    "Retire",
    ["candidate", "active", "quarantined"],
    "No agent is shown it any more. It stays in the store and can be approved again.",
    "Retired",
  ],
};

export const load = ({ id }, signal) => get(`api/experience/${encodeURIComponent(id)}`, signal);

export function draw(found, { act }) {
  const { lesson } = found;
  return {
    title: `Lesson: ${lesson.when_to_use.slice(0, 60)}`,
    nodes: [
      el(
        "p",
        { class: "crumbs", "data-key": "crumbs" },
        el("a", { href: "#/experience" }, "Experience"),
        " / ",
        el("code", {}, lesson.id),
      ),
      head(el("span", { class: "quoted" }, lesson.when_to_use || lesson.id), actions(lesson, act)),
      section(
        "Lesson",
        el("p", { class: "lesson" }, quoted(lesson.content || "Its words were forgotten.")),
        about(found),
      ),
      section(
        "Revisions",
        table(
          "Revisions, newest first",
          ["revision", "changed", "state", "reason"],
          found.revisions.map((each) => ({
            key: `r${each.revision}`,
            cells: [String(each.revision), time(each.updated), state(each), quoted(each.reason)],
          })),
        ),
      ),
      sources(found),
    ],
  };
}

function actions(lesson, act) {
  return Object.entries(CHANGES)
    .filter(([, [, from]]) => from.includes(lesson.state))
    .map(([change, [verb, , text, done]]) =>
      button(
        `${verb}…`,
        async () => {
          const answer = await confirmed({
            title: `${verb} this lesson?`,
            text,
            verb,
            path: `api/experience/${encodeURIComponent(lesson.id)}/state`,
            body: { change },
            danger: change === "retire",
          });
          if (answer) act(`${done}: the lesson is ${answer.state} now.`);
        },
        { "data-key": `b-${change}`, class: change === "retire" ? "danger" : "primary" },
      ),
    );
}

function about({ lesson }) {
  return facts([
    ["state", state(lesson), lesson.reason ? [" ", quoted(lesson.reason)] : null],
    ["kind", lesson.kind],
    ["drawn by", lesson.origin || "unknown"],
    ["tenant", quoted(lesson.tenant)],
    ["with it", share(lesson.guided)],
    ["without", share(lesson.unguided)],
    ["independent sources", String(lesson.independent)],
    Object.keys(lesson.detail).length ? ["detail", long(JSON.stringify(lesson.detail, null, 2))] : null,
  ]);
}

function sources(found) {
  return section(
    "Drawn from",
    found.sources.length
      ? table(
          "Trajectories it was drawn from",
          ["goal", "outcome", "ended"],
          found.sources.map((each) => ({
            key: each.id,
            cells: [
              each.known ? link(["trajectories", each.id], quoted(each.goal || each.id)) : el("code", {}, each.id),
              each.known ? outcome(each.outcome) : tag("plain", "no longer in the store"),
              time(each.ended),
            ],
          })),
        )
      : el("p", { class: "soft" }, "No trajectory: it was written or imported."),
  );
}
