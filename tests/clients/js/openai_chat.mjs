// The openai package for JavaScript, /v1/chat/completions.
import OpenAI from "openai";
import { main, PARAMETERS, SYSTEM, TASKS, TOOLS, use } from "./shared.mjs";

const tools = Object.keys(TOOLS).map((name) => ({ type: "function", function: { name, parameters: PARAMETERS } }));

await main(async (apiKey, model, streaming) => {
  const client = new OpenAI({ apiKey });
  const got = [];
  const messages = [{ role: "system", content: SYSTEM }];
  for (const content of TASKS[model]) {
    messages.push({ role: "user", content });
    for (;;) {
      let answer;
      if (streaming) {
        const stream = client.chat.completions.stream({ model, messages, tools });
        for await (const chunk of stream) got.push(chunk);
        answer = await stream.finalChatCompletion();
      } else {
        answer = await client.chat.completions.create({ model, messages, tools });
      }
      got.push(answer);
      const message = answer.choices[0].message;
      messages.push(message);
      const calls = message.tool_calls ?? [];
      for (const call of calls) {
        const result = use(call.function.name, call.function.arguments);
        messages.push({ role: "tool", tool_call_id: call.id, content: result });
      }
      if (calls.length === 0) break;
    }
  }
  return got;
});
