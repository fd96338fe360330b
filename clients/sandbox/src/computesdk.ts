/**
 * A provider of ComputeSDK: `createCompute({ provider: sandjet() })`.
 *
 * @packageDocumentation
 */
import { api, newID, SandjetError, type HTTPOptions, type Sandbox } from "@sandjet/client";
import { defineProvider } from "@computesdk/provider";
import { command, exitOf, gatewayOf, helper, inside, list, quoted, read, unsupported, write } from "./index.js";

const make = defineProvider<Sandbox, Partial<HTTPOptions>>({
  name: "sandjet",
  methods: {
    sandbox: {
      create: async (config, options) => {
        const unable = ["templateId", "snapshotId"].find((name) => (options as Record<string, unknown> | undefined)?.[name] !== undefined);
        if (unable !== undefined) {
          throw unsupported(`sandboxes are made by the account's record sessions-<backend>: ${unable} names nothing`, unable);
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
      runCommand: async (box, text, options) => {
        if (options?.background) {
          throw unsupported("a command in the background has no handle here: use POST /v1/sandbox/bash", "background");
        }
        const r = await command(box, text, { cwd: options?.cwd, env: options?.env, timeout: options?.timeout });
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
        throw unsupported("ports of sandboxes are not reached from outside", "port");
      },
      filesystem: {
        readFile: async (box, path) => {
          const bytes = await read(box, path);
          if (bytes === undefined) throw new SandjetError("not_found", `there is no file ${path}`, "path");
          return new TextDecoder().decode(bytes);
        },
        writeFile: (box, path, content) => write(box, path, content),
        mkdir: async (box, path) => {
          await helper(box, path, `mkdir -p -- ${quoted(path)}`);
        },
        readdir: async (box, path) => {
          const found = await list(box, path);
          if (found === undefined) throw new SandjetError("not_found", `there is no folder ${path}`, "path");
          return found.map((e) => ({
            name: e.name,
            type: e.type === "directory" ? ("directory" as const) : ("file" as const),
            ...(e.size !== undefined && { size: e.size }),
            ...(e.modified_at !== undefined && { modified: new Date(e.modified_at) }),
          }));
        },
        exists: async (box, path) => exitOf(await box.bash(`test -e ${quoted(path)}`)) === 0,
        remove: async (box, path) => {
          if (inside(path) === "") throw new SandjetError("invalid", "the workspace itself is not removed: destroy the sandbox", "path");
          await helper(box, path, `rm -rf -- ${quoted(path)}`);
        },
      },
    },
  },
});

/** sandjet is the provider, of a gateway that options or the environment name. */
export function sandjet(config: Partial<HTTPOptions> = {}): ReturnType<typeof make> {
  return make(config);
}
