// The judge: what it did, what it cost, and how often it was right where the truth became known.

import { get } from "../api.js";
import { el } from "../dom.js";
import { count, figure, percent } from "../format.js";
import { empty, facts, head, quoted, section, table, tag } from "../parts.js";

export const load = (at, signal) => get("api/judge", signal);

export function draw(data) {
  if (!data.judge)
    return {
      title: "Judge",
      nodes: [
        head("Judge"),
        empty(
          "No judge is at work.",
          "Name one in config.toml under [judge]; without one, outcomes alone give credit.",
        ),
      ],
    };
  return {
    title: "Judge",
    nodes: [
      head("Judge"),
      about(data),
      budget(data.budget),
      agreement(data.judges),
      costs(data.judges),
    ],
  };
}

function about(data) {
  const said = Object.entries(data.counts).filter(([, number]) => number);
  return facts([
    ["judge", quoted(data.judge)],
    ["rubric", quoted(data.rubric)],
    ["state", data.away ? tag("bad", "away, asked now and then") : tag("good", "answers")],
    [
      "did",
      said.length
        ? said.map(([name, number]) => `${count(number)} ${name.replaceAll("_", " ")}`).join(", ")
        : "nothing yet",
    ],
  ]);
}

function budget({ limits, spent, used_up: over }) {
  const rows = [
    ["tokens", "day"],
    ["money", "day"],
  ].map(([what, span]) => {
    const most = limits[`${what}_per_${span}`],
      now = spent[`${what}_${span}`];
    return {
      key: what + span,
      cells: [
        `${what} in a ${span}`,
        figure(now),
        most ? figure(most) : "no limit",
        most ? percent(now / most) : "–",
      ],
    };
  });
  return section(
    "Cost",
    over
      ? el(
          "p",
          {},
          tag("warn", `used up: ${over}`),
          " What comes now gets no label.",
        )
      : null,
    table(
      "What the judge cost of late",
      ["what", { name: "spent", number: true }, { name: "limit", number: true }, { name: "used", number: true }],
      rows,
    ),
  );
}

const auc = (found) =>
  found.auc === null
    ? "–"
    : [found.auc.toFixed(2), el("div", { class: "soft" }, `at least ${found.auc_low.toFixed(2)}`)];
const who = (page) => [
  quoted(page.judge),
  el("div", { class: "soft" }, page.rubric, ", ", page.tenant === "*" ? "all tenants" : quoted(page.tenant)),
];
const key = (page) => [page.judge, page.rubric, page.tenant].join("/");

function agreement(pages) {
  const rows = pages
    .filter((page) => page.outcomes.n)
    .map((page) => ({
      key: key(page),
      cells: [
        who(page),
        count(page.outcomes.n),
        count(page.outcomes.silent),
        auc(page.outcomes),
        page.weight === null ? "1.00 (not yet measured)" : page.weight.toFixed(2),
      ],
    }));
  const columns = [
    "judge",
    ...["pieces", "without a label", "AUC", "weight"].map((name) => ({
      name,
      number: true,
    })),
  ];
  return section(
    "Agreement with what became known",
    rows.length
      ? table("Agreement", columns, rows)
      : empty(
          "Nothing to hold it against yet.",
          "A share of trajectories with a verified outcome is shown to the judge blind; report outcomes, and this fills.",
        ),
  );
}

function costs(pages) {
  if (!pages.length) return null;
  const columns = [
    "judge",
    ...["tokens", "money"].map((name) => ({ name, number: true })),
  ];
  return section(
    "Cost of each judge",
    table(
      "What judges cost",
      columns,
      pages.map((page) => ({
        key: key(page),
        cells: [who(page), figure(page.tokens), figure(page.money)],
      })),
    ),
  );
}
