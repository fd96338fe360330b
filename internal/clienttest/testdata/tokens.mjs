// Follows a conversation from its beginning as a late client does, with attach tokens that end soon, until an
// event with the id "last" comes, and hands in what it saw.
//
// job: {gateway, tokens, client, conversation}

const { connect } = await import(JSON.parse(process.argv[2]).client);
const job = JSON.parse(process.argv[2]);
const report = { events: [], snapshots: 0, connections: 0, problems: [] };
const client = connect({
  url: job.gateway,
  token: async () => (await fetch(job.tokens, { method: "POST" })).text(),
  onStatus: (status) => (report.connections += status === "open" ? 1 : 0),
});
const options = {
  compact: true,
  onGap: (gap) => report.problems.push(`a gap: ${JSON.stringify(gap)}`),
  onSnapshot: () => report.snapshots++,
};
for await (const { event } of client.attach(job.conversation, options)) {
  report.events.push(event.id);
  if (event.id === "last") break;
}
await client.attach("not-mine")[Symbol.asyncIterator]().next().then(
  () => report.problems.push("a conversation that the token does not name was shown"),
  (e) => e.code === "denied" || report.problems.push(String(e)),
);
client.close();
process.stdout.write(JSON.stringify(report));
