/**
 * The record of one run, as this attempt knows it. Everything a run does goes through here: steps that change
 * together, the calls they begin and the ends of those they have carried out are one batch, which counts only while
 * this attempt holds the run.
 */
import { createHash } from "node:crypto";
import { endStates, type Call, type CallState } from "../../calls/call.ts";
import { sendWhenDue } from "../../calls/record-end.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { takenOver } from "../../calls/lease.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonValue } from "../../json.ts";
import type {
  FlowRunRecord,
  FlowRunWrite,
  FlowRunWritten,
  FlowSignal,
  FlowStep,
  FlowStepWrite,
} from "../../ports/flow-runs.ts";
import type { CallFinish, NewCall } from "../../ports/calls.ts";
import { StepValues } from "./values.ts";

export type KnownStep = FlowStepWrite & Partial<Pick<FlowStep, "startedAt">>;

/** Another attempt has the run, or it was cancelled: what is still under way here is over. */
export class RunLost extends Error {
  override readonly name = "RunLost";
  /** For the signal of what is still under way: `takenOver`, or none where the run was cancelled. */
  readonly reason: unknown;

  constructor(reason?: unknown) {
    super("the run is no longer carried out here");
    this.reason = reason;
  }
}

export interface JournalWrite {
  readonly call?: NewCall;
  readonly end?: { readonly id: string; readonly finish: CallFinish };
  readonly taken?: { readonly token: string; readonly path: string };
}

type Batch = { -readonly [Part in "calls" | "ends" | "taken"]: FlowRunWrite[Part][number][] } & {
  steps: Map<string, KnownStep>;
};

export class Journal {
  readonly values: StepValues;
  readonly #deps: CoreDeps;
  readonly #context: CallContext;
  readonly #run: { readonly id: string; readonly attempt: number };
  readonly #steps = new Map<string, KnownStep>();
  readonly #outputs = new Map<string, JsonValue>();
  readonly #calls = new Map<string, Call>();
  #signals: readonly FlowSignal[] = [];
  readonly #taken = new Set<string>();
  #pending: Batch = emptyBatch();
  #next: Promise<ReadonlyMap<string, CallState>> | undefined;
  #current: Promise<unknown> = Promise.resolve();
  #wakesSeen = 0;
  #wakesKnown = 0;
  #callerGone = false;

  constructor(deps: CoreDeps, context: CallContext, record: FlowRunRecord) {
    this.#deps = deps;
    this.#context = context;
    this.#run = { id: record.call.id, attempt: record.call.attempt };
    this.values = new StepValues(deps, context, record.call.id);
    this.#take(record);
  }

  get size(): number {
    return this.#steps.size;
  }

  get wakesSeen(): number {
    return this.#wakesSeen;
  }

  /**
   * As of the last write: who asked for the run may ask for nothing more. Whoever takes it up asks for its caller first,
   * and ends it. What a request brought along can be taken up by nobody, and ends with its request.
   */
  get isOrphaned(): boolean {
    return this.#callerGone && this.#context.runtimeConfig === undefined;
  }

  /** Something was told since the record was read. */
  get hasNews(): boolean {
    return this.#wakesKnown > this.#wakesSeen;
  }

  step(path: string): KnownStep | undefined {
    return this.#steps.get(path);
  }

  call(id: string): Call | undefined {
    return this.#calls.get(id);
  }

