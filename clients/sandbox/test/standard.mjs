// What the standard tests of Deep Agents ask of a sandbox, by their descriptions: those for JavaScript, and those for Python where the two
// agree. Against a gateway: SANDJET_URL, SANDJET_KEY. Each case has a folder of its own.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { SandboxError, isSandboxBackend } from "deepagents";
import { SandjetBackend } from "@sandjet/sandbox/deepagents";

const bytes = (text) => new TextEncoder().encode(text);
const text = (b) => new TextDecoder().decode(b);
const code = (want) => (e) => SandboxError.isInstance(e) && e.code === want;
const strange = ["a b", "ünïcødé 文件 🙂", "$(touch pwned)", "`touch pwned`", "; touch pwned", "it's \"q\"", "-rf", "a*[b]?", "back\\slash", "a:1:b", "%s\\n", "~", "a\tb", "#c", "&& false"];

/** put uploads one text file, and fails where that fails. */
async function put(b, path, content) {
  assert.deepEqual(await b.uploadFiles([[path, typeof content === "string" ? bytes(content) : content]]), [{ path, error: null }]);
  return path;
}

async function get(b, path) {
  const [r] = await b.downloadFiles([path]);
  assert.equal(r.error, null, path);
  return text(r.content);
}

/** rows are the lines that read has shown, without their numbers. */
const rows = (r) => r.content.split("\n").slice(0, -1).map((l) => l.slice(l.indexOf("\t") + 1));
const names = (found, at) => found.map((f) => f.path.replace(`${at}/`, "")).sort();

