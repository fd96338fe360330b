import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, test } from "node:test";
import { connect } from "../dist/index.js";
import { cursor, ev, FakeGateway } from "./fake.mjs";

const clients = [];
afterEach(() => clients.splice(0).forEach((c) => c.close()));

async function start(options = {}) {
  const gateway = new FakeGateway();
  const first = gateway.next();
  const client = connect({
    url: "http://gateway.test/", token: "k", backoff: { first: 1, most: 2 }, WebSocket: gateway.WebSocket, fetch: async () => ({ status: 200 }), ...options,
  });
  clients.push(client);
  return { gateway, client, socket: await first };
}

const attached = (s, conv, more = {}) => s.say({ op: "attached", id: s.last("attach").id, conv, head: cursor(9), recovered: true, ...more });

async function take(attachment, n) {
  const got = [];
  while (got.length < n) got.push((await attachment.next()).value.event.id);
  return got;
}

test("it offers the token beside the protocol and attaches when the socket opens", async () => {
  const { client, socket } = await start();
  client.attach("c");
  assert.equal(socket.url, "ws://gateway.test/v1/ws");
  assert.deepEqual(socket.protocols, ["sandjet.v1", "sandjet.key.k"]);
  assert.deepEqual(socket.written, []);
  socket.open();
  assert.deepEqual(socket.written, [{ op: "attach", id: 1, conv: "c", after: "-1", batch: true }]);
});

test("it resumes after the last event and tells none twice", async () => {
  const { gateway, client, socket } = await start();
  let live = 0;
  const a = client.attach("c", { onLive: () => live++ });
  attached(socket.open(), "c").say(ev("c", 1), ev("c", 2), { op: "live", conv: "c", cur: cursor(2) });
  assert.deepEqual(await take(a, 2), ["c.1", "c.2"]);
  const next = gateway.next();
  socket.end(1006);
  const again = await next;
  again.open();
  assert.equal(again.last("attach").after, cursor(2));
  attached(again, "c").say(ev("c", 2), ev("c", 3), { op: "live", conv: "c", cur: cursor(3) });
  socket.say(ev("c", 4)); // a socket that is no longer in use
  again.say(ev("c", 4));
  assert.deepEqual(await take(a, 2), ["c.3", "c.4"]);
  assert.equal(a.cursor, cursor(4));
  assert.equal(live, 1);
});

test("a hole is read again from the log, and one in the log is told", async () => {
  const gaps = [];
  const { client, socket } = await start();
  const a = client.attach("c", { onGap: (g) => gaps.push(g) });
  attached(socket.open(), "c").say(ev("c", 1), ev("c", 4), ev("c", 5));
  assert.equal(socket.last("attach").after, cursor(1));
  attached(socket, "c").say(ev("c", 2), ev("c", 3), ev("c", 4));
  assert.deepEqual(await take(a, 4), ["c.1", "c.2", "c.3", "c.4"]);
  assert.deepEqual(gaps, []);
  socket.say(ev("c", 7));
  attached(socket, "c").say(ev("c", 7));
  assert.deepEqual(await take(a, 1), ["c.7"]);
  assert.deepEqual(gaps, [{ from: cursor(4), to: cursor(6) }]);
});

test("a batch is what its frames are", async () => {
  const { client, socket } = await start();
  const a = client.attach("c");
  const b = client.attach("d", { batch: false });
  socket.open();
  assert.deepEqual(socket.written.map((f) => f.batch), [true, undefined]);
  socket.say({ op: "attached", id: 1, conv: "c", head: cursor(9), recovered: true }, { op: "attached", id: 2, conv: "d", head: cursor(9), recovered: true });
  socket.say({ op: "batch", conv: "c", frames: [ev("c", 1), ev("c", 2), ev("c", 2), ev("c", 4), ev("c", 5)] }, ev("d", 1));
  assert.equal(socket.last("attach").after, cursor(2)); // the hole is asked for; what followed is of an earlier attach
  attached(socket, "c").say({ op: "batch", conv: "c", frames: [ev("c", 3), ev("c", 4)] }, ev("c", 5));
  assert.deepEqual(await take(a, 5), ["c.1", "c.2", "c.3", "c.4", "c.5"]);
  assert.deepEqual(await take(b, 1), ["d.1"]);
});

test("a batch that holds no frames is not the protocol", async () => {
  for (const frames of [1, {}, [1], [null], [{}]]) {
    const { client, socket } = await start();
    const a = client.attach("c");
    socket.open().say({ op: "batch", conv: "c", frames });
    await assert.rejects(a.next(), (e) => e.code === "invalid");
  }
});

