/** What people and machines tell a run: signals, answers to what it asks, and to do it again from a step. */
import { endStates, type Call } from "../../calls/call.ts";
import { cancelCall } from "../../calls/cancel.ts";
import { decideCall } from "../../calls/decide.ts";
import { enqueue } from "../../calls/enqueue.ts";
import { newToolCall, openInput } from "../../calls/new-call.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { FlowRunRecord, FlowStep, FlowStepWrite } from "../../ports/flow-runs.ts";
import { loadScheme } from "../../tools/catalog.ts";
import { toErrorDetails } from "../../tools/outcome.ts";
import { prepareCall } from "../../tools/prepare.ts";
import { isRun, runNotFound } from "./follow.ts";
import { keyReused } from "./start.ts";
import { StepValues } from "./values.ts";

export interface RunSignal {
  readonly name: string;
  /** The same token is the same signal, however often it comes. */
  readonly token: string;
  readonly payload: JsonValue;
}

/**
 * Kept until a step waits for it; what was told once is not told again.
 * @throws GatewayError `not_found`; `conflict` for a run that has ended
 */
export async function signalRun(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  { name, token, payload }: RunSignal,
): Promise<{ readonly replayed: boolean }> {
  const { tenant } = context;
  const packed = await new StepValues(deps, context, runId).pack("signal", token, payload);
  const kept = await deps.repos.flowRuns.signal(tenant, runId, { name, token, payload: packed });
  if (kept === "unknown_run") throw runNotFound(runId);
  if (kept === "ended") {
    throw new GatewayError("conflict", `Run '${runId}' has ended; no step of it waits for '${name}' any more.`, {
      param: "id",
    });
  }
  // A message more than needed does no harm; one that was lost with its sender is made up for.
  await enqueue(deps, { tenant, callId: runId, expectedMs: 0 });
  return { replayed: kept === "known" };
}

export interface RunAnswer {
  /** Which step is meant, where several wait. */
  readonly step?: string | undefined;
  readonly decision: "approved" | "rejected";
  readonly reason?: string | undefined;
  /** What is filled into the step's form. */
  readonly input?: JsonObject | undefined;
}

/**
 * A person's word to an approval, or about a step whose fate is not known. The same word again changes nothing.
 * @returns the call by which the person was asked
 * @throws GatewayError `not_found`, `conflict` where nothing waits or it is not said what is meant; `permission_denied`,
 * `invalid_request` for input that does not fit the form
 */
export async function answerRun(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  { step, decision, reason, input }: RunAnswer,
): Promise<Call> {
  const record = await requireRun(deps, context, runId);
  const callId = questionOf(record, step);
  const call = await deps.repos.calls.get(context.tenant, callId);
  const hasForm = call?.error?.details?.["input_requests"] !== undefined;
  return decideCall(deps, context, {
    callId,
    decision,
    ...(reason === undefined ? {} : { reason }),
    ...(decision === "approved" && (hasForm || input !== undefined)
      ? { input: { form: { action: "accept", content: { ...input } } } }
      : {}),
  });
}

function questionOf({ call, steps, calls }: FlowRunRecord, wanted: string | undefined): string {
  const open = new Set(calls.filter(({ state }) => state === "input_required").map(({ id }) => id));
  const asking = steps.flatMap((step) => {
    const id = step.questionId ?? (step.kind === "approval" ? step.callId : null);
    return id === null ? [] : [{ path: step.path, id, isOpen: open.has(id) }];
  });
  if (wanted !== undefined) {
    const found = asking.find(({ path }) => path === wanted);
    if (found !== undefined) return found.id;
    throw new GatewayError("conflict", `Step '${wanted}' of run '${call.id}' asks nothing.`, { param: "step" });
  }
  const waiting = asking.filter(({ isOpen }) => isOpen);
  const [only] = waiting;
  if (waiting.length === 1 && only !== undefined) return only.id;
  // The word that was taken already, said again.
  const [said] = asking;
  if (waiting.length === 0 && asking.length === 1 && said !== undefined) return said.id;
  const message =
    waiting.length === 0
      ? `Run '${call.id}' waits for nobody's word.`
      : `Several steps of run '${call.id}' wait; name one in 'step': ${waiting.map(({ path }) => path).join(", ")}.`;
  throw new GatewayError("conflict", message, { param: "step" });
}

