/** Stops a call: one that has not begun never runs, one under way is asked to stop where it stands. */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
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
  // One that was cancelled may have been left before all that it had asked for was told.
  if (hasEnded(seen) && seen.state !== "cancelled") return ended(seen);
  const call = await stop(deps, context.tenant, id);
  if (call === undefined) throw callNotFound(id);
  const { before, after } = call;
  if (!hasEnded(before)) return after;
  await tellParent(deps, before);
  return ended(before);
}

/** For whoever knows that it may be stopped: whatever it has come to by then stays. */
export async function stopCall(deps: CoreDeps, tenant: string, id: string): Promise<void> {
  await stop(deps, tenant, id);
}

/** As it was asked to stop, and as it is once those have been told that do not hear of it where they run. */
interface Stopped {
  readonly before: Call;
  readonly after: Call;
}

async function stop(deps: CoreDeps, tenant: string, id: string): Promise<Stopped | undefined> {
  const before = await deps.repos.calls.requestCancel(tenant, id);
  if (before === undefined) return undefined;
  // What it has asked for is asked to stop with it.
  const family = await deps.repos.calls.family(tenant, id, { limit: mostTold, isOpen: true });
  const isToTell = ({ uri }: Call): boolean => isScheme(uri, "node") || isScheme(uri, "vcp");
  const told = await Promise.all(family.filter(isToTell).map((one) => stopWhereItIs(deps, one)));
  return { before, after: told.find((one) => one.id === id) ?? before };
}

/** What is beyond that ends with its time. */
const mostTold = 1_000;

/** On a node, or where nobody holds it any more. */
async function stopWhereItIs(deps: CoreDeps, call: Call): Promise<Call> {
  const stopped = isScheme(call.uri, "node") ? await stopOnNodes(deps, call) : call;
  if (hasEnded(stopped)) return stopped;
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
