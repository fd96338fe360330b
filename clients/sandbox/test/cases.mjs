// What each integration holds, against a gateway: SANDJET_URL, SANDJET_KEY. The frameworks are the real ones.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createCompute } from "@computesdk/provider";
import { SandjetError } from "@sandjet/client";
import { inside, sandbox } from "@sandjet/sandbox";
import { sandjetSandbox } from "@sandjet/sandbox/ai-sdk";
import { sandjet } from "@sandjet/sandbox/computesdk";
import { SandjetBackend } from "@sandjet/sandbox/deepagents";
import { isSandboxBackend } from "deepagents";

const odd = `it's "odd" $HOME \`x\` \\n`; // a name, a value and an argument
const big = new Uint8Array(randomBytes(10 << 20));
const refused = (code) => (e) => e instanceof SandjetError && e.code === code;
const utf8 = (b) => new TextDecoder().decode(b);
const text = async (stream) => new Response(stream).text();

for (const [path, want] of [["a", "a"], ["./a//b/", "a/b"], ["/workspace/a", "a"], ["/workspace", ""], ["", ""], [".", ""]]) assert.equal(inside(path), want);
for (const path of ["/etc/passwd", "..", "a/../../b", "/workspace/../x", "/workspacex", "/", "a\0b"]) assert.throws(() => inside(path), refused("invalid"), path);

async function aiSDK() {
  const s = sandjetSandbox({ session: "fw-ai" });
  assert.deepEqual(await s.run({ command: 'printf "%s|" "$V" "$PWD"; echo e >&2; exit 7', env: { V: odd } }).then((r) => [r.exitCode, r.stdout.split("|")[0], r.stderr]), [7, odd, "e\n"]);
  await s.writeTextFile({ path: `dir/${odd}.txt`, content: "1\n2\n3\n4" });
  assert.equal(await s.readTextFile({ path: `/workspace/dir/${odd}.txt` }), "1\n2\n3\n4");
  assert.equal(await s.readTextFile({ path: `dir/${odd}.txt`, startLine: 2, endLine: 3 }), "2\n3\n");
  assert.equal(await s.readTextFile({ path: `dir/${odd}.txt`, startLine: 4, endLine: 99 }), "4");
  assert.equal((await s.run({ command: "cat ./*.txt", workingDirectory: "/workspace/dir" })).stdout, "1\n2\n3\n4");
  assert.deepEqual(await s.listDirectory({ path: "dir" }), [{ name: `${odd}.txt`, type: "file" }]);
  assert.deepEqual([await s.readFile({ path: "none" }), await s.readTextFile({ path: "none" }), await s.stat({ path: "none" }), await s.listDirectory({ path: "none" })], [null, null, null, null]);
  const bytes = new Uint8Array(1000).map((_, n) => n);
  await s.writeFile({ path: "bytes", content: new Blob([bytes]).stream() });
  assert.deepEqual(await s.readBinaryFile({ path: "bytes" }), bytes);
  assert.equal((await text(await s.readFile({ path: `dir/${odd}.txt` }))), "1\n2\n3\n4");
  await s.writeBinaryFile({ path: "big", content: big });
  assert.ok(Buffer.from(await s.readBinaryFile({ path: "big" })).equals(big));
  assert.deepEqual([await s.stat({ path: "big" }), (await s.stat({ path: "dir" })).type, (await s.stat({ path: "." })).type], [{ type: "file", size: big.length }, "directory", "directory"]);
  await s.run({ command: "ln -s big link; mkfifo pipe" });
  assert.equal((await s.stat({ path: "link" })).type, "file");
  assert.deepEqual((await s.listDirectory({ path: "" })).filter((e) => !e.name.startsWith(".")).map((e) => `${e.type} ${e.name}`), [
    "file big", "file bytes", "directory dir", "symlink link", "other pipe",
  ]);
  assert.deepEqual([await s.deleteFile({ path: "link" }), await s.deleteFile({ path: "link" })], [true, false]);
  await assert.rejects(s.deleteFile({ path: "dir" }), /it is a directory/);
  await assert.rejects(s.writeTextFile({ path: "dir", content: "x" }), refused("invalid"));
  await assert.rejects(s.writeTextFile({ path: "x", content: "x", encoding: "latin1" }), refused("unsupported"));
  await assert.rejects(s.readTextFile({ path: "../x" }), refused("invalid"));
  await assert.rejects(s.listDirectory({ path: "big" }), SandjetError);
  await assert.rejects(s.spawn({ command: "cat", stdin: true }), refused("unsupported"));
  const p = await s.spawn({ command: "echo out; echo err >&2; exit 5" });
  assert.deepEqual([await text(p.stdout), await text(p.stderr), await p.wait()], ["out\n", "err\n", { exitCode: 5 }]);
  const killed = await sandjetSandbox({ session: "fw-stopped" }).spawn({ command: "sleep 30" });
  setTimeout(() => killed.kill(), 300);
  assert.deepEqual(await killed.wait(), { exitCode: 143 });
  const stop = AbortSignal.timeout(300);
  await assert.rejects(sandjetSandbox({ session: "fw-stopped" }).run({ command: "sleep 30", abortSignal: stop }), (e) => e === stop.reason);
  const long = await s.run({ command: "for i in $(seq 100000); do echo $i; done" });
  assert.ok(long.exitCode === 0 && long.stdout.length < 300_000 && long.stdout.startsWith("1\n2\n"));
  const again = sandjetSandbox({ session: "fw-ai" }); // as another process would
  assert.deepEqual(await again.readBinaryFile({ path: "bytes" }), bytes);
}

