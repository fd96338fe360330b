// An agent of the AI SDK whose tool runs commands in a sandbox of Sandjet: node ai-sdk.mjs 'TASK'.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { sandjetSandbox } from "@sandjet/sandbox/ai-sdk";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const models = createOpenAICompatible({ name: "model", baseURL: process.env.MODEL_URL, apiKey: process.env.MODEL_KEY });
const sandbox = sandjetSandbox({ session: process.env.SESSION });
const bash = tool({
  description: "Runs a command of bash in the sandbox.",
  inputSchema: z.object({ command: z.string() }),
  execute: ({ command }, { experimental_sandbox, abortSignal }) => experimental_sandbox.run({ command, abortSignal }),
});
const { text } = await generateText({
  model: models(process.env.MODEL ?? "a-model"),
  system: sandbox.description,
  prompt: process.argv[2],
  tools: { bash },
  stopWhen: stepCountIs(10),
  experimental_sandbox: sandbox,
});
console.log(text);
