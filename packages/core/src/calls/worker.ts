/**
 * Carries out queued calls. A message only says "look at this row": the row is claimed by a
 * conditional update, so that a duplicate, late or forged message does no harm (design "Async").
 */
import type { RuntimeConfig } from "../blind/runtime-config.ts";
import { isMomentary, overBudget } from "../budgets/budget.ts";
import { hasScope, type Caller, type Scope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage, outageMs } from "../errors/outage.ts";
import type { ClaimResult } from "../ports/claim-result.ts";
import type { CallFinish } from "../ports/calls.ts";
import { afterErasure, type QueueMessage } from "../ports/task-queue.ts";
import type { Span } from "../ports/traces.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { InputAnswers } from "../tools/tool-call.ts";
import { clearAfterErasure } from "../tenants/erase.ts";
import { loadScheme } from "../tools/catalog.ts";
import { executeCall } from "../tools/execute-call.ts";
import { prepareCall } from "../tools/prepare.ts";
import { workspaceService } from "../tools/tool.ts";
import { refreshedSource } from "../vcp/static/source-message.ts";
import { parseTraceparent, UnsampledSpan } from "../traces/trace-context.ts";
import type { Call, SealedInput, UnreadableCall } from "./call.ts";
import { enqueue, longestHopMs } from "./enqueue.ts";
import { ended, endOfInterrupted, endOfUnreadable, inDoubt, mostInterruptions } from "./interruptions.ts";
import { holdLease, reasonOf } from "./lease.ts";
import { lookAgainMs } from "./look-again.ts";
import { errorForRecord, openInput, usedInlineConfig } from "./new-call.ts";
import { requireOwnSession, sessionNotFound } from "./own-session.ts";
import { endKeptMs, recordEndThroughOutage } from "./record-end.ts";
import { tellParent } from "./wake.ts";

/** To whoever waits for a call that found no free slot. */
const busyRetryMs = 1_000;
/** What is beyond that ends by itself. */
const mostStopped = 1_000;

/** What the worker runs in. */
export interface WorkHost {
  /** When it is ended; absent: it lives on. */
  readonly endsAt?: number;
}

/**
 * Handles one message. Returns when the row needs nothing more from it; throws only where the
 * message should be delivered again (the database or the key is away).
 */
export async function handleMessage(deps: CoreDeps, message: QueueMessage, host: WorkHost = {}): Promise<void> {
  if (message.callId === afterErasure) return clearAfterErasure(deps, message.tenant);
  const source = refreshedSource(message.callId);
  if (source !== undefined) {
    const { refreshSource } = await import("../vcp/static/refresh.ts");
    return refreshSource(deps, message.tenant, source);
  }
  await runQueued(deps, message, { inline: undefined, host });
}

/**
 * Runs an approved call here and now, with the configuration that is stored nowhere (BLIND-7).
 * @throws GatewayError `concurrency_limited`: the call stays queued, for whoever approves it again
 */
export async function runWithConfig(deps: CoreDeps, message: QueueMessage, inline: RuntimeConfig): Promise<void> {
  await runQueued(deps, message, { inline, host: {} });
}

async function runQueued(
  deps: CoreDeps,
  message: QueueMessage,
  { inline, host }: Pick<Claimed, "inline" | "host">,
): Promise<void> {
  const { tenant, callId } = message;
  deps.reach("worker.received");
  const row = await deps.repos.tenants.get(tenant);
  // The rows of a tenant that is suspended stay as they are; once it is resumed, the sweep finds them.
  if (row === undefined || row.status === "suspended") return;
  const config = await deps.configs.get(tenant, row.configVersion);
  const claimed = await deps.repos.calls.claim(tenant, callId, {
    leaseMs: deps.timing.leaseMs,
    concurrency: config.settings.concurrent_tool_calls,
  });
  if (claimed === "gone" || claimed === "busy") return;
  if ("unreadable" in claimed) return endUnreadable(deps, message, claimed.unreadable);
  const { concurrent_tool_calls: concurrency } = config.settings;
  if ("limit" in claimed && inline !== undefined) {
    throw new GatewayError(
      "concurrency_limited",
      `${concurrency} tool calls of this tenant are running already (setting 'concurrent_tool_calls'); approve the call again in a moment.`,
      { retryAfterMs: busyRetryMs },
    );
  }
  const isOver = "refusal" in claimed && (inline !== undefined || !isMomentary(claimed.refusal));
  if ("waiting" in claimed && !isOver) {
    await enqueue(deps, { tenant, callId, expectedMs: 0, delayMs: lookAgainMs(claimed.waiting, concurrency) });
    return;
  }
  if ("dueInMs" in claimed) {
    await enqueue(deps, { tenant, callId, expectedMs: 0, delayMs: Math.min(longestHopMs, claimed.dueInMs) });
    return;
  }
  if ("refusal" in claimed) {
    await refuse(deps, message, { claimed, inline });
    return;
  }
  deps.reach("worker.claimed");
  await runClaimed(deps, { ...claimed, config, inline, host });
  deps.reach("worker.finished");
}

