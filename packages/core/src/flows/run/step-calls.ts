/**
 * Steps whose work is a call's: tools, sub-flows, agents and questions to people. Each step has one call for each attempt,
 * and its end is the step's, whoever carries it out and however late.
 */
import { endStates, type Call } from "../../calls/call.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { StepError } from "../../ports/flow-runs.ts";
import type { CallFinish } from "../../ports/calls.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import { resultOf, type ChildCalls, type ChildTarget } from "./child-calls.ts";
import { boundToRequest, callFailed, StepFailed } from "./failures.ts";
import { RunLost, type Journal } from "./journal.ts";
import { earliest, operatorForm } from "./node-values.ts";
import type { At } from "./step-place.ts";
import type { StepTime } from "./step-time.ts";
import { requireWanted, RetriedByOperator } from "./threads.ts";
import type { Waits } from "./waits.ts";

/** After the end of a lease, so that the database thinks so, too. */
const leaseGraceMs = 100;

export interface StepCallsParts {
  readonly children: ChildCalls;
  readonly journal: Journal;
  readonly waits: Waits;
  readonly time: StepTime;
  /** Ends with the run. */
  readonly stop: AbortSignal;
}

export class StepCalls {
  readonly #deps: CoreDeps;
  readonly #context: InvocationContext;
  readonly #children: ChildCalls;
  readonly #journal: Journal;
  readonly #waits: Waits;
  readonly #time: StepTime;
  readonly #stop: AbortSignal;
  readonly #sent = new Set<string>();

  constructor(deps: CoreDeps, context: InvocationContext, parts: StepCallsParts) {
    this.#deps = deps;
    this.#context = context;
    this.#children = parts.children;
    this.#journal = parts.journal;
    this.#waits = parts.waits;
    this.#time = parts.time;
    this.#stop = parts.stop;
  }

