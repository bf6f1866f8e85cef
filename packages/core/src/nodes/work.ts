/** What a node is given to do, and what doing that takes of the core. */
import type { GatewayError } from "../errors/gateway-error.ts";
import type { AdapterDeps } from "../deps.ts";
import type { JsonObject } from "../json.ts";

export type NodeDeps = Pick<
  AdapterDeps,
  "repos" | "blobs" | "sealer" | "answers" | "tellNow" | "timing" | "clock" | "log"
>;

/** What a node is to carry out. */
export interface NodeWork {
  readonly callId: string;
  /** Of the call's row, for what ends it. */
  readonly attempt: number;
  readonly tool: string;
  readonly toolHash: string;
  /** The node that it must be; null: whichever has room. */
  readonly node: string | null;
  readonly arguments: JsonObject;
  /** What to say where no node is connected that offers it. */
  readonly notConnected: () => GatewayError;
}
