/**
 * Carries out one recorded call: attempts under the policy, the adapter, the outcome's shape. Knows
 * nothing of who waits for it: chat, direct call and worker all come through here.
 */
import { toolCost } from "../budgets/cost.ts";
import { toolPrice } from "../budgets/price.ts";
import type { CallError, StoredOutcome } from "../calls/call.ts";
import { pauseForInput } from "../calls/input-request.ts";
import { processEnd } from "../calls/lease.ts";
import { errorForRecord } from "../calls/new-call.ts";
import { shapeReply } from "../calls/result-store.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { CallFinish } from "../ports/calls.ts";
import { usesToTell } from "../secrets/credential-use.ts";
import type { CallContext } from "../context.ts";
import { deliveryOf, type Delivery } from "../errors/delivery.ts";
import { InputRequired, Parked, type InvocationContext } from "./tool-call.ts";
import { logToolCall } from "../vcp/log/vcp-log.ts";
import {
  textForModel,
  toOutcomeDetails,
  type CompletedOutcome,
  type FailedOutcome,
  type ToolOutcome,
} from "./outcome.ts";
import { backoffMs, isPassing, isWaitedFor, mayRepeat } from "./policy.ts";
import type { PreparedCall } from "./prepare.ts";
import { endToolSpan, inToolSpan } from "./tool-trace.ts";

export interface Execution {
  readonly outcome: ToolOutcome;
  readonly finish: CallFinish;
}

export interface ExecutionOptions {
  readonly attempt: number;
  /** Cancels the call. */
  readonly signal: AbortSignal;
  /** When the host ends the process: the call is not sent again where that may take longer. */
  readonly endsAt?: number | undefined;
  readonly onProgress?: InvocationContext["onProgress"];
  readonly onEvent?: InvocationContext["onEvent"];
}

/** Never throws: whatever goes wrong is the call's outcome. */
export function executeCall(
  deps: CoreDeps,
  call: PreparedCall,
  context: CallContext,
  options: ExecutionOptions,
): Promise<Execution> {
  const traced = inToolSpan(context, call);
  const execution = told(deps, call, context, carryOut(deps, call, traced, options));
  return traced === context ? execution : execution.then((ended) => endToolSpan(traced, ended));
}

/** Clients of VCPLog hear of it, where there are some. */
function told(
  deps: CoreDeps,
  call: PreparedCall,
  context: CallContext,
  execution: Promise<Execution>,
): Promise<Execution> {
  if (deps.frames?.hearsVcp(context.tenant) !== true) return execution;
  const since = performance.now();
  return execution.then((ended) => {
    const { outcome, finish } = ended;
    logToolCall(deps, context, {
      callId: call.id,
      tool: call.tool.name,
      status: outcome.kind === "completed" || outcome.kind === "pending" ? "success" : "error",
      content: outcome.kind === "failed" || outcome.kind === "rejected" ? outcome.message : textForModel(outcome),
      state: finish.state,
      durationMs: Math.round(performance.now() - since),
      ...(call.tool.distributed === undefined ? {} : { serverId: call.tool.distributed.serverId }),
    });
    return ended;
  });
}

