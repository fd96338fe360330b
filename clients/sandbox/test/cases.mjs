// What each integration holds, against a gateway: SANDJET_URL, SANDJET_KEY. The frameworks are the real ones.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createCompute } from "@computesdk/provider";
import { Agent as MastraAgent } from "@mastra/core/agent";
import {
  DirectoryNotEmptyError, DirectoryNotFoundError, FileExistsError, FileNotFoundError, IsDirectoryError, NotDirectoryError, StaleFileError, Workspace, callLifecycle,
} from "@mastra/core/workspace";
import { Agent, applyPatchTool, run, setTracingDisabled, shellTool } from "@openai/agents";
import { Manifest, SandboxAgent, filesystem, shell } from "@openai/agents/sandbox";
import { ScriptedModel, assistantMessage, functionCall } from "@openai/agents/testing";
import { SandjetError } from "@sandjet/client";
import { inside, sandbox } from "@sandjet/sandbox";
import { sandjetSandbox } from "@sandjet/sandbox/ai-sdk";
import { sandjet } from "@sandjet/sandbox/computesdk";
import { SandjetBackend } from "@sandjet/sandbox/deepagents";
import { sandjetWorkspace } from "@sandjet/sandbox/mastra";
import { sandjetSession } from "@sandjet/sandbox/openai-agents";
import { MockLanguageModelV4 } from "ai/test";
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
  assert.deepEqual(await b.uploadFiles([["/workspace/a.txt", Buffer.from("one\ntwo\n")], [`/workspace/d/${odd}`, big], ["/etc/x", big.subarray(0, 1)], ["/workspace/d", big.subarray(0, 1)]]), [
    { path: "/workspace/a.txt", error: null }, { path: `/workspace/d/${odd}`, error: null }, { path: "/etc/x", error: "invalid_path" }, { path: "/workspace/d", error: "is_directory" },
  ]);
  const got = await b.downloadFiles(["/workspace/a.txt", `/workspace/d/${odd}`, "/workspace/none", "/workspace/../x", "/workspace/d"]);
  assert.deepEqual(got.map((g) => g.error), [null, null, "file_not_found", "invalid_path", "is_directory"]);
  assert.ok(utf8(got[0].content) === "one\ntwo\n" && Buffer.from(got[1].content).equals(big));
  await assert.rejects(new SandjetBackend({ url: "http://127.0.0.1:1", token: "none" }).execute("id"), /may have run: look before you run it again$/);
  // What the framework makes of these.
  assert.match((await b.read("/workspace/a.txt")).content, /one\n.*two/);
  assert.equal((await b.write("/workspace/new/b.txt", `${odd}\n`)).error, undefined);
  assert.equal((await b.edit("/workspace/new/b.txt", "it's", "it was")).occurrences, 1);
  assert.equal(utf8((await b.downloadFiles(["/workspace/new/b.txt"]))[0].content), `${odd.replace("it's", "it was")}\n`);
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

