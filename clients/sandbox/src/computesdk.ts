/**
 * A provider of ComputeSDK: `createCompute({ provider: sandjet() })`.
 *
 * @packageDocumentation
 */
import { api, newID, SandjetError, type HTTPOptions, type Sandbox } from "@sandjet/client";
import { defineProvider } from "@computesdk/provider";
import { exitOf, fails, gatewayOf, inside, quoted, read, write } from "./index.js";

const make = defineProvider<Sandbox, Partial<HTTPOptions>>({
  name: "sandjet",
  methods: {
    sandbox: {
      create: async (config, options) => {
        const unable = ["templateId", "snapshotId"].find((name) => (options as Record<string, unknown> | undefined)?.[name] !== undefined);
        if (unable !== undefined) {
          throw new SandjetError("unsupported", `sandboxes are made by the account's record sessions-<backend>: ${unable} names nothing`, unable);
        }
        const box = api(gatewayOf(config)).sandbox(options?.name ?? newID());
        await box.bash("true"); // which makes it
        return { sandbox: box, sandboxId: box.session };
      },
      getById: async (config, id) => {
        const box = api(gatewayOf(config)).sandbox(id);
        return (await box.info()) === undefined ? null : { sandbox: box, sandboxId: id };
      },
      list: async (config) => {
        const gateway = api(gatewayOf(config));
        const all: { sandbox: Sandbox; sandboxId: string }[] = [];
        for await (const s of gateway.sandboxes()) all.push({ sandbox: gateway.sandbox(s.session_id), sandboxId: s.session_id });
        return all;
      },
      destroy: async (config, id) => {
        await api(gatewayOf(config)).sandbox(id).destroy();
      },
      runCommand: async (box, command, options) => {
        if (options?.background) {
          throw new SandjetError("unsupported", "a command in the background has no handle here: use POST /v1/sandbox/bash", "background");
        }
        const r = await box.bash(command, {
          ...(options?.cwd !== undefined && { cwd: inside(options.cwd) || "." }),
          ...(options?.env !== undefined && { env: options.env }),
          ...(options?.timeout !== undefined && { timeout: options.timeout }),
        });
        return { stdout: r.stdout, stderr: r.stderr, exitCode: exitOf(r), durationMs: r.duration_ms };
      },
      getInfo: async (box) => {
        const s = await box.info();
        if (s === undefined) throw new SandjetError("not_found", `there is no session ${box.session}`, "session_id");
        return {
          id: box.session, provider: "sandjet", status: s.state === "ready" ? "running" : "stopped", createdAt: new Date(s.created_at),
          timeout: s.expires_at === undefined ? 0 : Math.max(0, Date.parse(s.expires_at) - Date.now()),
          metadata: { workspace: s.workspace, conversation: s.conversation },
        };
      },
      getUrl: async () => {
        throw new SandjetError("unsupported", "ports of sandboxes are not reached from outside", "port");
      },
      filesystem: {
        readFile: async (box, path) => {
          const bytes = await read(box, path);
          if (bytes === undefined) throw new SandjetError("not_found", `there is no file ${path}`, "path");
          return new TextDecoder().decode(bytes);
        },
        writeFile: (box, path, content) => write(box, path, content),
        mkdir: async (box, path) => {
          const r = await box.bash(`mkdir -p -- ${quoted(path)}`);
          if (exitOf(r) !== 0) throw fails(r, path);
        },
        readdir: async (box, path) => {
          const found = await box.list(inside(path), { limit: 2000 });
          if (found.truncated) throw new SandjetError("exhausted", `${path} has ${found.total} entries: 2,000 are listed`, "path");
          return found.entries.map((e) => ({
            name: e.path.slice(e.path.lastIndexOf("/") + 1),
            type: e.type === "directory" ? ("directory" as const) : ("file" as const),
            ...(e.size !== undefined && { size: e.size }),
            ...(e.modified_at !== undefined && { modified: new Date(e.modified_at) }),
          }));
        },
        exists: async (box, path) => exitOf(await box.bash(`test -e ${quoted(path)}`)) === 0,
        remove: async (box, path) => {
          if (inside(path) === "") throw new SandjetError("invalid", "the workspace itself is not removed: destroy the sandbox", "path");
          const r = await box.bash(`rm -rf -- ${quoted(path)}`);
          if (exitOf(r) !== 0) throw fails(r, path);
        },
      },
    },
  },
});

/** sandjet is the provider, of a gateway that options or the environment name. */
export function sandjet(config: Partial<HTTPOptions> = {}): ReturnType<typeof make> {
  return make(config);
}
