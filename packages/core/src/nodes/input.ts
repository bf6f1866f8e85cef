/**
 * What a node is given to carry out a call: the tool's name and its arguments, nothing else of the tenant. Kept
 * sealed until the node asks for it; what does not fit into a frame is a blob and goes by a link.
 */
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import { tenantKey } from "../ports/blob-store.ts";
import type { NodeRun } from "./node.ts";
import type { NodeWork } from "./work.ts";

/** Leaves room for the rest of the frame. */
const longestInline = 24_000;
const linkLifetimeMs = 900_000;

export function inputKey(tenant: string, runId: string): string {
  return tenantKey(tenant, "nodes", runId, "input");
}

/** Instead of sealed text. */
export const isBlob = "";

/** @returns sealed text, or `isBlob` */
export async function keepInput(
  { blobs, sealer }: Pick<AdapterDeps, "blobs" | "sealer">,
  { tenant, config, traceId }: CallContext,
  runId: string,
  { callId, attempt, tool, arguments: args }: Pick<NodeWork, "callId" | "attempt" | "tool" | "arguments">,
): Promise<string> {
  const text = JSON.stringify({ call_id: callId, attempt, tool, arguments: args, trace_id: traceId });
  if (Buffer.byteLength(text) <= longestInline) return sealer.seal(tenant, config.wrappedKey, aadOf(runId), text);
  await blobs.put(inputKey(tenant, runId), Buffer.from(text, "utf8"), { mediaType: "application/json" });
  return isBlob;
}

/** @throws GatewayError `not_found` where the tenant is gone */
export async function openInput(
  deps: Pick<CoreDeps, "blobs" | "sealer" | "repos" | "configs">,
  tenant: string,
  { id, input }: NodeRun,
): Promise<JsonObject> {
  if (input === null || input === isBlob) {
    const link = await deps.blobs.presign(inputKey(tenant, id), { method: "GET", expiresInMs: linkLifetimeMs });
    return { input_url: link.url };
  }
  const wrappedKey = deps.configs.peek(tenant)?.wrappedKey ?? (await deps.repos.tenants.get(tenant))?.wrappedKey;
  if (wrappedKey === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  const opened = parseJson(await deps.sealer.open(tenant, wrappedKey, aadOf(id), input));
  if (!isJsonObject(opened)) throw new GatewayError("internal_error", "The input of a node's call cannot be read.");
  return { input: opened };
}

function aadOf(runId: string): readonly string[] {
  return ["node-run", runId];
}
