/** Calls native tools as the dispatcher does: found, checked, then carried out. */
import type { CallContext } from "@toolyard/core/context";
import type { ToolReply } from "@toolyard/core/tools/tool-call";
import type { JsonObject } from "@toolyard/core/json";
import type { Egress } from "@toolyard/core/ports/egress";
import type { BlobStore } from "@toolyard/core/ports/blob-store";
import type { Call } from "@toolyard/core/calls/call";
import { compileArguments } from "@toolyard/core/tools/arguments";
import { createNativeAdapter } from "@toolyard/core/tools/schemes/native";
import { parseToolUri } from "@toolyard/core/tools/uri";
import { callContext, type ContextOptions } from "./call-context.ts";
import { createFakeCore, unscripted, type FakeCore } from "./fake-core.ts";
import { createMemoryBlobStore, createMemorySessions, type MemorySessions } from "./memory-ports.ts";

export interface NativeBench {
  readonly core: FakeCore;
  readonly blobs: BlobStore;
  readonly sessions: MemorySessions;
  /** Rows of calls that the database has. */
  readonly rows: Map<string, Call>;
  run(target: string, args: JsonObject, options?: RunOptions): Promise<ToolReply>;
  /** The reply's text. */
  text(target: string, args: JsonObject, options?: RunOptions): Promise<string>;
}

export interface RunOptions extends ContextOptions {
  readonly signal?: AbortSignal;
}

export function createNativeBench(egress: Egress = unscripted<Egress>("egress")): NativeBench {
  const blobs = createMemoryBlobStore();
  const sessions = createMemorySessions();
  const rows = new Map<string, Call>();
  const core = createFakeCore({
    core: { blobs, egress },
    repos: {
      sessions,
      calls: {
        ...unscripted<FakeCore["repos"]["calls"]>("repos.calls"),
        get: (tenant: string, id: string) => {
          const row = rows.get(id);
          return Promise.resolve(row?.tenant === tenant ? row : undefined);
        },
      },
    },
  });
  const adapter = createNativeAdapter(() => core);

  async function run(target: string, args: JsonObject, options: RunOptions = {}): Promise<ToolReply> {
    const context: CallContext = callContext({ sessionId: "s1", ...options });
    if (context.sessionId !== undefined)
      await sessions.touch(context.tenant, context.sessionId, context.caller.id, 86_400_000);
    const uri = parseToolUri(target.includes("://") ? target : `native://${target}`);
    const tool = adapter.resolve(uri, context);
    if (tool === undefined) throw new Error(`${target} is not there`);
    const checked = compileArguments(tool.parameters).validate(args);
    if (!checked.ok) throw new Error(JSON.stringify(checked.errors));
    const call = { id: "call_9", tool, uri, arguments: checked.value, attempt: 1 };
    return adapter.invoke(call, { ...context, signal: options.signal ?? new AbortController().signal });
  }

  return {
    core,
    blobs,
    sessions,
    rows,
    run,
    async text(target, args, options) {
      const { body } = await run(target, args, options);
      if (typeof body !== "string") throw new Error("the reply is not text");
      return body;
    },
  };
}
