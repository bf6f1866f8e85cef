/**
 * A person's yes or no to a call that waits for approval, or answers to what it asks. Approving only puts the call on the queue:
 * the worker checks permission, definition and credentials again before anything is sent
 * (design "Approval never holds an invocation").
 */
import { parseRuntimeConfig } from "../blind/register.ts";
import type { RuntimeConfig } from "../blind/runtime-config.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { findTool } from "../tools/catalog.ts";
import { requireScope } from "./admit.ts";
import type { Call } from "./call.ts";
import { callNotFound } from "./find-call.ts";
import { requireFittingDecision, withAnswers, type GivenAnswers } from "./input-request.ts";
import { usedInlineConfig } from "./new-call.ts";
import { tellParent } from "./wake.ts";
import { enqueue } from "./enqueue.ts";
import { runWithConfig } from "./worker.ts";

export interface Decision {
  readonly callId: string;
  readonly decision: "approved" | "rejected";
  readonly reason?: string;
  /** Answers to what the call's back end has asked. */
  readonly input?: GivenAnswers;
  /** As given, for a call whose configuration came with its request and is stored nowhere. */
  readonly runtimeConfig?: unknown;
}

/**
 * Deciding the same thing again changes nothing and answers with the call as it stands.
 * @throws GatewayError `not_found`, `conflict` where the call does not wait or was decided otherwise,
 * `runtime_config_required` where an approved call could not run without it, `invalid_request` where it would not count
 */
export async function decideCall(deps: CoreDeps, context: CallContext, request: Decision): Promise<Call> {
  const { callId, decision, reason } = request;
  const before = await requireDecidable(deps, context, callId);
  const inline = decision === "approved" ? inlineConfigFor(deps, context, { call: before, request }) : undefined;
  const answered = decision === "approved" ? await answeredBy(deps, context, { call: before, request }) : undefined;
  const call = await deps.repos.calls.decide(context.tenant, callId, {
    by: context.caller.id,
    decision,
    ...(reason === undefined ? {} : { reason }),
    ...(answered === undefined ? {} : { answered }),
  });
  if (call === undefined) throw callNotFound(callId);
  if (call.approval?.decision !== decision) throw notWaiting(call);
  deps.reach("approval.decided");
  if (call.state === "rejected") await tellParent(deps, call);
  if (call.state !== "queued") return call;
  if (inline !== undefined) {
    await runWithConfig(deps, { tenant: context.tenant, callId }, inline);
    return (await deps.repos.calls.get(context.tenant, callId)) ?? call;
  }
  // A call that is still queued after an earlier approval may have lost its message; a second one does no harm.
  await enqueue(deps, { tenant: context.tenant, callId, expectedMs: expectedMs(deps, context, call) });
  return call;
}

interface Asked {
  readonly call: Call;
  readonly request: Decision;
}

/**
 * Approvals need the scope; what a caller's own call asks, it may answer itself.
 * @throws GatewayError `permission_denied`, `not_found`
 */
async function requireDecidable(deps: CoreDeps, { tenant, caller }: CallContext, callId: string): Promise<Call> {
  const call = await deps.repos.calls.get(tenant, callId);
  const isOwnQuestion = call?.callerId === caller.id && call.error?.code === "input_required";
  if (!isOwnQuestion) requireScope(caller, "approve");
  if (call === undefined) throw callNotFound(callId);
  return call;
}

async function answeredBy(
  deps: CoreDeps,
  context: CallContext,
  { call, request: { input } }: Asked,
): Promise<{ readonly input: string; readonly attempt: number } | undefined> {
  requireFittingDecision(call, input);
  if (input === undefined || call.state !== "input_required") return undefined;
  return { input: await withAnswers(deps, context, call, input), attempt: call.attempt };
}

/**
 * A worker would not have the configuration, so it has to come with the approval (BLIND-7). Where the call came without
 * one it runs with what is stored, and whoever gives another one is not to believe that it counts.
 */
function inlineConfigFor(
  deps: CoreDeps,
  context: CallContext,
  { call, request: { runtimeConfig } }: Asked,
): RuntimeConfig | undefined {
  const waits = call.state === "input_required" || call.state === "queued";
  if (!waits) return undefined;
  if (!usedInlineConfig(call)) {
    if (runtimeConfig === undefined) return undefined;
    throw new GatewayError(
      "invalid_request",
      `'${call.tool}' came without a 'runtime_config' and runs with what is stored; leave it out.`,
      { param: "runtime_config", toolName: call.tool },
    );
  }
  if (runtimeConfig === undefined) {
    throw new GatewayError(
      "runtime_config_required",
      `'${call.tool}' came with an inline 'runtime_config', which is never stored; send the same 'runtime_config' with the approval.`,
      { param: "runtime_config", toolName: call.tool },
    );
  }
  requireScope(context.caller, "runtime_config");
  return parseRuntimeConfig(runtimeConfig, { egress: deps.egress });
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
