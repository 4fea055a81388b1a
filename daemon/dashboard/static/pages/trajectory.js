// One trajectory: what was done, what each step was worth, which tokens that concerns, and what became of it.

import { get } from "../api.js";
import { el } from "../dom.js";
import { figure, percent, seconds } from "../format.js";
import {
  credit,
  empty,
  facts,
  head,
  link,
  long,
  outcome,
  quoted,
  section,
  table,
  tag,
  time,
  version,
} from "../parts.js";
import { tokens } from "../tokens.js";

export const load = ({ id }, signal) => get(`api/trajectories/${encodeURIComponent(id)}`, signal);

export function draw(run) {
  const name = run.goal ? run.goal.slice(0, 80) : run.id.slice(0, 12);
  return {
    title: `Trajectory: ${name}`,
    nodes: [
      el(
        "p",
        { class: "crumbs", "data-key": "crumbs" },
        el("a", { href: "#/trajectories" }, "Trajectories"),
        " / ",
        el("code", {}, run.id),
      ),
      head(el("span", { class: "quoted" }, run.goal || run.id)),
      about(run),
      steps(run),
      used(run),
      reported(run),
      lineage(run),
    ],
  };
}

function about(run) {
  const judged = run.judged;
  return facts([
    ["outcome", outcome(run.outcome)],
    [
      "source",
      run.source,
      run.origin !== "environment" && run.source !== "production" ? `, task by ${run.origin}` : "",
    ],
    [
      "versions",
      run.min_version === run.version ? version(run.version) : [version(run.min_version), "–", version(run.version)],
    ],
    ["ended", time(run.ended), `, took ${seconds(run.ended - run.started)}`],
    ["closed by", run.closed_by],
    ["tenant", quoted(run.tenant)],
    ["judge", judged ? `${judged.judge} (${judged.rubric}), weight ${figure(judged.weight)}` : "not judged yet"],
    [
      "learning",
      run.trainable ? "may be trained on" : tag("plain", `not trained on: ${run.why_not || "not trainable"}`),
    ],
    run.stitching < 1 ? ["stitching", `${percent(run.stitching)} sure`] : null,
    run.continues ? ["continues", link(["trajectories", run.continues], run.continues.slice(0, 12))] : null,
  ]);
}

function steps(run) {
  if (!run.steps.length) return section("Steps", empty("No steps.", "Only calls of chat models become steps."));
  const roles = run.steps.some((step) => step.role);
  return section(
    "Steps",
    table(
      "Steps with their credit and tokens",
      ["step", ...(roles ? ["role"] : []), "action", "what came back", "credit", "tokens"],
      run.steps.map((step, number) => ({
        key: `s${number}`,
        cells: [
          String(number + 1),
          ...(roles ? [quoted(step.role)] : []),
          action(step),
          step.observation ? long(step.observation) : el("span", { class: "soft" }, "last step"),
          worth(run, step),
          tokens(run, step),
        ],
      })),
    ),
  );
}

function action(step) {
  return [
    step.text ? el("div", {}, long(step.text)) : null,
    step.calls.map((call) => el("div", {}, el("b", { class: "quoted" }, call.name), " ", long(call.arguments))),
    !step.text && !step.calls.length ? el("span", { class: "soft" }, "said nothing") : null,
  ];
}

function worth(run, step) {
  if (!run.judged) return el("span", { class: "soft" }, "not judged yet");
  const sure = step.label === "ABSTAIN" ? "" : `, ${percent(step.confidence)} sure`;
  return [credit(step.label, step.label + sure), step.reason ? el("div", { class: "quoted soft" }, step.reason) : null];
}

function used(run) {
  if (!run.experience.length)
    return section("Experience used", el("p", { class: "soft" }, "None stood in the prompt: this run was unguided."));
  return section(
    "Experience used",
    table(
      "Lessons that stood in the prompt",
      ["lesson", "do", "state now"],
      run.experience.map((each) => ({
        key: each.id,
        cells: [
          link(
            ["experience", each.id],
            each.known && each.when_to_use ? quoted(each.when_to_use) : each.id.slice(0, 12),
          ),
          each.known ? quoted(each.content) : "no longer in the store",
          each.state ?? "",
        ],
      })),
    ),
  );
}

function reported(run) {
  if (!run.feedback.length) return null;
  return section(
    "Reported",
    table(
      "What was reported of it",
      ["when", "kind", "outcome", "text"],
      run.feedback.map((each, number) => ({
        key: `f${number}`,
        cells: [time(each.at), each.kind, outcome(each.outcome), quoted(each.text)],
      })),
    ),
  );
}

const quiet = (reason) => reason.replaceAll("_", " ");

function lineage(run) {
  const { batch, came } = run.lineage;
  if (!batch)
    return section(
      "Lineage",
      el(
        "p",
        {},
        came
          ? [tag("plain", "left out"), ` ${quiet(came)}: no batch will use it.`]
          : "No batch has used it yet.",
      ),
    );
  return section(
    "Lineage",
    el(
      "div",
      { class: "lineage", "data-key": batch.batch_id },
      el("p", {}, "Batch ", el("code", {}, batch.batch_id.slice(0, 12)), ", ordered ", time(batch.created)),
      batch.versions.length
        ? el(
            "ul",
            {},
            batch.versions.map((each) =>
              el(
                "li",
                {},
                "trained into ",
                version(each.version),
                " from ",
                version(each.parent),
                ", ",
                time(each.trained),
                verdicts(each),
                served(each),
              ),
            ),
          )
        : null,
      came === "learned"
        ? null
        : el(
            "p",
            { class: "soft" },
            came ? `Nothing was learned from it: ${quiet(came)}.` : "The learner has not answered yet.",
          ),
    ),
  );
}

const verdicts = (each) =>
  el(
    "ul",
    {},
    each.verdicts.length
      ? each.verdicts.map((one) =>
          el(
            "li",
            {},
            tag({ promote: "good", reject: "bad" }[one.decision] ?? "warn", one.decision),
            " ",
            time(one.created),
            ": ",
            quoted(one.reason),
          ),
        )
      : el("li", { class: "soft" }, "not judged by the gate"),
  );

const served = (each) =>
  each.served.length
    ? el(
        "ul",
        {},
        each.served.map((span) =>
          el(
            "li",
            {},
            "served at ",
            span.engine,
            " from ",
            time(span.since),
            span.until ? [" to ", time(span.until)] : " until now",
          ),
        ),
      )
    : null;