/** @throws GatewayError as `cancelCall` */
export async function cancelRun(deps: CoreDeps, context: CallContext, runId: string): Promise<Call> {
  await requireRun(deps, context, runId);
  return cancelCall(deps, context, runId);
}

/** @throws GatewayError `not_found` */
async function requireRun(deps: CoreDeps, { tenant }: CallContext, runId: string): Promise<FlowRunRecord> {
  const record = await deps.repos.flowRuns.load(tenant, runId);
  if (record === undefined || !isRun(record.call)) throw runNotFound(runId);
  return record;
}

export interface RunReplay {
  /** Path of the step to begin with; absent: the whole run. */
  readonly from?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

/**
 * A new run of the same version and input, which passes over what the first one had done before that step.
 * @throws GatewayError `not_found`, `call_not_finished`, `conflict` where the input is no longer stored or the step is
 * not there, `idempotency_key_reused`
 */
export async function replayRun(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  { from, idempotencyKey }: RunReplay,
): Promise<{ readonly callId: string }> {
  const { tenant, caller } = context;
  const record = await requireRun(deps, context, runId);
  const { call: original } = record;
  if (!endStates.includes(original.state)) {
    throw new GatewayError("call_not_finished", `Run '${runId}' has not ended; replay it when it has, or cancel it.`, {
      param: "id",
    });
  }
  if (original.input === null) {
    throw new GatewayError("conflict", `The input of run '${runId}' is no longer stored.`, { param: "id" });
  }
  const input = await openInput(deps, context, { id: runId, input: original.input });
  await loadScheme(deps.adapters, input.uri);
  const prepared = prepareCall(
    deps.adapters,
    context,
    { target: input.uri, isUri: true, arguments: { ...input.arguments } },
    { hasReadOutside: false },
  );
  if (prepared.kind === "refused") {
    const { code, message, details } = prepared.outcome;
    throw new GatewayError(code, message, toErrorDetails(details));
  }
  const made = await newToolCall(deps, context, prepared.call, {
    route: "flows.replay",
    parentId: null,
    rootId: null,
    via: [{ kind: "replay", id: runId }],
    state: "queued",
    async: true,
    slots: 1,
    delivery: "none",
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  });
  // Runs of equal input are replayed differently, and so is one run from different steps.
  const asked = canonicalJson({ input: made.inputHash, replay: runId, from: from ?? null });
  const row = { ...made, inputHash: await deps.sealer.hash(tenant, context.config.wrappedKey, asked) };
  const kept = from === undefined ? [] : stepsBefore(record.steps, from, runId);
  const steps = await copySteps(deps, context, { from: runId, to: row.id, steps: kept });
  const recorded = await deps.repos.flowRuns.recordWithSteps(tenant, caller.id, row, steps);
  if (recorded.kind === "existing" && recorded.call.inputHash !== row.inputHash) throw keyReused();
  const callId = recorded.kind === "existing" ? recorded.call.id : row.id;
  await enqueue(deps, { tenant, callId, expectedMs: 0 });
  return { callId };
}

/** What had ended well when the step began, but nothing around the step. */
function stepsBefore(steps: readonly FlowStep[], from: string, runId: string): readonly FlowStep[] {
  const first = steps.find(({ path }) => path === from);
  if (first === undefined) {
    throw new GatewayError("conflict", `Run '${runId}' has no step '${from}'.`, { param: "from" });
  }
  return steps.filter(({ state, seq }) => state === "completed" && seq < first.startedSeq);
}

async function copySteps(
  deps: CoreDeps,
  context: CallContext,
  { from, to, steps }: { readonly from: string; readonly to: string; readonly steps: readonly FlowStep[] },
): Promise<readonly FlowStepWrite[]> {
  const [old, fresh] = [new StepValues(deps, context, from), new StepValues(deps, context, to)];
  return Promise.all(
    steps.map(
      async ({ startedAt: _startedAt, finishedAt: _finishedAt, startedSeq: _startedSeq, seq: _seq, ...step }) => ({
        ...step,
        input:
          step.input === null
            ? null
            : await fresh.pack("input", step.path, await old.open("input", step.path, step.input)),
        output:
          step.output === null
            ? null
            : await fresh.pack("output", step.path, await old.open("output", step.path, step.output)),
        progress: null,
      }),
    ),
  );
}
