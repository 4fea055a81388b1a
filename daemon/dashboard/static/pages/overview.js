// What a person wants to know first: does it get better, what serves, is everybody at work.

import { get } from "../api.js";
import { success } from "../chart.js";
import { el } from "../dom.js";
import { count, percent, plural, seconds } from "../format.js";
import { choices, rollbackButton } from "../orders.js";
import { empty, head, learning, link, quoted, section, table, tag, time, version } from "../parts.js";

export const live = true;

export const load = (at, signal) => get("api/success", signal);

export function draw(data, { status, act }) {
  return {
    title: "Overview",
    nodes: [
      head("Overview", rollbackButton(status.fleet, act)),
      figures(status),
      progress(status),
      outcomes(status),
      section(
        "Success of production agents",
        success(data) ??
          empty(
            "No outcome yet.",
            "Point your agents' base URL at the tap, ",
            el("code", {}, status.tap ?? "see tap.listen"),
            ", and report outcomes to ",
            el("code", {}, "/v1/feedback"),
            ".",
          ),
      ),
      el("div", { class: "columns", "data-key": "columns" }, engines(status), findings(status)),
      actors(status),
      books(status),
    ],
  };
}

function figures(status) {
  const { success: rate, counts, shares, serving } = status;
  const runs = Object.entries(counts)
    .filter(([name]) => name.startsWith("trajectories_"))
    .reduce((sum, [, each]) => sum + each, 0);
  const cell = (name, value, more) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), more ? el("span", {}, more) : null));
  return el(
    "dl",
    { class: "figures", "data-key": "figures", "aria-label": "Key figures" },
    cell(
      "success",
      percent(rate.rate),
      rate.n ? `${percent(rate.low)} – ${percent(rate.high)}, last ${rate.n}` : "no outcome yet",
    ),
    cell(
      "serves",
      serving ? version(serving.version) : "–",
      serving ? ["since ", time(serving.since)] : "as the engine started",
    ),
    cell("trained", status.trained ? version(status.trained) : "–", plural(counts.batches, "batch", "batches")),
    cell("calls seen", count(counts.exchanges), `${count(counts.exchanges_failed)} failed`),
    cell("trajectories", count(runs), `${count(counts.trajectories_production)} of production`),
    cell("trained from", percent(shares.production), `production, ${percent(shares.sandbox)} sandbox`),
    cell(
      "parked",
      counts.dead_letters ? link(["dead"], count(counts.dead_letters)) : "0",
      counts.dead_letters ? "look at them" : "nothing waits for you",
    ),
  );
}

const AGENTS = 8;

function progress(status) {
  const told = status.learning;
  if (!told?.state) return null;
  const { effect, agents } = told;
  const rows = agents.slice(0, AGENTS).map((each) => ({
    key: each.agent,
    cells: [
      quoted(each.label),
      count(each.runs),
      count(each.reported),
      count(each.learned),
      quoted(each.calls_sentence),
      [tag(each.learning ? "good" : "warn", each.learning ? "yes" : "no"), " ", quoted(each.sentence)],
      quoted(each.remedy),
    ],
  }));
  return section(
    "Learning",
    el("p", {}, learning(status), " ", quoted(told.sentence)),
    told.remedy ? el("p", {}, "What to change: ", quoted(told.remedy), ".") : null,
    effect.sentence ? el("p", { class: "soft" }, quoted(effect.sentence)) : null,
    rows.length
      ? table(
          "Agents",
          [
            "agent",
            { name: "runs", number: true },
            { name: "reported", number: true },
            { name: "learned from", number: true },
            "calls that train",
            "is there learning from it",
            "what to change",
          ],
          rows,
        )
      : null,
    told.agents_known > AGENTS
      ? el("p", { class: "soft" }, `${plural(told.agents_known - AGENTS, "agent")} more, less busy: evolved status --json`)
      : null,
  );
}

function outcomes(status) {
  const told = status.learning?.provisional;
  if (!told) return null;
  const { runs, reported, provisional } = status.learning.effect;
  const none = Math.max(0, runs - reported - provisional);
  const share = (part) => percent(runs ? part / runs : 0);
  const rows = Object.entries(told.agents).map(([agent, each]) => ({
    key: agent,
    cells: [
      quoted(agent),
      count(each.outcomes),
      each.low > -1 ? `${each.skill.toFixed(2)} [${each.low.toFixed(2)}, ${each.high.toFixed(2)}]` : "too few to tell",
      each.calibration.toFixed(3),
      each.weight.toFixed(2),
      quoted(
        told.signals
          .filter((one) => one.agent === agent && one.known)
          .map((one) => `${one.signal} ${percent(one.precision)} of ${one.known}${one.quarantined ? ", not listened to" : ""}`)
          .join("; "),
      ),
    ],
  }));
  return section(
    "Outcomes",
    el(
      "p",
      {},
      `${share(reported)} of the runs reported, ${share(provisional)} provisional alone, `,
      `${share(none)} none. `,
      told.on ? "Provisional outcomes train." : "Provisional outcomes are only shown: train.provisional = false.",
    ),
    rows.length
      ? table(
          `Outcome model, version ${told.model}`,
          [
            "agent",
            { name: "reported", number: true },
            "skill over the base rate",
            { name: "calibration error", number: true },
            { name: "weight", number: true },
            "signals: how often right",
          ],
          rows,
        )
      : el("p", { class: "soft" }, `No outcome model yet: it takes 30 reported outcomes, there are ${told.outcomes}.`),
  );
}

