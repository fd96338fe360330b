// Unmodified clients of the Model Context Protocol do all that a client can do with Sandjet: node client.mjs sdk|client http|stdio.
// SANDJET_URL and SANDJET_KEY say where it is, AGENT is an agent whose commands a person must allow. It prints what the session was.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const [library, wire] = process.argv.slice(2);
const base = process.env.SANDJET_URL;
const headers = { authorization: `Bearer ${process.env.SANDJET_KEY}` };
const talk = `npm-${library}-${wire}`;
const modern = library === 'client';

const { Client, StreamableHTTPClientTransport, StdioClientTransport } = modern
  ? { ...(await import('@modelcontextprotocol/client')), ...(await import('@modelcontextprotocol/client/stdio')) }
  : {
      ...(await import('@modelcontextprotocol/sdk/client/index.js')),
      ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await import('@modelcontextprotocol/sdk/client/stdio.js')),
    };
const elicit = modern ? 'elicitation/create' : (await import('@modelcontextprotocol/sdk/types.js')).ElicitRequestSchema;

async function connect(agent) {
  const asked = [];
  const client = new Client(
    { name: 'npm', version: '1' },
    { capabilities: { elicitation: { form: {} } }, ...(modern ? { versionNegotiation: { mode: 'auto' } } : {}) },
  );
  client.setRequestHandler(elicit, async (request) => {
    asked.push(request.params.message);
    return { action: 'accept', content: { decision: 'Allow once' } };
  });
  const transport =
    wire === 'http'
      ? new StreamableHTTPClientTransport(new URL(`${base}/mcp?conversation=${talk}${agent ? `&agent=${agent}` : ''}`), { requestInit: { headers } })
      : new StdioClientTransport({
          command: 'sandjet',
          args: ['mcp', '--wait', '4s', '--conversation', talk, ...(agent ? ['--agent', agent] : [])],
          env: process.env,
        });
  await client.connect(transport);
  const call = (name, args, options, meta) => {
    const params = { name, arguments: args, ...(meta ? { _meta: meta } : {}) };
    return modern ? client.callTool(params, options) : client.callTool(params, undefined, options);
  };
  return { client, call, asked };
}

async function events() {
  const all = [];
  for (let page = { next: '-1' }; !page.up_to_date; all.push(...page.events.map((e) => e.event))) {
    const res = await fetch(`${base}/v1/conversations/${talk}/events?after=${page.next}`, { headers });
    assert.equal(res.status, 200);
    page = await res.json();
  }
  return all;
}

async function until(what, ok) {
  for (let n = 0; n < 600; n++) {
    if (await ok()) return;
    await sleep(50);
  }
  assert.fail(`it never came: ${what}`);
}

const { client, call, asked } = await connect();
assert.equal(client.getServerVersion().name, 'sandjet');
assert.ok(client.getServerCapabilities().tools && client.getServerCapabilities().resources);
assert.match(client.getInstructions(), /async_status/);

