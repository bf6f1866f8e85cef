/**
 * Frames of VCP on their way to clients: they leave as they are, without the envelope that other events have, on
 * VCP's own paths and on `/ws` alike (VCP-12, VCP-13). Written as rows like any event, so that they reach who is
 * connected elsewhere; nothing is written where nobody is there.
 */
import { randomBytes } from "node:crypto";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonObject } from "../../json.ts";
import type { Audience } from "../../realtime/connection.ts";
import { publish } from "../../realtime/publish.ts";
import type { Publication } from "../../realtime/publication.ts";
import { vcpLogClient } from "../nodes/client-types.ts";

export interface VcpPush {
  readonly frame: JsonObject;
  /** Clients of this kind hear it; null: all of the tenant's; or one connection alone. */
  readonly targetClientType: string | null | { readonly connection: string };
  /** The call that it is about: only those hear it who may read that call. */
  readonly callId?: string;
  readonly callerId?: string;
}

/**
 * @returns for how many of them somebody is there
 * @throws GatewayError `payload_too_large` for a frame of more than 31,000 bytes that is about no call
 */
export async function publishFrames(
  deps: Pick<CoreDeps, "repos" | "tellNow">,
  tenant: string,
  pushes: readonly VcpPush[],
): Promise<number> {
  const told = await publish(deps, tenant, pushes.map(toPublication));
  if (told > 0) await deps.tellNow();
  return told;
}

export function toPublication({ frame, targetClientType, callId, callerId }: VcpPush): Publication {
  return {
    type: typeof frame["type"] === "string" ? frame["type"] : "vcp",
    bare: true,
    audience: toAudience(targetClientType),
    // Clients know by it what they were told already.
    data: targetClientType === vcpLogClient ? { ...frame, _vcpReplayId: `vcplog-${vcpId()}` } : frame,
    ...(callId === undefined ? {} : { callId }),
    ...(callerId === undefined ? {} : { callerId }),
  };
}

function toAudience(target: VcpPush["targetClientType"]): Audience {
  if (target === null) return { kind: "tenant" };
  return typeof target === "string"
    ? { kind: "client_type", value: target }
    : { kind: "connection", value: target.connection };
}

/** An id as VCP makes them: the time, and something random. */
export function vcpId(now = Date.now()): string {
  return `${now.toString(36)}-${randomBytes(6).toString("base64url").replaceAll(/[-_]/g, "0")}`;
}
