import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { api, SandjetError } from "../dist/index.js";

const servers = [];
after(() => servers.forEach((s) => (s.closeAllConnections(), s.close())));

/** gateway answers each request by the next of the given functions, and by the last one from then on. */
async function gateway(...answers) {
  const asked = [];
  const server = createServer(async (req, res) => {
    const body = [];
    for await (const chunk of req) body.push(chunk);
    asked.push({ method: req.method, url: req.url, headers: req.headers, body: Buffer.concat(body).toString() });
    (answers.length > 1 ? answers.shift() : answers[0])(res, req);
  });
  servers.push(server);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const options = { url: `http://127.0.0.1:${server.address().port}/`, token: () => "k", backoff: { first: 1, most: 2 }, tries: 4 };
  return { api: api(options), asked };
}

const json = (status, value, headers = {}) => (res) => {
  res.writeHead(status, { "Content-Type": "application/json", ...headers });
  res.end(JSON.stringify(value));
};
const problem = (status, code, more = {}) => json(status, { error: { code, message: `it is ${code}`, ...more } });
const breaks = (res) => res.destroy();
const refused = (code) => (e) => e instanceof SandjetError && e.code === code;

test("what fails for a while is asked again, with the token each time", async () => {
  const g = await gateway(breaks, problem(503, "unavailable"), problem(429, "exhausted"), json(200, { path: "a", type: "directory" }));
  assert.equal((await g.api.files("w 1").mkdir("a")).path, "a");
  assert.equal(g.asked.length, 4);
  assert.ok(g.asked.every((a) => a.headers.authorization === "Bearer k" && a.url === "/v1/workspaces/w%201/mkdir" && a.body === '{"path":"a"}'));
});

test("what does not pass is an error at once, and what goes on failing is one after the tries", async () => {
  const never = await gateway(problem(400, "invalid", { field: "path" }));
  await assert.rejects(never.api.files("w").mkdir("a"), (e) => e.code === "invalid" && e.field === "path" && e.message === "it is invalid");
  const field = await gateway(problem(503, "unavailable", { field: "provider" })); // of the request: it would be the same again
  await assert.rejects(field.api.files("w").mkdir("a"), refused("unavailable"));
  const always = await gateway(problem(503, "unavailable"));
  await assert.rejects(always.api.files("w").mkdir("a"), refused("unavailable"));
  const page = await gateway((res) => res.writeHead(401).end("<html>"));
  await assert.rejects(page.api.files("w").mkdir("a"), refused("denied"));
  assert.deepEqual([never, field, always, page].map((g) => g.asked.length), [1, 1, 4, 1]);
});

test("the end of a sandbox that takes long is left to the gateway, and one that is not there is none", async () => {
  const slow = await gateway(breaks, problem(504, "timeout"));
  const none = await gateway(problem(404, "not_found"));
  const done = await gateway(problem(503, "unavailable"), json(200, { deleted: true }));
  assert.deepEqual(await Promise.all([slow, none, done].map((g) => g.api.sandbox("s").destroy())), [true, false, true]);
  assert.deepEqual([slow, none, done].map((g) => g.asked.length), [2, 1, 2]);
  const denied = await gateway(problem(403, "denied"));
  await assert.rejects(denied.api.sandbox("s").destroy(), refused("denied"));
});

test("what may have had its effect is not asked again: a command without a key, a move", async () => {
  const g = await gateway(breaks);
  await assert.rejects(g.api.sandbox("s").bash("true"), refused("unavailable"));
  await assert.rejects(g.api.files("w").move("a", "b"), refused("unavailable"));
  assert.equal(g.asked.length, 2);
  const keyed = await gateway(breaks, json(202, { execution_id: "c", status_url: "/v1/calls/c" }), json(200, { exit_code: 0 }));
  assert.equal((await keyed.api.sandbox("s").bash("true", { key: "k" })).exit_code, 0);
  assert.deepEqual(keyed.asked.map((a) => a.headers["idempotency-key"]), ["k", "k", "k"]);
  const stops = await gateway(json(202, { execution_id: "c", status_url: "/v1/calls/c" }));
  await assert.rejects(stops.api.sandbox("s").bash("true"), (e) => e.code === "interrupted" && e.message.includes("/v1/calls/c"));
});

test("a download continues with the same version, and ends when there is another", async () => {
  const first = (res) => {
    res.writeHead(200, { ETag: '"v1"', "Content-Length": "6" });
    res.write("abc", () => setTimeout(() => res.destroy(), 20));
  };
  const rest = (res) => res.writeHead(206, { ETag: '"v1"', "Content-Range": "bytes 3-5/6" }).end("def");
  const g = await gateway(first, rest);
  assert.equal(await (await g.api.files("w").download("f")).text(), "abcdef");
  assert.deepEqual([g.asked[1].headers["if-match"], g.asked[1].headers.range], ['"v1"', "bytes=3-5"]);
  const replaced = await gateway(first, problem(412, "conflict"));
  await assert.rejects((await replaced.api.files("w").download("f")).bytes(), refused("conflict"));
});

test("an upload that ends in an error is forgotten, and no byte of it is sent twice", async () => {
  const g = await gateway((res, req) => (req.method === "PUT" ? json(202, { offset: 8 << 20 }) : json(204, {}))(res));
  async function* content() {
    yield new Uint8Array(9 << 20);
    throw new Error("no more");
  }
  await assert.rejects(g.api.files("w").upload("f", content()), /no more/);
  for (let n = 0; g.asked.length < 2 && n < 500; n++) await new Promise((done) => setTimeout(done, 10));
  assert.deepEqual(g.asked.map((a) => a.method), ["PUT", "DELETE"]);
  assert.match(g.asked[0].url, /\?upload=js_[0-9a-f]+&offset=0&complete=false$/);
});

test("an artifact of which other bytes came is an error", async () => {
  const g = await gateway((res) => res.writeHead(200, { ETag: `"${"0".repeat(64)}"`, "Content-Length": "1" }).end("x"));
  await assert.rejects(g.api.artifactBytes("art_1"), refused("internal"));
});

test("a signal ends the pause between two tries", async () => {
  const g = await gateway(problem(429, "exhausted", {}), problem(429, "exhausted"));
  const stop = new AbortController();
  const waiting = g.api.files("w").mkdir("a", stop.signal);
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
});
