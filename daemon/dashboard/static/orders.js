// Freeze, thaw, roll back: the dialogs that lead to an order.

import { confirmed } from "./dialog.js";
import { button, choice } from "./parts.js";

export async function freeze(act) {
  const done = await confirmed({
    title: "Freeze learning?",
    verb: "Freeze learning",
    path: "api/freeze",
    danger: true,
    text: "Nothing more is trained or brought into service until somebody thaws it. What serves now goes on serving; agents notice nothing.",
  });
  if (done) act(`Learning is frozen: ${done.reason}`);
}

export async function thaw(act) {
  const done = await confirmed({
    title: "Learn again?",
    verb: "Thaw learning",
    path: "api/thaw",
    text: "Training goes on where it stopped, and candidates that pass the gate are brought into service again.",
  });
  if (done) act(`Learning goes on: ${done.reason}`);
}

/** Versions that one can go back to, the latest first. */
export function choices(fleet) {
  const bad = fleet.canary_engine ? fleet.canary : fleet.stable;
  return [...fleet.good].reverse().filter((each) => each !== bad && !fleet.banned.includes(each));
}

export async function rollback(fleet, act) {
  const bad = fleet.canary_engine ? fleet.canary : fleet.stable;
  const versions = choices(fleet);
  const to = choice(
    "to",
    String(versions[0]),
    versions.map((each) => [String(each), `v${each}`]),
  );
  const done = await confirmed({
    title: `Roll back v${bad}?`,
    verb: `Roll back v${bad}`,
    path: "api/rollback",
    danger: true,
    fields: [["Go back to", to]],
    text: `Every engine is swapped back, as fast as any swap, and v${bad} does not come back unless it is promoted by force.`,
  });
  if (done)
    act(`Ordered: back from v${done.details.version} to v${done.details.to}. The engines follow within seconds.`);
}

export function rollbackButton(fleet, act) {
  const none = !choices(fleet).length;
  return button("Roll back…", () => rollback(fleet, act), {
    class: "danger",
    disabled: none,
    title: none ? "No other version has served: there is nothing to go back to" : null,
  });
}
