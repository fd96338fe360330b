/**
 * The experimental sandbox of the AI SDK (`experimental_sandbox` of generateText, streamText and tools), and a tool for models.
 *
 * @packageDocumentation
 */
import { SandjetError, type Sandbox } from "@sandjet/client";
import { command, description, exitOf, list, longest, read, removeFile, sandbox, stat, unsupported, write, type SandboxOptions } from "./index.js";

interface PathOptions {
  path: string;
  abortSignal?: AbortSignal;
}

interface RunOptions {
  command: string;
  workingDirectory?: string;
  env?: Record<string, string>;
  abortSignal?: AbortSignal;
}

interface Process {
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  wait(): Promise<{ exitCode: number }>;
  kill(): Promise<void>;
}

/** SandboxSession is what the AI SDK calls a sandbox session, of version 7. */
export interface SandboxSession {
  readonly description: string;
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;
  run(options: RunOptions): Promise<{ exitCode: number; stdout: string; stderr: string }>;
  spawn(options: RunOptions & { stdin?: boolean }): Promise<any>; // a process; one with a standard input is refused
  readFile(options: PathOptions): Promise<ReadableStream<Uint8Array> | null>;
  readBinaryFile(options: PathOptions): Promise<Uint8Array | null>;
  readTextFile(options: PathOptions & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null>;
  writeFile(options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void>;
  writeBinaryFile(options: PathOptions & { content: Uint8Array }): Promise<void>;
  writeTextFile(options: PathOptions & { content: string; encoding?: string }): Promise<void>;
  stat(options: PathOptions): Promise<{ type: "file" | "directory" | "other"; size: number } | null>;
  listDirectory(options: PathOptions): Promise<{ name: string; type: "file" | "directory" | "symlink" | "other" }[] | null>;
  deleteFile(options: PathOptions): Promise<boolean>;
}

/**
 * sandjetSandbox is a sandbox for `experimental_sandbox`. A signal that aborts a run cancels its command. A failure of the network
 * in the middle of a run is an error, because the command may have run.
 */
export function sandjetSandbox(options: SandboxOptions = {}): SandboxSession {
  const box = sandbox(options);
  const whole = async (path: string, signal: AbortSignal | undefined): Promise<Uint8Array | null> => (await read(box, path, signal)) ?? null;
  const run = (o: RunOptions) => command(box, o.command, { cwd: o.workingDirectory, env: o.env, timeout: longest, signal: o.abortSignal });
  const spawn = async (o: RunOptions & { stdin?: boolean }): Promise<Process> => {
    if (o.stdin) throw unsupported("commands have no standard input here: write a file and redirect it", "stdin");
    const stop = new AbortController();
    const signal = o.abortSignal === undefined ? stop.signal : AbortSignal.any([o.abortSignal, stop.signal]);
    const ended = run({ ...o, abortSignal: signal });
    ended.catch(() => undefined); // whoever waits hears of it
    const stream = (of: "stdout" | "stderr"): ReadableStream<Uint8Array> =>
      new ReadableStream({
        async start(to) {
          try {
            to.enqueue(new TextEncoder().encode((await ended)[of]));
            to.close();
          } catch (e) {
            to.error(e);
          }
        },
      });
    return {
      stdout: stream("stdout"),
      stderr: stream("stderr"),
      wait: async () => {
        try {
          return { exitCode: exitOf(await ended) };
        } catch (e) {
          if (stop.signal.aborted && !o.abortSignal?.aborted) return { exitCode: 143 }; // as of SIGTERM
          throw e;
        }
      },
      kill: async () => stop.abort(new SandjetError("cancelled", "the process was killed")),
    };
  };
  return {
    sandbox: box,
    description,
    run: async (o) => {
      const r = await run(o);
      return { exitCode: exitOf(r), stdout: r.stdout, stderr: r.stderr };
    },
    spawn,
    readFile: async (o) => {
      const bytes = await whole(o.path, o.abortSignal);
      return bytes === null ? null : new Blob([bytes as BlobPart]).stream();
    },
    readBinaryFile: (o) => whole(o.path, o.abortSignal),
    readTextFile: async (o) => {
      const bytes = await whole(o.path, o.abortSignal);
      if (bytes === null) return null;
      const text = new TextDecoder(o.encoding ?? "utf-8").decode(bytes);
      if (o.startLine === undefined && o.endLine === undefined) return text;
      return text.split(/(?<=\n)/).slice((o.startLine ?? 1) - 1, o.endLine).join("");
    },
    writeFile: async (o) => write(box, o.path, new Uint8Array(await new Response(o.content).arrayBuffer()), o.abortSignal),
    writeBinaryFile: (o) => write(box, o.path, o.content, o.abortSignal),
    writeTextFile: async (o) => {
      if (!/^utf-?8$/i.test(o.encoding ?? "utf-8")) {
        throw unsupported(`text is written as UTF-8, not ${o.encoding}: encode it, and write bytes`, "encoding");
      }
      await write(box, o.path, o.content, o.abortSignal);
    },
    stat: async (o) => {
      const found = await stat(box, o.path, o.abortSignal);
      return found === undefined ? null : { type: found.type, size: found.size };
    },
    listDirectory: async (o) => (await list(box, o.path, o.abortSignal))?.map((e) => ({ name: e.name, type: typeOf(e.type) })) ?? null,
    deleteFile: (o) => removeFile(box, o.path, o.abortSignal),
  };
}

function typeOf(type: string): "file" | "directory" | "symlink" | "other" {
  return type === "link" ? "symlink" : type === "file" || type === "directory" ? type : "other";
}