async function deepagents() {
  const b = new SandjetBackend({ session: "fw-deep", timeout: 2000 });
  assert.ok(isSandboxBackend(b));
  assert.deepEqual(await b.execute(`printf '%s' "it's"; echo e >&2; exit 4`), { output: "it'se\n", exitCode: 4, truncated: false });
  assert.equal((await b.execute("sleep 30")).exitCode, 124);
  assert.deepEqual(await b.uploadFiles([["/workspace/a.txt", Buffer.from("one\ntwo\n")], [`d/${odd}`, big], ["/etc/x", big.subarray(0, 1)], ["d", big.subarray(0, 1)]]), [
    { path: "/workspace/a.txt", error: null }, { path: `d/${odd}`, error: null }, { path: "/etc/x", error: "invalid_path" }, { path: "d", error: "is_directory" },
  ]);
  const got = await b.downloadFiles(["a.txt", `/workspace/d/${odd}`, "none", "../x", "d"]);
  assert.deepEqual(got.map((g) => g.error), [null, null, "file_not_found", "invalid_path", "is_directory"]);
  assert.ok(utf8(got[0].content) === "one\ntwo\n" && Buffer.from(got[1].content).equals(big));
  // What the framework makes of these.
  assert.match((await b.read("/workspace/a.txt")).content, /one\n.*two/);
  assert.equal((await b.write("/workspace/new/b.txt", `${odd}\n`)).error, undefined);
  assert.equal((await b.edit("/workspace/new/b.txt", "it's", "it was")).occurrences, 1);
  assert.equal(utf8((await b.downloadFiles(["new/b.txt"]))[0].content), `${odd.replace("it's", "it was")}\n`);
  assert.deepEqual((await b.ls("/workspace/new")).files.map((f) => f.path), ["/workspace/new/b.txt"]);
  assert.deepEqual((await b.grep("two", "/workspace")).matches.map((m) => [m.path, m.line, m.text]), [["/workspace/a.txt", 2, "two"]]);
  assert.equal((await b.glob("*.txt", "/workspace/new")).files.length, 1);
  assert.match((await b.read("/workspace/none")).error, /not found/i);
}

async function computeSDK() {
  const compute = sandjet();
  const fresh = await createCompute({ defaultProvider: compute }).sandbox.create();
  assert.equal((await fresh.runCommand("echo fresh")).stdout, "fresh\n");
  const box = await compute.sandbox.create({ name: "fw-compute" });
  assert.equal(box.sandboxId, "fw-compute");
  const run = await box.runCommand('printf %s "$V"; pwd >&2; exit 3', { env: { V: odd }, cwd: "." });
  assert.deepEqual([run.stdout, run.exitCode], [odd, 3]);
  assert.equal((await box.runCommand("sleep 30", { timeout: 300 })).exitCode, 124);
  await box.filesystem.mkdir(`/workspace/${odd}`);
  await box.filesystem.writeFile(`${odd}/f`, odd);
  assert.equal(await box.filesystem.readFile(`/workspace/${odd}/f`), odd);
  assert.deepEqual((await box.filesystem.readdir(odd)).map((e) => [e.name, e.type, e.size]), [["f", "file", odd.length]]);
  assert.deepEqual([await box.filesystem.exists(odd), await box.filesystem.exists("none")], [true, false]);
  await box.filesystem.remove(odd);
  assert.equal(await box.filesystem.exists(odd), false);
  await assert.rejects(box.filesystem.remove("/workspace"), /workspace itself/);
  await assert.rejects(box.filesystem.readFile("none"), /none/);
  await assert.rejects(box.getUrl({ port: 80 }), /not reached/);
  await assert.rejects(compute.sandbox.create({ templateId: "t" }), /templateId/);
  const info = await box.getInfo();
  assert.deepEqual([info.id, info.provider, info.status], ["fw-compute", "sandjet", "running"]);
  assert.equal((await (await compute.sandbox.getById("fw-compute")).runCommand("echo same")).stdout, "same\n");
  assert.equal(await compute.sandbox.getById("fw-never"), null);
  assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === "fw-compute"));
  await box.destroy();
  await fresh.destroy();
  assert.equal(await compute.sandbox.getById("fw-compute"), null);
}

for (const env of ["SANDJET_URL", "SANDJET_KEY"]) {
  const was = process.env[env];
  delete process.env[env];
  assert.throws(() => sandbox(), refused("invalid"));
  process.env[env] = was;
}
for (const f of [aiSDK, deepagents, computeSDK]) {
  const began = performance.now();
  await f();
  console.log(`${f.name} holds`);
  if (process.env.TIMES) console.log(Math.round(performance.now() - began), "ms");
}
