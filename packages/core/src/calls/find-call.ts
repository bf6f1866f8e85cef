/** Reads one call for a caller. What the caller may not see does not exist for it (BLIND-9). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Call } from "./call.ts";
import { maySeeCall } from "./view.ts";

/** @throws GatewayError `not_found`, the same for a missing, a foreign and a hidden call */
export async function findCall(
  deps: CoreDeps,
  context: Pick<CallContext, "tenant" | "caller">,
  id: string,
): Promise<Call> {
  const call = await deps.repos.calls.get(context.tenant, id);
  if (call === undefined || !maySeeCall(context.caller, call)) throw callNotFound(id);
  return call;
}

export function callNotFound(id: string): GatewayError {
  return new GatewayError("not_found", `There is no call '${id}'.`, { param: "id" });
}
