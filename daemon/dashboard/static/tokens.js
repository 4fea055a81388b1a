// The tokens of a step: how many, of which version, how sure it was of each, and whether they are trained on.

import { el, svg } from "./dom.js";
import { plural } from "./format.js";
import { version } from "./parts.js";

/** What becomes of the step's tokens in training. */
function fate(run, step) {
  if (!run.trainable) return `masked: ${run.why_not || "not trainable"}`;
  const { batch, came } = run.lineage;
  if (!batch) return came ? `left out: ${came.replaceAll("_", " ")}` : "waits for a batch";
  const how = step.label === "ABSTAIN" ? ", credit from the outcome alone" : "";
  if (came && came !== "learned") return `not trained on: ${came.replaceAll("_", " ")}`;
  return (came ? "trained on" : "in a batch") + how;
}

export function tokens(run, step) {
  const found = step.tokens;
  if (!found) return el("span", { class: "soft" }, "masked: no token ids");
  const by = found.versions.filter((each) => each >= 0);
  return [
    el(
      "div",
      {},
      `${found.sampled} sampled of ${found.row}`,
      by.length ? [" by ", by.flatMap((each, place) => [place ? ", " : "", version(each)])] : "",
    ),
    found.mean_logprob === null
      ? el("div", { class: "soft" }, "no log-probs")
      : [
          el(
            "div",
            { class: "soft" },
            `log-prob: mean ${nats(found.mean_logprob)}, least ${nats(found.least_logprob)}`,
          ),
          found.least_logprob < -0.25 ? bars(found) : null,
        ],
    found.experience
      ? el("div", { class: "soft" }, `${plural(found.experience, "token")} of experience cut out`)
      : null,
    el("div", { class: "soft" }, fate(run, step)),
  ];
}

/** To two digits, and never -0.00. */
const nats = (value) => (value > -0.005 ? "0.00" : value.toFixed(2));

/** Surprise of each token: a bar from the line down, 0 to 5 nats. */
function bars(found) {
  const wide = 3,
    high = 20,
    width = wide * found.logprobs.length;
  return svg(
    "svg",
    {
      class: "bars",
      viewBox: `0 0 ${width} ${high}`,
      width: Math.min(width, 240),
      height: high,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    svg("line", { class: "axis", x1: 0, x2: width, y1: 0.5, y2: 0.5 }),
    found.logprobs.map((each, place) =>
      svg("rect", { x: place * wide, y: 0, width: wide - 1, height: Math.min(high, 1 - each * 4).toFixed(1) }),
    ),
  );
}