  /** Calls the target, or finds the call that an earlier process made at this place. @throws StepFailed, Parked, RunLost */
  async call(at: At, attempt: number, target: ChildTarget): Promise<JsonValue> {
    const { id, node, path } = at;
    const known = this.#journal.step(path);
    if (known?.callId !== null && known?.callId !== undefined && known.attempt === attempt) {
      return this.#outcome(at, attempt, known.callId);
    }
    this.#time.require(at);
    const timeoutMs = "timeout_ms" in node && node.kind === "tool" ? node.timeout_ms : undefined;
    const made = await this.#children.make(
      { path, attempt },
      { ...target, arguments: this.#passOn(at, target), timeoutMs },
    );
    const input = await this.#journal.values.pack("input", path, {
      target: target.target,
      arguments: target.arguments,
    });
    const step = { path, node: id, kind: node.kind, state: "running" as const, attempt, input };
    if ("refused" in made) {
      this.#journal.putStep({ ...step, callId: made.refused.id });
      this.#journal.put({ call: made.refused });
      throw made.why;
    }
    const { prepared, row, isDetached } = made;
    if (row.state === "queued" && this.#context.runtimeConfig !== undefined) {
      throw boundToRequest({ path, node: id });
    }
    this.#journal.putStep({ ...step, callId: row.id });
    const states = await this.#journal.commit({ call: row });
    this.#deps.reach("flow.step-recorded");
    const state = states.get(row.id);
    if (state === "queued") await this.#children.send(row.id, prepared.timeoutMs * prepared.maxAttempts);
    if (isDetached) return { run_id: row.id, call_id: row.id, status: state ?? "queued" };
    if (state !== "running") return this.#outcome(at, attempt, row.id);
    const finish = await this.#time.within(
      at,
      (signal) => this.#children.carryOut(prepared, signal),
      prepared.timeoutMs,
    );
    // Also what waits for something below it.
    if (finish !== "lost" && finish.state === "cancelled" && this.#time.isOver(at))
      await this.#children.cancel([row.id]);
    if (finish === "lost" && this.#stop.aborted) throw new RunLost(this.#stop.reason);
    if (finish !== "lost") this.#journal.put({ end: { id: row.id, finish } });
    if (finish === "lost" || !endStates.includes(finish.state)) {
      await this.#journal.commit();
      await this.#journal.reload();
      return this.#outcome(at, attempt, row.id);
    }
    if (finish.state === "unknown") await this.#journal.commit();
    return this.#come(at, attempt, { id: row.id, ...finish });
  }

  /** Sub-flows know for whom they run without being told (FLOW-3). */
  #passOn({ frame }: At, { target, arguments: args }: ChildTarget): JsonObject {
    if (!target.startsWith("flow://")) return args;
    const { buCode } = frame.scope.context;
    return buCode === undefined || buCode === null ? args : { buCode, ...args };
  }

  /** Of a call that is on record, once it has one. */
  async #outcome(at: At, attempt: number, callId: string): Promise<JsonValue> {
    const call = await this.#ended(at, callId);
    return this.#come(at, attempt, {
      id: call.id,
      state: call.state,
      ...(call.outcome === null ? {} : { outcome: call.outcome }),
      ...(call.error === null ? {} : { error: call.error }),
    });
  }

  async #come(at: At, attempt: number, ended: CallFinish & { readonly id: string }): Promise<JsonValue> {
    const { id, state, outcome, error } = ended;
    if (state === "completed") return this.#children.valueOf(id, outcome ?? null);
    if (state === "unknown") return this.#uncertain(at, attempt, ended);
    throw callFailed(id, state, error ?? null);
  }

  async #ended(at: At, callId: string): Promise<Call> {
    for (;;) {
      const call = this.#journal.call(callId);
      if (call === undefined) await this.#journal.reload();
      const found = this.#journal.call(callId);
      if (found === undefined) throw new StepFailed({ code: "not_found", message: `Call '${callId}' is not there.` });
      if (endStates.includes(found.state)) return found;
      const now = this.#deps.clock.now();
      if (at.deadline !== undefined && now >= at.deadline) {
        await this.#children.cancel([callId]);
        this.#time.require(at);
      }
      const lostAt =
        found.state === "running" && found.leaseUntil !== null ? found.leaseUntil + leaseGraceMs : undefined;
      if (lostAt !== undefined && now >= lostAt && !this.#sent.has(callId)) {
        this.#sent.add(callId);
        await this.#children.send(callId);
      }
      const wakeAt = earliest(this.#sent.has(callId) ? undefined : lostAt, at.deadline);
      await this.#waits.until({ wakeAt, hears: true });
      requireWanted(at.frame.group);
      if (wakeAt !== undefined && this.#deps.clock.now() >= wakeAt) await this.#journal.reload();
    }
  }

  /** Nobody knows whether it took effect: the node says where that leads, or a person does. */
  async #uncertain(at: At, attempt: number, ended: CallFinish & { readonly id: string }): Promise<JsonValue> {
    const { node, path, id } = at;
    const why = ended.error?.message ?? "It is not known whether it took effect.";
    const error = {
      code: "flow_step_unknown",
      message: `Whether '${path}' took effect is not known: ${why}`,
      details: { call_id: ended.id },
    };
    if (node.on_error !== "fail") throw new StepFailed(error);
    const known = this.#journal.step(path);
    let questionId = known?.attempt === attempt ? known.questionId : null;
    if (questionId === null) {
      this.#time.require(at, why);
      const question = await this.#children.question(
        { path: `${path}?`, attempt },
        { message: error.message, form: operatorForm, step: path },
      );
      questionId = question.id;
      const { input = null } = known ?? {};
      this.#journal.putStep({
        path,
        node: id,
        kind: node.kind,
        state: "unknown",
        attempt,
        input,
        error,
        callId: ended.id,
        questionId,
      });
      await this.#journal.commit({ call: question });
      await this.#journal.reload();
    }
    for (;;) {
      // What comes late is evidence, and better than anybody's word.
      const late = this.#journal.call(ended.id);
      if (late !== undefined && (late.state === "completed" || late.state === "failed")) {
        await this.#children.cancel([questionId]);
        return this.#outcome(at, attempt, ended.id);
      }
      const question = this.#journal.call(questionId);
      if (question !== undefined && endStates.includes(question.state))
        return this.#operatorSays(at, attempt, { question, error });
      if (this.#time.isOver(at)) await this.#children.cancel([questionId]);
      this.#time.require(at, why);
      await this.#waits.until({ wakeAt: at.deadline, hears: true });
      requireWanted(at.frame.group);
    }
  }

  async #operatorSays(
    { path, node, id }: At,
    attempt: number,
    { question, error }: { readonly question: Call; readonly error: StepError },
  ): Promise<JsonValue> {
    const answer = question.state === "completed" ? await this.#children.valueOf(question.id, question.outcome) : null;
    const form = isJsonObject(answer) ? answer["input"] : null;
    const { decision, output } = isJsonObject(form) ? form : {};
    // Read as the text that the call would have given: forms have texts only.
    if (decision === "skip") return typeof output === "string" ? resultOf(output, "text/plain") : null;
    if (decision !== "retry") throw new StepFailed(error);
    this.#journal.putStep({
      path,
      node: id,
      kind: node.kind,
      state: "waiting",
      attempt: attempt + 1,
      wakeAt: this.#deps.clock.now(),
    });
    throw new RetriedByOperator();
  }

  /** Asks people. @returns what they have filled in @throws StepFailed where it was refused; Parked, RunLost */
  async approval(
    at: At,
    attempt: number,
    asked: { readonly message: string; readonly form: JsonObject | undefined },
  ): Promise<JsonValue> {
    const { path, id, node } = at;
    const known = this.#journal.step(path);
    let callId = known?.attempt === attempt ? known.callId : null;
    if (callId === null) {
      const row = await this.#children.question({ path, attempt }, { ...asked, step: path });
      callId = row.id;
      const input = await this.#journal.values.pack("input", path, { message: asked.message });
      this.#journal.putStep({ path, node: id, kind: node.kind, state: "waiting", attempt, input, callId });
      await this.#journal.commit({ call: row });
      this.#deps.reach("flow.step-recorded");
      await this.#journal.reload();
    }
    const call = await this.#ended(at, callId);
    if (call.state === "completed") return this.#children.valueOf(call.id, call.outcome);
    throw callFailed(call.id, call.state, call.error);
  }
}
