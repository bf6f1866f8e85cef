/** Whatever carries out calls on a node: programs, servers of MCP, modules, files, nodes of VCP behind it. */
import type { JsonObject } from "@toolyard/core/json";

export interface Executed {
  readonly status: "completed" | "failed" | "timed_out" | "cancelled" | "lost" | "declined";
  readonly mediaType: string;
  readonly output: string;
  readonly message?: string;
}

export interface Execution {
  readonly run: string;
  readonly arguments: JsonObject;
  readonly signal: AbortSignal;
  /** Of the trace that the call belongs to. */
  readonly traceId?: string | undefined;
  /** As a server of the Model Context Protocol tells it. */
  readonly onProgress?: (progress: JsonObject) => void;
}

export interface Executor {
  execute(execution: Execution): Promise<Executed>;
  /** Absent: it holds nothing. */
  stop?(): Promise<void>;
}

/** Of a message that goes with a result; the gateway refuses one that is much longer. */
export const longestMessage = 2_000;

/** Without an output: what became of the call instead. */
export function ended(status: Exclude<Executed["status"], "completed">, message: string): Executed {
  return { status, mediaType: "text/plain", output: "", message: message.slice(0, longestMessage) };
}
