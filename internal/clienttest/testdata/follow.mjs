// Follows conversations with the real client until each has told as many events as it has, and hands
// in what it saw. It runs in Node and in a page alike.
//
// job: {gateway, key, client, conversations, events, calls}

export async function follow(job) {
  const { connect } = await import(job.client);
  let connections = 0;
  const client = connect({
    url: job.gateway,
    token: async () => job.key,
    backoff: { first: 20, most: 200 },
    onStatus: (status) => (connections += status === "open" ? 1 : 0),
  });
  const lines = [];
  const problems = [];
  const calls = Promise.all(
    job.calls.map((id) => client.send({ id, conversation: "calls", tool: "bash", input: { command: "echo hi" } })),
  );
  await Promise.all(
    job.conversations.map(async (conv, i) => {
      let n = 0;
      // Every second reader is slow and has little room: its conversation is left and taken up again.
      const slow = i % 2 === 1;
      // And all but the first ask for their history in batches.
      const options = { batch: i > 0, onGap: (gap) => problems.push(`a gap in ${conv}: ${JSON.stringify(gap)}`), ...(slow && { buffer: 16 }) };
      for await (const { event, cursor } of client.attach(conv, options)) {
        lines.push(JSON.stringify({ conv, cursor, event }));
        if (slow && n % 64 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
        if (++n === job.events) break;
      }
    }),
  );
  const accepted = (await calls).map((a) => a.call);
  await new Promise((resolve) => setTimeout(resolve, 300)); // what is told twice comes now
  client.close();
  return { lines, problems, connections, accepted };
}

if (globalThis.process?.argv?.[2]) {
  const report = await follow(JSON.parse(process.argv[2]));
  process.stdout.write(JSON.stringify(report));
}
