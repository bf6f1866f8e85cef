/**
 * One tool call by its address, outside a chat: `POST /v1/tools/invoke`. The same pipeline as in a
 * chat; the row is written by the admission itself, so that a call costs two round trips.
 */
import { parseRuntimeConfig } from "../blind/register.ts";
import type { Caller, Scope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { requireConnection } from "../oauth/connect.ts";
import type { AdmitResult, NewCall, Principal } from "../ports/calls.ts";
import type { Span } from "../ports/traces.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { loadScheme } from "../tools/catalog.ts";
import { executeCall, type Execution, type ExecutionOptions } from "../tools/execute-call.ts";
import { toRefusalDetails, type ToolOutcome } from "../tools/outcome.ts";
import { prepareCall, rejectedBy, type DispatchItem, type Preparation, type PreparedCall } from "../tools/prepare.ts";
import { tellNotRun } from "../tools/tool-trace.ts";
import { admit, afterStale, identify } from "./admit.ts";
import { awaitCall } from "./await-call.ts";
import { endStates, type Call } from "./call.ts";
import { holdLease, reasonOf, takenOver } from "./lease.ts";
import { newToolCall, outcomeOf, refusedCall, type CallPlace } from "./new-call.ts";
import { recordEnd, recordEndThroughOutage } from "./record-end.ts";
import { enqueue } from "./enqueue.ts";

export interface InvokeRequest {
  readonly tenant: string;
  readonly principal: Principal;
  readonly requestId: string;
  readonly traceId: string;
  /** Of the request. */
  readonly span?: Span | undefined;
  /** Tool URI or name; or what finds it, once it is known who asks. */
  readonly target: string | ((context: CallContext) => FoundTarget | Promise<FoundTarget>);
  readonly isUri?: boolean;
  readonly arguments: JsonObject;
  readonly async: boolean;
  /** Who else stands behind it, after the caller. */
  readonly via?: CallPlace["via"];
  /** The call that asks for it. */
  readonly parentId?: string;
  /** The caller with what the request narrows it to. */
  readonly narrow?: (caller: Caller, config: TenantConfig) => Caller;
  /** Milliseconds of one attempt above which the call is a worker's; absent: only what outlasts every request. */
  readonly queueOverMs?: number;
  readonly endsAt?: ExecutionOptions["endsAt"];
  readonly onProgress?: ExecutionOptions["onProgress"];
  readonly onEvent?: ExecutionOptions["onEvent"];
  /** What the caller needs; absent: `tools`. */
  readonly scope?: Scope;
  readonly sessionId?: string;
  readonly idempotencyKey?: string;
  /** Where it comes from; absent: `tools.invoke`. */
  readonly route?: string;
  /** As given; read once it is known who asks. */
  readonly runtimeConfig?: unknown;
  /** The request of which it is a part has been counted. */
  readonly isCounted?: boolean;
  /** It is on record, and is carried out here and now. */
  readonly onRecorded?: (callId: string) => void;
  /**
   * Told what the call came to where that needs not be on record first, as a chat's last words do not (design "Round-trip
   * budget"); what is returned is the same, once it is. Called once or not at all.
   */
  readonly onResult?: (invoked: Invoked) => void;
  /** Aborts when the client has left. */
  readonly signal: AbortSignal;
}

/** `arguments` where they are not just what was given. */
export type FoundTarget = Pick<DispatchItem, "target" | "isUri" | "isOffered" | "found" | "refusal"> &
  Partial<Pick<DispatchItem, "arguments">>;

export interface Invoked {
  readonly callId: string;
  readonly callerId: string;
  /** Under which the call was asked for. */
  readonly context: CallContext;
  readonly tool: string;
  readonly outcome: ToolOutcome;
  readonly replayed: boolean;
  readonly rate: AdmitResult["rate"];
}

function placeOf({ route = "tools.invoke", via = [], parentId }: InvokeRequest): CallPlace {
  return { route, parentId: parentId ?? null, rootId: null, via };
}

/** @throws GatewayError whatever kept the call from running; a call that ran has an outcome */
export async function invokeTool(deps: CoreDeps, request: InvokeRequest): Promise<Invoked> {
  for (let stale = 0; ; await afterStale(stale++)) {
    const { caller, config } = await identify(deps, request, [
      request.scope ?? "tools",
      ...(request.runtimeConfig === undefined ? [] : (["runtime_config"] as const)),
    ]);
    const narrowed = request.narrow?.(caller, config) ?? caller;
    const context = contextOf(deps, request, { config, caller: narrowed });
    const preparation = await prepare(deps, context, request);
    const row = await rowFor(deps, context, { preparation, request });
    const { result } = await admit(deps, admissionOf(request, row, { caller, config }), { scope: null });
    // The admission has loaded the newer configuration.
    if (result.outcome.kind === "stale_config") continue;
    if (result.outcome.kind === "existing")
      return { ...replayOf(row, result.outcome.call), callerId: caller.id, context, rate: result.rate };
    deps.reach("invoke.recorded");
    if (preparation.kind !== "ready") tellNotRun(context, preparation);
    if (preparation.kind === "refused") throw refusal(preparation, request);
    request.onRecorded?.(row.id);
    const about = {
      callId: row.id,
      callerId: caller.id,
      context,
      tool: row.tool,
      replayed: false,
      rate: result.rate,
    };
    const { onResult } = request;
    const tell = onResult && ((outcome: ToolOutcome): void => onResult({ ...about, outcome }));
    const outcome = await proceed(deps, context, { call: preparation.call, state: row.state, request, tell });
    return { ...about, outcome };
  }
}

async function prepare(deps: CoreDeps, context: CallContext, request: InvokeRequest): Promise<Preparation> {
  const { target: given, arguments: args } = request;
  const found: FoundTarget =
    typeof given === "string" ? { target: given, isUri: request.isUri === true } : await given(context);
  const { target } = found;
  await loadScheme(deps.adapters, target);
  const prepared = prepareCall(deps.adapters, context, { arguments: args, ...found }, { hasReadOutside: false });
  if (prepared.kind === "refused") return prepared;
  const { id, tool } = prepared.call;
  try {
    await requireConnection(deps, context, tool);
    return prepared;
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "credential_missing") throw error;
    return { kind: "refused", id, target, tool, outcome: rejectedBy(error) };
  }
}