/**
 * Newer code may be able to read it, and has its time for that.
 * @throws GatewayError `internal_error` as long as it has
 */
async function endUnreadable(deps: CoreDeps, { tenant, callId }: QueueMessage, row: UnreadableCall): Promise<void> {
  if (row.interruptions < mostInterruptions) {
    throw new GatewayError("internal_error", `The record of call '${callId}' cannot be read.`, { cause: row.cause });
  }
  await deps.repos.calls.finish(tenant, callId, row.attempt, endOfUnreadable(row.effect));
  await tellParent(deps, { tenant, parentId: row.parentId });
}

/** A budget has no room for the call, whatever becomes of those that run: it ends, with the reason. */
async function refuse(
  deps: CoreDeps,
  { tenant, callId }: QueueMessage,
  { claimed, inline }: { readonly claimed: RefusedClaim; readonly inline: RuntimeConfig | undefined },
): Promise<void> {
  const error = overBudget("budget_exceeded", claimed.refusal);
  const { code, message, details } = error;
  await deps.repos.calls.finish(tenant, callId, claimed.attempt, {
    state: "rejected",
    error: { code, message, ...(details.extra === undefined ? {} : { details: details.extra }) },
  });
  await tellParent(deps, { tenant, parentId: claimed.parentId });
  if (inline !== undefined) throw error;
}

type RefusedClaim = Extract<ClaimResult, { readonly refusal: unknown }>;

interface Claimed {
  readonly call: Call;
  readonly sessionOwner?: string;
  readonly config: CallContext["config"];
  readonly inline: RuntimeConfig | undefined;
  readonly host: WorkHost;
}

async function runClaimed(deps: CoreDeps, claimed: Claimed): Promise<void> {
  const { call } = claimed;
  // Another attempt held it before and went silent.
  const wasRunning = call.interruptions > 0;
  if (wasRunning) {
    const { tenant, id: call_id, tool, attempt, interruptions: count } = call;
    const fields = { tenant, call_id, tool, attempt, count };
    deps.log.log("warn", "a call is taken up whose process has ended or gone silent", fields);
  }
  const end = wasRunning ? endOfInterrupted(call) : undefined;
  if (end !== undefined && call.repeat === "resume") await stopChildren(deps, call);
  const finish = end ?? (await runAgain(deps, claimed));
  // Whoever has it sees to its end.
  if (finish === "handed-over") return;
  const known = wasRunning ? inDoubt(call, finish) : finish;
  await recordEndThroughOutage(deps, call, { finish: known, keepingMs: endKeptMs });
}

/** What a run has asked for is over with it: nobody is left to hear of it. */
async function stopChildren(deps: CoreDeps, { tenant, id }: Call): Promise<void> {
  // Read by code that is seldom needed.
  const { stopCall } = await import("./cancel.ts");
  const family = await deps.repos.calls.family(tenant, id, { limit: mostStopped, isOpen: true });
  for (const child of family) if (child.parentId === id) await stopCall(deps, tenant, child.id);
}

async function runAgain(deps: CoreDeps, claimed: Claimed): Promise<CallFinish | "handed-over"> {
  const { call } = claimed;
  const startedAt = performance.now();
  const stopped = new AbortController();
  const row = { tenant: call.tenant, id: call.id, attempt: call.attempt };
  const lease = holdLease(deps, { ...row, pollCancel: true, onEnd: (why) => stopped.abort(reasonOf(why)) });
  try {
    const context = await contextOf(deps, claimed);
    const span = beginSpan(deps, call, { traceparent: context.input.traceparent, startedAt });
    const finish = await runIn(deps, claimed, { ...context, span }, stopped.signal);
    endSpan(span, finish === "handed-over" ? { state: finish } : finish);
    return finish;
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.code === "database_unavailable") throw error;
    // Nothing has been sent; where an earlier holder may have, the row stays as it is, or that would be forgotten.
    if (isOutage(error) && claimed.inline === undefined) {
      if (call.interruptions > 0) return await leaveForLater(deps, call);
      return { state: "queued", parked: { wakeInMs: outageMs } };
    }
    return ended("failed", error.code, error.message);
  } finally {
    lease.stop();
  }
}

/** Until what it needs is there again; that it was not says nothing about the call. */
async function leaveForLater(deps: CoreDeps, { tenant, id, attempt }: Call): Promise<"handed-over"> {
  if (await deps.repos.calls.letGo(tenant, id, attempt, outageMs)) {
    await enqueue(deps, { tenant, callId: id, expectedMs: 0, delayMs: outageMs });
  }
  return "handed-over";
}

