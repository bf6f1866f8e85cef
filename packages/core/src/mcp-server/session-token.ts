/**
 * Sessions of the revisions until 2025-11-25 without anything that is held: the session's id says itself what
 * was agreed on, and every instance can read it. So a session cannot be lost, and ends when the client forgets it.
 */
import { createHash } from "node:crypto";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { RpcId } from "../mcp/json-rpc.ts";
import { readSignedText, signText } from "./signed-text.ts";

export interface Session {
  /** Differs from that of every other session. */
  readonly nonce: string;
  readonly revision: string;
  readonly takesForms: boolean;
  readonly client: string | undefined;
}

const purpose = ["session"];

export function toSessionId(
  deps: Pick<CoreDeps, "sealer">,
  context: Pick<CallContext, "tenant" | "config">,
  { nonce, revision, takesForms: forms, client = "" }: Session,
): Promise<string> {
  return signText(deps, context, purpose, [nonce, revision, forms, client]);
}

/** Undefined: it is no id of a session of this tenant. */
export async function readSessionId(
  deps: Pick<CoreDeps, "sealer">,
  context: Pick<CallContext, "tenant" | "config">,
  id: string,
): Promise<Session | undefined> {
  const payload = await readSignedText(deps, context, purpose, id);
  if (!Array.isArray(payload)) return undefined;
  const [nonce, revision, forms, client] = payload;
  if (typeof nonce !== "string" || typeof revision !== "string") return undefined;
  return {
    nonce,
    revision,
    takesForms: forms === true,
    client: typeof client === "string" && client !== "" ? client : undefined,
  };
}

/**
 * Under which request id the call of a session's request is on record, so that a later message about it finds
 * the call wherever it runs.
 */
export function requestIdIn({ nonce }: Session, id: RpcId): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([nonce, id]))
    .digest("base64url");
  return `mcp_${hash.slice(0, 32)}`;
}
