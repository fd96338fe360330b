// The types of this package are those of the frameworks: compiled, never run.
import type { WorkspaceFilesystem, WorkspaceSandbox } from "@mastra/core/workspace";
import type { Experimental_SandboxSession } from "ai";
import type { Editor, Shell } from "@openai/agents";
import type { SandboxSession } from "@openai/agents/sandbox";
import type { SandboxBackendProtocolV2 } from "deepagents";
import { sandjetSandbox } from "@sandjet/sandbox/ai-sdk";
import { SandjetBackend } from "@sandjet/sandbox/deepagents";
import { sandjetWorkspace } from "@sandjet/sandbox/mastra";
import { sandjetSession } from "@sandjet/sandbox/openai-agents";

export const session: Experimental_SandboxSession = sandjetSandbox();
export const backend: SandboxBackendProtocolV2 = new SandjetBackend();
export const openai: SandboxSession & { shell: Shell; editor: Editor } = sandjetSession();
export const workspace: { sandbox: WorkspaceSandbox; filesystem: WorkspaceFilesystem } = sandjetWorkspace();
