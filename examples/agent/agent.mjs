// An agent in one loop: a model of the Messages API says which tools to run, Sandjet runs them, and the model reads the results until it is
// done. Run it with: eval "$(sandjet info --shell)"; MODEL_KEY=… node examples/agent/agent.mjs 'What is in this folder?'
const env = process.env;
const model = env.MODEL_URL ?? "https://api.anthropic.com/v1/messages";
const sandjet = env.SANDJET_URL.replace(/\/$/, "");
const modelKey = { "X-Api-Key": env.MODEL_KEY ?? "", "Anthropic-Version": "2023-06-01" };
const key = { Authorization: `Bearer ${env.SANDJET_KEY}` };

/** Sends JSON and returns the answer. */
async function ask(method, url, headers, body) {
  const response = await fetch(url, {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${url}: ${response.status}: ${await response.text()}`);
  return response.json();
}

/** Runs a tool. The model's id is the call's: asked for again, it is not run again. */
async function run(use) {
  const call = { id: use.id, conversation: "agent", dialect: "claude", tool: use.name, input: use.input };
  let result = {};
  // Where the model used the tool wrongly, the text says how to do better.
  while (result.text === undefined) result = await ask("POST", `${sandjet}/v1/calls?wait=60s`, key, call);
  return { type: "tool_result", tool_use_id: use.id, content: result.text, is_error: result.status !== "completed" };
}

const { tools } = await ask("GET", `${sandjet}/v1/tools?dialect=claude`, key);
const messages = [{ role: "user", content: process.argv.slice(2).join(" ") }];
for (;;) {
  const body = { model: env.MODEL ?? "claude-sonnet-4-5", max_tokens: 4096, tools, messages };
  const { content } = await ask("POST", model, modelKey, body);
  messages.push({ role: "assistant", content });
  for (const part of content) if (part.type === "text") console.log(part.text);
  const results = [];
  for (const use of content.filter((part) => part.type === "tool_use")) results.push(await run(use));
  if (results.length === 0) break;
  messages.push({ role: "user", content: results });
}
