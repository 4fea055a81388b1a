// Where a version comes from, and why it served or did not: what `evolved why` tells.

import { get } from "../api.js";
import { el } from "../dom.js";
import { count, figure, plural, seconds } from "../format.js";
import { empty, facts, head, quoted, section, table, tag, time, version } from "../parts.js";

const DECISION = { promote: "good", reject: "bad", hold: "warn" };
const GROUPS = [
  ["success", /^(success|low|high|tasks|attempts|looks|out_of_time|unchecked)/],
  ["against the incumbent", /^incumbent_/],
  ["safety", /^(safety_|breaches_)/],
  ["conduct on prompts", /^prompts_/],
  ["drift from the incumbent", /^drift_/],
  ["families of tasks", /^famil/],
];

export const load = ({ id }, signal) => get(`api/versions/${encodeURIComponent(id)}`, signal);

export function draw(found) {
  return {
    title: `Version v${found.version}`,
    nodes: [
      el(
        "p",
        { class: "crumbs", "data-key": "crumbs" },
        el("a", { href: "#/versions" }, "Policy versions"),
        ` / v${found.version}`,
      ),
      head(`Version v${found.version}`),
      about(found),
      section(
        "Verdicts",
        found.verdicts.length
          ? found.verdicts.map(verdict)
          : empty(
              "The gate has not judged it.",
              found.trained
                ? "It measures one candidate after the other; look again in a while."
                : "It was there before evolved learned anything.",
            ),
      ),
      swaps(found),
      setbacks(found),
      batches(found),
      learner(found),
    ],
  };
}

function about(found) {
  return facts(
    [
      ["trained", found.trained ? time(found.trained) : "before the store was there"],
      [
        "line",
        [
          ...[found.version, ...found.line.slice(0, 100)].flatMap((each, place) => [
            place ? " ← " : "",
            place ? version(each) : `v${each}`,
          ]),
          found.line.length > 100 ? ` ← ${found.line.length - 100} more` : "",
        ],
      ],
      [
        "served",
        found.served.length
          ? found.served.map((span) =>
              el(
                "div",
                {},
                span.engine,
                " from ",
                time(span.since),
                span.until === null ? ", until now" : `, for ${seconds(span.until - span.since)}`,
              ),
            )
          : "never",
      ],
      ["weights", found.on_disk ? `on this disk, ${plural(found.files.length, "file")}` : "no longer on this disk"],
      ["manifest", found.manifest ? el("code", {}, found.manifest) : "unknown"],
      ["check", "digests: ", el("code", {}, `evolved why ${found.version}`)],
    ],
    "manifest",
    "line",
  );
}

function verdict(each) {
  const names = Object.keys(each.measurements).sort();
  const grouped = GROUPS.map(([title, like]) => [title, names.filter((name) => like.test(name))]);
  grouped.push(["other", names.filter((name) => !GROUPS.some(([, like]) => like.test(name)))]);
  return el(
    "article",
    { class: "verdict", "data-key": `d${each.created}` },
    el(
      "h3",
      {},
      tag(DECISION[each.decision] ?? "warn", each.decision),
      " against ",
      version(each.incumbent),
      " ",
      time(each.created),
    ),
    el("p", {}, quoted(each.reason)),
    el(
      "p",
      {},
      each.signature_problem ? tag("bad", `signature: ${each.signature_problem}`) : tag("good", "signature good"),
    ),
    el(
      "details",
      {},
      el("summary", {}, plural(names.length, "measurement")),
      el(
        "div",
        { class: "grid" },
        grouped
          .filter(([, found]) => found.length)
          .map(([title, found]) =>
            table(
              title,
              ["measurement", { name: "value", number: true }],
              found.map((name) => ({ key: name, cells: [name, figure(each.measurements[name])] })),
              { hidden: false },
            ),
          ),
      ),
    ),
  );
}

function swaps(found) {
  return section(
    "Swaps",
    found.swaps.length
      ? table(
          "Swaps to this version",
          [
            "engine",
            "result",
            "when",
            "before",
            { name: "paused", number: true },
            { name: "all in all", number: true },
            "reason",
          ],
          found.swaps.map((each, number) => ({
            key: `w${number}`,
            cells: [
              each.engine,
              tag({ swapped: "good", started: "good" }[each.result] ?? "bad", each.result.replace("_", " ")),
              time(each.at),
              version(each.previous),
              seconds(each.paused_seconds),
              seconds(each.total_seconds),
              quoted(each.reason),
            ],
          })),
        )
      : el("p", { class: "soft" }, "No engine was made to serve it."),
  );
}

function setbacks(found) {
  return found.setbacks.length
    ? section(
        "Setbacks",
        el(
          "ul",
          { class: "plainlist" },
          found.setbacks.map((each) =>
            el(
              "li",
              {},
              tag("bad", each.kind.replace("_", " ")),
              " ",
              each.who,
              ", ",
              time(each.at),
              ": ",
              quoted(each.reason),
            ),
          ),
        ),
      )
    : null;
}

function batches(found) {
  if (!found.batches.length) return null;
  const rows = found.batches.flatMap((batch) =>
    (batch.sources.length
      ? batch.sources
      : [{ tenant: "forgotten", source: "–", trajectories: batch.trajectories }]
    ).map((each) => ({
      key: `${batch.batch_id}${each.tenant}${each.source}`,
      cells: [el("code", {}, batch.batch_id.slice(0, 12)), quoted(each.tenant), each.source, count(each.trajectories)],
    })),
  );
  return section(
    "Trained on",
    table("Batches", ["batch", "tenant", "source", { name: "trajectories", number: true }], rows),
  );
}

function learner(found) {
  const names = Object.keys(found.metrics).sort();
  return names.length
    ? section(
        "Learner",
        el(
          "details",
          {},
          el("summary", {}, plural(names.length, "figure")),
          table(
            "The learner's figures",
            ["figure", { name: "value", number: true }],
            names.map((name) => ({ key: name, cells: [name, figure(found.metrics[name])] })),
          ),
        ),
      )
    : null;
}
