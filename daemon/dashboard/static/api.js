// The control API: JSON in, JSON out, errors with what the daemon said.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const PATIENCE = 20000;

async function answered(path, options) {
  let answer;
  try {
    answer = await fetch(path, {
      ...options,
      signal: AbortSignal.any([options.signal, AbortSignal.timeout(PATIENCE)].filter(Boolean)),
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused(0, error.name === "TimeoutError" ? "no answer within 20 s" : "no connection");
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok)
    throw new Refused(answer.status, body?.error?.message ?? `${path}: ${answer.status} ${answer.statusText}`);
  return body;
}

export const get = (path, signal) => answered(path, { signal });
export const post = (path, body = {}) =>
  answered(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** `path?name=value&...` without the empty ones. */
export function withQuery(path, values) {
  const query = new URLSearchParams(
    Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined),
  );
  return query.size ? `${path}?${query}` : path;
}