test("frames of an earlier attach are passed over", async () => {
  const { client, socket } = await start();
  const a = client.attach("c");
  attached(socket.open(), "c").say(ev("c", 1), ev("c", 3)); // a hole: attaches again
  socket.say(ev("c", 4), { op: "detached", conv: "c" }, { op: "error", conv: "c", error: { code: "not_found", message: "" } });
  attached(socket, "c").say(ev("c", 2), ev("c", 3));
  assert.deepEqual(await take(a, 3), ["c.1", "c.2", "c.3"]);
});

test("an honest gap is told in its place", async () => {
  const order = [];
  const { client, socket } = await start();
  const a = client.attach("c", { after: cursor(2), onGap: (g) => order.push(g.to) });
  attached(socket.open(), "c", { recovered: false, gap: { from: cursor(2), to: cursor(5) } }).say(ev("c", 6));
  order.push(...(await take(a, 1)));
  assert.deepEqual(order, [cursor(5), "c.6"]);
});

test("a compact attachment hears snapshots in their place and goes on behind what was left out", async () => {
  const order = [];
  const { gateway, client, socket } = await start();
  const a = client.attach("c", { compact: true, onSnapshot: (s) => order.push(s.call) });
  socket.open();
  assert.equal(socket.last("attach").compact, true);
  attached(socket, "c").say(ev("c", 2, 0), { op: "snapshot", conv: "c", snapshot: { call: "x", attempt: 1, output: [] } }, ev("c", 5, 2));
  socket.say({ op: "live", conv: "c", cur: cursor(8), skipped: 3 });
  order.push(...(await take(a, 1)));
  order.push(...(await take(a, 1)));
  assert.deepEqual(order, ["c.2", "x", "c.5"]);
  const next = gateway.next();
  socket.end(1006);
  assert.equal((await next).open().last("attach").after, cursor(8));
});

test("a full buffer leaves the conversation and takes it up again", async () => {
  const { client, socket } = await start();
  const a = client.attach("c", { buffer: 4 });
  attached(socket.open(), "c").say(...[1, 2, 3, 4, 5, 6].map((n) => ev("c", n)));
  assert.deepEqual(socket.written.map((f) => f.op), ["attach", "detach"]);
  assert.deepEqual(await take(a, 2), ["c.1", "c.2"]);
  assert.equal(socket.written.length, 2);
  assert.deepEqual(await take(a, 2), ["c.3", "c.4"]);
  assert.deepEqual(socket.last("attach"), { op: "attach", id: 2, conv: "c", after: cursor(4), batch: true });
  attached(socket, "c").say(ev("c", 5));
  assert.deepEqual(await take(a, 1), ["c.5"]);
});

test("a buffer is full of few events that are large", async () => {
  const { client, socket } = await start();
  const a = client.attach("c", { batch: false });
  const large = (n) => ({ ...ev("c", n), data: { ...ev("c", n).data, data: { text: "x".repeat(3 << 20) } } });
  attached(socket.open(), "c").say(...[1, 2, 3, 4, 5].map(large));
  assert.deepEqual(socket.written.map((f) => f.op), ["attach", "detach"]);
  assert.deepEqual(await take(a, 2), ["c.1", "c.2"]);
  assert.equal(socket.written.length, 2);
  assert.deepEqual(await take(a, 1), ["c.3"]);
  assert.deepEqual(socket.last("attach"), { op: "attach", id: 2, conv: "c", after: cursor(3) });
  attached(socket, "c").say(ev("c", 4));
  assert.deepEqual(await take(a, 1), ["c.4"]);
});

test("an open question is sent again, the same, after a reconnect", async () => {
  const { gateway, client, socket } = await start();
  const asked = client.send({ tool: "bash", input: { command: "ls" } });
  socket.open();
  const first = socket.last("send");
  assert.match(first.request.id, /^js_[0-9a-f]{32}$/);
  const next = gateway.next();
  socket.end(1006);
  const again = (await next).open();
  assert.deepEqual(again.last("send"), first);
  again.say({ op: "accepted", id: first.id, call: first.request.id, conversation: "c", existing: true });
  assert.deepEqual(await asked, { call: first.request.id, conversation: "c", existing: true });
});

test("a cancel whose answer was lost is a cancel", async () => {
  const { gateway, client, socket } = await start();
  socket.open();
  const cancelled = client.cancel("call");
  const next = gateway.next();
  socket.end(1006);
  const again = (await next).open();
  again.say({ op: "error", id: again.last("cancel").id, error: { code: "conflict", message: "it has ended" } });
  await cancelled;
  const refused = client.cancel("other");
  again.say({ op: "error", id: again.last("cancel").id, error: { code: "conflict", message: "it has ended" } });
  await assert.rejects(refused, { code: "conflict", message: "it has ended" });
});