const cases = {
  // The life of a sandbox.
  "created, used and closed": async () => {
    const b = await SandjetBackend.create();
    assert.ok(isSandboxBackend(b) && typeof b.id === "string" && b.id !== "" && b.isRunning);
    assert.equal((await b.execute("echo one")).output, "one\n");
    await b.close();
    assert.equal(b.isRunning, false);
    await assert.rejects(b.execute("true"), code("NOT_INITIALIZED"));
    await b.close(); // once more is nothing
  },
  "created in two steps": async () => {
    const b = new SandjetBackend();
    assert.equal(b.isRunning, false);
    await b.initialize();
    assert.equal(b.isRunning, true);
    await assert.rejects(b.initialize(), code("ALREADY_INITIALIZED"));
    await b.close();
  },
  "used without initialize": async () => {
    const b = new SandjetBackend();
    assert.equal((await b.execute("echo lazy")).output, "lazy\n");
    assert.equal(b.isRunning, true);
    await b.close();
  },
  "files to begin with": async () => {
    const b = await SandjetBackend.create({ initialFiles: { "/workspace/app/deep/a.txt": "a ü", "/workspace/b.txt": "" } });
    assert.deepEqual([await get(b, "/workspace/app/deep/a.txt"), await get(b, "/workspace/b.txt")], ["a ü", ""]);
    await b.close();
    await assert.rejects(SandjetBackend.create({ initialFiles: { "/etc/a": "x" } }), code("FILE_OPERATION_FAILED"));
  },
  "an id finds it again": async (b, at) => {
    await put(b, `${at}/a`, "kept");
    assert.equal(await get(new SandjetBackend({ session: b.id }), `${at}/a`), "kept");
  },

  // Commands.
  "output and exit code": async (b) => assert.deepEqual(await b.execute("echo out"), { output: "out\n", exitCode: 0, truncated: false }),
  "standard error is part of the output": async (b) => assert.match((await b.execute("echo out; echo err >&2")).output, /out\n[^]*err\n/),
  "exit codes": async (b) => {
    for (const n of [1, 2, 42, 255]) assert.equal((await b.execute(`exit ${n}`)).exitCode, n);
    assert.equal((await b.execute("no-such-command")).exitCode, 127);
    assert.equal((await b.execute("false | true")).exitCode, 0);
    assert.equal((await b.execute("set -e; false; echo never")).exitCode, 1);
    assert.notEqual((await b.execute("if true; then echo")).exitCode, 0);
  },
  "pipes, variables, quotes and lines": async (b) => {
    assert.equal((await b.execute(`X="it's"; printf '%s\\n' "$X" '"two"' | sort -r`)).output, `it's\n"two"\n`);
    assert.equal((await b.execute("cat <<'EOF'\n$HOME `x` \\n ü 🙂\nEOF")).output, "$HOME `x` \\n ü 🙂\n");
  },
  "no output": async (b) => assert.deepEqual(await b.execute("true"), { output: "", exitCode: 0, truncated: false }),
  "each command is its own": async (b) => assert.equal((await b.execute("cd /; export A=1; true") && (await b.execute('echo "<$A>"'))).output, "<>\n"),
  "much output is cut, and its exit code kept": async (b) => {
    const r = await b.execute("seq 2000000; exit 3");
    assert.ok(r.truncated && r.exitCode === 3 && r.output.startsWith("1\n2\n") && r.output.length < 4 << 20, `${r.truncated} ${r.exitCode} ${r.output.length}`);
  },
  "a timeout is 124": async (b) => {
    const r = await new SandjetBackend({ session: b.id, timeout: 1000 }).execute("echo before; sleep 60");
    assert.ok(r.exitCode === 124 && r.output.startsWith("before\n"), JSON.stringify(r));
  },

  // Transfers.
  "uploads and downloads keep order": async (b, at) => {
    const files = ["c", "a", "b"].map((n) => [`${at}/${n}`, bytes(n)]);
    assert.deepEqual(await b.uploadFiles(files), files.map(([path]) => ({ path, error: null })));
    assert.deepEqual((await b.downloadFiles(files.map(([p]) => p))).map((r) => [r.path, text(r.content), r.error]), files.map(([p, c]) => [p, text(c), null]));
    assert.deepEqual([await b.uploadFiles([]), await b.downloadFiles([])], [[], []]);
  },
  "some of many fail": async (b, at) => {
    await put(b, `${at}/dir/in`, "x");
    const up = await b.uploadFiles([[`${at}/one`, bytes("1")], ["relative", bytes("x")], [`${at}/dir`, bytes("x")], ["/workspace/../etc/x", bytes("x")], [`${at}/two`, bytes("2")]]);
    assert.deepEqual(up.map((r) => r.error), [null, "invalid_path", "is_directory", "invalid_path", null]);
    const down = await b.downloadFiles([`${at}/one`, `${at}/none`, "one", `${at}/dir`, "", `${at}/one/below`, `${at}/two`]);
    assert.deepEqual(down.map((r) => r.error), [null, "file_not_found", "invalid_path", "is_directory", "invalid_path", down[5].error, null]);
    assert.ok(["file_not_found", "invalid_path"].includes(down[5].error));
    assert.ok(down.every((r) => (r.error === null) === (r.content !== null)));
  },
  "bytes are exact": async (b, at) => {
    const all = new Uint8Array(2048).map((_, n) => n);
    for (const content of [all, new Uint8Array(0), bytes("no newline at the end"), bytes("\r\n\r\n"), new Uint8Array([0, 0, 0])]) {
      await put(b, `${at}/f`, content);
      assert.deepEqual((await b.downloadFiles([`${at}/f`]))[0].content, content);
    }
    const hex = (await b.execute(`od -An -tx1 '${await put(b, `${at}/h`, new Uint8Array([0, 255, 10]))}'`)).output.trim();
    assert.equal(hex, "00 ff 0a");
  },
  "ten megabytes and more": async (b, at) => {
    const big = new Uint8Array(randomBytes(11 << 20));
    await put(b, `${at}/big`, big);
    assert.ok(Buffer.from((await b.downloadFiles([`${at}/big`]))[0].content).equals(big));
  },
  "parents are made, and files replaced": async (b, at) => {
    await put(b, `${at}/a/b/c/d.txt`, "first, and longer");
    await put(b, `${at}/a/b/c/d.txt`, "second");
    assert.equal(await get(b, `${at}/a/b/c/d.txt`), "second");
  },
  ...Object.fromEntries(strange.map((name) => [`the name ${name} is data`, async (b, at) => {
    const dir = `${at}/${name}`, file = `${dir}/f ${name}`;
    await put(b, file, name);
    assert.equal(await get(b, file), name);
    assert.deepEqual(rows(await b.read(file)), [name]);
    assert.deepEqual((await b.ls(dir)).files.map((f) => f.path), [file]);
    assert.deepEqual((await b.ls(at)).files.map((f) => f.path), [`${dir}/`]);
    assert.equal((await b.edit(file, name, `${name}!`)).occurrences, 1);
    assert.deepEqual((await b.grep(name, dir)).matches, [{ path: file, line: 1, text: `${name}!` }]);
    assert.deepEqual((await b.glob("f *", dir)).files.map((f) => f.path), [`f ${name}`]);
    assert.equal((await b.write(file, "new")).error, undefined);
    assert.equal((await b.delete(file)).error, undefined);
    assert.deepEqual((await b.ls(dir)).files, []);
    assert.equal((await b.execute("find /workspace/ /tmp -name pwned | wc -l")).output, "0\n");
  }])),
  "slashes that are repeated": async (b, at) => {
    await put(b, `${at}//a///f`, "x");
    assert.equal(await get(b, `${at}/a/f`), "x");
    assert.deepEqual(rows(await b.read(`${at}//a//f`)), ["x"]);
  },

  // write
  "write makes a file and its folders": async (b, at) => {
    assert.equal((await b.write(`${at}/x/y/z.txt`, "a\nb\n")).path, `${at}/x/y/z.txt`);
    assert.equal(await get(b, `${at}/x/y/z.txt`), "a\nb\n");
  },
  "write replaces a file": async (b, at) => {
    await put(b, `${at}/f.txt`, "a long old text");
    assert.equal((await b.write(`${at}/f.txt`, "new")).error, undefined);
    assert.equal(await get(b, `${at}/f.txt`), "new");
  },
  "write keeps every character": async (b, at) => {
    for (const content of ["", "\n", "no end", "$HOME ${X} `id` $(id) \\n \\0 %s", `"'"'`, "ü 文 🙂\n", "\r\nwin\r\n", "EOF\n'EOF'\n", "\t tabs \t"]) {
      assert.equal((await b.write(`${at}/f.txt`, content)).error, undefined);
      assert.equal(await get(b, `${at}/f.txt`), content);
    }
  },
  "write of a large text": async (b, at) => {
    const large = "0123456789abcdef\n".repeat(200_000); // 3.4 MB
    assert.equal((await b.write(`${at}/f.txt`, large)).error, undefined);
    assert.equal(await get(b, `${at}/f.txt`), large);
  },
  "write onto a folder fails": async (b, at) => {
    await put(b, `${at}/d/f`, "x");
    assert.match((await b.write(`${at}/d`, "x")).error, /is_directory/);
    assert.match((await b.write("/etc/f.txt", "x")).error, /invalid_path/);
  },

  // read
  "read numbers lines": async (b, at) => {
    const r = await b.read(await put(b, `${at}/f.txt`, "one\ntwo\n\nfour"));
    assert.deepEqual(r.content.split("\n").slice(0, -1).map((l) => l.trim().split("\t")), [["1", "one"], ["2", "two"], ["3"], ["4", "four"]]);
    assert.deepEqual([r.totalLines, r.startLine, r.endLine, r.nextOffset, r.mimeType], [4, 1, 4, undefined, "text/plain"]);
  },
  "read takes an offset and a limit": async (b, at) => {
    await put(b, `${at}/f.txt`, Array.from({ length: 1201 }, (_, n) => `line ${n}\n`).join(""));
    const r = await b.read(`${at}/f.txt`, 10, 2);
    assert.deepEqual([rows(r), r.startLine, r.endLine, r.nextOffset, r.totalLines], [["line 10", "line 11"], 11, 12, 12, 1201]);
    assert.equal(rows(await b.read(`${at}/f.txt`)).length, 500);
    assert.deepEqual(rows(await b.read(`${at}/f.txt`, -5, 1)), ["line 0"]);
    assert.deepEqual([(await b.read(`${at}/f.txt`, 0, 0)).content, (await b.read(`${at}/f.txt`, 0, -1)).content], ["", ""]);
    assert.deepEqual(rows(await b.read(`${at}/f.txt`, 5000, 1)), []);
    const pages = [];
    for (let offset = 0; offset !== undefined; ) {
      const page = await b.read(`${at}/f.txt`, offset, 400);
      pages.push(...rows(page));
      offset = page.nextOffset;
    }
    assert.deepEqual(pages, Array.from({ length: 1201 }, (_, n) => `line ${n}`));
  },
  "read of an empty file": async (b, at) => assert.match((await b.read(await put(b, `${at}/f.txt`, ""))).content, /empty/),
  "read of nothing, and of a folder": async (b, at) => {
    await put(b, `${at}/d/f`, "x");
    for (const path of [`${at}/none`, `${at}/d`, `${at}/none.png`]) assert.match((await b.read(path)).error, /not found/, path);
  },
  "read keeps every character": async (b, at) => {
    const content = "ü 文 🙂\n\ttab\n  spaces  \n$x `y` \\n %d\n" + "x".repeat(8000) + "\n";
    assert.deepEqual(rows(await b.read(await put(b, `${at}/f.txt`, content))), content.split("\n").slice(0, -1));
  },
  "read of an image is its bytes": async (b, at) => {
    const r = await b.read(await put(b, `${at}/f.png`, new Uint8Array([137, 80, 78, 71, 0])));
    assert.deepEqual([[...r.content], r.mimeType], [[137, 80, 78, 71, 0], "image/png"]);
  },
  "readRaw is the whole": async (b, at) => {
    const all = "a\n".repeat(2000);
    assert.equal((await b.readRaw(await put(b, `${at}/f.txt`, all))).data.content, all);
    assert.match((await b.readRaw(`${at}/none`)).error, /not found/);
  },

  // edit
  "edit of the only one": async (b, at) => {
    const path = await put(b, `${at}/f.txt`, "one two three");
    const r = await b.edit(path, "two", "2");
    assert.deepEqual([r.error, r.path, r.occurrences, await get(b, path)], [undefined, path, 1, "one 2 three"]);
  },
  "edit of several": async (b, at) => {
    const path = await put(b, `${at}/f.txt`, "a b a b a");
    assert.match((await b.edit(path, "a", "x")).error, /multiple/i);
    assert.equal(await get(b, path), "a b a b a");
    assert.equal((await b.edit(path, "a", "x", true)).occurrences, 3);
    assert.equal((await b.edit(path, "b", "longer", true)).occurrences, 2);
    assert.equal(await get(b, path), "x longer x longer x");
  },
  "edit of what is not there": async (b, at) => {
    const path = await put(b, `${at}/f.txt`, "text");
    assert.match((await b.edit(path, "none", "x")).error, /not found/i);
    assert.match((await b.edit(path, "TEXT", "x")).error, /not found/i);
    assert.match((await b.edit(`${at}/none`, "a", "b")).error, /not found/i);
    assert.notEqual((await b.edit(at, "a", "b")).error, undefined);
    assert.equal(await get(b, path), "text");
  },
  "edit takes text as it is": async (b, at) => {
    for (const all of [false, true]) {
      for (const [old, fresh] of [["a.*b", "x"], ["x", "$& $1 $$ $` $'"], ["(c)", "\\1 \\n"], ["[d]", "${y}"], ["^e$", "%s"], ["\\f", "`id` $(id)"], ["'g'", '"h"'], ["🙂", "ü"], ["l1\nl2", "l1\nnew\nl2"], ["gone", ""]]) {
        const path = await put(b, `${at}/f.txt`, `before ${old} after`);
        const r = await b.edit(path, old, fresh, all);
        assert.deepEqual([r.error, r.occurrences, await get(b, path)], [undefined, 1, `before ${fresh} after`], `${old} → ${fresh} (${all})`);
      }
    }
  },
  "edit with the same text, and of an empty file": async (b, at) => {
    const path = await put(b, `${at}/f.txt`, "a b");
    assert.deepEqual([(await b.edit(path, "a", "a")).occurrences, await get(b, path)], [1, "a b"]);
    assert.match((await b.edit(path, "", "x")).error, /empty/);
    assert.equal(await get(b, path), "a b");
    await put(b, path, "");
    assert.deepEqual([(await b.edit(path, "", "filled")).occurrences, await get(b, path)], [1, "filled"]);
  },
  "edit of large texts": async (b, at) => {
    const [old, fresh] = ["o".repeat(60_000), "n".repeat(120_000)];
    const path = await put(b, `${at}/f.txt`, `<${old}>`);
    assert.deepEqual([(await b.edit(path, old, fresh)).occurrences, await get(b, path)], [1, `<${fresh}>`]);
  },
  "edit of lines that end in CRLF": async (b, at) => {
    const path = await put(b, `${at}/f.txt`, "one\r\ntwo\r\nthree\r\n");
    assert.equal((await b.edit(path, "one\ntwo", "1\n2")).occurrences, 1);
    assert.equal(await get(b, path), "1\r\n2\r\nthree\r\n");
    await put(b, path, "one\ntwo\n");
    assert.equal((await b.edit(path, "one\r\ntwo", "1\r\n2")).occurrences, 1);
    assert.equal(await get(b, path), "1\n2\n");
  },
  "edit leaves bytes alone that are no text": async (b, at) => {
    const content = new Uint8Array([97, 255, 254, 98]);
    const path = await put(b, `${at}/f.bin`, content);
    assert.match((await b.edit(path, "a", "x")).error, /text/);
    assert.deepEqual((await b.downloadFiles([path]))[0].content, content);
  },

  // ls
  "ls of files and folders": async (b, at) => {
    await put(b, `${at}/f.txt`, "12345");
    await put(b, `${at}/.hidden`, "");
    await put(b, `${at}/d/deep`, "x");
    const { files } = await b.ls(at);
    assert.deepEqual(names(files, at), [".hidden", "d/", "f.txt"]);
    const f = files.find((e) => e.path.endsWith("f.txt"));
    assert.ok(f.size === 5 && f.is_dir === false && Math.abs(Date.parse(f.modified_at) - Date.now()) < 3600_000, JSON.stringify(f));
    assert.ok(files.find((e) => e.path.endsWith("d/")).is_dir);
    assert.deepEqual((await b.ls(`${at}/`)).files.length, 3);
  },
  "ls of nothing": async (b, at) => {
    await b.execute(`mkdir -p ${at}/empty`);
    assert.deepEqual([(await b.ls(`${at}/none`)).files, (await b.ls(`${at}/empty`)).files], [[], []]);
  },
  "ls of many": async (b, at) => {
    await b.execute(`mkdir -p ${at}; cd ${at}; for i in $(seq 1500); do : > file-$i; done`);
    assert.equal((await b.ls(at)).files.length, 1500);
  },

  // grep
  "grep finds lines": async (b, at) => {
    await put(b, `${at}/a.txt`, "one\ntwo\ntwo again\n");
    await put(b, `${at}/d/b.md`, "not\ntwo: with: colons\n");
    const { matches } = await b.grep("two", at);
    assert.deepEqual(matches.map((m) => [m.path.replace(`${at}/`, ""), m.line, m.text]).sort(), [["a.txt", 2, "two"], ["a.txt", 3, "two again"], ["d/b.md", 2, "two: with: colons"]]);
    assert.deepEqual((await b.grep("two", `${at}/a.txt`)).matches.map((m) => m.line), [2, 3]);
    assert.deepEqual((await b.grep("two", at, "*.md")).matches.map((m) => m.path), [`${at}/d/b.md`]);
    assert.deepEqual([(await b.grep("none", at)).matches, (await b.grep("two", `${at}/none`)).matches ?? []], [[], []]);
    assert.equal((await b.grep("none", at)).error, undefined);
    assert.deepEqual((await b.grep("TWO", at)).matches, []);
    const some = await b.grep("two", at, null, 2);
    assert.ok(some.matches.length === 2 && some.truncated === true);
  },
  "grep takes the pattern as it is": async (b, at) => {
    const lines = ["a.*b", "[x]", "(y|z)", "^start", "end$", "$HOME", "`id`", "it's", '"q"', "-e", "--help", "back\\slash", "ü 文 🙂", "a\tb", "{1,2}", "?+"];
    await put(b, `${at}/f.txt`, [...lines, "axxb", "x", "y", "start", "end"].join("\n") + "\n");
    for (const [n, line] of lines.entries()) assert.deepEqual((await b.grep(line, at)).matches, [{ path: `${at}/f.txt`, line: n + 1, text: line }], line);
  },
  "grep finds hidden files, and those that git ignores": async (b, at) => {
    for (const f of [".hidden", ".dir/f", "ignored.log", ".gitignore", "f.txt"]) await put(b, `${at}/${f}`, f === ".gitignore" ? "*.log needle\n" : "needle\n");
    assert.deepEqual(names((await b.grep("needle", at)).matches, at), [".dir/f", ".gitignore", ".hidden", "f.txt", "ignored.log"]);
  },
  "grep of everything finds what stays": async (b, at) => {
    const needle = randomBytes(8).toString("hex");
    await put(b, `${at}/f.txt`, needle);
    for (const path of ["/", null, undefined, "/workspace"]) assert.deepEqual((await b.grep(needle, path)).matches.map((m) => m.path), [`${at}/f.txt`], path);
  },
  "grep keeps the spaces of lines": async (b, at) => {
    await put(b, `${at}/f.txt`, "  two  \n");
    assert.deepEqual((await b.grep("two", at)).matches, [{ path: `${at}/f.txt`, line: 1, text: "  two  " }]);
  },
  "grep that finds more than a result holds says so": async (b, at) => {
    await put(b, `${at}/f.txt`, `needle ${"x".repeat(93)}\n`.repeat(40_000)); // 4 MB
    const { matches, truncated } = await b.grep("needle", at);
    assert.ok(matches.length > 0 && (truncated || matches.length === 40_000), `${matches.length} matches, truncated: ${truncated}`);
    assert.ok(matches.every((m) => m.path === `${at}/f.txt` && m.text.startsWith("needle x")));
  },

  // glob
  "glob finds names": async (b, at) => {
    for (const f of ["a.txt", "b.md", "d/c.txt", "d/e/f.txt", "d/e/g.py"]) await put(b, `${at}/${f}`, "x");
    const found = async (pattern) => names((await b.glob(pattern, at)).files, at);
    assert.deepEqual(await found("*.txt"), ["a.txt"]);
    assert.deepEqual(await found("**/*.txt"), ["a.txt", "d/c.txt", "d/e/f.txt"]);
    assert.deepEqual(await found("d/*.txt"), ["d/c.txt"]);
    assert.deepEqual(await found("d/**/*.py"), ["d/e/g.py"]);
    assert.deepEqual(await found("?.md"), ["b.md"]);
    assert.deepEqual(await found("[ab].*"), ["a.txt", "b.md"]);
    assert.deepEqual(await found("d/*"), ["d/c.txt", "d/e"]);
    assert.deepEqual(await found("none*"), []);
    assert.deepEqual((await b.glob("*", `${at}/none`)).files, []);
    assert.deepEqual((await b.glob("d", at)).files.map((f) => f.is_dir), [true]);
  },

  // delete
  "delete of files and folders": async (b, at) => {
    await put(b, `${at}/d/e/f`, "x");
    await put(b, `${at}/g`, "x");
    await b.execute(`ln -s none ${at}/link`);
    for (const name of ["g", "d", "link"]) assert.equal((await b.delete(`${at}/${name}`)).error, undefined, name);
    assert.match((await b.delete(`${at}/g`)).error, /not found/);
    assert.deepEqual((await b.ls(at)).files, []);
  },

  "a whole piece of work": async (b, at) => {
    await b.write(`${at}/main.sh`, "#!/bin/sh\necho helo $1\n");
    await b.edit(`${at}/main.sh`, "helo", "hello");
    assert.deepEqual(await b.execute(`cd ${at} && sh main.sh you > out.txt && cat out.txt`), { output: "hello you\n", exitCode: 0, truncated: false });
    assert.deepEqual((await b.grep("hello", at)).matches.length, 2);
    assert.deepEqual(names((await b.ls(at)).files, at), ["main.sh", "out.txt"]);
  },
};

const b = new SandjetBackend({ session: `fw-standard-${randomBytes(4).toString("hex")}` });
const left = [...Object.entries(cases).entries()];
let failed = 0;
async function some() {
  for (let next = left.shift(); next !== undefined; next = left.shift()) {
    const [n, [name, hold]] = next;
    try {
      await hold(b, `/workspace/case-${n}`);
    } catch (e) {
      failed++;
      console.log(`${name}: ${e.stack}\n`);
    }
  }
}
await Promise.all([some(), some(), some(), some()]);
await b.close();
console.log(failed === 0 ? `${Object.keys(cases).length} cases hold` : `${failed} of ${Object.keys(cases).length} cases do not hold`);
process.exitCode = failed === 0 ? 0 : 1;