const { tools } = await client.listTools();
const names = tools.map((t) => t.name);
for (const name of ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls', 'async_status']) assert.ok(names.includes(name), name);
assert.deepEqual((await client.listTools()).tools, tools);
assert.ok(tools.every((t) => t.outputSchema && t.annotations)); // the client checks each structured content by its schema

let r = await call('bash', { command: `echo hello; exit 3` });
assert.equal(r.structuredContent.status, 'completed');
assert.equal(r.structuredContent.output.exit_code, 3);
assert.match(r.content[0].text, /hello/);

const mark = { 'sandjet/idempotencyKey': 'once' };
const first = await call('bash', { command: `echo ran >> ${talk}; cat ${talk}` }, undefined, mark);
const again = await call('bash', { command: `echo ran >> ${talk}; cat ${talk}` }, undefined, mark);
assert.equal(again.structuredContent.call, first.structuredContent.call);
assert.equal(again.structuredContent.output.stdout, 'ran\n');
await assert.rejects(() => call('bash', { command: 'echo other' }, undefined, mark), /other content/);

r = await call('read', { file_path: 'there-is-none' });
assert.ok(r.isError && r.content[0].text);

// What the protocol calls a tool error, and what it calls an error.
r = await call('bash', { commando: 'x' });
assert.ok(r.isError);
await assert.rejects(async () => {
  const gone = await call('no_such_tool', {});
  if (gone.isError) throw new Error(gone.content[0].text);
});

// Progress: the last line that was printed.
const seen = [];
r = await call('bash', { command: 'echo first; sleep 1.5; echo second; sleep 1.5; echo third' }, { onprogress: (p) => seen.push(p) });
assert.equal(r.structuredContent.status, 'completed');
assert.ok(seen.some((p) => p.message === 'first' || p.message === 'second'), JSON.stringify(seen));
assert.ok(seen.every((p, i) => i === 0 || p.progress > seen[i - 1].progress));

// Cancellation.
const stop = new AbortController();
const cut = call('bash', { command: `echo begun > ${talk}.cut; sleep 1000` }, { signal: stop.signal });
await until('the command has begun', async () => !(await call('read', { file_path: `${talk}.cut` })).isError);
stop.abort('the user has had enough');
await assert.rejects(() => cut);
await until('the call is cancelled', async () =>
  (await events()).some((e) => e.type === 'call.finished' && e.data.status === 'cancelled'),
);

// What takes longer than a request may wait, and a client that gives up on what it has sent.
r = await call('bash', { command: 'sleep 6; echo late' });
assert.equal(r.isError ?? false, false);
assert.notEqual(r.structuredContent.status, 'completed');
const late = await call('async_status', { statusId: r.structuredContent.status_id });
assert.equal(late.structuredContent.output.stdout, 'late\n');

const slow = ['bash', { command: `echo slow >> ${talk}.slow; sleep 2; cat ${talk}.slow` }];
const tool = { 'sandjet/idempotencyKey': 'slow' };
await assert.rejects(() => call(...slow, { timeout: 700 }, tool));
r = await call(...slow, undefined, tool);
// An older client's time-out is a cancellation that it sends: its call has ended, and is not run again.
if (modern && wire === 'http') assert.equal(r.structuredContent.output.stdout, 'slow\n');
const timedOut = r.structuredContent.status;
assert.equal((await call('bash', { command: `cat ${talk}.slow` })).structuredContent.output.stdout, 'slow\n');

// Resources.
const { resourceTemplates } = await client.listResourceTemplates();
assert.ok(resourceTemplates.some((t) => t.uriTemplate === 'sandjet://{workspace}/{+path}'));
const had = (await client.listResources()).resources.length;
const { content } = await call('bash', { command: `mkdir -p outputs; printf %s ${talk} > outputs/${talk}.txt` });
assert.deepEqual(content.slice(1).map((c) => [c.type, c.name, c.size]), [['resource_link', `${talk}.txt`, talk.length]]);
assert.equal((await client.readResource({ uri: content[1].uri })).contents[0].text, talk);
const listed = (await client.listResources()).resources;
assert.equal(listed.length, had + 1);
assert.equal(listed.at(-1).uri, content[1].uri);
assert.ok(resourceTemplates.some((t) => t.uriTemplate === 'sandjet://artifacts/{id}'));
const { contents } = await client.readResource({ uri: `sandjet://default/${talk}` });
assert.equal(contents[0].text, 'ran\n');
await call('bash', { command: `printf '\\377\\000' > ${talk}.bin` });
const blob = (await client.readResource({ uri: `sandjet://default/${talk}.bin` })).contents[0].blob;
assert.equal(Buffer.from(blob, 'base64').toString('hex'), 'ff00');
await assert.rejects(() => client.readResource({ uri: 'sandjet://default/there-is-none' }), /not found/i);
assert.equal(asked.length, 0);
await client.close();

// A question to the client's user.
const asking = await connect(process.env.AGENT);
r = await asking.call('bash', { command: 'echo allowed' });
let question = 'asked';
if (asking.asked.length === 0) {
  question = 'named';
  assert.equal(r.structuredContent.status, 'awaiting_approval');
  const [, approval] = r.content[0].text.match(/approvals approve (\S+)/);
  const res = await fetch(`${base}/v1/approvals/${approval}/decide`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ approved: true }),
  });
  assert.equal(res.status, 200, await res.text());
  r = await asking.call('async_status', { statusId: r.structuredContent.status_id });
} else {
  assert.equal(asking.asked.length, 1);
  assert.match(asking.asked[0], /echo allowed/);
}
assert.equal(r.structuredContent.output.stdout, 'allowed\n');
const revision = modern ? asking.client.getNegotiatedProtocolVersion() : 'older';
await asking.client.close();

console.log(`${library} ${wire}: ${revision}, a question is ${question}, after a time-out ${timedOut}`);
