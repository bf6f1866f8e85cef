/** A run as people see it: its steps as a list, and what happens in it as numbered events that any instance can tell. */
import { endStates, type Call } from "../../calls/call.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonValue } from "../../json.ts";
import type { FlowStep, StepError } from "../../ports/flow-runs.ts";
import { asText } from "./node-values.ts";
import { StepValues } from "./values.ts";

export interface StepView {
  readonly path: string;
  readonly node: string;
  readonly kind: string;
  /** `cancelled`: it had not ended when the run did. */
  readonly state: FlowStep["state"] | "cancelled";
  readonly attempt: number;
  readonly input: JsonValue;
  readonly output: JsonValue;
  readonly error: StepError | null;
  readonly callId: string | null;
  /** The call by which a person is asked. */
  readonly questionId: string | null;
  readonly wakeAt: number | null;
  readonly startedAt: number;
  readonly finishedAt: number | null;
}

export interface RunView {
  readonly call: Call;
  /** `waiting`: it holds nothing, for a time, a person, a signal or another call. */
  readonly state: Call["state"] | "waiting";
  readonly steps: readonly StepView[];
}

/** @throws GatewayError `not_found` for what is no run of this tenant */
export async function viewRun(deps: CoreDeps, context: CallContext, runId: string): Promise<RunView> {
  const record = await deps.repos.flowRuns.load(context.tenant, runId);
  if (record === undefined || !isRun(record.call)) throw runNotFound(runId);
  const { call, steps } = record;
  const values = new StepValues(deps, context, runId);
  return {
    call,
    state: isParked(call) ? "waiting" : call.state,
    steps: await Promise.all(
      [...steps].sort((a, b) => a.startedSeq - b.startedSeq).map((step) => viewStep(values, context, { step, call })),
    ),
  };
}

async function viewStep(
  values: StepValues,
  { redactor }: CallContext,
  { step, call }: { readonly step: FlowStep; readonly call: Call },
): Promise<StepView> {
  const { startedSeq: _startedSeq, seq: _seq, progress: _progress, ...shown } = step;
  const isCutOff = endStates.includes(call.state) && step.finishedAt === null;
  const open = async (kind: "input" | "output"): Promise<JsonValue> =>
    step[kind] === null ? null : redacted(await values.open(kind, step.path, step[kind]), redactor);
  return {
    ...shown,
    state: isCutOff ? "cancelled" : step.state,
    input: await open("input"),
    output: await open("output"),
  };
}

function redacted(value: JsonValue, redactor: CallContext["redactor"]): JsonValue {
  if (typeof value === "string") return redactor.redact(value);
  if (Array.isArray(value)) return value.map((part: JsonValue) => redacted(part, redactor));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, redacted(part, redactor)]));
}

function isParked({ state, startedAt }: Call): boolean {
  return state === "queued" && startedAt !== null;
}

export function isRun({ repeat, uri }: Call): boolean {
  return repeat === "resume" && uri.startsWith("flow://");
}

export function runNotFound(runId: string): GatewayError {
  return new GatewayError("not_found", `There is no run '${runId}'.`, { param: "id" });
}

/** `id` rises; whoever has seen one asks for those after it, on any instance. */
export type RunEvent =
  | (StepEvent & { readonly type: "step-started" })
  /** It waits, or is tried again. */
  | (StepEvent & { readonly type: "step-waiting" })
  /** What a model has said so far, whole. */
  | (StepEvent & { readonly type: "step-text"; readonly text: string })
  | (StepEvent & { readonly type: "step-ended"; readonly output: JsonValue; readonly error: StepError | null })
  | { readonly type: "run-ended"; readonly id: number; readonly call: Call };

interface StepEvent {
  readonly id: number;
  readonly path: string;
  readonly node: string;
  readonly kind: string;
  readonly attempt: number;
  readonly state: FlowStep["state"];
  readonly callId: string | null;
  readonly questionId: string | null;
}

const eventsAtOnce = 500;

/**
 * What has happened since, in order; the last one is `run-ended` once the run has ended and all was told. Of a step
 * that has gone on meanwhile, where it is now.
 * @throws GatewayError `not_found`
 */
export async function readRunEvents(
  deps: CoreDeps,
  context: CallContext,
  runId: string,
  after: number,
): Promise<readonly RunEvent[]> {
  const changes = await deps.repos.flowRuns.changes(context.tenant, runId, after, eventsAtOnce);
  if (changes === undefined || !isRun(changes.call)) throw runNotFound(runId);
  const { call, steps } = changes;
  const values = new StepValues(deps, context, runId);
  const events: RunEvent[] = (await Promise.all(steps.map((step) => eventsOf(values, step, after)))).flat();
  events.sort((a, b) => a.id - b.id);
  const next = steps.at(-1);
  // Of a step that is on this page since it began, what came later is told in its turn, behind the steps between.
  if (steps.length === eventsAtOnce && next !== undefined) {
    const end = firstAfter(next, after);
    return events.filter(({ id }) => id <= end);
  }
  const isAll = endStates.includes(call.state);
  const last = Math.max(after, ...steps.map(({ seq }) => seq));
  return isAll ? [...events, { type: "run-ended", id: last + 1, call }] : events;
}

function firstAfter({ startedSeq, seq }: FlowStep, after: number): number {
  return startedSeq > after ? startedSeq : seq;
}

async function eventsOf(values: StepValues, step: FlowStep, after: number): Promise<RunEvent[]> {
  const { path, node, kind, attempt, state, callId, questionId, startedSeq, seq } = step;
  const about = { path, node, kind, attempt, state, callId, questionId };
  const begun: RunEvent[] = startedSeq > after ? [{ type: "step-started", id: startedSeq, ...about }] : [];
  if (step.finishedAt !== null) {
    const output = step.output === null ? null : await values.open("output", path, step.output);
    return [...begun, { type: "step-ended", id: seq, ...about, output, error: step.error }];
  }
  if (step.progress !== null) {
    const text = await values.open("progress", path, step.progress);
    return [...begun, { type: "step-text", id: seq, ...about, text: asText(text) }];
  }
  if (state === "running") return begun;
  return [...begun, { type: "step-waiting", id: seq, ...about }];
}
