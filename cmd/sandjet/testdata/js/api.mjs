// What the client for JavaScript does with a gateway whose connections break all the time: node api.mjs LIBRARY URL KEY WORKSPACE.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";

const [library, url, token, workspace] = process.argv.slice(2);
const { api, SandjetError } = await import(library);
const gateway = api({ url, token, backoff: { first: 5, most: 50 }, tries: 100 });
const files = gateway.files(workspace);
const refused = (code) => (e) => e instanceof SandjetError && e.code === code;
const collect = async (from) => {
  const all = [];
  for await (const one of from) all.push(one);
  return all;
};

// Files of each kind and size, whole in spite of the network.
const big = randomBytes(9 << 20);
const stored = [];
const put = await files.upload("js/big file.bin", big, { onProgress: (n) => stored.push(n) });
assert.equal(put.size, big.length);
assert.deepEqual(stored, [8 << 20, 9 << 20]);
const down = await files.download("js/big file.bin");
assert.equal(down.size, big.length);
assert.ok(Buffer.from(await down.bytes()).equals(big));
const middle = await files.download("js/big file.bin", { start: 1000, end: 5 << 20 });
assert.ok(Buffer.from(await new Response(middle.stream()).arrayBuffer()).equals(big.subarray(1000, 5 << 20)));
async function* pieces() {
  for (let at = 0; at < big.length; at += 1_000_003) yield new Uint8Array(big.subarray(at, at + 1_000_003));
}
await files.upload("js/streamed", pieces());
assert.ok(Buffer.from(await (await files.download("js/streamed")).bytes()).equals(big));
await files.upload("js/ü %#?.txt", "text");
assert.equal(await (await files.download("js/ü %#?.txt")).text(), "text");
await files.upload("js/empty", new Blob([]));
assert.equal((await (await files.download("js/empty")).bytes()).length, 0);

// An upload that another process began.
async function* breaks() {
  yield new Uint8Array(big.subarray(0, 8.5 * (1 << 20)));
  throw new Error("the disk is gone");
}
await assert.rejects(files.upload("js/continued", breaks(), { id: "js-1" }), /the disk is gone/);
const before = [];
await files.upload("js/continued", big, { id: "js-1", onProgress: (n) => before.push(n) });
assert.ok(Buffer.from(await (await files.download("js/continued")).bytes()).equals(big));

// Conditions, names and folders.
const seen = await files.stat("js/empty");
assert.equal(seen.type, "file");
assert.equal((await files.stat("js")).type, "directory");
assert.equal((await files.stat("")).type, "directory");
await assert.rejects(files.stat("js/none"), refused("not_found"));
await assert.rejects(files.upload("js/empty", "x", { ifMatch: "another" }), refused("conflict"));
await assert.rejects(files.download("js/empty", { ifMatch: "another" }), refused("conflict"));
await assert.rejects(files.download("js/none"), refused("not_found"));
for (const path of ["../x", "js/../../x", "..", "../../../v1/agents"]) {
  await assert.rejects(files.upload(path, "x"), refused("invalid"));
  await assert.rejects(files.download(path), refused("invalid"));
  await assert.rejects(files.remove(path), refused("invalid"));
}
assert.equal((await files.upload("js/empty", "now some", { ifMatch: seen.etag })).size, 8);
await files.mkdir("js/sub/folder");
assert.deepEqual((await collect(files.list("js"))).map((f) => f.path), [
  "js/big file.bin", "js/continued", "js/empty", "js/streamed", "js/sub", "js/ü %#?.txt",
]);
assert.deepEqual((await files.page("js", { limit: 2, after: "js/empty" })).more, true);

// Archives.
const tar = await (async () => {
  for (let attempt = 0; ; attempt++) {
    try {
      return Buffer.from(await new Response(await files.archive("js/sub")).arrayBuffer());
    } catch (e) { // it is not resumed
      if (attempt > 100) throw e;
    }
  }
})();
assert.equal(tar.subarray(0, 7).toString(), "folder/");
assert.deepEqual(await files.unpack("js/copy", tar), { files: 0, folders: 1, bytes: 0, last: "js/copy/folder" });
await assert.rejects(files.unpack("js/copy", "no tar"), refused("invalid"));

// Sandboxes: a command is run once in spite of the network.
const box = gateway.sandbox("js-client");
const sum = createHash("sha256").update(big).digest("hex");
assert.equal(await box.write("in.bin", new Uint8Array(big.subarray(0, 1 << 20))), createHash("sha256").update(big.subarray(0, 1 << 20)).digest("hex"));
const run = await box.bash('echo "$WORD" >> count; mkdir -p outputs; printf %s "$WORD" > outputs/word.txt; echo oops >&2; exit 3', {
  env: { WORD: "it's" }, key: "js-once",
});
assert.deepEqual([run.ok, run.exit_code, run.stderr], [false, 3, "oops\n"]);
const again = await box.bash('echo "$WORD" >> count; mkdir -p outputs; printf %s "$WORD" > outputs/word.txt; echo oops >&2; exit 3', {
  env: { WORD: "it's" }, key: "js-once",
});
assert.equal(again.execution_id, run.execution_id);
assert.equal(await box.readText("count"), "it's\n");
assert.ok(Buffer.from(await box.readBytes("/workspace/in.bin")).equals(big.subarray(0, 1 << 20)));
assert.deepEqual((await box.list()).entries.map((e) => `${e.type} ${e.path} ${e.size ?? ""}`).filter((e) => !e.includes(".sandjet")), [
  "file count 5", `file in.bin ${1 << 20}`, "directory outputs ",
]);
assert.deepEqual((await box.glob("**/*.txt")).paths.map((p) => p.path), ["outputs/word.txt"]);
assert.deepEqual((await box.grep("it's", { literal: true, glob: "*.txt" })).matches, [{ path: "outputs/word.txt", line: 1, text: "it's" }]);
assert.equal((await box.execute("20 * 2 + 2", { result: true, key: "js-code" })).stdout, "42\n");
await assert.rejects(box.readBytes("none"), refused("not_found"));
await assert.rejects(box.bash("true", { cwd: "../x", key: "k" }), refused("invalid"));
const own = await box.files();
assert.equal((await own.stat("count")).size, 5);

// Artifacts, whose bytes are compared with their names.
const [artifact] = await collect(gateway.artifacts("sandbox:js-client"));
assert.equal(artifact.path, "outputs/word.txt");
assert.equal(Buffer.from(await gateway.artifactBytes(artifact.id)).toString(), "it's");
await gateway.removeArtifact(artifact.id).catch((e) => assert.equal(e.code, "not_found")); // the answer of the first try may be lost
assert.deepEqual(await collect(gateway.artifacts("sandbox:js-client")), []);

// A signal ends everything at once.
const stop = AbortSignal.timeout(300);
await assert.rejects(gateway.sandbox("js-stopped").bash("sleep 20", { signal: stop }), (e) => e === stop.reason || e.code === "unavailable");
await assert.rejects(files.upload("js/x", "x", { signal: AbortSignal.abort(new Error("no")) }), /no/);

assert.ok((await collect(gateway.sandboxes())).some((s) => s.session_id === "js-client"));
await box.destroy();
await files.remove("js", { recursive: true }).catch((e) => assert.equal(e.code, "not_found"));
console.log(`all is as it was, ${sum.slice(0, 8)}`);
