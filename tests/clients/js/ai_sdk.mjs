// The AI SDK: its openai provider speaks /v1/responses as it comes, /v1/chat/completions with .chat(); its anthropic
// provider /v1/messages.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { main, PARAMETERS, SYSTEM, TASKS, TOOLS } from "./shared.mjs";

const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([name, execute]) => [
    name,
    tool({ description: name, inputSchema: jsonSchema(PARAMETERS), execute }),
  ]),
);

await main(async (apiKey, name, streaming) => {
  // Its address ends in /v1, other than that of Anthropic's own package.
  const anthropic = createAnthropic({ apiKey, baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });
  const openai = createOpenAI({ apiKey });
  const model = { chat: openai.chat, responses: openai, anthropic }[process.env.API ?? "responses"](name);
  const said = [];
  let messages = [];
  for (const content of TASKS[name]) {
    messages = [...messages, { role: "user", content }];
    const asked = { model, system: SYSTEM, tools, messages, stopWhen: stepCountIs(6) };
    const result = streaming ? streamText(asked) : await generateText(asked);
    said.push(await result.text);
    messages = [...messages, ...(await result.response).messages];
  }
  return [said, messages];
});
