// A deep agent whose files and commands are in a sandbox of Sandjet: node deepagents.mjs 'TASK'.
import { ChatOpenAI } from "@langchain/openai";
import { SandjetBackend } from "@sandjet/sandbox/deepagents";
import { createDeepAgent } from "deepagents";

const agent = createDeepAgent({
  model: new ChatOpenAI({ model: process.env.MODEL ?? "a-model", apiKey: process.env.MODEL_KEY, configuration: { baseURL: process.env.MODEL_URL } }),
  backend: new SandjetBackend({ session: process.env.SESSION }),
  systemPrompt: "Your files are below /workspace.",
});
const { messages } = await agent.invoke({ messages: [{ role: "user", content: process.argv[2] }] });
console.log(messages.at(-1).text);
