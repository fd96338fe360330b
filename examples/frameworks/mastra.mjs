// An agent of Mastra whose files and commands are in a sandbox of Sandjet: node mastra.mjs 'TASK'.
import { Agent } from "@mastra/core/agent";
import { Workspace } from "@mastra/core/workspace";
import { sandjetWorkspace } from "@sandjet/sandbox/mastra";

const agent = new Agent({
  id: "writer",
  name: "writer",
  instructions: "Your files are in the workspace.",
  model: { providerId: "own", modelId: process.env.MODEL ?? "a-model", url: process.env.MODEL_URL, apiKey: process.env.MODEL_KEY },
  workspace: new Workspace(sandjetWorkspace({ session: process.env.SESSION })),
});
const { text } = await agent.generate(process.argv[2], { maxSteps: 10 });
console.log(text);
