// Live APIs: whether they are well, what may be done with them, what was asked of them.

import { get, post } from "../api.js";
import { el } from "../dom.js";
import { count, plural } from "../format.js";
import { button, empty, head, quoted, section, table, tag, time } from "../parts.js";

const MODES = { live: "what is allowed is done", shadow: "only what is known to read", dry_run: "nothing is executed" };

export const load = (at, signal) => get("api/adapters", signal);

export function draw(data, { act }) {
  const found = data.adapters;
  return {
    title: "Adapters",
    count: plural(found.length, "live API"),
    nodes: [
      head("Adapters"),
      section(
        "Live APIs",
        found.length
          ? table(
              "Live APIs",
              [
                "name",
                "kind",
                "state",
                "policy",
                { name: "tools", number: true },
                "calls",
                "last success",
                "last failure",
                "check",
              ],
              found.map((each) => row(each, data.details[each.name], act)),
            )
          : empty(
              "No live API is registered.",
              "Add one by its address: ",
              el("code", {}, "evolved adapters add NAME --kind openapi --url https://…/openapi.json"),
              ", or in config.toml under [apis.NAME]. Until its policy says otherwise nothing is executed but what you list as read-only.",
            ),
      ),
      installed(data.installed),
    ],
  };
}

function row(each, detail, act) {
  const test = async () => {
    try {
      const answer = await post(`api/adapters/${encodeURIComponent(each.name)}/test`);
      act(`${each.name} answers: ${plural(answer.tools.length, "tool")} in ${answer.seconds} s`);
    } catch (error) {
      act(`${each.name} does not answer as it should: ${error.message}`);
    }
  };
  return {
    key: each.name,
    cells: [
      [each.name, el("div", { class: "soft quoted" }, each.where)],
      [each.kind, el("div", { class: "soft" }, `by ${each.origin}`)],
      each.ok
        ? each.last_success
          ? tag("good", "well")
          : tag("plain", "not called yet")
        : [tag("bad", "failing"), el("div", { class: "quoted soft" }, each.error)],
      policy(each.mode, detail?.policy),
      count(each.tools),
      calls(detail?.calls),
      time(each.last_success),
      time(each.last_failure),
      button("Test", test, { "aria-label": `Test ${each.name}` }),
    ],
  };
}

function policy(mode, found) {
  const list = (name, patterns) =>
    patterns?.length ? el("div", { class: "soft" }, `${name}: `, el("code", {}, patterns.join(" "))) : null;
  return [
    el("b", {}, mode.replace("_", " ")),
    el("div", { class: "soft" }, MODES[mode] ?? ""),
    list("allowed", found?.allow),
    list("read-only", found?.read_only),
    list("denied", found?.deny),
  ];
}

const calls = (found) =>
  found && Object.keys(found).length
    ? Object.entries(found).map(([name, number]) => el("div", {}, `${count(number)} ${name.replaceAll("_", " ")}`))
    : "none";

function installed(found) {
  return section(
    "Installed",
    el(
      "details",
      {},
      el("summary", {}, `${plural(found.length, "adapter")} that entry points offer`),
      table(
        "Installed adapters",
        ["kind", "name", "at"],
        found.map((each) => ({
          key: `${each.kind}.${each.name}`,
          cells: [each.kind, each.name, el("code", {}, quoted(each.at))],
        })),
      ),
    ),
  );
}
