/** What people and machines tell a run: signals, answers to what it asks, and to do it again from a step. */
import { requireScope } from "../../calls/admit.ts";
import { endStates, type Call } from "../../calls/call.ts";
import { cancelCall } from "../../calls/cancel.ts";
import { decideCall } from "../../calls/decide.ts";
import { enqueue } from "../../calls/enqueue.ts";
import { newToolCall, openInput } from "../../calls/new-call.ts";
import { requireStoredConfig } from "../../calls/replay.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { FlowRunRecord, FlowStep, FlowStepWrite } from "../../ports/flow-runs.ts";
import { loadScheme } from "../../tools/catalog.ts";
import { toErrorDetails } from "../../tools/outcome.ts";
import { prepareCall } from "../../tools/prepare.ts";
import type { FlowBody } from "../definition.ts";
import { readDefinition } from "../find-flow.ts";
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
 * @throws GatewayError `not_found`; `invalid_request` for a name that no node of the run's version waits for;
 * `idempotency_key_reused` for a token that was another signal's; `conflict` for a run that has ended
 */
export async function signalRun(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  { name, token, payload }: RunSignal,
): Promise<{ readonly replayed: boolean }> {
  const { tenant } = context;
  await requireAwaited(deps, tenant, { runId, name });
  const values = new StepValues(deps, context, runId);
  const packed = await values.pack("signal", token, payload);
  const kept = await deps.repos.flowRuns.signal(tenant, runId, { name, token, payload: packed });
  if (kept === "unknown_run") throw runNotFound(runId);
  if (kept === "ended") {
    throw new GatewayError("conflict", `Run '${runId}' has ended; no step of it waits for '${name}' any more.`, {
      param: "id",
    });
  }
  // Sealed, so that only whoever opens it can say whether it is the same.
  if (kept !== "kept" && !(kept.name === name && isSame(await values.open("signal", token, kept.payload), payload))) {
    throw new GatewayError(
      "idempotency_key_reused",
      `The token '${token}' was another signal of run '${runId}', '${kept.name}' with its payload; take a new one.`,
      { param: "token" },
    );
  }
  // A message more than needed does no harm; one that was lost with its sender is made up for.
  await enqueue(deps, { tenant, callId: runId, expectedMs: 0 });
  return { replayed: kept !== "kept" };
}

function isSame(one: JsonValue, other: JsonValue): boolean {
  return canonicalJson(one) === canonicalJson(other);
}

/** A signal that nobody will take is kept for nobody, and its sender believes that it was told. */
async function requireAwaited(
  deps: CoreDeps,
  tenant: string,
  { runId, name }: { readonly runId: string; readonly name: string },
): Promise<void> {
  const run = await deps.repos.calls.get(tenant, runId);
  if (run === undefined || !isRun(run)) throw runNotFound(runId);
  if (run.toolHash === null) return;
  const awaited = [...signalsOf(await readDefinition(deps, tenant, run.toolHash))].toSorted();
  if (awaited.includes(name)) return;
  const known = awaited.length === 0 ? "none waits for a signal" : `there are ${awaited.join(", ")}`;
  throw new GatewayError("invalid_request", `No node of run '${runId}' waits for the signal '${name}'; ${known}.`, {
    param: "name",
  });
}

/** Those of bodies, too. */
function signalsOf({ nodes }: FlowBody): ReadonlySet<string> {
  const names = new Set<string>();
  for (const node of Object.values(nodes)) {
    if (node.kind === "wait" && node.signal !== undefined) names.add(node.signal);
    const bodies = node.kind === "parallel" ? Object.values(node.branches) : node.kind === "map" ? [node.body] : [];
    for (const body of bodies) for (const name of signalsOf(body)) names.add(name);
  }
  return names;
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
 * A person's word to an approval, to a step's tool that waits for one, or about a step whose fate is not known. The same
 * word again changes nothing.
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
  const record = await requireAnswerable(deps, context, runId);
  const callId = await questionOf(deps, record, step);
  const call = await deps.repos.calls.get(context.tenant, callId);
  const hasForm = call?.error?.details?.["input_requests"] !== undefined;
  try {
    return await decideCall(deps, context, {
      callId,
      decision,
      ...(reason === undefined ? {} : { reason }),
      ...(decision === "approved" && (hasForm || input !== undefined)
        ? { input: { form: { action: "accept", content: { ...input } } } }
        : {}),
    });
  } catch (thrown) {
    throw inPlaceOfRun(thrown);
  }
}

