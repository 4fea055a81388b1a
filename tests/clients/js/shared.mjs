// What the JavaScript programs share; see programs/shared.py.
import { writeFileSync } from "node:fs";

export const SYSTEM = "You are a desk. Use the tools.";
const WORK = ["Add 2 and 3, then 4 and 5, and multiply 6 by 7."];
const TALK = ["Good morning.", "Thank you."];
const EVENING = ["Good evening.", "Many thanks."];
export const TASKS = { tools: WORK, repeated: WORK, text: TALK, varied: EVENING };
export const TOOLS = { add: ({ a, b }) => a + b, multiply: ({ a, b }) => a * b };
export const PARAMETERS = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};
export const use = (name, text) => String(TOOLS[name](JSON.parse(text)));

// Makes all runs at once and writes down what they got, by key.
export async function main(run) {
  const runs = JSON.parse(process.argv[2]);
  const got = await Promise.all(
    runs.map(([key, model, streaming]) =>
      run(key, model, streaming).catch((error) => ({ error: String(error.stack ?? error) })),
    ),
  );
  writeFileSync(process.argv[3], JSON.stringify(Object.fromEntries(runs.map(([key], n) => [key, got[n]]))));
}
