// Records that an actor gave up on: look at the error, mend its cause, put them back.

import { get, post } from "../api.js";
import { el } from "../dom.js";
import { count, plural } from "../format.js";
import { button, empty, head, long, table, time } from "../parts.js";

export const load = (at, signal) => get("api/dead", signal);

export function draw(found, { act }) {
  return {
    title: "Dead letters",
    count: plural(found.length, "parked record"),
    nodes: [
      head("Dead letters"),
      found.length
        ? [
            el(
              "p",
              { class: "soft", "data-key": "lead" },
              "An actor failed on these again and again, and put them aside so that the rest goes on. Mend the cause, then put them back: each is handled as if it had just come.",
              found.length >= 100 ? " The newest 100 are shown." : "",
            ),
            table(
              "Parked records, newest first",
              ["record", "actor", "error", "parked", { name: "bytes", number: true }, "put back"],
              found.map((each) => row(each, act)),
            ),
          ]
        : empty("Nothing is parked.", "Records that an actor fails on again and again land here, with the error."),
    ],
  };
}

function row(each, act) {
  const retry = async () => {
    try {
      await post(`api/dead/${encodeURIComponent(each.id)}/retry`);
      act(`Put back; should it fail again, it comes back here.`);
    } catch (error) {
      act(`Not put back: ${error.message}`);
    }
  };
  return {
    key: each.id,
    cells: [
      [el("code", {}, each.input_id.slice(0, 16)), el("div", { class: "soft" }, each.subject)],
      each.actor,
      long(each.error),
      time(each.at),
      count(each.size),
      button("Retry", retry, { "aria-label": `Retry ${each.actor} on ${each.input_id.slice(0, 16)}` }),
    ],
  };
}
