/**
 * Opens the result that a handle stands for: a handle is the id of the call, and opens for the caller who
 * made it and in the session it was made in, not in a later one of that name. For anyone else there is no such result.
 */
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Call } from "./call.ts";
import { isOfSession } from "./own-session.ts";
import { openOwnResult, openResult, type OpenResult, type ResultRange } from "./result-store.ts";

/**
 * @throws GatewayError `not_found`, `call_not_finished`
 */
export async function openHandle(
  deps: Pick<AdapterDeps, "blobs" | "repos">,
  context: CallContext,
  callId: string,
  range?: ResultRange,
): Promise<OpenResult> {
  // Before the row: those of reads are written only when their chat ends.
  const own = await openOwnResult(deps, context, callId, range);
  if (own !== undefined) return own;
  const call = await deps.repos.calls.get(context.tenant, callId);
  if (call === undefined || !(await mayRead(deps, call, context))) {
    throw new GatewayError(
      "not_found",
      `There is no result '${callId.slice(0, 64)}'; handles are call ids from earlier results.`,
      { param: "call_id" },
    );
  }
  return openResult(deps, context.tenant, call, range);
}

async function mayRead(deps: Pick<AdapterDeps, "repos">, call: Call, context: CallContext): Promise<boolean> {
  if (call.kind !== "tool") return false;
  return call.callerId === context.caller.id || isOfSession(deps, context, call);
}
