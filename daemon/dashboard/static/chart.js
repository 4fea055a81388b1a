// Success over time, with what happened meanwhile below it, and the same as tables.

import { el, svg } from "./dom.js";
import { moment, percent, plural, seconds } from "./format.js";
import { table, time, version } from "./parts.js";

const LEFT = 62,
  RIGHT = 948,
  TOP = 10,
  BOTTOM = 196;
const LANES = { serves: 220, gate: 242, orders: 264 };
const HEIGHT = 296;
const GATE = { promote: "promoted", reject: "rejected", hold: "held" };

export function success(data) {
  const events = happened(data);
  const times = [...data.points, ...events].map((each) => each.time);
  if (!times.length) return null;
  const first = Math.min(...times),
    last = Math.max(...times, first + 1);
  const x = (unix) => LEFT + ((unix - first) / (last - first)) * (RIGHT - LEFT);
  const y = (share) => BOTTOM - share * (BOTTOM - TOP);
  const swaps = events.filter((each) => each.lane === "serves").length,
    back = events.filter((each) => each.sign === "back").length;
  const from = data.points[0],
    to = data.points.at(-1);
  const told =
    (from
      ? `Success went from ${percent(from.rate)} to ${percent(to.rate)} over ${plural(data.points.length, "bucket")}; `
      : "No outcome yet; ") + `${plural(swaps, "swap")}, ${plural(back, "rollback")}.`;
  return el(
    "figure",
    {},
    svg(
      "svg",
      { viewBox: `0 0 960 ${HEIGHT}`, role: "img", "aria-label": `${told} The tables below have the numbers.` },
      axes(x, y, first, last),
      curve(data.points, x, y),
      lanes(events, x),
    ),
    legend(),
    el("details", {}, el("summary", {}, "The same as tables"), tables(data, events)),
  );
}

function happened(data) {
  const swaps = data.swaps.map((each) => ({
    time: each.time,
    lane: "serves",
    sign: each.result === "swapped" ? "up" : each.result === "started" ? "start" : "back",
    label: `v${each.version}`,
    text: `v${each.version} ${each.result.replace("_", " ")}${each.paused ? `, paused ${seconds(each.paused)}` : ""}`,
    version: each.version,
  }));
  const gate = data.gate.map((each) => ({
    time: each.time,
    lane: "gate",
    sign: each.decision,
    label: "",
    version: each.version,
    text: `v${each.version} ${GATE[each.decision] ?? each.decision}: ${each.reason}`,
  }));
  const orders = data.directives
    .filter((each) => each.kind !== "notice")
    .map((each) => ({
      time: each.time,
      lane: "orders",
      sign: each.kind === "rollback" ? "back" : "order",
      label: each.kind.replace("_", " "),
      text: `${each.kind}: ${each.reason}`,
    }));
  return [...swaps, ...gate, ...orders].filter((each) => each.time > 0).sort((a, b) => a.time - b.time);
}

function axes(x, y, first, last) {
  const ends = { [first]: "start", [last]: "end" };
  return [
    [0, 0.25, 0.5, 0.75, 1].map((share) => [
      svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: y(share), y2: y(share) }),
      svg("text", { x: LEFT - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share)),
    ]),
    [first, (first + last) / 2, last].map((unix) =>
      svg("text", { x: x(unix), y: HEIGHT - 6, "text-anchor": ends[unix] ?? "middle" }, moment(unix)),
    ),
    Object.entries(LANES).map(([name, at]) => [
      svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, name),
    ]),
  ];
}

function curve(points, x, y) {
  const at = (name) => points.map((each) => `${x(each.time).toFixed(1)},${y(each[name]).toFixed(1)}`);
  return [
    points.length > 1
      ? svg("polygon", { class: "band", points: [...at("high"), ...at("low").reverse()].join(" ") })
      : null,
    points.length > 1
      ? svg("polyline", { class: "curve", points: at("rate").join(" ") })
      : points.map((each) => svg("circle", { class: "dot", cx: x(each.time), cy: y(each.rate), r: 3 })),
  ];
}

const SHAPES = {
  up: (x, y) => `M${x} ${y - 6}l6 10h-12z`,
  start: (x, y) => `M${x - 5} ${y - 5}h10v10h-10z`,
  back: (x, y) => `M${x} ${y + 6}l6 -10h-12z`,
  promote: (x, y) => `M${x - 5} ${y}l3.5 4 6.5 -8`,
  reject: (x, y) => `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`,
  hold: (x, y) => `M${x - 4} ${y}h8`,
  order: (x, y) => `M${x} ${y - 6}l6 6 -6 6 -6 -6z`,
};

function lanes(events, x) {
  const free = { serves: 0, gate: 0, orders: 0 };
  return events.map((each) => {
    const at = x(each.time),
      row = LANES[each.lane],
      room = at > free[each.lane];
    const width = 9 + 7 * each.label.length;
    if (room && each.label) free[each.lane] = at + width + 8;
    const through = each.lane === "serves" || each.sign === "back";
    const left = at + width > RIGHT;
    return svg(
      "g",
      { class: `event ${each.sign}` },
      svg("title", {}, `${moment(each.time)} ${each.text}`),
      through ? svg("line", { x1: at, x2: at, y1: TOP, y2: row - 7 }) : null,
      svg("path", { d: (SHAPES[each.sign] ?? SHAPES.order)(at.toFixed(1) * 1, row) }),
      room && each.label
        ? svg("text", { x: left ? at - 9 : at + 9, y: row + 4, "text-anchor": left ? "end" : "start" }, each.label)
        : null,
    );
  });
}

function legend() {
  const key = (sign, text) =>
    el(
      "li",
      {},
      svg(
        "svg",
        { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
        sign === "curve"
          ? [
              svg("rect", { class: "band", x: 0, y: 3, width: 16, height: 10 }),
              svg("line", { class: "curve", x1: 0, x2: 16, y1: 8, y2: 8 }),
            ]
          : svg("g", { class: `event ${sign}` }, svg("path", { d: SHAPES[sign](8, 8) })),
      ),
      text,
    );
  return el(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    key("curve", "success, 95 % interval"),
    key("up", "swapped in"),
    key("back", "rolled back"),
    key("promote", "gate promoted"),
    key("reject", "gate rejected"),
    key("order", "order: freeze, thaw, drift"),
  );
}

function tables(data, events) {
  return [
    table(
      "Success of production trajectories, in buckets of equal count",
      [
        "until",
        { name: "success", number: true },
        { name: "95 % interval", number: true },
        { name: "trajectories", number: true },
      ],
      data.points
        .map((each) => ({
          key: `p${each.time}`,
          cells: [time(each.time), percent(each.rate), `${percent(each.low)} – ${percent(each.high)}`, String(each.n)],
        }))
        .reverse(),
      { hidden: false },
    ),
    table(
      "What happened meanwhile",
      ["when", "what", "version"],
      events
        .map((each, number) => ({
          key: `e${number}`,
          cells: [time(each.time), each.text, each.version === undefined ? "" : version(each.version)],
        }))
        .reverse(),
      { hidden: false },
    ),
  ];
}
