// An agent of the OpenAI Agents SDK whose files and commands are in a sandbox of Sandjet: node openai-agents.mjs 'TASK'.
import { OpenAIChatCompletionsModel, run, setTracingDisabled } from "@openai/agents";
import { SandboxAgent, filesystem, shell } from "@openai/agents/sandbox";
import { sandjetSession } from "@sandjet/sandbox/openai-agents";
import OpenAI from "openai";

setTracingDisabled(true); // traces would go to OpenAI
const client = new OpenAI({ baseURL: process.env.MODEL_URL, apiKey: process.env.MODEL_KEY });
const agent = new SandboxAgent({
  name: "writer",
  model: new OpenAIChatCompletionsModel(client, process.env.MODEL ?? "a-model"),
  capabilities: [shell(), filesystem()],
});
const { finalOutput } = await run(agent, process.argv[2], { sandbox: { session: sandjetSession({ session: process.env.SESSION }) } });
console.log(finalOutput);