function admissionOf(
  request: InvokeRequest,
  row: NewCall,
  { caller, config }: Pick<CallContext, "caller" | "config">,
): Parameters<typeof admit>[1] {
  return {
    tenant: request.tenant,
    principal: request.principal,
    call: row,
    limits: { countRequest: request.isCounted !== true },
    expectedConfigVersion: config.version,
    known: { caller, settings: config.settings },
    ...(row.state === "running" ? { slots: { wanted: 1, required: true } } : {}),
    ...(request.sessionId === undefined ? {} : { sessionId: request.sessionId }),
  };
}

async function proceed(
  deps: CoreDeps,
  context: CallContext,
  run: {
    readonly call: PreparedCall;
    readonly state: NewCall["state"];
    readonly request: InvokeRequest;
    readonly tell: ((outcome: ToolOutcome) => void) | undefined;
  },
): Promise<ToolOutcome> {
  const { call, state, request, tell } = run;
  if (state === "input_required") return { kind: "pending", reason: "approval", callId: call.id };
  if (state === "queued") {
    deps.reach("async.recorded");
    await enqueue(deps, { tenant: context.tenant, callId: call.id, expectedMs: call.timeoutMs * call.maxAttempts });
    deps.reach("async.queued");
    return { kind: "pending", reason: "async", callId: call.id };
  }
  const since = deps.clock.now();
  const stopped = new AbortController();
  // `AbortSignal.any` would keep a weak reference for each call at the request's signal.
  const stop = (): void => stopped.abort(request.signal.reason);
  if (request.signal.aborted) stop();
  else request.signal.addEventListener("abort", stop, { once: true });
  const row = { tenant: context.tenant, id: call.id, attempt: 1 };
  const lease = holdLease(deps, { ...row, pollCancel: true, onEnd: (why) => stopped.abort(reasonOf(why)) });
  try {
    const { onProgress, onEvent } = request;
    const execution = await executeCall(deps, call, context, {
      attempt: 1,
      signal: stopped.signal,
      endsAt: request.endsAt,
      ...(onProgress === undefined ? {} : { onProgress }),
      ...(onEvent === undefined ? {} : { onEvent }),
    });
    const isOurs = !stopped.signal.aborted && deps.clock.now() - since < deps.timing.heartbeatMs;
    if (isOurs && isToldFirst(call, request, execution)) tell?.(execution.outcome);
    const outcome = await settleCall(deps, context, { call, execution, signal: request.signal });
    // Parked, or another process has it since this one stood still.
    const goesOnElsewhere = stopped.signal.reason === takenOver && outcome.kind === "pending";
    if (execution.finish.state !== "queued" && !goesOnElsewhere) return outcome;
    lease.stop();
    return await awaitParked(deps, context, { call, outcome, since, signal: request.signal });
  } finally {
    request.signal.removeEventListener("abort", stop);
    lease.stop();
  }
}

