// The frame: which page the address names, what it shows, and when it looks again.

import { get } from "./api.js";
import { el, morph } from "./dom.js";
import { moment } from "./format.js";
import { freeze, thaw } from "./orders.js";
import { button, learning, tag } from "./parts.js";
import * as adapters from "./pages/adapters.js";
import * as dead from "./pages/dead.js";
import * as experience from "./pages/experience.js";
import * as judge from "./pages/judge.js";
import * as lesson from "./pages/lesson.js";
import * as overview from "./pages/overview.js";
import * as trajectories from "./pages/trajectories.js";
import * as trajectory from "./pages/trajectory.js";
import * as versionPage from "./pages/version.js";
import * as versions from "./pages/versions.js";

const PAGES = [
  ["", "Overview", overview],
  ["trajectories", "Trajectories", trajectories, trajectory],
  ["versions", "Policy versions", versions, versionPage],
  ["experience", "Experience", experience, lesson],
  ["adapters", "Adapters", adapters],
  ["judge", "Judge", judge],
  ["dead", "Dead letters", dead],
];
const SECONDS = 4;
const byId = (id) => document.getElementById(id);
const scrolled = new Map();

let now = null; // {path, key, page, id, query}
let asked = null; // aborts what is under way
let timer = 0;
let paused = false;
let seen = ""; // what was last drawn, as JSON

function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/").map(decodeURIComponent);
  const found = PAGES.find(([each]) => each === name) ?? PAGES[0];
  return {
    path: name,
    key: location.hash,
    page: id && found[3] ? found[3] : found[2],
    id,
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** Show what the address names. `back`: the reader returns, to where they had been. */
async function go(back) {
  const before = now;
  now = place();
  const same = before && before.page === now.page && before.id === now.id;
  if (!same) {
    notice("");
    seen = "";
    byId("page").setAttribute("aria-busy", "true");
  }
  await refresh(true);
  if (same) return announceCount();
  byId("page").querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, back ? (scrolled.get(now.key) ?? 0) : 0);
}

/** Look again; `values`: the address changed, and fields show what it says. */
async function refresh(values = false) {
  clearTimeout(timer);
  asked?.abort();
  const mine = (asked = new AbortController());
  const at = now;
  try {
    const [status, data] = await Promise.all([get("api/status", mine.signal), at.page.load(at, mine.signal)]);
    if (mine.signal.aborted) return;
    frame(status);
    const told = JSON.stringify([at.key, data, at.page.live ? status : [status.fleet, status.frozen]]);
    if (told !== seen) draw(at, data, status, values);
    seen = told;
    trouble("");
  } catch (error) {
    if (mine.signal.aborted) return;
    failed(error, at);
  }
  if (!paused && !document.hidden) timer = setTimeout(refresh, 1000 * SECONDS);
}

function draw(at, data, status, values) {
  const shown = at.page.draw(data, { ...at, status, act, refresh, go: (hash) => (location.hash = hash) });
  document.title = `${shown.title} · evolved`;
  byId("page").removeAttribute("aria-busy");
  morph(byId("page"), shown.nodes, values);
  for (const box of byId("page").querySelectorAll(".scroll, pre")) {
    const wide = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    // What scrolls must be reachable without a mouse.
    if (!wide) for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    else
      for (const [name, value] of [
        ["tabindex", "0"],
        ["role", "region"],
        ["aria-label", box.dataset.label ?? "Text"],
      ])
        box.setAttribute(name, value);
  }
  now.count = shown.count ?? "";
}

function failed(error, at) {
  if (error.status && error.status < 500 && error.status !== 401) {
    document.title = "Not found · evolved";
    morph(byId("page"), [
      el("h1", { tabindex: "-1" }, error.status === 404 ? "Not found" : "Refused"),
      el("p", {}, error.message),
      el("p", {}, el("a", { href: `#/${at.path}` }, "Back to the list")),
    ]);
    return;
  }
  const hint =
    error.status === 401
      ? "Reload the page to log in again."
      : "What is shown may be old. Agents are not affected: the tap serves without the daemon. See `systemctl status evolved-daemon`, or start it with `evolved run`.";
  trouble(`The daemon does not answer (${error.message}). ${hint}`);
  if (!byId("page").querySelector("h1"))
    morph(byId("page"), [
      el("h1", { tabindex: "-1" }, "No connection"),
      el("p", {}, "This page looks again every few seconds."),
    ]);
}

/** An order was carried out: say so, and look again. */
async function act(text) {
  notice(text);
  seen = "";
  await refresh();
  if (document.activeElement === document.body) byId("page").querySelector("h1")?.focus();
}

const notice = (text) => (byId("notice").textContent = text);
const trouble = (text) => byId("trouble").textContent !== text && (byId("trouble").textContent = text);
const announceCount = () => notice(now.count ?? "");

function frame(status) {
  const parked = status.counts.dead_letters ?? 0;
  morph(
    byId("nav"),
    PAGES.map(([path, name]) =>
      el(
        "li",
        { "data-key": `n-${path}` },
        el(
          "a",
          { href: `#/${path}`, "aria-current": path === now.path ? "page" : null },
          name,
          path === "dead" && parked
            ? el("span", { class: "badge" }, String(parked), el("span", { class: "unseen" }, " parked"))
            : null,
        ),
      ),
    ),
  );
  const frozen = status.frozen || status.kill_switch;
  const why = status.kill_switch
    ? `kill switch: ${status.kill_switch}`
    : status.last_directive?.kind === "freeze"
      ? status.last_directive.reason
      : "";
  morph(byId("state"), [
    el("p", { "data-key": "s" }, frozen ? tag("warn", "learning is frozen") : learning(status)),
    frozen && why ? el("p", { "data-key": "w", class: "quoted soft" }, why) : null,
    status.kill_switch
      ? el("p", { "data-key": "k", class: "soft" }, "remove the file FREEZE in the state directory first")
      : frozen
        ? button("Thaw…", () => thaw(act), { "data-key": "b-thaw" })
        : button("Freeze…", () => freeze(act), { "data-key": "b-freeze" }),
    button(paused ? "Resume updates" : "Pause updates", pause, { "data-key": "b-pause", class: "quiet" }),
    el("p", { "data-key": "t", class: "soft" }, paused ? "paused at " : "as of ", moment(Date.now() / 1000)),
  ]);
}

function pause() {
  paused = !paused;
  refresh();
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || refresh()));
history.scrollRestoration = "manual";
addEventListener("scroll", () => now && scrolled.set(now.key, scrollY), { passive: true });
let returning = false;
addEventListener("popstate", () => (returning = history.state?.shown === true));
addEventListener("hashchange", () => {
  const back = returning;
  history.replaceState({ shown: true }, "");
  go(back);
});
byId("skip").onclick = (event) => {
  event.preventDefault(); // the fragment is the page's name here
  byId("main").focus();
};
history.replaceState({ shown: true }, "");
go(false);
