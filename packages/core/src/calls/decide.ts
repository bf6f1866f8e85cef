/**
 * A person's yes or no to a call that waits for approval. Approving only puts the call on the queue:
 * the worker checks permission, definition and credentials again before anything is sent
 * (design "Approval never holds an invocation").
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { findTool } from "../tools/catalog.ts";
import type { Call } from "./call.ts";
import { callNotFound } from "./find-call.ts";
import { enqueue } from "./worker.ts";

export interface Decision {
  readonly callId: string;
  readonly decision: "approved" | "rejected";
  readonly reason?: string;
}

/**
 * Deciding the same thing again changes nothing and answers with the call as it stands.
 * @throws GatewayError `not_found`, `conflict` where the call does not wait or was decided otherwise
 */
export async function decideCall(deps: CoreDeps, context: CallContext, request: Decision): Promise<Call> {
  const { callId, decision, reason } = request;
  const call = await deps.repos.calls.decide(context.tenant, callId, {
    by: context.caller.id,
    decision,
    ...(reason === undefined ? {} : { reason }),
  });
  if (call === undefined) throw callNotFound(callId);
  if (call.approval?.decision !== decision) throw notWaiting(call);
  deps.reach("approval.decided");
  // A call that is still queued after an earlier approval may have lost its message; a second one does no harm.
  if (call.state === "queued")
    await enqueue(deps, { tenant: context.tenant, callId, expectedMs: expectedMs(deps, context, call) });
  return call;
}

function notWaiting(call: Call): GatewayError {
  const message =
    call.approval === null
      ? `Call '${call.id}' does not wait for approval; it is '${call.state}'.`
      : `Call '${call.id}' was ${call.approval.decision} already; a decision cannot be changed.`;
  return new GatewayError("conflict", message, { param: "id", extra: { state: call.state } });
}

/** How long the call may take, for the choice of the queue. */
function expectedMs(deps: CoreDeps, context: CallContext, call: Call): number {
  const { tool_timeout_ms: timeoutMs, max_attempts: maxAttempts } = context.config.settings;
  try {
    const { tool } = findTool(deps.adapters, context, call.uri);
    return (tool.timeoutMs ?? timeoutMs) * Math.min(tool.maxAttempts ?? 1, maxAttempts);
  } catch {
    // The tool is gone since; the worker will say so at once.
    return 0;
  }
}