/**
 * Not what whoever hears of it may look for at once: by its handle, by the key it was asked for under, as a run's record.
 * Nor a write that would be sent again, should this process die before its end is on record: the next one may be done by then.
 */
function isToldFirst(
  { effect, repeat }: PreparedCall,
  { idempotencyKey }: InvokeRequest,
  { outcome }: Execution,
): boolean {
  if (idempotencyKey !== undefined || repeat === "resume" || (effect === "write" && repeat !== "never")) return false;
  return outcome.kind === "completed" && outcome.handle === undefined;
}

const parkedPollMs = 50;
const longestParkedPollMs = 1_000;

/** It goes on elsewhere, and who asked waits for it as long as for any call; nothing but the request is held. */
async function awaitParked(
  deps: CoreDeps,
  { tenant }: CallContext,
  parked: {
    readonly call: PreparedCall;
    readonly outcome: ToolOutcome;
    readonly since: number;
    readonly signal: AbortSignal;
  },
): Promise<ToolOutcome> {
  const { call, outcome, since, signal } = parked;
  const until = since + Math.min(call.timeoutMs, deps.timing.invokeBudgetMs);
  for (let waitMs = parkedPollMs; !signal.aborted && deps.clock.now() + waitMs < until;) {
    await deps.clock.sleep(waitMs, signal).catch(() => undefined);
    waitMs = Math.min(waitMs * 2, longestParkedPollMs);
    const row = await deps.repos.calls.get(tenant, call.id);
    if (row !== undefined && endStates.includes(row.state)) return outcomeOf(row);
  }
  return outcome;
}

interface Ending {
  readonly call: PreparedCall;
  readonly execution: Execution;
  readonly signal: AbortSignal;
}

/** Longest that whoever asked for a write waits for an end that cannot be recorded. */
const keepingMs = 10_000;

/** Records the end. What was done is told even where it cannot be: an error would invite to do it again. */
async function settleCall(deps: CoreDeps, context: CallContext, ending: Ending): Promise<ToolOutcome> {
  try {
    return await settledOutcome(deps, context, ending);
  } catch (error) {
    // The row keeps its lease until it runs out; then the sweep finds what became of the call.
    deps.log.log("error", "outcome not stored", { call_id: ending.call.id, code: toGatewayError(error).code });
    return ending.execution.outcome;
  }
}