async function carryOut(
  deps: CoreDeps,
  call: PreparedCall,
  context: CallContext,
  options: ExecutionOptions,
): Promise<Execution> {
  let reached = false;
  // What one send left open no later failure closes, only a result does.
  let isOpen = false;
  const until = deps.clock.now() + call.timeoutMs * call.maxAttempts;
  for (let send = 1; ; send += 1) {
    const since = performance.now();
    const tried = await trySend(deps, call, context, options);
    logSend(deps, context, { call, send, tried, since });
    if (tried.kind === "done")
      return tried.unreached === true && !reached
        ? tried.execution
        : charged(deps, context, { call, execution: tried.execution });
    const { error, delivery } = tried;
    reached ||= delivery !== "not_sent";
    isOpen ||= delivery === "uncertain";
    const { retryAfterMs } = error.details;
    const may = send < call.maxAttempts && !options.signal.aborted && isPassing(error) && mayRepeat(call, delivery);
    const waitMs = backoffMs(send, retryAfterMs);
    const hasTime = deps.clock.now() + waitMs + call.timeoutMs <= (options.endsAt ?? Number.POSITIVE_INFINITY);
    if (!may || !hasTime || !isWaitedFor(retryAfterMs, until - deps.clock.now())) {
      const ending = processEnd(options.signal);
      const cancelled = options.signal.aborted && ending === undefined;
      const reason = error.code === "call_cancelled" ? (ending ?? error) : error;
      const execution = failure(call, context, { error: reason, isOpen, cancelled, sends: send });
      return reached ? charged(deps, context, { call, execution }) : execution;
    }
    await deps.clock.sleep(waitMs, options.signal).catch(() => undefined);
  }
}

/** The tool's price, where the tool was reached: whoever waits for the call, this is the one place that bills it. */
function charged(
  deps: CoreDeps,
  { config }: CallContext,
  { call, execution }: { readonly call: PreparedCall; readonly execution: Execution },
): Execution {
  const { outcome, finish } = execution;
  if (outcome.kind === "completed" && outcome.reused === "cache") return execution;
  // It is billed with its end, but for what has begun and is held by nobody: its end may never be told.
  if (outcome.kind === "pending" && finish.worksOn === undefined) return execution;
  const price = toolPrice(config.prices, call.tool.name, deps.clock.now());
  return price === undefined ? execution : { outcome, finish: { ...finish, cost: toolCost(price.per_call) } };
}

interface Send {
  readonly call: PreparedCall;
  readonly send: number;
  readonly tried: Tried;
  /** `performance.now()` before it. */
  readonly since: number;
}

/** For whoever follows the call; texts of back ends are redacted. */
function logSend({ log }: CoreDeps, context: CallContext, { call, send, tried, since }: Send): void {
  const { tenant, caller, sessionId, redactor, traceId } = context;
  const fields = {
    tenant,
    trace_id: traceId,
    call_id: call.id,
    caller: caller.id,
    session: sessionId,
    tool: call.tool.name,
    attempt: send,
    duration_ms: Math.round(performance.now() - since),
  };
  if (tried.kind === "done") {
    log.log("debug", "the tool has answered", fields);
    return;
  }
  const { code, message } = errorForRecord(context, { code: tried.error.code, message: tried.error.message });
  log.log("debug", "a try of the tool failed", { ...fields, code, reason: redactor.redact(message) });
}

type Tried =
  | { readonly kind: "done"; readonly execution: Execution; readonly unreached?: true | undefined }
  | { readonly kind: "failed"; readonly error: GatewayError; readonly delivery: Delivery };

