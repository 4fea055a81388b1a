// Every version of the weights: what the gate measured, where it served, what it cost to bring in.

import { get, withQuery } from "../api.js";
import { el } from "../dom.js";
import { count, percent, plural, seconds } from "../format.js";
import { rollbackButton } from "../orders.js";
import { button, empty, head, quoted, table, tag, time, version } from "../parts.js";

const PAGE = 30;
const DECISION = { promote: "good", reject: "bad", hold: "warn" };

export const load = ({ query }, signal) => get(withQuery("api/versions", { limit: query.limit ?? PAGE }), signal);

export function draw(data, { status, act, go }) {
  const found = data.versions;
  const more = data.all > found.length;
  return {
    title: "Policy versions",
    count: plural(found.length, "version"),
    nodes: [
      head("Policy versions", rollbackButton(status.fleet, act)),
      found.length
        ? table(
            "Versions of the weights, newest first",
            [
              "version",
              "trained",
              "verdict",
              "why",
              { name: "held-out success", number: true },
              { name: "against incumbent", number: true },
              { name: "paused", number: true },
              "served",
              "setbacks",
            ],
            found.map((each) => row(each, status.fleet)),
          )
        : empty(
            "No version yet.",
            "The learner trains once the curator has a batch together; until then the engine serves as it started. `evolved status` shows how many trajectories wait.",
          ),
      more
        ? el(
            "p",
            { class: "pager", "data-key": "more" },
            button(`Show more of ${count(data.all)}`, () => go(withQuery("#/versions", { limit: found.length + 100 }))),
          )
        : null,
    ],
  };
}

/** What a version is to the engines; a single one that has a trial serves nothing but that. */
function standing(number, fleet) {
  const alone = Object.keys(fleet.engines).length === 1;
  if (number === fleet.canary && fleet.canary_engine) return [" ", tag("warn", "on trial")];
  if (number === fleet.stable) return [" ", tag("good", alone && fleet.canary_engine ? "stable" : "serves")];
  return fleet.banned.includes(number) ? [" ", tag("bad", "banned")] : null;
}

function row(each, fleet) {
  const verdict = each.verdict,
    told = verdict?.measurements ?? {};
  const swapped = each.swaps.find((one) => one.result === "swapped");
  const difference = told.incumbent_difference;
  return {
    key: `v${each.version}`,
    cells: [
      [version(each.version), standing(each.version, fleet)],
      each.trained
        ? [time(each.trained), el("div", { class: "soft" }, "from ", version(each.parent))]
        : el("span", { class: "soft" }, "was there"),
      verdict
        ? [tag(DECISION[verdict.decision] ?? "warn", verdict.decision), signature(verdict)]
        : el("span", { class: "soft" }, each.trained ? "not judged yet" : "–"),
      verdict ? quoted(verdict.reason) : "",
      told.success === undefined
        ? "–"
        : [percent(told.success), el("div", { class: "soft" }, `${percent(told.low)} – ${percent(told.high)}`)],
      difference === undefined ? "–" : `${difference >= 0 ? "+" : "−"}${Math.abs(100 * difference).toFixed(0)} points`,
      swapped ? seconds(swapped.paused_seconds) : "–",
      each.served.length
        ? each.served
            .slice(-3)
            .map((span) =>
              el(
                "div",
                {},
                span.engine,
                " ",
                span.until === null ? "until now" : `for ${seconds(span.until - span.since)}`,
              ),
            )
        : "–",
      each.setbacks.length
        ? each.setbacks.map((one) =>
            el("div", {}, tag("bad", one.kind.replace("_", " ")), " ", one.who, ": ", quoted(one.reason)),
          )
        : "",
    ],
  };
}

const signature = (verdict) =>
  el(
    "div",
    {},
    verdict.signature_problem ? tag("bad", verdict.signature_problem) : el("span", { class: "soft" }, "signed"),
  );
