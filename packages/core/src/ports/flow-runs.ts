/**
 * What runs of flows have done: steps and signals beside the run's row in `calls`, which is the run. Rules as in
 * repos.ts. Whatever a run writes is written only while its attempt holds the row. Contract: test/contract/flow-runs-repo.ts.
 */
import * as z from "zod";
import type { Call, CallState } from "../calls/call.ts";
import type { CallFinish, NewCall, RecordResult } from "./calls.ts";

export const flowStepStates = [
  "running",
  /** For a time, a person, a signal or another call. */
  "waiting",
  "completed",
  "failed",
  /** Its call may have taken effect and may not; a person has to say what is to be done. */
  "unknown",
] as const;
export type FlowStepState = (typeof flowStepStates)[number];

/** JSON sealed with the tenant's key; long ones are blobs. */
export const storedValueSchema = z.union([z.object({ sealed: z.string() }), z.object({ blob: z.string() })]);
export type StoredValue = z.infer<typeof storedValueSchema>;

const jsonSchema = z.json();

export interface StepError {
  /** Of the catalogue, or of a `fail` node. */
  readonly code: string;
  readonly message: string;
  readonly details?: { readonly [key: string]: z.infer<typeof jsonSchema> };
}
export const stepErrorSchema: z.ZodType<StepError> = z.object({
  code: z.string(),
  message: z.string(),
  details: z.record(z.string(), jsonSchema).exactOptional(),
});

export interface FlowStep {
  readonly path: string;
  readonly node: string;
  readonly kind: string;
  readonly state: FlowStepState;
  readonly attempt: number;
  readonly input: StoredValue | null;
  readonly output: StoredValue | null;
  readonly error: StepError | null;
  readonly callId: string | null;
  readonly questionId: string | null;
  readonly progress: StoredValue | null;
  readonly wakeAt: number | null;
  readonly startedAt: number;
  readonly finishedAt: number | null;
  /** Of its begin and of its last change, among all that happened in the run. */
  readonly startedSeq: number;
  readonly seq: number;
}

export type FlowStepWrite = Omit<FlowStep, "startedAt" | "finishedAt" | "startedSeq" | "seq">;

export interface FlowSignal {
  readonly token: string;
  readonly name: string;
  readonly payload: StoredValue;
  readonly number: number;
  readonly path: string | null;
}

export interface FlowRunRecord {
  /** The run itself. */
  readonly call: Call;
  /** How often it was woken since it was taken. */
  readonly wakes: number;
  readonly steps: readonly FlowStep[];
  /** Calls and questions of steps that have not ended. */
  readonly calls: readonly Call[];
  readonly signals: readonly FlowSignal[];
}

export interface FlowRunWrite {
  readonly run: string;
  readonly attempt: number;
  readonly steps: readonly FlowStepWrite[];
  /** Calls of steps. One that is to run finds a slot and has room in every budget, else it is queued. */
  readonly calls: readonly NewCall[];
  readonly concurrency: number;
  /** Calls of steps that this process has carried out. */
  readonly ends: readonly { readonly id: string; readonly attempt: number; readonly finish: CallFinish }[];
  readonly taken: readonly { readonly token: string; readonly path: string }[];
}

export interface FlowRunWritten {
  /** False: another attempt holds the run, or it has ended, and nothing was written but the ends. */
  readonly held: boolean;
  readonly cancelRequested: boolean;
  /** The key that asked for the run counts no more. */
  readonly callerGone: boolean;
  readonly wakes: number;
  /** Of the new calls. */
  readonly states: ReadonlyMap<string, CallState>;
  /** Milliseconds until the parked ones among `ends` are due. */
  readonly dueInMs: ReadonlyMap<string, number>;
}

export interface FlowRunRepo {
  /** `undefined`: there is no such call. */
  load(tenant: string, run: string): Promise<FlowRunRecord | undefined>;
  write(tenant: string, write: FlowRunWrite): Promise<FlowRunWritten>;
  /** Steps that began or changed after `seq`, by which of the two was first after it, and the run as it is. */
  changes(
    tenant: string,
    run: string,
    after: number,
    limit: number,
  ): Promise<{ readonly call: Call; readonly steps: readonly FlowStep[] } | undefined>;
  /**
   * Keeps a signal once for each token, and wakes the run. `ended`: nobody will take it; else what was kept under the
   * token before.
   */
  signal(
    tenant: string,
    run: string,
    signal: Pick<FlowSignal, "token" | "name" | "payload">,
  ): Promise<"kept" | "ended" | "unknown_run" | Pick<FlowSignal, "name" | "payload">>;
  /** The id of the run's call about which a person has decided last; `undefined`: there is none. */
  lastDecided(tenant: string, run: string): Promise<string | undefined>;
  /** A new run with steps that another one has done. */
  recordWithSteps(
    tenant: string,
    callerId: string,
    call: NewCall,
    steps: readonly FlowStepWrite[],
  ): Promise<RecordResult>;
}