async function trySend(
  deps: CoreDeps,
  call: PreparedCall,
  context: CallContext,
  options: ExecutionOptions,
): Promise<Tried> {
  const attempt = new AttemptSignal(options.signal, {
    timeoutMs: attemptMs(deps, call),
    patienceMs: call.tool.repeat === "resume" ? lastWordMs : patienceMs,
  });
  try {
    deps.reach("call.before-send");
    const reply = await attempt.race(
      call.adapter.invoke(
        {
          id: call.id,
          tool: call.tool,
          uri: call.uri,
          arguments: call.arguments,
          attempt: options.attempt,
          timeoutMs: call.timeoutMs,
          answers: call.answers,
          readOutside: call.readOutside,
        },
        {
          ...context,
          signal: attempt.signal,
          onSent: () => deps.reach("call.sent"),
          ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }),
          ...(options.onEvent === undefined ? {} : { onEvent: options.onEvent }),
        },
      ),
    );
    deps.reach("call.answered");
    const { outcome: shaped, stored } = await shapeReply(deps, context, call.id, reply);
    deps.reach("call.result-stored");
    if (reply.worksOn !== undefined)
      return { kind: "done", execution: goingOn(call, { shaped, stored, ...reply.worksOn }) };
    const outcome = reply.reused === undefined ? shaped : { ...shaped, reused: reply.reused };
    const finish = completedFinish(deps, context, { stored, call });
    return { kind: "done", execution: { outcome, finish }, unreached: reply.unreached };
  } catch (thrown) {
    if (thrown instanceof InputRequired) return await paused(deps, call, context, thrown);
    if (thrown instanceof Parked) return { kind: "done", execution: waiting(call, thrown) };
    // Its invocation's time is used; whoever takes it next finds what it has recorded.
    if (attempt.timedOut && call.tool.repeat === "resume")
      return { kind: "done", execution: waiting(call, new Parked(0)) };
    const delivery = deliveryOf(thrown);
    // Nothing was sent because something before was too slow, which has said so.
    if (attempt.timedOut && delivery === "not_sent" && thrown instanceof GatewayError && thrown.code === "tool_timeout")
      return { kind: "failed", error: thrown, delivery };
    if (attempt.timedOut)
      return { kind: "failed", error: timeoutError(call), delivery: delivery === "answered" ? "uncertain" : delivery };
    const error = toGatewayError(thrown);
    if (error.code === "internal_error") {
      deps.log.log("error", "tool call failed unexpectedly", {
        tenant: context.tenant,
        trace_id: context.traceId,
        caller: context.caller.id,
        call_id: call.id,
        tool: call.tool.name,
        error: context.redactor.redact(String(error.cause instanceof Error ? error.cause.stack : error.cause)),
      });
    }
    return { kind: "failed", error, delivery };
  } finally {
    attempt.end();
  }
}

async function paused(deps: CoreDeps, call: PreparedCall, context: CallContext, asked: InputRequired): Promise<Tried> {
  try {
    return { kind: "done", execution: await pauseForInput(deps, context, call, asked) };
  } catch (thrown) {
    return { kind: "failed", error: toGatewayError(thrown), delivery: "answered" };
  }
}

/** It waits: the row goes back on the queue. */
function waiting(call: PreparedCall, { wakeInMs, wakesSeen }: Parked): Execution {
  return {
    outcome: { kind: "pending", reason: "async", callId: call.id },
    finish: { state: "queued", parked: { wakesSeen, ...(wakeInMs === undefined ? {} : { wakeInMs }) } },
  };
}

/** It has answered and works on: the row stays running, with nobody at it. */
function goingOn(
  call: PreparedCall,
  {
    shaped,
    stored,
    withinMs,
  }: { readonly shaped: CompletedOutcome; readonly stored: StoredOutcome; readonly withinMs: number },
): Execution {
  const { text, mediaType, handle } = shaped;
  const first = { text, mediaType, ...(handle === undefined ? {} : { handle }) };
  return {
    outcome: { kind: "pending", reason: "async", callId: call.id, first },
    finish: { state: "running", outcome: stored, worksOn: { withinMs } },
  };
}

function completedFinish(
  { clock }: Pick<CoreDeps, "clock">,
  { config, caller, runtimeConfig }: CallContext,
  { stored, call }: { readonly stored: StoredOutcome; readonly call: PreparedCall },
): CallFinish {
  const inline = runtimeConfig?.credentials ?? {};
  const names = call.tool.requiredCredentials.filter((name) => !Object.hasOwn(inline, name));
  const credentialsUsed = usesToTell(config, { names, userId: caller.userId, now: clock.now() });
  return { state: "completed", outcome: stored, credentialsUsed };
}

function timeoutError(call: PreparedCall): GatewayError {
  return new GatewayError(
    "tool_timeout",
    `'${call.tool.name}' did not answer within ${call.timeoutMs} ms; raise 'timeout' in the URI, what the tool's definition or its service says ('timeout_ms'), or the tenant's 'tool_timeout_ms'.`,
    { toolName: call.tool.name },
  );
}

interface Failure {
  readonly error: GatewayError;
  /** A send got no answer: the call may have taken effect. */
  readonly isOpen: boolean;
  readonly cancelled: boolean;
  readonly sends: number;
}