  /** Where the run is. */
  get openPlace(): { readonly path: string; readonly node: string } {
    const open = [...this.#steps.values()].filter(({ state }) => state !== "completed" && state !== "failed");
    const { path, node } = open.at(-1) ?? { path: "", node: "" };
    return { path, node };
  }

  /** Calls that have not ended, of steps at places that begin so. */
  openCalls(prefix: string): readonly string[] {
    return [...this.#steps.values()].flatMap(({ path, state, callId, questionId }) => {
      if (!path.startsWith(prefix) || state === "completed" || state === "failed") return [];
      return [callId, questionId].filter((id): id is string => id !== null && !hasEnded(this.#calls.get(id)));
    });
  }

  /** The oldest one of a name that no step has taken. */
  signal(name: string): FlowSignal | undefined {
    return this.#signals.find((one) => one.name === name && one.path === null && !this.#taken.has(one.token));
  }

  async outputOf(path: string): Promise<JsonValue> {
    const known = this.#outputs.get(path);
    if (known !== undefined) return known;
    const stored = this.#steps.get(path)?.output ?? null;
    const output = stored === null ? null : await this.values.open("output", path, stored);
    this.#outputs.set(path, output);
    return output;
  }

  rememberOutput(path: string, output: JsonValue): void {
    this.#outputs.set(path, output);
  }

  /** Rides along with the next batch. */
  putStep(step: Partial<KnownStep> & Pick<KnownStep, "path" | "node" | "kind" | "state">): void {
    const known = this.#steps.get(step.path);
    const whole: KnownStep = {
      attempt: 1,
      input: null,
      output: null,
      error: null,
      callId: null,
      questionId: null,
      progress: null,
      wakeAt: null,
      ...step,
      startedAt: known?.startedAt ?? this.#deps.clock.now(),
    };
    this.#steps.set(step.path, whole);
    this.#pending.steps.set(step.path, whole);
  }

  /** Rides along, too. */
  put({ call, end, taken }: JournalWrite): void {
    if (call !== undefined) this.#pending.calls.push(call);
    if (end !== undefined) this.#pending.ends.push({ ...end, attempt: 1 });
    if (taken !== undefined) {
      this.#taken.add(taken.token);
      this.#pending.taken.push(taken);
    }
  }

  /**
   * Writes it with all that is to be written; what comes together goes together.
   * @returns states of new calls
   * @throws RunLost
   */
  async commit(write: JournalWrite = {}): Promise<ReadonlyMap<string, CallState>> {
    this.put(write);
    this.#next ??= this.#send();
    return this.#next;
  }

  /**
   * What a step has said so far, by itself: where that cannot be written, nothing else is lost with it. Each note of a
   * step takes the place of the one before.
   * @throws RunLost
   */
  async note(path: string, said: string): Promise<void> {
    const step = this.#steps.get(path);
    if (step === undefined) return;
    const { attempt } = this.#run;
    const place = createHash("sha256")
      .update(JSON.stringify([path, step.attempt]))
      .digest("base64url");
    const progress = await this.values.pack("progress", path, said, `note-${attempt}-${place}`);
    const written = await this.#write({ ...emptyBatch(), steps: new Map([[path, { ...step, progress }]]) });
    requireHeld(written);
  }

  get hasPending(): boolean {
    const { steps, calls, ends, taken } = this.#pending;
    return steps.size + calls.length + ends.length + taken.length > 0;
  }

  /** Reads the record anew. @throws RunLost */
  async reload(): Promise<void> {
    await this.#inTurn(async () => {
      const record = await this.#deps.repos.flowRuns.load(this.#context.tenant, this.#run.id);
      if (record === undefined || record.call.attempt !== this.#run.attempt) throw new RunLost(takenOver);
      this.#take(record);
    });
  }

  /**
   * Reads the record anew where something was told since, and says whether that is so. What cannot be asked now is asked
   * the next time.
   * @throws RunLost
   */
  async readNews(): Promise<boolean> {
    try {
      if (!this.hasNews) {
        const written = await this.#inTurn(() => this.#write(emptyBatch()));
        requireHeld(written);
        this.#wakesKnown = Math.max(this.#wakesKnown, written.wakes);
      }
      if (!this.hasNews) return false;
      await this.reload();
      return true;
    } catch (thrown) {
      if (thrown instanceof RunLost) throw thrown;
      return false;
    }
  }

  /** One after the other, so that what is read is never older than what was written. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#current.then(work);
    this.#current = turn.catch(() => undefined);
    return turn;
  }

  async #send(): Promise<ReadonlyMap<string, CallState>> {
    await this.#current;
    // Whatever else ends in this moment rides along.
    await new Promise<void>((done) => setImmediate(done));
    const written = await this.#inTurn(async () => {
      const batch = this.#pending;
      this.#pending = emptyBatch();
      this.#next = undefined;
      const answer = await this.#write(batch);
      // Ends that we write wake us as well, and are no news.
      const own = batch.ends.filter(({ finish }) => endStates.includes(finish.state)).length;
      this.#wakesKnown = Math.max(this.#wakesKnown, answer.wakes + own);
      if (answer.wakes <= this.#wakesSeen) this.#wakesSeen = answer.wakes + own;
      return answer;
    });
    const { tenant } = this.#context;
    for (const [callId, dueInMs] of written.dueInMs) await sendWhenDue(this.#deps, { tenant, callId, dueInMs });
    requireHeld(written);
    return written.states;
  }

  async #write({ steps, calls, ends, taken }: Batch): Promise<FlowRunWritten> {
    const { tenant, config } = this.#context;
    const written = await this.#deps.repos.flowRuns.write(tenant, {
      run: this.#run.id,
      attempt: this.#run.attempt,
      steps: [...steps.values()].map(({ startedAt: _startedAt, ...step }) => step),
      calls,
      concurrency: config.settings.concurrent_tool_calls,
      ends,
      taken,
    });
    this.#callerGone = written.callerGone;
    return written;
  }

  #take({ wakes, steps, calls, signals }: FlowRunRecord): void {
    this.#wakesSeen = wakes;
    this.#wakesKnown = wakes;
    for (const step of steps) {
      // What waits to be written is newer.
      if (this.#pending.steps.has(step.path)) continue;
      const { finishedAt: _finishedAt, startedSeq: _startedSeq, seq: _seq, ...rest } = step;
      this.#steps.set(step.path, rest);
    }
    for (const call of calls) this.#calls.set(call.id, call);
    this.#signals = signals;
  }
}

function hasEnded(call: Call | undefined): boolean {
  return call !== undefined && endStates.includes(call.state);
}

/** @throws RunLost */
function requireHeld({ held, cancelRequested }: FlowRunWritten): void {
  if (!held) throw new RunLost(takenOver);
  if (cancelRequested) throw new RunLost();
}

function emptyBatch(): Batch {
  return { steps: new Map(), calls: [], ends: [], taken: [] };
}

/** Of a run that waits for an operator or was ended by its author. */
export function stepsExceeded(most: number): GatewayError {
  return new GatewayError(
    "flow_steps_exceeded",
    `The run has taken ${most} steps, and may take no more; raise 'max_steps' of the flow, or look for a loop without an end.`,
    { param: "max_steps" },
  );
}
