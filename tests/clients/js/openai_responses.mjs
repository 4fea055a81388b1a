// The openai package for JavaScript, /v1/responses, the history sent anew each time.
import OpenAI from "openai";
import { main, PARAMETERS, SYSTEM, TASKS, TOOLS, use } from "./shared.mjs";

const tools = Object.keys(TOOLS).map((name) => ({ type: "function", name, parameters: PARAMETERS, strict: true }));

await main(async (apiKey, model, streaming) => {
  const client = new OpenAI({ apiKey });
  const got = [];
  const input = [];
  for (const content of TASKS[model]) {
    input.push({ role: "user", content });
    for (;;) {
      const asked = { model, instructions: SYSTEM, tools, input };
      let answer;
      if (streaming) {
        const stream = client.responses.stream(asked);
        for await (const event of stream) got.push(event);
        answer = await stream.finalResponse();
      } else {
        answer = await client.responses.create(asked);
      }
      got.push(answer);
      const calls = answer.output.filter((item) => item.type === "function_call");
      input.push(...answer.output.map(({ parsed_arguments, ...item }) => item));
      for (const { call_id, name, arguments: text } of calls) {
        input.push({ type: "function_call_output", call_id, output: use(name, text) });
      }
      if (calls.length === 0) break;
    }
  }
  return got;
});