function failure(call: PreparedCall, context: CallContext, failed: Failure): Execution {
  const { error, isOpen, cancelled, sends } = failed;
  if (call.effect === "write" && isOpen && call.tool.repeat !== "resume") {
    return ended(context, "unknown", {
      code: "outcome_unknown",
      message: `'${call.tool.name}' was sent but gave no answer (${context.redactor.redact(error.message)}); whether it took effect is not known, and it is not sent again by itself. Look up its effect before repeating it; call ${call.id}.`,
    });
  }
  // What is carried out may have heard of it first.
  if (cancelled || error.code === "call_cancelled")
    return ended(context, "cancelled", {
      code: "call_cancelled",
      message: `'${call.tool.name}' was cancelled before it answered.`,
    });
  const details = toOutcomeDetails(error);
  const callError: CallError = {
    code: error.code,
    message: context.redactor.redact(error.message) + (sends > 1 ? ` (${sends} sends)` : ""),
    ...(details === undefined ? {} : { details: context.redactor.redactObject(details) }),
  };
  return ended(context, "failed", callError);
}

function ended(context: CallContext, state: "failed" | "unknown" | "cancelled", error: CallError): Execution {
  return { outcome: toFailedOutcome(error), finish: { state, error: errorForRecord(context, error) } };
}

function toFailedOutcome(error: CallError): FailedOutcome {
  return {
    kind: "failed",
    code: error.code,
    message: error.message,
    ...(error.details === undefined ? {} : { details: error.details }),
  };
}

/** For adapters that end an attempt themselves. */
const graceMs = 1_000;
/** After a cancel, for what goes on from its own record to leave that in order. */
const lastWordMs = 5_000;
/** For the others to say what became of the request. */
const patienceMs = 50;

/** What goes on later from its own record is bounded by the invocation it runs in, and heeds its limit by itself. */
function attemptMs({ timing }: CoreDeps, { tool, timeoutMs }: PreparedCall): number {
  if (tool.repeat === "resume") return timing.invocationMs + graceMs;
  return timeoutMs + (tool.endsInTime === true ? graceMs : 0);
}

/** Reason of an attempt's signal where the time limit ended it. */
export const attemptTimedOut = Symbol("the attempt's time limit");

/** One attempt's end: its own time limit or the call's cancellation, whichever comes first. */
class AttemptSignal {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal;
  readonly #onAbort: () => void;
  readonly #timer: NodeJS.Timeout;
  readonly #patienceMs: number;
  timedOut = false;

  constructor(outer: AbortSignal, limits: { readonly timeoutMs: number; readonly patienceMs: number }) {
    this.#outer = outer;
    this.#patienceMs = limits.patienceMs;
    // By way of a constant: V8 puts a function written into a field among the old objects, and all it holds.
    const onAbort = (): void => this.#controller.abort(outer.reason);
    this.#onAbort = onAbort;
    if (outer.aborted) onAbort();
    else outer.addEventListener("abort", this.#onAbort, { once: true });
    this.#timer = setTimeout(() => {
      this.timedOut = true;
      this.#controller.abort(attemptTimedOut);
    }, limits.timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The work, or a rejection soon after the signal for adapters that do not listen to it. */
  async race<T>(work: Promise<T>): Promise<T> {
    let give: (error: unknown) => void = () => undefined;
    const cut = new Promise<never>((_resolve, reject) => {
      give = reject;
    });
    const onAbort = (): void => {
      // Adapters that do listen get a moment to say what became of the request.
      setTimeout(() => give(new GatewayError("call_cancelled", "The call was given up.")), this.#patienceMs);
    };
    if (this.signal.aborted) onAbort();
    else this.signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([work, cut]);
    } finally {
      this.signal.removeEventListener("abort", onAbort);
      work.catch(() => undefined);
    }
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer.removeEventListener("abort", this.#onAbort);
  }
}