test("what is away is asked again, what is refused is an error", async () => {
  const { client, socket } = await start();
  socket.open();
  const a = client.attach("c");
  socket.say({ op: "error", id: socket.last("attach").id, conv: "c", error: { code: "unavailable", message: "" } });
  while (socket.written.filter((f) => f.op === "attach").length < 2) await turn();
  socket.say({ op: "error", id: socket.last("attach").id, conv: "c", error: { code: "denied", message: "not yours" } });
  await assert.rejects(a.next(), { name: "SandjetError", code: "denied", message: "not yours" });
  assert.deepEqual(await a.next(), { done: true, value: undefined });
  client.attach("c"); // the name is free again
});

test("a close code from 4500 on is the end", async () => {
  const { gateway, client, socket } = await start();
  const a = client.attach("c");
  attached(socket.open(), "c").say(ev("c", 1));
  const open = client.send({ tool: "bash", input: {} });
  socket.end(4503, "a frame is not a JSON object");
  assert.deepEqual(await take(a, 1), ["c.1"]); // what had come is still told
  await assert.rejects(a.next(), /not a JSON object/);
  await assert.rejects(open, /not a JSON object/);
  await assert.rejects(client.send({ tool: "bash", input: {} }), /not a JSON object/);
  assert.equal(gateway.sockets.length, 1);
});

test("an expired token is replaced, a fixed one is the end", async () => {
  let n = 0;
  const { gateway, client, socket } = await start({ token: async () => `t${++n}` });
  socket.open();
  socket.say({ op: "expiring", in_ms: 30_000 });
  await turn();
  assert.deepEqual(socket.last("auth"), { op: "auth", id: 1, token: "t2" });
  socket.say({ op: "authed", id: 1 });
  const next = gateway.next();
  socket.end(4002);
  assert.deepEqual((await next).protocols, ["sandjet.v1", "sandjet.key.t3"]);
  client.close();

  const fixed = await start();
  const a = fixed.client.attach("c");
  fixed.socket.open().end(4002);
  await assert.rejects(a.next(), { code: "denied" });
});

test("a refused key is found out", async () => {
  const { gateway, client, socket } = await start({ fetch: async () => ({ status: 401 }) });
  const a = client.attach("c");
  const next = gateway.next();
  socket.end(1006);
  (await next).end(1006);
  await assert.rejects(a.next(), { code: "denied" });
});

test("it comes back when bye says so", async (t) => {
  const { gateway, socket } = await start();
  socket.open();
  t.mock.timers.enable({ apis: ["setTimeout"] });
  socket.say({ op: "bye", code: 4001, retry_ms: 3170 }).end(4001);
  t.mock.timers.tick(3169);
  await Promise.resolve();
  assert.equal(gateway.sockets.length, 1);
  t.mock.timers.tick(1);
  await Promise.resolve();
  assert.equal(gateway.sockets.length, 2);
});

test("silence is broken with a ping, and then with a new connection", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { gateway, socket } = await start({ idle: 1000, patience: 500 });
  socket.open();
  t.mock.timers.tick(1000);
  assert.deepEqual(socket.written, [{ op: "ping" }]);
  socket.say({ op: "pong" });
  t.mock.timers.tick(999);
  assert.equal(socket.written.length, 1);
  t.mock.timers.tick(1);
  assert.equal(socket.written.length, 2);
  t.mock.timers.tick(500);
  assert.ok(socket.closed);
  t.mock.timers.tick(2);
  await Promise.resolve();
  assert.equal(gateway.sockets.length, 2);
});

test("signals and break detach without an error", async () => {
  const { client, socket } = await start();
  const stop = new AbortController();
  const a = client.attach("c", { signal: stop.signal });
  const b = client.attach("d", { batch: false });
  assert.throws(() => client.attach("c"), { code: "conflict" });
  socket.open();
  const waiting = a.next();
  stop.abort();
  assert.deepEqual(await waiting, { done: true, value: undefined });
  assert.equal(socket.last("detach").conv, "c");
  attached(socket, "d").say(ev("d", 1));
  for await (const item of b) {
    assert.equal(item.cursor, cursor(1));
    break;
  }
  assert.equal(socket.last("detach").conv, "d");
  const question = client.send({ tool: "bash", input: {} }, AbortSignal.abort(new Error("enough")));
  await assert.rejects(question, /enough/);
});

test("closing ends every loop", async () => {
  const { gateway, client, socket } = await start();
  const a = client.attach("c");
  socket.open();
  const waiting = a.next();
  client.close();
  assert.deepEqual(await waiting, { done: true, value: undefined });
  await assert.rejects(client.cancel("x"), { code: "closed" });
  assert.ok(socket.closed);
  assert.equal(gateway.sockets.length, 1);
});