function engines(status) {
  const { fleet } = status;
  const rows = Object.entries(fleet.engines).map(([name, each]) => ({
    key: name,
    cells: [
      name,
      each.version === null ? "–" : version(each.version),
      each.since ? time(each.since) : "–",
      !each.reachable ? tag("bad", "away") : each.paused ? tag("warn", "paused") : tag("good", "serves"),
      share(each, fleet),
      quoted(each.note),
    ],
  }));
  const good = choices(fleet);
  return section(
    "Engines",
    rows.length
      ? table("Engines that serve users", ["engine", "version", "since", "state", "new trajectories", "note"], rows)
      : empty(
          "No engine is looked at yet.",
          "The swapper asks them within a minute of the start; addresses are in [engines].",
        ),
    el(
      "p",
      { class: "soft" },
      "Should serve: ",
      fleet.stable === null ? "nothing yet" : version(fleet.stable),
      fleet.canary === null ? "" : [", ", version(fleet.canary), " is on trial"],
      fleet.waiting === null ? "" : [", ", version(fleet.waiting), " waits for its trial"],
      ". One can go back to: ",
      good.length ? good.slice(0, 12).flatMap((each, place) => [place ? ", " : "", version(each)]) : "nothing",
      ".",
    ),
  );
}

/** Which new trajectories an engine gets: a single one has all of them, on trial or not. */
function share(each, fleet) {
  const alone = Object.keys(fleet.engines).length === 1;
  if (!each.canary_share) return alone ? "all" : "by weight";
  const runs = `${plural(fleet.canary_runs, "run")}, ${fleet.canary_judged} judged`;
  return `${alone ? "all" : percent(each.canary_share)}, on trial: ${runs}`;
}

function findings(status) {
  const told = (status.sentinel.told ?? []).slice(-6).reverse();
  const away = status.sentinel.unreachable ?? [];
  const last = status.last_directive;
  return section(
    "Sentinel and orders",
    away.length ? el("p", {}, tag("warn", "not reached"), ` ${away.join(", ")}`) : null,
    told.length
      ? el(
          "ul",
          { class: "plainlist" },
          told.map((each) => el("li", {}, tag("warn", each.action), " ", quoted(each.reason))),
        )
      : el("p", {}, tag("good", "the sentinel found nothing")),
    el(
      "p",
      { class: "soft" },
      "Last order: ",
      last ? [last.kind, " by ", last.origin, ", ", time(last.created), ": ", quoted(last.reason)] : "none",
    ),
    el("p", { class: "soft" }, "Parties: ", status.parties.sentence),
  );
}

const STATES = {
  new: "plain",
  starting: "plain",
  ready: "good",
  waiting: "warn",
  backoff: "warn",
  stalled: "bad",
  failed: "bad",
  ended: "plain",
};

function actors(status) {
  const rank = (each) => ({ bad: 0, warn: 1 })[STATES[each.status]] ?? (each.note || each.restarts ? 2 : 3);
  const rows = [...status.actors]
    .sort((a, b) => rank(a) - rank(b))
    .map((each) => ({
      key: each.name,
      cells: [
        each.name,
        tag(STATES[each.status] ?? "warn", each.status),
        String(each.restarts),
        `${seconds(each.beat_age)} ago`,
        quoted(each.note || each.last_error || ""),
      ],
    }));
  const well = status.actors.every((each) => STATES[each.status] === "good");
  return section(
    "Actors",
    rows.length
      ? [
          el(
            "p",
            { class: "soft" },
            well ? `All ${rows.length} are at work.` : "Those that are not at work come first.",
          ),
          table(
            "Actors",
            [
              "actor",
              "state",
              { name: "restarts", number: true },
              { name: "sign of life", number: true },
              "waits for, or last error",
            ],
            rows,
          ),
        ]
      : empty("No actor runs here.", "This control API was started without the daemon's tasks."),
  );
}

function books(status) {
  const rows = Object.entries(status.counts)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, each]) => ({ key: name, cells: [name.replaceAll("_", " "), count(each)] }));
  return section(
    "Books",
    el(
      "details",
      {},
      el("summary", {}, "What the store counts"),
      table("What the store counts", ["what", { name: "how many", number: true }], rows),
    ),
  );
}
