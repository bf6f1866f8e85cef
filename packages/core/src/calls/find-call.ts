/** Reads one call for a caller. What the caller may not see does not exist for it (BLIND-9). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Caller } from "../callers/caller.ts";
import type { Call } from "./call.ts";
import { maySeeCall } from "./view.ts";

/** @throws GatewayError `not_found`, the same for a missing, a foreign and a hidden call */
export async function findCall(
  deps: CoreDeps,
  context: Pick<CallContext, "tenant" | "caller">,
  id: string,
): Promise<Call> {
  return visibleCall(context.caller, await deps.repos.calls.get(context.tenant, id), id);
}

/** @throws GatewayError `not_found` */
export function visibleCall(caller: Caller, call: Call | undefined, id: string): Call {
  if (call === undefined || !maySeeCall(caller, call)) throw callNotFound(id);
  return call;
}

export function callNotFound(id: string): GatewayError {
  return new GatewayError("not_found", `There is no call '${id}'.`, { param: "id" });
}