/** The call's part of the trace that it came from, which may have been begun in another process. */
function beginSpan(
  { traces }: CoreDeps,
  call: Call,
  { traceparent, startedAt }: { readonly traceparent: string | undefined; readonly startedAt: number },
): Span | undefined {
  const parent = parseTraceparent(traceparent);
  if (traces === undefined) return parent?.sampled === false ? new UnsampledSpan(parent.traceId) : undefined;
  return traces.begin("process call", {
    kind: "consumer",
    parent: parent ?? { traceId: call.traceId, spanId: undefined, sampled: undefined },
    startedMsAgo: performance.now() - startedAt,
    attributes: {
      "messaging.operation.name": "process",
      "messaging.operation.type": "process",
      "messaging.system": "toolyard",
      "toolyard.tenant": call.tenant,
      "toolyard.call.id": call.id,
      "toolyard.call.attempt": call.attempt,
    },
  });
}

function endSpan(
  span: Span | undefined,
  { state, error }: { readonly state: string; readonly error?: CallFinish["error"] },
): void {
  if (span === undefined) return;
  span.set({ "toolyard.call.state": state });
  if (error !== undefined) span.fail(error.code);
  span.end();
}

type WorkContext = CallContext & { readonly input: SealedInput };

async function runIn(
  deps: CoreDeps,
  { call, host }: Claimed,
  context: WorkContext,
  signal: AbortSignal,
): Promise<CallFinish | "handed-over"> {
  try {
    const { input } = context;
    await loadScheme(deps.adapters, input.uri);
    const preparation = prepareCall(
      deps.adapters,
      context,
      { target: input.uri, arguments: { ...input.arguments } },
      { hasReadOutside: false, approved: call.approval?.decision === "approved" },
    );
    if (preparation.kind === "refused") {
      const { code, message, details } = preparation.outcome;
      const error = { code, message, ...(details === undefined ? {} : { details }) };
      return { state: "failed", error: errorForRecord(context, error) };
    }
    if (call.approval !== null && preparation.call.tool.hash !== call.toolHash) {
      return ended(
        "failed",
        "conflict",
        `The definition of '${call.tool}' was changed since this call was asked for; ask again.`,
      );
    }
    const { adapter, tool, uri, arguments: args } = preparation.call;
    if (tool.service === workspaceService && input.sessionId !== context.sessionId) {
      const { code, message } = sessionNotFound(input.sessionId ?? "");
      return ended("failed", code, message);
    }
    if (adapter.handOver !== undefined) {
      const handed = { id: call.id, tool, uri, arguments: args, attempt: call.attempt };
      if (await adapter.handOver(handed, { ...context, signal })) return "handed-over";
    }
    const answers = answersOf(input);
    const { finish } = await executeCall(deps, { ...preparation.call, id: call.id, answers }, context, {
      attempt: call.attempt,
      signal,
      endsAt: host.endsAt,
    });
    return finish;
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.code === "database_unavailable") throw error;
    return ended("failed", error.code, error.message);
  }
}

function answersOf({ asked }: SealedInput): InputAnswers | undefined {
  return asked?.responses === undefined ? undefined : { responses: { ...asked.responses }, state: asked.state };
}

async function contextOf(deps: CoreDeps, { call, config, inline, sessionOwner: owner }: Claimed): Promise<WorkContext> {
  if (inline === undefined && usedInlineConfig(call)) {
    throw new GatewayError(
      "runtime_config_required",
      `'${call.tool}' came with an inline 'runtime_config', which is never stored; ask for the call again with it.`,
    );
  }
  if (call.input === null) throw new GatewayError("not_found", "The arguments of this call are no longer stored.");
  const input = await openInput(deps, { tenant: call.tenant, config }, { id: call.id, input: call.input });
  const caller = await currentCaller(deps, call.tenant, input);
  const { sessionId } = input;
  if (sessionId !== undefined && owner !== undefined) requireOwnSession(caller, { id: sessionId, owner });
  return {
    tenant: call.tenant,
    caller,
    config,
    requestId: call.requestId,
    traceId: call.traceId,
    redactor: new Redactor(),
    input,
    // One that was deleted is not begun anew by what was queued for it, nor is it whose who takes its name meanwhile.
    ...(sessionId === undefined || owner === undefined ? {} : { sessionId }),
    ...(inline === undefined ? {} : { runtimeConfig: inline }),
  };
}

/**
 * The caller as it is now: a key may have been revoked, expired or narrowed since.
 * @throws GatewayError `permission_denied`
 */
export async function currentCaller(
  deps: CoreDeps,
  tenant: string,
  { caller, scope }: Pick<SealedInput, "caller" | "scope">,
): Promise<Caller> {
  if (caller.kind !== "key") return caller;
  const key = await deps.repos.apiKeys.get(tenant, caller.id);
  const expired = key !== undefined && key.expiresAt !== null && key.expiresAt <= deps.clock.now();
  if (key === undefined || key.revokedAt !== null || expired) {
    throw new GatewayError("permission_denied", "The key that asked for this call has been revoked or has expired.");
  }
  const now: Caller = { ...caller, role: key.role, scopes: key.scopes, tools: key.tools };
  const needed: readonly Scope[] = scope === undefined ? ["tools", "chat"] : [scope];
  if (!needed.some((one) => hasScope(now, one))) {
    throw new GatewayError("permission_denied", "The key that asked for this call may no longer run tools.");
  }
  return now;
}