/**
 * What of one's own run is asked is one's own to answer, or not (`decideCall`). To others a run says nothing of what
 * waits in it, nor that it is there. @throws GatewayError `permission_denied`, `not_found`
 */
async function requireAnswerable(deps: CoreDeps, context: CallContext, runId: string): Promise<FlowRunRecord> {
  const record = await deps.repos.flowRuns.load(context.tenant, runId);
  if (record?.call.callerId !== context.caller.id) requireScope(context.caller, "approve");
  if (record === undefined || !isRun(record.call)) throw runNotFound(runId);
  return record;
}

/** What is filled in stands elsewhere in a call's answer than in a run's. */
function inPlaceOfRun(thrown: unknown): unknown {
  if (!(thrown instanceof GatewayError)) return thrown;
  const { code, message, details } = thrown;
  const { param } = details;
  if (param?.startsWith("input.form") !== true) return thrown;
  return new GatewayError(code, message.replace(`'${param}'`, "'input'"), { ...details, param: "input" });
}

async function questionOf(
  { repos }: CoreDeps,
  { call, steps, calls }: FlowRunRecord,
  wanted: string | undefined,
): Promise<string> {
  const byId = new Map(calls.map((each) => [each.id, each]));
  const asking = steps.flatMap((step) => {
    const asks = step.kind === "approval" || needsApproval(byId.get(step.callId ?? ""));
    const id = step.questionId ?? (asks ? step.callId : null);
    return id === null ? [] : [{ path: step.path, id, isOpen: byId.get(id)?.state === "input_required" }];
  });
  if (wanted !== undefined) {
    const found = asking.find(({ path }) => path === wanted);
    if (found !== undefined) return found.id;
    // Of a step that has ended the call is not among them.
    const { callId = null } = steps.find(({ path }) => path === wanted) ?? {};
    const decided = callId === null ? undefined : await repos.calls.get(call.tenant, callId);
    if (decided !== undefined && needsApproval(decided)) return decided.id;
    throw new GatewayError("conflict", `Step '${wanted}' of run '${call.id}' asks nothing.`, { param: "step" });
  }
  const waiting = asking.filter(({ isOpen }) => isOpen);
  const [only] = waiting;
  if (waiting.length === 1 && only !== undefined) return only.id;
  // The word that was taken already, said again.
  const said = waiting.length === 0 ? await repos.flowRuns.lastDecided(call.tenant, call.id) : undefined;
  if (said !== undefined) return said;
  const message =
    waiting.length === 0
      ? `Run '${call.id}' waits for nobody's word.`
      : `Several steps of run '${call.id}' wait; name one in 'step': ${waiting.map(({ path }) => path).join(", ")}.`;
  throw new GatewayError("conflict", message, { param: "step" });
}

/** A tool that waits for a person's word, or has got it; one that asks for more than that is answered by its call. */
function needsApproval(call: Call | undefined): boolean {
  if (call === undefined || call.error?.details?.["input_requests"] !== undefined) return false;
  return call.state === "input_required" || call.approval !== null;
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
 * @throws GatewayError `not_found`, `call_not_finished`, `runtime_config_required`, `conflict` where the input is no longer
 * stored or the step is not there, `idempotency_key_reused`
 */
export async function replayRun(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  { from, idempotencyKey }: RunReplay,
): Promise<{ readonly callId: string; readonly replayed: boolean }> {
  const { tenant, caller } = context;
  const record = await requireRun(deps, context, runId);
  const { call: original } = record;
  if (!endStates.includes(original.state)) {
    throw new GatewayError("call_not_finished", `Run '${runId}' has not ended; replay it when it has, or cancel it.`, {
      param: "id",
    });
  }
  requireStoredConfig(original, "POST /v1/run_workflow");
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
  const replayed = recorded.kind === "existing";
  const callId = replayed ? recorded.call.id : row.id;
  await enqueue(deps, { tenant, callId, expectedMs: 0 });
  return { callId, replayed };
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
