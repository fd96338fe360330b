// Runs a tool, reads the events of its conversation, and shows an error, with a client that is made of the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const { SANDJET_URL, SANDJET_KEY } = process.env;
if (!SANDJET_URL || !SANDJET_KEY) throw new Error('set SANDJET_URL and SANDJET_KEY: eval "$(sandjet info --shell)"');
const api = createClient<paths>({ baseUrl: SANDJET_URL, headers: { Authorization: `Bearer ${SANDJET_KEY}` } });

function fail({ error }: components["schemas"]["Problem"]): never {
  throw new Error(`${error.code}: ${error.message}`);
}

const called = await api.POST("/v1/calls", {
  params: { query: { wait: "30s" } },
  body: { id: crypto.randomUUID(), tool: "bash", input: { command: "echo from TypeScript" } }, // with its id, a repeat is the same call
});
if (called.error) fail(called.error);
if (!("text" in called.data)) throw new Error(`the call ${called.data.id} takes longer`);
const { conversation, status, text } = called.data;
console.log(status, text);

const events = await api.GET("/v1/conversations/{id}/events", { params: { path: { id: conversation }, query: { after: "-1" } } });
if (events.error) fail(events.error);
for (const { event } of events.data.events) console.log(event.type);

const refused = await api.POST("/v1/calls", { body: { id: "not an id", tool: "bash", input: {} } });
if (refused.error) console.log(refused.error.error.code, refused.error.error.field);