/** Our outcome, or that of whoever took the call over while this process stood still. */
async function settledOutcome(
  deps: CoreDeps,
  { tenant }: CallContext,
  { call, execution, signal }: Ending,
): Promise<ToolOutcome> {
  const { id, effect, repeat } = call;
  const own = { tenant, id, attempt: 1, effect, repeat };
  const { finish } = execution;
  if (await recordEndThroughOutage(deps, own, { finish, keepingMs })) {
    deps.reach("call.finished");
    return execution.outcome;
  }
  const row = await deps.repos.calls.get(tenant, call.id);
  if (row === undefined) return execution.outcome;
  const theirs = await awaitCall(deps, row, signal);
  if (theirs.state === "unknown" && (await recordEnd(deps, own, finish))) return execution.outcome;
  return outcomeOf(theirs);
}

function replayOf(row: NewCall, call: Call): Omit<Invoked, "callerId" | "context" | "rate"> {
  if (call.inputHash !== row.inputHash) {
    throw new GatewayError(
      "idempotency_key_reused",
      "This Idempotency-Key was used for another request body; take a new key.",
      { param: "Idempotency-Key" },
    );
  }
  const outcome = outcomeOf(call);
  if (outcome.kind === "pending" && outcome.reason === "async" && !call.async) {
    throw new GatewayError(
      "idempotency_in_progress",
      "The first request with this Idempotency-Key is still running; its call is named in 'call_id'.",
      { param: "Idempotency-Key", retryAfterMs: 1_000, extra: { call_id: call.id } },
    );
  }
  return { callId: call.id, tool: call.tool, outcome, replayed: true };
}

/** The error body of a call that could not start (CHAT-7). */
function refusal(preparation: Extract<Preparation, { kind: "refused" }>, { isUri }: InvokeRequest): GatewayError {
  const { code, message } = preparation.outcome;
  const { param, extra } = toRefusalDetails(preparation.outcome, isUri);
  return new GatewayError(code, message, {
    toolName: preparation.tool?.name ?? preparation.target,
    ...(param === undefined ? {} : { param }),
    extra: { ...extra, call_id: preparation.id },
  });
}

async function rowFor(
  deps: CoreDeps,
  context: CallContext,
  { preparation, request }: { readonly preparation: Preparation; readonly request: InvokeRequest },
): Promise<NewCall> {
  const place = placeOf(request);
  if (preparation.kind === "refused") return refusedCall(context, place, preparation, request.arguments);
  const { call } = preparation;
  const { invokeBudgetMs } = deps.timing;
  const queueOverMs = Math.min(request.queueOverMs ?? invokeBudgetMs, invokeBudgetMs);
  const tooLong = call.timeoutMs > queueOverMs || call.timeoutMs * call.maxAttempts > invokeBudgetMs;
  const queued = request.async || call.uri.options.async === true || tooLong;
  if (queued && preparation.kind === "ready" && request.runtimeConfig !== undefined) {
    throw new GatewayError(
      "runtime_config_required",
      `'${call.tool.name}' would run later, when the inline 'runtime_config' is gone, since it is never stored; store the plugin, or call it without 'async' and within ${queueOverMs} ms.`,
      { param: "runtime_config", toolName: call.tool.name },
    );
  }
  const state = preparation.kind === "needs_approval" ? "input_required" : queued ? "queued" : "running";
  return newToolCall(deps, context, call, {
    ...place,
    state,
    async: state !== "running",
    slots: 1,
    delivery: "none",
    ...(request.idempotencyKey === undefined ? {} : { idempotencyKey: request.idempotencyKey }),
  });
}

/** @throws GatewayError whatever is wrong with an inline configuration */
function contextOf(
  deps: CoreDeps,
  request: InvokeRequest,
  known: { readonly config: TenantConfig; readonly caller: Caller },
): CallContext {
  const inline = request.runtimeConfig;
  return {
    tenant: request.tenant,
    ...known,
    requestId: request.requestId,
    traceId: request.traceId,
    span: request.span,
    redactor: new Redactor(),
    ...(request.sessionId === undefined ? {} : { sessionId: request.sessionId }),
    ...(inline === undefined ? {} : { runtimeConfig: parseRuntimeConfig(inline, { egress: deps.egress }) }),
  };
}
