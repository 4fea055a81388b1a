"use strict";
// Reads the control API every two seconds and draws; everything that came from outside is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
let source = "";
const open = new Set();

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}
function svg(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const percent = (x) => (x === null || x === undefined ? "–" : `${Math.round(100 * x)} %`);
const clock = (t) => new Date(1000 * t).toLocaleTimeString();

function numbers(status) {
  const counts = status.counts;
  const cells = [
    [percent(status.success.rate), `success, last ${status.success.n}`],
    [status.serving ? `v${status.serving.version}` : "–", "serving"],
    [`v${status.trained}`, "trained"],
    [counts.exchanges ?? 0, "calls seen"],
    [(counts.trajectories_production ?? 0) + (counts.trajectories_sandbox ?? 0), "trajectories"],
    [`${percent(status.shares.production)}`, "of training from production"],
    [counts.dead_letters ?? 0, "parked messages"],
  ];
  document.getElementById("numbers").replaceChildren(
    ...cells.map(([value, label]) => el("div", {}, el("b", {}, String(value)), el("span", {}, label))));
  const headline = document.getElementById("headline");
  headline.className = status.frozen ? "alarm" : "";
  headline.textContent = status.frozen
    ? `learning is frozen: ${status.last_directive ? status.last_directive.reason : ""}`
    : `learning · up ${Math.round(status.uptime_seconds)} s`;
}

function chart(data) {
  const box = { left: 44, right: 948, top: 12, bottom: 250 };
  const root = document.getElementById("chart");
  root.replaceChildren();
  const times = [...data.points, ...data.swaps, ...data.gate, ...data.directives].map((p) => p.time).filter((t) => t > 0);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = box.bottom - share * (box.bottom - box.top);
    root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: y, y2: y }));
    root.append(svg("text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, `${100 * share} %`));
  }
  if (!times.length) { root.append(svg("text", { x: 480, y: 130, "text-anchor": "middle" }, "no outcomes yet")); return; }
  const first = Math.min(...times), last = Math.max(...times, first + 1);
  const x = (t) => box.left + ((t - first) / (last - first)) * (box.right - box.left);
  const y = (s) => box.bottom - s * (box.bottom - box.top);
  for (const t of [first, (first + last) / 2, last])
    root.append(svg("text", { x: x(t), y: 272, "text-anchor": t === first ? "start" : t === last ? "end" : "middle" }, clock(t)));
  if (data.points.length > 1) {
    const upper = data.points.map((p) => `${x(p.time)},${y(p.high)}`);
    const lower = data.points.map((p) => `${x(p.time)},${y(p.low)}`).reverse();
    root.append(svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  }
  root.append(svg("polyline", { class: "curve", points: data.points.map((p) => `${x(p.time)},${y(p.rate)}`).join(" ") }));
  for (const swap of data.swaps) {
    if (swap.result !== "swapped" && swap.result !== "rolled_back") continue;
    const line = svg("line", { class: "swap", x1: x(swap.time), x2: x(swap.time), y1: box.top, y2: box.bottom });
    line.append(svg("title", {}, `v${swap.version} ${swap.result}, paused ${Math.round(1000 * swap.paused)} ms`));
    root.append(line, svg("text", { x: x(swap.time) + 3, y: box.bottom - 22 }, `v${swap.version}`));
  }
  for (const directive of data.directives) {
    const line = svg("line", { class: "alarm", x1: x(directive.time), x2: x(directive.time), y1: box.top, y2: box.bottom });
    line.append(svg("title", {}, `${directive.kind}: ${directive.reason}`));
    root.append(line, svg("text", { x: x(directive.time) + 3, y: box.bottom - 6 }, directive.kind));
  }
  for (const gate of data.gate) {
    const rate = gate.measurements.success;
    if (rate === undefined) continue;
    const dot = svg("circle", { class: `gate ${gate.decision}`, cx: x(gate.time), cy: y(rate), r: 4 });
    dot.append(svg("title", {}, `v${gate.version}: ${percent(rate)}, ${gate.decision}: ${gate.reason}`));
    root.append(dot);
  }
}

function trajectories(items) {
  const root = document.getElementById("trajectories");
  if (!items.length) { root.replaceChildren(el("p", { class: "empty" }, "none yet")); return; }
  root.replaceChildren(...items.map((item) => {
    const won = item.outcome !== null && item.outcome >= 0.5;
    const verdict = item.outcome === null ? el("span", { class: "tag" }, "no outcome")
      : el("span", { class: `tag ${won ? "good" : "bad"}` }, won ? "success" : "failure");
    const dots = el("span", { class: "dots", "aria-hidden": "true" }, ...item.steps.map((step) => el("i", { class: step.label })));
    const rows = item.steps.map((step, number) => el("tr", {},
      el("td", {}, String(number + 1)),
      el("td", {}, step.role ? el("span", { class: "tag" }, step.role) : null, el("code", {}, step.action)),
      el("td", {}, el("code", {}, step.observation)),
      el("td", {}, el("span", { class: `tag ${step.label === "GOOD" ? "good" : step.label === "BAD" ? "bad" : ""}` }, step.label)),
      el("td", {}, step.reason)));
    const node = el("details", {},
      el("summary", {}, el("span", { class: "goal" }, item.goal), dots, verdict,
        el("span", { class: "tag" }, item.source), item.guided ? el("span", { class: "tag" }, "guided") : null,
        el("span", { class: "tag" }, `v${item.version}`)),
      el("table", {}, el("thead", {}, el("tr", {}, ...["", "action", "observation", "credit", "why"].map((h) => el("th", {}, h)))),
        el("tbody", {}, ...rows)));
    node.open = open.has(item.id);
    node.addEventListener("toggle", () => (node.open ? open.add(item.id) : open.delete(item.id)));
    return node;
  }));
}

function table(id, heads, rows) {
  document.getElementById(id).replaceChildren(rows.length
    ? el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, String(cell)))))))
    : el("p", { class: "empty" }, "none yet"));
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function refresh() {
  try {
    const [status, success, items, lessons, dead] = await Promise.all([
      get("api/status"), get("api/success"), get(`api/trajectories?limit=15&source=${source}`), get("api/lessons"), get("api/dead")]);
    numbers(status);
    chart(success);
    trajectories(items);
    table("lessons", ["when to use", "content", "kind", "state", "origin", "guided", "unguided"],
      lessons.map((l) => [l.when_to_use, l.content, l.kind, l.reason ? `${l.state}: ${l.reason}` : l.state, l.origin, `${l.guided[1]} of ${l.guided[0]}`, `${l.unguided[1]} of ${l.unguided[0]}`]));
    table("actors", ["actor", "state", "restarts", "last error"],
      status.actors.map((a) => [a.name, a.status, a.restarts, a.note || a.last_error || ""]));
    document.getElementById("dead-section").hidden = dead.length === 0;
    table("dead", ["actor", "subject", "error"], dead.map((d) => [d.actor, d.subject, d.error]));
  } catch (error) {
    const headline = document.getElementById("headline");
    headline.className = "alarm";
    headline.textContent = `the daemon does not answer (${error.message}); agents are not affected`;
  }
}

for (const button of document.querySelectorAll("button[data-source]"))
  button.addEventListener("click", () => {
    source = button.dataset.source;
    for (const other of document.querySelectorAll("button[data-source]")) other.classList.toggle("on", other === button);
    refresh();
  });
refresh();
setInterval(refresh, 2000);
