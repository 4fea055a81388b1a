// The pool of lessons: look, search, see how each fared.

import { get, post, withQuery } from "../api.js";
import { el } from "../dom.js";
import { plural } from "../format.js";
import { choice, empty, field, head, link, quoted, share, table, tag, time } from "../parts.js";

const STATES = { candidate: "warn", active: "good", retired: "plain", quarantined: "bad" };
const NAMES = ["q", "how", "state", "kind", "tenant"];
const pairs = (words) => [["", "all"], ...words.map((word) => [word, word])];

export const state = (lesson) => tag(STATES[lesson.state] ?? "plain", lesson.state);

export function load({ query }, signal) {
  const { q = "", how = "", state: wanted = "", kind = "", tenant = "" } = query;
  if (how === "fits" && q.trim())
    return post("api/experience/search", {
      text: q,
      k: 25,
      tenant: tenant || "default",
      states: wanted ? [wanted] : null,
      kinds: kind ? [kind] : null,
    });
  return get(withQuery("api/experience", { q, state: wanted, kind, tenant, limit: 200 }), signal);
}

export function draw(found, { query, go }) {
  const asked = Object.fromEntries(NAMES.map((name) => [name, query[name] ?? ""]));
  const fits = asked.how === "fits" && asked.q;
  return {
    title: "Experience",
    count: plural(found.length, "lesson"),
    nodes: [
      head("Experience"),
      form(asked, go),
      found.length
        ? table(
            fits ? "Lessons, the best fit first" : "Lessons, last changed first",
            [
              ...(fits ? [{ name: "fit", number: true }] : []),
              "when to use",
              "do",
              "kind",
              "state",
              { name: "with it", number: true },
              { name: "without", number: true },
              "changed",
            ],
            found.map((each) => row(each, fits)),
          )
        : NAMES.some((name) => asked[name])
          ? empty("No lesson fits.", el("a", { href: "#/experience" }, "Show all"), ", or look for fewer words.")
          : empty(
              "No lesson yet.",
              "Lessons are drawn from trajectories that went well beside those that did not. Add one by hand: ",
              el("code", {}, "evolved experience add"),
            ),
    ],
  };
}

function form(asked, go) {
  const submit = (event) => {
    event.preventDefault();
    go(
      withQuery(
        "#/experience",
        Object.fromEntries(NAMES.map((name) => [name, event.currentTarget.elements[name]?.value.trim() ?? ""])),
      ),
    );
  };
  return el(
    "form",
    { class: "filters", role: "search", "aria-label": "Search lessons", "data-key": "form", onsubmit: submit },
    field("Look for", el("input", { type: "search", name: "q", value: asked.q })),
    field(
      "How",
      choice("how", asked.how, [
        ["", "has these words"],
        ["fits", "fits this task"],
      ]),
    ),
    field("State", choice("state", asked.state, pairs(Object.keys(STATES)))),
    field(
      "Kind",
      choice("kind", asked.kind, pairs(["rename", "precondition", "practice", "insight", "skill", "tool"])),
    ),
    field("Tenant", el("input", { type: "text", name: "tenant", value: asked.tenant, size: "10" })),
    el("button", { type: "submit", class: "primary" }, "Show"),
    el("a", { href: "#/experience", class: "buttonlike" }, "Clear"),
  );
}

function row({ lesson, score }, fits) {
  const name = lesson.when_to_use || lesson.id.slice(0, 12);
  const cells = [
    link(["experience", lesson.id], quoted(name.slice(0, 160))),
    quoted(lesson.content.slice(0, 280)),
    [lesson.kind, el("div", { class: "soft" }, lesson.origin)],
    [state(lesson), lesson.reason ? el("div", { class: "quoted soft" }, lesson.reason) : null],
    share(lesson.guided),
    share(lesson.unguided),
    time(lesson.updated),
  ];
  return { key: lesson.id, cells: fits ? [score.toFixed(2), ...cells] : cells };
}