async function openaiAgents() {
  setTracingDisabled(true);
  const s = sandjetSession({ session: "fw-openai", env: { GIVEN: odd } });
  const resultsOf = (of) => of.lastCall.request.input.filter((i) => i.callId !== undefined && /_result$|_output$/.test(i.type)).map((i) => i.output.text ?? i.output);
  const patch = (operation) => ({ type: "apply_patch_call", status: "completed", operation });
  const calls = [
    ["exec_command", { cmd: `printf '%s|' "$GIVEN" "$PWD"; cat brief/task.txt; echo e >&2; exit 7` }],
    patch({ type: "create_file", path: "dir/a.txt", diff: "+one\n+two\n" }),
    patch({ type: "update_file", path: "dir/a.txt", moveTo: "dir/b.txt", diff: "@@\n one\n-two\n+zwei $& $1\n" }),
    patch({ type: "create_file", path: "dir/b.txt", diff: "+again\n" }),
    ["exec_command", { cmd: "cat b.txt; ls", workdir: "dir" }],
    patch({ type: "delete_file", path: "/workspace/dir/b.txt" }),
    patch({ type: "delete_file", path: "dir/b.txt" }),
    ["exec_command", { cmd: "cat", tty: true }],
    ["exec_command", { cmd: "echo $0", shell: "/bin/sh" }],
    ["exec_command", { cmd: "for i in $(seq 5000); do echo $i; done", max_output_tokens: 20 }],
    ["view_image", { path: "none.png" }],
    ["view_image", { path: "brief/task.txt" }],
  ].map((c, n) => (Array.isArray(c) ? functionCall(...c, { callId: `call_${n}` }) : { ...c, callId: `call_${n}` }));
  const model = new ScriptedModel([...calls.map((c) => [c]), [assistantMessage("done")]]);
  const agent = new SandboxAgent({
    name: "agent", model, capabilities: [shell(), filesystem()],
    defaultManifest: new Manifest({ entries: { brief: { type: "dir", children: { "task.txt": { type: "file", content: "as written" } } } } }),
  });
  assert.equal((await run(agent, "do it", { maxTurns: 20, sandbox: { session: s } })).finalOutput, "done");
  const got = resultsOf(model);
  assert.match(got[0], /Process exited with code 7\nOutput:\n/);
  assert.ok(got[0].includes(`${odd}|`) && got[0].endsWith("as writtene\n"), got[0]);
  assert.deepEqual(got.slice(1, 3), ["Created dir/a.txt", "Updated dir/a.txt, which is now dir/b.txt"]);
  assert.match(got[3], /exists already/);
  assert.ok(got[4].endsWith("one\nzwei $& $1\nb.txt\n") || got[4].endsWith("one\nzwei $& $1b.txt\n"), got[4]);
  assert.deepEqual(got.slice(5, 7), ["Deleted /workspace/dir/b.txt", "dir/b.txt does not exist"]);
  assert.match(got[7], /no terminal here: run it without tty/);
  assert.match(got[8], /Output:\n\/bin\/sh\n$/);
  assert.match(got[9], /Original token count: \d+\nOutput:\n1\n2\n.*tokens truncated….*\n5000\n$/s);
  assert.match(got[10], /none\.png` was not found/);
  assert.match(got[11], /not a supported image/);
  await assert.rejects(run(agent, "as another", { sandbox: { session: s, manifest: new Manifest({ users: [{ name: "u" }] }) } }), /users/);

  // The tools that models of OpenAI have by themselves.
  const own = [
    { type: "shell_call", callId: "s1", status: "completed", action: { commands: ["printf five > made.txt", "wc -c < made.txt; echo e >&2; exit 3"], maxOutputLength: 1000 } },
    { type: "shell_call", callId: "s2", status: "completed", action: { commands: ["echo before; sleep 30", "echo never"], timeoutMs: 500 } },
    { type: "apply_patch_call", callId: "p1", status: "completed", operation: { type: "update_file", path: "made.txt", diff: "@@\n-five\n+six" } },
  ];
  const script = new ScriptedModel([...own.map((c) => [c]), [assistantMessage("done")]]);
  const tooled = new Agent({ name: "tooled", model: script, tools: [shellTool({ shell: s.shell }), applyPatchTool({ editor: s.editor })] });
  assert.equal((await run(tooled, "do it")).finalOutput, "done");
  const outputs = script.lastCall.request.input.filter((i) => i.type?.endsWith("_output"));
  assert.deepEqual(outputs[0].output, [{ stdout: "", stderr: "", outcome: { type: "exit", exitCode: 0 } }, { stdout: "4\n", stderr: "e\n", outcome: { type: "exit", exitCode: 3 } }]);
  assert.deepEqual(outputs[1].output, [{ stdout: "before\n", stderr: "", outcome: { type: "timeout" } }]);
  assert.deepEqual([outputs[2].status, outputs[2].output], ["completed", "Updated made.txt"]);

  // What the framework's capabilities ask for.
  const again = sandjetSession({ session: "fw-openai" }); // as another process would
  assert.equal(utf8(await again.readFile({ path: "/workspace/made.txt" })), "six");
  assert.equal(utf8(await again.readFile({ path: "made.txt", maxBytes: 2 })), "si");
  await again.materializeEntry({ path: `d/${odd}`, entry: { type: "file", content: big } });
  assert.ok(Buffer.from(await again.readFile({ path: `d/${odd}` })).equals(big));
  assert.deepEqual(await again.listDir({ path: "d" }), [{ name: odd, path: `d/${odd}`, type: "file" }]);
  assert.deepEqual([await again.pathExists("d"), await again.directoryExists("d"), await again.directoryExists("made.txt"), await again.pathExists("none")], [true, true, false, false]);
  const dot = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  await again.materializeEntry({ path: "dot.png", entry: { type: "file", content: dot } });
  const image = (await again.viewImage({ path: "dot.png" })).image;
  assert.ok(image.mediaType === "image/png" && Buffer.from(image.data).equals(dot));
  await assert.rejects(again.readFile({ path: "none" }), (e) => e.code === "workspace_read_not_found");
  await assert.rejects(again.listDir({ path: "none" }), (e) => e.code === "workspace_read_not_found");
  await assert.rejects(again.readFile({ path: "../x" }), refused("invalid"));
  await assert.rejects(again.editor.updateFile({ type: "update_file", path: `d/${odd}`, diff: "@@\n-a\n+b" }), /not valid/);
  const lost = sandjetSession({ url: "http://127.0.0.1:1", token: "none" });
  assert.match(await lost.execCommand({ cmd: "id" }), /^Error: .*may have run: look before you run it again$/);
  await assert.rejects(lost.shell.run({ commands: ["id"] }), /may have run/);
  await assert.rejects(lost.exec({ cmd: "id" }), refused("unavailable"));
  for (const args of [{ cmd: "id", runAs: "root" }, { cmd: "id", tty: true }]) await assert.rejects(again.exec(args), refused("unsupported"));
  for (const entry of [{ type: "git_repo", repo: "a/b" }, { type: "file", content: "", permissions: "rwxr-xr-x" }, { type: "file", content: "", group: { name: "g" } }]) {
    await assert.rejects(again.materializeEntry({ path: "x", entry }), refused("unsupported"));
  }
}

async function mastra() {
  const { sandbox: box, filesystem: files } = sandjetWorkspace({ session: "fw-mastra", env: { GIVEN: odd } });
  // An agent of the framework's own tools, whose model is scripted.
  const calls = [
    ["write_file", { path: "dir/a.txt", content: "one\ntwo\n" }],
    ["edit_file", { path: "dir/a.txt", old_string: "two", new_string: "zwei $& $1" }],
    ["execute_command", { command: `printf '%s|' "$GIVEN" "$PWD"; cat a.txt; echo e >&2; exit 7`, cwd: "dir" }],
    ["read_file", { path: "/workspace/dir/a.txt" }],
    ["list_files", { path: "dir" }],
    ["execute_command", { command: "echo before; sleep 30", timeout: 1 }],
    ["grep", { pattern: "zw.i", path: "dir" }],
    ["delete", { path: "dir/a.txt" }],
    ["file_stat", { path: "dir/a.txt" }],
    ["read_file", { path: "/etc/passwd" }],
  ];
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const said = [...calls.map(([tool, input], n) => ({ type: "tool-call", toolCallId: `call_${n}`, toolName: `mastra_workspace_${tool}`, input: JSON.stringify(input) })), { type: "text", text: "done" }];
  const model = new MockLanguageModelV4({
    doGenerate: said.map((part) => ({ content: [part], finishReason: { unified: part.type === "text" ? "stop" : "tool-calls" }, usage, warnings: [] })),
  });
  const agent = new MastraAgent({ id: "a", name: "a", instructions: "none", model, workspace: new Workspace({ sandbox: box, filesystem: files }) });
  assert.equal((await agent.generate("do it", { maxSteps: 20 })).text, "done");
  const last = model.doGenerateCalls.at(-1).prompt.flatMap((m) => (m.role === "tool" ? m.content : []));
  const got = last.map((p) => (typeof p.output.value === "string" ? p.output.value : JSON.stringify(p.output.value)));
  assert.deepEqual(got.slice(0, 2), ["Wrote 8 bytes to dir/a.txt", "Replaced 1 occurrence in dir/a.txt (lines 2)"]);
  assert.ok(got[2].startsWith(`stdout:\n${odd}|`) && got[2].endsWith("/dir|one\nzwei $& $1\n\n\nstderr:\ne\n\nExit code: 7"), got[2]);
  assert.match(got[3], /1→one\n +2→zwei \$& \$1/);
  assert.match(got[4], /a\.txt\n\n0 directories, 1 file/);
  assert.equal(got[5], "before\n\nExit code: 124");
  assert.match(got[6], /dir\/a\.txt:2:1: zwei/);
  assert.deepEqual(got.slice(7, 9), ["Deleted dir/a.txt", "dir/a.txt: not found"]);
  assert.match(got[9], /outside of the workspace/);
  assert.equal(got.length, 10);

  // What the framework calls beside the tools of agents.
  const is = (type) => (e) => e instanceof type;
  const chunks = [];
  const r = await box.executeCommand("printf", ["%s|", odd, "ü".repeat(10)], { onStdout: (d) => chunks.push(d), maxRetainedBytes: 6 });
  assert.deepEqual([r.success, r.exitCode, r.stdout, r.stdoutTruncated, r.timedOut], [true, 0, "üü|", true, false]);
  assert.deepEqual(chunks, [`${odd}|${"ü".repeat(10)}|`]);
  box.setEnv((env) => ({ ...env, GIVEN: undefined, ADDED: "a" }));
  assert.equal((await box.executeCommand('echo "$GIVEN $ADDED $OWN"', [], { env: { OWN: "o" } })).stdout, " a o\n");
  const stop = AbortSignal.timeout(300);
  await assert.rejects(box.executeCommand("sleep 30", [], { abortSignal: stop }), (e) => e === stop.reason);
  await box.writeFiles([{ path: "bin/run", content: "#!/bin/sh\necho ran", mode: 0o750 }, { path: `d/${odd}`, content: Buffer.from(big) }]);
  assert.equal((await box.executeCommand("bin/run")).stdout, "ran\n");
  assert.equal((await box.executeCommand("stat -c %a bin/run")).stdout, "750\n");
  await assert.rejects(box.writeFiles([{ path: "x", content: "", mode: 0o1777 }]), /mode/i);
  assert.ok((await files.readFile(`d/${odd}`)).equals(big));
  const { metadata, createdAt, ...info } = await box.getInfo();
  assert.deepEqual([info.id, info.status, typeof metadata.workspace, createdAt.getTime() <= info.lastUsedAt.getTime()], ["fw-mastra", "running", "string", true]);

  await files.writeFile("f/a.txt", "a");
  await files.appendFile("f/a.txt", "b");
  await files.appendFile("f/g/new.md", new Uint8Array([0, 255]));
  assert.deepEqual([await files.readFile("/workspace/f/a.txt", { encoding: "utf8" }), [...(await files.readFile("f/g/new.md"))]], ["ab", [0, 255]]);
  await assert.rejects(files.writeFile("f/a.txt", "c", { overwrite: false }), is(FileExistsError));
  await assert.rejects(files.writeFile("none/a.txt", "c", { recursive: false }), is(DirectoryNotFoundError));
  await assert.rejects(files.writeFile("f/a.txt/b", "c", { recursive: false }), is(NotDirectoryError));
  await assert.rejects(files.writeFile("f", "c"), is(IsDirectoryError));
  const read = await files.stat("f/a.txt");
  assert.deepEqual([read.name, read.path, read.type, read.size], ["a.txt", "f/a.txt", "file", 2]);
  assert.ok(Math.abs(read.modifiedAt.getTime() - Date.now()) < 3600_000, String(read.modifiedAt)); // not off by a zone
  await files.writeFile("f/a.txt", "abc", { expectedMtime: read.modifiedAt });
  await assert.rejects(files.writeFile("f/a.txt", "d", { expectedMtime: new Date(0) }), is(StaleFileError));
  await box.executeCommand("ln -s a.txt f/link; ln -s g f/folder");
  assert.deepEqual(await files.readdir("f", { recursive: true }), [
    { name: "a.txt", type: "file", size: 3 }, { name: "folder", type: "directory", isSymlink: true }, { name: "g", type: "directory" },
    { name: "g/new.md", type: "file", size: 2 }, { name: "link", type: "file", isSymlink: true },
  ]);
  assert.deepEqual((await files.readdir("f", { extension: ["md"], recursive: true, maxDepth: 0 })).map((e) => e.name), ["folder", "g", "link"]);
  await files.copyFile("f/a.txt", "copies/deep/a.txt");
  await assert.rejects(files.copyFile("f", "copies/f"), is(IsDirectoryError));
  await files.copyFile("f", "copies/f", { recursive: true });
  await files.copyFile("f", "copies/f", { recursive: true }); // into what is there, not beside it
  assert.deepEqual((await files.readdir("copies/f")).map((e) => e.name), ["a.txt", "folder", "g", "link"]);
  await assert.rejects(files.copyFile("f/a.txt", "copies"), is(IsDirectoryError));
  await assert.rejects(files.copyFile("f/a.txt", "copies/deep/a.txt", { overwrite: false }), is(FileExistsError));
  await assert.rejects(files.copyFile("none", "x"), is(FileNotFoundError));
  await files.moveFile("copies/deep/a.txt", `copies/${odd}`);
  assert.deepEqual([await files.exists("copies/deep/a.txt"), await files.exists(`copies/${odd}`)], [false, true]);
  await assert.rejects(files.moveFile("f", "copies"), is(FileExistsError));
  await files.mkdir("f/g");
  await assert.rejects(files.mkdir("f/a.txt"), is(FileExistsError));
  await assert.rejects(files.mkdir("none/a", { recursive: false }), is(DirectoryNotFoundError));
  await assert.rejects(files.rmdir("copies"), is(DirectoryNotEmptyError));
  await assert.rejects(files.rmdir("f/a.txt"), is(NotDirectoryError));
  await assert.rejects(files.rmdir("none"), is(DirectoryNotFoundError));
  await assert.rejects(files.rmdir("/workspace", { recursive: true, force: true }), /workspace itself/);
  await files.rmdir("none", { force: true });
  await files.rmdir("copies", { recursive: true });
  await assert.rejects(files.deleteFile("f"), is(IsDirectoryError));
  await assert.rejects(files.deleteFile("none"), is(FileNotFoundError));
  await files.deleteFile("none", { force: true });
  await files.deleteFile("f/link");
  assert.deepEqual([await files.exists("f/link"), await files.exists("f/a.txt"), await files.exists("copies")], [false, true, false]);
  await assert.rejects(files.readFile("none"), is(FileNotFoundError));
  await assert.rejects(files.readFile("f"), is(IsDirectoryError));
  await assert.rejects(files.readdir("none"), is(DirectoryNotFoundError));
  await assert.rejects(files.readdir("f/a.txt"), is(NotDirectoryError));
  await assert.rejects(files.readFile("../x"), refused("invalid"));

  const again = sandjetWorkspace({ session: "fw-mastra" }); // as another process would
  assert.deepEqual(await again.sandbox.start(), { outcome: "connected" });
  await callLifecycle(again.sandbox, "stop");
  assert.equal((await again.sandbox.executeCommand("cat", ["f/a.txt"])).stdout, "abc"); // stopped, it comes back
  await new Workspace(again).destroy();
  await assert.rejects(again.sandbox.executeCommand("true"), /not ready|destroyed/i);
  const fresh = sandjetWorkspace({ session: "fw-mastra" });
  assert.deepEqual(await fresh.sandbox.start(), { outcome: "created" });
  assert.equal(await fresh.filesystem.exists("f"), false);
  await fresh.sandbox.destroy();
}

for (const env of ["SANDJET_URL", "SANDJET_KEY"]) {
  const was = process.env[env];
  delete process.env[env];
  assert.throws(() => sandbox(), refused("invalid"));
  process.env[env] = was;
}
for (const f of [aiSDK, deepagents, computeSDK, openaiAgents, mastra]) {
  const began = performance.now();
  await f();
  console.log(`${f.name} holds`);
  if (process.env.TIMES) console.log(Math.round(performance.now() - began), "ms");
}
