// Numbers and times as text.

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`;
export const count = (number) => (number ?? 0).toLocaleString("en-GB");
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A figure of any size with about four digits. */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return count(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 1e6) ? value.toExponential(2) : Number(value.toPrecision(4)).toString();
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 90) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return value < 129600 ? `${(value / 3600).toFixed(1)} h` : `${(value / 86400).toFixed(1)} d`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const YEAR = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});

/** Unix seconds: the time if it is today, else with the day, in another year with that. */
export function moment(unix) {
  const then = new Date(1000 * unix),
    now = new Date();
  if (then.toDateString() === now.toDateString()) return CLOCK.format(then);
  return (then.getFullYear() === now.getFullYear() ? DAY : YEAR).format(then);
}

export const iso = (unix) => new Date(1000 * unix).toISOString();
