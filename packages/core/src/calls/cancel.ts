/** Stops a call: one that has not begun never runs, one under way is asked to stop where it stands. */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { stopOnNodes } from "../nodes/results.ts";
import { isScheme } from "../tools/uri.ts";
import { endStates, type Call } from "./call.ts";
import { callNotFound, findCall } from "./find-call.ts";
import { tellParent } from "./wake.ts";

/**
 * Cancelling a cancelled call changes nothing.
 * @throws GatewayError `not_found`, `conflict` for a call that has ended otherwise
 */
export async function cancelCall(deps: CoreDeps, context: CallContext, id: string): Promise<Call> {
  const seen = await findCall(deps, context, id);
  if (hasEnded(seen)) return ended(seen);
  const call = await deps.repos.calls.requestCancel(context.tenant, id);
  if (call === undefined) throw callNotFound(id);
  if (hasEnded(call)) {
    await tellParent(deps, call);
    return ended(call);
  }
  const isOfNode = isScheme(call.uri, "node");
  const stopped = isOfNode ? await stopOnNodes(deps, call) : call;
  if (hasEnded(stopped) || !(isOfNode || isScheme(call.uri, "vcp"))) return stopped;
  // Read by code that is seldom needed.
  const { stopWorkingOn } = await import("../vcp/async/working-on.ts");
  return stopWorkingOn(deps, stopped);
}

function hasEnded(call: Call): boolean {
  return endStates.includes(call.state);
}

function ended(call: Call): Call {
  if (call.state === "cancelled") return call;
  throw new GatewayError("conflict", `Call '${call.id}' has ended already; it is '${call.state}'.`, {
    param: "id",
    extra: { state: call.state },
  });
}
