/**
 * Interprets a flow from what its run has recorded (design "One record"). It begins at the start each time: what is
 * on record is not done again but passed over, and what is not is done and written down. So it does not matter which
 * process goes on, nor where the last one has died.
 */
import { endStates, type Call } from "../../calls/call.ts";
import { processEnd } from "../../calls/lease.ts";
import type { CoreDeps } from "../../deps.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { StepError } from "../../ports/flow-runs.ts";
import type { CallFinish } from "../../ports/repos.ts";
import { attemptTimedOut } from "../../tools/execute-call.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { isOutage } from "../../errors/outage.ts";
import { Parked, type InvocationContext, type ToolCall, type ToolReply } from "../../tools/adapter.ts";
import { waitForOutage } from "../../tools/wait-for-outage.ts";
import type { FlowBody, FlowDefinition, FlowNode, FlowValue, MapNode, ParallelNode, WaitNode } from "../definition.ts";
import { evaluate, resolveValue, type FlowScope } from "../transform.ts";
import { ChildCalls, resultOf, type ChildTarget } from "./child-calls.ts";
import { asTimeout, BodyFailed, boundToRequest, callFailed, runFailed, StepFailed, stepTimeout } from "./failures.ts";
import { Journal, RunLost, stepsExceeded, type KnownStep } from "./journal.ts";
import { askModel } from "./model-step.ts";
import {
  asText,
  branchOf,
  caseOf,
  earliest,
  isPure,
  isTrue,
  nextOf,
  operatorForm,
  pauseMs,
  timeFor,
  type WorkingNode,
} from "./node-values.ts";
import { readRun } from "./read-run.ts";
import { behindOwnLimit, endedIn, requireWanted, RetriedByOperator, ThreadStopped, type Group } from "./threads.ts";
import { flowVariables, requireInput } from "./variables.ts";
import { Waits } from "./waits.ts";

/** Part of an invocation after which no step is begun any more. */
const softShare = 0.8;
/** After the end of a lease, so that the database thinks so, too. */
const leaseGraceMs = 100;

/**
 * @throws GatewayError `flow_failed`, `flow_depth_exceeded`, `flow_steps_exceeded`, `permission_denied`
 * @throws Parked where the run waits
 */
export async function runFlow(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  const { record, definition } = await readRun(deps, call, context).catch((thrown: unknown) => {
    throw waitForOutage(context, thrown) ?? thrown;
  });
  const variables = flowVariables(context, call.arguments);
  const input = requireInput(definition, variables.input);
  const run = new FlowRun(deps, context, {
    definition,
    input,
    variables: variables.context,
    journal: new Journal(deps, context, { ...record, call: { ...record.call, attempt: call.attempt } }),
    row: record.call,
    timeoutMs: call.timeoutMs ?? deps.timing.invocationMs,
  });
  const output = await run.toEnd();
  return { mediaType: "application/json", body: JSON.stringify(output) };
}

interface FlowRunParts {
  readonly definition: FlowDefinition;
  readonly input: JsonObject;
  readonly variables: JsonObject;
  readonly journal: Journal;
  readonly row: Call;
  /** What is left of the time in which whoever waits for it expects an answer. */
  readonly timeoutMs: number;
}

/** What a node sees, and what bounds it. */
interface Frame {
  readonly scope: FlowScope;
  /** Of its body: `orders[3]/`. */
  readonly prefix: string;
  /** In whose `nodes` it stands, for errors. */
  readonly field: string;
  readonly deadline: number | undefined;
  readonly group: Group;
}

interface At {
  readonly id: string;
  readonly node: WorkingNode;
  readonly path: string;
  readonly frame: Frame;
  readonly deadline: number | undefined;
}

type StepResult = { readonly output: JsonValue } | { readonly error: StepError };

class FlowRun {
  readonly #deps: CoreDeps;
  readonly #context: InvocationContext;
  readonly #parts: FlowRunParts;
  readonly #journal: Journal;
  readonly #calls: ChildCalls;
  readonly #waits: Waits;
  readonly #stop = new AbortController();
  readonly #softEnd: number;
  readonly #sent = new Set<string>();

  constructor(deps: CoreDeps, context: InvocationContext, parts: FlowRunParts) {
    this.#deps = deps;
    this.#context = context;
    this.#parts = parts;
    this.#journal = parts.journal;
    const now = deps.clock.now();
    const { invocationMs } = deps.timing;
    // What came with the request is nowhere else, so the run has to come to its end here.
    const isBound = context.runtimeConfig !== undefined;
    this.#softEnd = now + (isBound ? invocationMs : Math.min(parts.timeoutMs, invocationMs * softShare));
    this.#calls = new ChildCalls(deps, context, {
      run: parts.row,
      flow: parts.definition.name,
      endsAt: now + invocationMs,
    });
    this.#waits = new Waits({
      now: () => deps.clock.now(),
      sleep: (ms, signal) => deps.clock.sleep(ms, signal),
      inlineMs: isBound ? invocationMs : undefined,
      lookEveryMs: deps.timing.cancelPollMs,
      look: () => this.#journal.readNews(),
      beforePark: () => this.#beforePark(),
    });
  }

  async toEnd(): Promise<JsonValue> {
    const { signal } = this.#context;
    const onAbort = (): void => this.#interrupt(signal);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    try {
      const frame: Frame = {
        scope: { input: this.#parts.input, steps: {}, context: {} },
        prefix: "",
        field: "nodes",
        deadline: undefined,
        group: { parent: undefined, stopped: false },
      };
      const output = await this.#waits.thread(async () => {
        const context = await this.#variables(frame.scope);
        return this.#body(this.#parts.definition, { ...frame, scope: { ...frame.scope, context } });
      });
      if (this.#journal.hasPending) await this.#journal.commit();
      return output;
    } catch (thrown) {
      throw await this.#ending(thrown);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** What the dispatcher is to make of it. */
  async #ending(thrown: unknown): Promise<unknown> {
    if (thrown instanceof Parked && this.#context.runtimeConfig !== undefined) {
      return this.#ending(boundToRequest(this.#journal.openPlace));
    }
    if (thrown instanceof Parked) {
      if (this.#journal.hasPending) await this.#journal.commit();
      this.#deps.reach("flow.before-park");
      return thrown;
    }
    if (thrown instanceof RunLost) {
      this.#stop.abort(thrown.reason);
      return withDelivery(
        new GatewayError("call_cancelled", "The run was cancelled, or another process has it."),
        "answered",
      );
    }
    const waits = waitForOutage(this.#context, thrown);
    if (waits !== undefined) return waits;
    await this.#calls.cancel(this.#journal.openCalls("")).catch(() => undefined);
    if (this.#journal.hasPending) await this.#journal.commit().catch(() => undefined);
    if (thrown instanceof BodyFailed) return runFailed(this.#parts.definition.name, thrown);
    return thrown instanceof GatewayError ? withDelivery(thrown, "answered") : thrown;
  }

  /** Cancelled, or the invocation's time or its process is at its end: then what is under way ends elsewhere. */
  #interrupt(signal: AbortSignal): void {
    if (signal.reason === attemptTimedOut || processEnd(signal) !== undefined) {
      this.#waits.end(new Parked(0, this.#journal.wakesSeen));
      return;
    }
    this.#stop.abort(signal.reason);
    this.#waits.end(new RunLost(signal.reason));
  }

  async #beforePark(): Promise<"look" | number> {
    if (this.#journal.hasPending) await this.#journal.commit();
    if (!this.#journal.hasNews) return this.#journal.wakesSeen;
    await this.#journal.reload();
    return "look";
  }

  /** An argument of the same name beats one (FLOW-3). */
  async #variables(scope: FlowScope): Promise<JsonObject> {
    const { definition, input, variables } = this.#parts;
    const own = await resolveValue(
      definition.context as FlowValue,
      { ...scope, context: variables },
      { field: "context" },
    ).catch((error: unknown) => {
      throw new BodyFailed(StepFailed.of(error).error, { path: "context", node: "context" });
    });
    const given = Object.entries(isJsonObject(own) ? own : {}).map(([name, value]) => [
      name,
      Object.hasOwn(input, name) ? (input[name] ?? null) : value,
    ]);
    return { ...(Object.fromEntries(given) as JsonObject), ...variables };
  }

  async #body(body: FlowBody, outer: Frame): Promise<JsonValue> {
    const visits = new Map<string, number>();
    const frame: Frame = { ...outer, scope: { ...outer.scope, steps: { ...outer.scope.steps } } };
    const { scope } = frame;
    let last: JsonValue = null;
    for (let id: string | undefined = body.start; id !== undefined;) {
      const node: FlowNode | undefined = body.nodes[id];
      if (node === undefined) throw this.#failed(id, id, { code: "flow_failed", message: `There is no node '${id}'.` });
      const visit = (visits.get(id) ?? 0) + 1;
      visits.set(id, visit);
      const path = `${frame.prefix}${id}${visit > 1 ? `#${visit}` : ""}`;
      await this.#boundary(frame);
      const place = { node: id, field: `${frame.field}.${id}` };
      if (node.kind === "end") {
        last = await this.#pure(path, id, node.kind, async () =>
          node.output === undefined
            ? last
            : resolveValue(node.output, scope, { ...place, field: `${place.field}.output` }),
        );
        break;
      }
      if (node.kind === "fail") {
        const message = asText(await resolveValue(node.message, scope, { ...place, field: `${place.field}.message` }));
        const error = { code: node.code, message };
        this.#put({ path, node: id, kind: node.kind, state: "failed", error });
        throw this.#failed(path, id, error);
      }
      const timeoutAt = this.#timeoutOf(node, path);
      const deadline = earliest(frame.deadline, timeoutAt);
      const result = await this.#step({ id, node, path, frame, deadline });
      if ("output" in result) {
        (scope.steps as Record<string, JsonValue>)[id] = { output: result.output };
        last = node.kind === "condition" || node.kind === "switch" ? last : result.output;
        id = nextOf(node, result.output);
        continue;
      }
      const { error } = result;
      (scope.steps as Record<string, JsonValue>)[id] = { error: { ...error } };
      if (node.on_error === "fail") throw this.#failed(path, id, error);
      id = node.on_error === "continue" ? nextOf(node, null) : node.on_error;
    }
    if (body.output === undefined) return last;
    try {
      return await resolveValue(body.output, scope, { field: `${frame.field}.output` });
    } catch (thrown) {
      throw this.#failed(`${frame.prefix}output`, "output", StepFailed.of(thrown).error);
    }
  }

  #failed(path: string, node: string, error: StepError): BodyFailed {
    return new BodyFailed(error, { path, node });
  }

  /** Where a run may stop: cancelled, given up by its group, or with its invocation's time used. */
  async #boundary({ group }: Frame): Promise<void> {
    if (this.#stop.signal.aborted) throw new RunLost(this.#stop.signal.reason);
    requireWanted(group);
    if (this.#journal.size > this.#parts.definition.max_steps) throw stepsExceeded(this.#parts.definition.max_steps);
    if (this.#journal.isOrphaned || this.#deps.clock.now() >= this.#softEnd) await this.#waits.until({ yields: true });
  }

  #timeoutOf(node: FlowNode, path: string): number | undefined {
    const timeoutMs = "timeout_ms" in node ? node.timeout_ms : undefined;
    if (timeoutMs === undefined) return undefined;
    return (this.#journal.step(path)?.startedAt ?? this.#deps.clock.now()) + timeoutMs;
  }

  async #step(at: At): Promise<StepResult> {
    const { id, node, path } = at;
    for (;;) {
      const known = this.#journal.step(path);
      if (known?.state === "completed") return { output: await this.#journal.outputOf(path) };
      if (known?.state === "failed")
        return { error: known.error ?? { code: "flow_failed", message: "The step failed." } };
      const attempt = known?.attempt ?? 1;
      try {
        await this.#awaitBackoff(at, known);
        const output = await this.#perform(at, attempt);
        this.#journal.rememberOutput(path, output);
        this.#put({
          ...this.#journal.step(path),
          path,
          node: id,
          kind: node.kind,
          state: "completed",
          attempt,
          output: await this.#journal.values.pack("output", path, output),
          error: null,
        });
        // Of what others can see or what took time; the rest rides along with what comes next.
        if (!isPure(node)) {
          await this.#journal.commit();
          this.#deps.reach("flow.step-ended");
        }
        return { output };
      } catch (thrown) {
        const failed = this.#asFailure(at, thrown);
        if (failed === undefined) throw thrown;
        if (failed instanceof RetriedByOperator) {
          await this.#journal.commit();
          continue;
        }
        const retry = "retry" in node ? node.retry : undefined;
        const inTime = at.deadline === undefined || this.#deps.clock.now() < at.deadline;
        const again = failed.mayRetry && inTime && attempt < (retry?.max_attempts ?? 1);
        const { error } = failed;
        if (again && retry !== undefined) {
          const wakeAt = this.#deps.clock.now() + pauseMs(retry, attempt);
          this.#put({ path, node: id, kind: node.kind, state: "waiting", attempt: attempt + 1, error, wakeAt });
          await this.#journal.commit();
          continue;
        }
        this.#put({ ...this.#journal.step(path), path, node: id, kind: node.kind, state: "failed", attempt, error });
        if (!isPure(node)) await this.#journal.commit();
        return { error };
      }
    }
  }

  /** Undefined: it is no failure of the step but the end, or the rest, of the whole run. */
  #asFailure(at: At, thrown: unknown): StepFailed | undefined {
    if (thrown instanceof StepFailed) return this.#isOver(at) ? asTimeout(thrown, at.path) : thrown;
    if (thrown instanceof Parked || thrown instanceof RunLost || thrown instanceof ThreadStopped) return undefined;
    const error = toGatewayError(thrown);
    if (isOutage(error) || error.code === "flow_steps_exceeded") return undefined;
    if (error.code === "internal_error") {
      this.#deps.log.log("error", "a step of a flow failed unexpectedly", {
        tenant: this.#context.tenant,
        trace_id: this.#context.traceId,
        call_id: this.#parts.row.id,
        error: this.#context.redactor.redact(String(error.cause instanceof Error ? error.cause.stack : error.cause)),
      });
    }
    return StepFailed.of(thrown);
  }

  /** A step between two attempts. */
  async #awaitBackoff(at: At, known: KnownStep | undefined): Promise<void> {
    if (known?.state !== "waiting" || known.attempt === 1 || known.callId !== null || known.wakeAt === null) return;
    if (at.node.kind === "wait") return;
    await this.#untilTime(at, known.wakeAt);
  }

  async #untilTime(at: At, time: number): Promise<void> {
    while (this.#deps.clock.now() < time) {
      this.#requireTime(at);
      await this.#waits.until({ wakeAt: earliest(time, at.deadline) });
      requireWanted(at.frame.group);
    }
  }

  #isOver({ deadline }: At): boolean {
    return deadline !== undefined && this.#deps.clock.now() >= deadline;
  }

  #requireTime(at: At, why?: string): void {
    if (this.#isOver(at)) throw stepTimeout(at.path, this.#journal.step(at.path)?.callId, why);
  }

  /** Under a signal that ends with the step's time, too. `limitMs`: what the work is given by itself. */
  #inTime<T>({ deadline }: At, work: (signal: AbortSignal) => Promise<T>, limitMs?: number): Promise<T> {
    const inMs = deadline === undefined ? undefined : deadline - this.#deps.clock.now();
    return endedIn(behindOwnLimit(inMs, limitMs), this.#stop.signal, work);
  }

  #put(step: Partial<KnownStep> & Pick<KnownStep, "path" | "node" | "kind" | "state">): void {
    this.#journal.put({
      step: {
        attempt: 1,
        input: null,
        output: null,
        error: null,
        callId: null,
        questionId: null,
        progress: null,
        wakeAt: null,
        ...step,
      },
    });
  }

  /** Of what only looks at what is there. */
  async #pure(path: string, node: string, kind: string, work: () => Promise<JsonValue>): Promise<JsonValue> {
    if (this.#journal.step(path)?.state === "completed") return this.#journal.outputOf(path);
    let output: JsonValue;
    try {
      output = await work();
    } catch (thrown) {
      throw this.#failed(path, node, StepFailed.of(thrown).error);
    }
    this.#journal.rememberOutput(path, output);
    this.#put({
      path,
      node,
      kind,
      state: "completed",
      output: await this.#journal.values.pack("output", path, output),
    });
    return output;
  }

  async #perform(at: At, attempt: number): Promise<JsonValue> {
    const { node, frame, id } = at;
    const { scope } = frame;
    const place = (field: string) => ({ node: id, field: `${frame.field}.${id}.${field}` });
    switch (node.kind) {
      case "tool": {
        const target = node.name ?? asText(await resolveValue(node.uri ?? "", scope, place("uri")));
        const args = await this.#object(node.arguments, scope, place("arguments"));
        return this.#call(at, attempt, { target, isUri: node.uri !== undefined, arguments: args });
      }
      case "flow": {
        const given = await this.#object(node.input, scope, place("input"));
        const options = [node.version === undefined ? "" : `version=${node.version}`, node.async ? "async=true" : ""];
        const query = options.filter((option) => option !== "").join("&");
        const target = `flow://${node.name}${query === "" ? "" : `?${query}`}`;
        return this.#call(at, attempt, { target, isUri: true, arguments: given });
      }
      case "agent": {
        const prompt = await resolveValue(node.prompt, scope, place("prompt"));
        const context =
          node.context === undefined ? {} : { context: await this.#object(node.context, scope, place("context")) };
        return this.#call(at, attempt, {
          target: `agent://${encodeURIComponent(node.agent)}`,
          isUri: true,
          arguments: { prompt, ...context },
        });
      }
      case "model":
        return this.#inTime(at, (signal) =>
          askModel(this.#deps, this.#context, {
            node,
            scope,
            place: place("messages"),
            at: { path: at.path, attempt },
            run: this.#parts.row,
            via: this.#calls.place.via ?? [],
            signal,
            begin: async () => {
              this.#put({ path: at.path, node: id, kind: node.kind, state: "running", attempt });
              await this.#journal.commit();
              this.#deps.reach("flow.step-recorded");
            },
            pause: (ms) => this.#untilTime(at, this.#deps.clock.now() + ms),
            onText: (text) => this.#journal.note(at.path, text),
          }),
        );
      case "approval": {
        const message = asText(await resolveValue(node.message, scope, place("message")));
        return this.#approval(at, attempt, { message, form: node.form });
      }
      case "wait":
        return this.#wait(at, node, attempt);
      case "transform":
        return (await evaluate(node.expression, scope, place("expression"))) ?? null;
      case "condition": {
        const value = (await evaluate(node.if, scope, place("if"))) ?? null;
        return branchOf(isTrue(value) ? node.then : node.else, value);
      }
      case "switch": {
        const value = (await evaluate(node.on, scope, place("on"))) ?? null;
        return branchOf(caseOf(node, value), value);
      }
      case "parallel":
        return this.#parallel(at, node);
      case "map":
        return this.#map(at, node, await resolveValue(node.items, scope, place("items")));
      default:
        return node satisfies never;
    }
  }

  async #object(value: JsonObject, scope: FlowScope, place: { node: string; field: string }): Promise<JsonObject> {
    const resolved = await resolveValue(value, scope, place);
    if (isJsonObject(resolved)) return resolved;
    throw new StepFailed({ code: "flow_expression_failed", message: `'${place.field}' has to come to an object.` });
  }

  async #call(at: At, attempt: number, target: ChildTarget): Promise<JsonValue> {
    const { id, node, path } = at;
    const known = this.#journal.step(path);
    if (known?.callId !== null && known?.callId !== undefined && known.attempt === attempt) {
      return this.#outcome(at, attempt, known.callId);
    }
    this.#requireTime(at);
    const timeoutMs = "timeout_ms" in node && node.kind === "tool" ? node.timeout_ms : undefined;
    const made = await this.#calls.make(
      { path, attempt },
      { ...target, arguments: this.#passOn(at, target), timeoutMs },
    );
    const input = await this.#journal.values.pack("input", path, {
      target: target.target,
      arguments: target.arguments,
    });
    const step = { path, node: id, kind: node.kind, state: "running" as const, attempt, input };
    if ("refused" in made) {
      this.#put({ ...step, callId: made.refused.id });
      this.#journal.put({ call: made.refused });
      throw made.why;
    }
    const { prepared, row, isDetached } = made;
    if (row.state === "queued" && this.#context.runtimeConfig !== undefined) {
      throw boundToRequest({ path, node: id });
    }
    this.#put({ ...step, callId: row.id });
    const states = await this.#journal.commit({ call: row });
    this.#deps.reach("flow.step-recorded");
    const state = states.get(row.id);
    if (state === "queued") await this.#calls.send(row.id, prepared.timeoutMs * prepared.maxAttempts);
    if (isDetached) return { run_id: row.id, call_id: row.id, status: state ?? "queued" };
    if (state !== "running") return this.#outcome(at, attempt, row.id);
    const finish = await this.#inTime(at, (signal) => this.#calls.carryOut(prepared, signal), prepared.timeoutMs);
    // Also what waits for something below it.
    if (finish !== "lost" && finish.state === "cancelled" && this.#isOver(at)) await this.#calls.cancel([row.id]);
    if (finish === "lost" && this.#stop.signal.aborted) throw new RunLost(this.#stop.signal.reason);
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
    if (state === "completed") return this.#calls.valueOf(id, outcome ?? null);
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
        await this.#calls.cancel([callId]);
        this.#requireTime(at);
      }
      const lostAt =
        found.state === "running" && found.leaseUntil !== null ? found.leaseUntil + leaseGraceMs : undefined;
      if (lostAt !== undefined && now >= lostAt && !this.#sent.has(callId)) {
        this.#sent.add(callId);
        await this.#calls.send(callId);
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
      this.#requireTime(at, why);
      const question = await this.#calls.question(
        { path: `${path}?`, attempt },
        { message: error.message, form: operatorForm, step: path },
      );
      questionId = question.id;
      const { input = null } = known ?? {};
      this.#put({
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
        await this.#calls.cancel([questionId]);
        return this.#outcome(at, attempt, ended.id);
      }
      const question = this.#journal.call(questionId);
      if (question !== undefined && endStates.includes(question.state))
        return this.#operatorSays(at, attempt, { question, error });
      if (this.#isOver(at)) await this.#calls.cancel([questionId]);
      this.#requireTime(at, why);
      await this.#waits.until({ wakeAt: at.deadline, hears: true });
      requireWanted(at.frame.group);
    }
  }

  async #operatorSays(
    { path, node, id }: At,
    attempt: number,
    { question, error }: { readonly question: Call; readonly error: StepError },
  ): Promise<JsonValue> {
    const answer = question.state === "completed" ? await this.#calls.valueOf(question.id, question.outcome) : null;
    const form = isJsonObject(answer) ? answer["input"] : null;
    const { decision, output } = isJsonObject(form) ? form : {};
    // Read as the text that the call would have given: forms have texts only.
    if (decision === "skip") return typeof output === "string" ? resultOf(output, "text/plain") : null;
    if (decision !== "retry") throw new StepFailed(error);
    this.#put({
      path,
      node: id,
      kind: node.kind,
      state: "waiting",
      attempt: attempt + 1,
      wakeAt: this.#deps.clock.now(),
    });
    throw new RetriedByOperator();
  }

  async #approval(
    at: At,
    attempt: number,
    asked: { readonly message: string; readonly form: JsonObject | undefined },
  ): Promise<JsonValue> {
    const { path, id, node } = at;
    const known = this.#journal.step(path);
    let callId = known?.attempt === attempt ? known.callId : null;
    if (callId === null) {
      const row = await this.#calls.question({ path, attempt }, { ...asked, step: path });
      callId = row.id;
      const input = await this.#journal.values.pack("input", path, { message: asked.message });
      this.#put({ path, node: id, kind: node.kind, state: "waiting", attempt, input, callId });
      await this.#journal.commit({ call: row });
      this.#deps.reach("flow.step-recorded");
      await this.#journal.reload();
    }
    const call = await this.#ended(at, callId);
    if (call.state === "completed") return this.#calls.valueOf(call.id, call.outcome);
    throw callFailed(call.id, call.state, call.error);
  }

  async #wait(at: At, node: WaitNode, attempt: number): Promise<JsonValue> {
    const { path, id, frame } = at;
    const { settings } = this.#context.config;
    const begin = (wakeAt: number | null): void =>
      this.#put({ path, node: id, kind: node.kind, state: "waiting", attempt, wakeAt });
    const place = (field: string) => ({ node: id, field: `${frame.field}.${id}.${field}` });
    if (node.signal !== undefined) {
      if (this.#journal.step(path) === undefined) begin(at.deadline ?? null);
      for (;;) {
        const signal = this.#journal.signal(node.signal);
        if (signal !== undefined) {
          this.#journal.put({ taken: { token: signal.token, path } });
          return this.#journal.values.open("signal", signal.token, signal.payload);
        }
        this.#requireTime(at);
        await this.#waits.until({ wakeAt: at.deadline, hears: true });
        requireWanted(frame.group);
        // What was told in time counts, though nobody has looked since.
        if (at.deadline !== undefined && this.#deps.clock.now() >= at.deadline) await this.#journal.reload();
      }
    }
    let until = this.#journal.step(path)?.wakeAt ?? undefined;
    if (until === undefined) {
      until = await timeFor(node, frame.scope, { place, now: this.#deps.clock.now(), settings });
      begin(until);
      // Else it would begin anew with every process.
      if (until - this.#deps.clock.now() > 50) await this.#journal.commit();
    }
    await this.#untilTime(at, until);
    return { until: new Date(until).toISOString() };
  }

  async #parallel(at: At, { branches }: ParallelNode): Promise<JsonValue> {
    const names = Object.keys(branches);
    const outputs = await this.#threads(at, names.length, names.length, (index) => {
      const name = names[index] ?? "";
      const body = branches[name] as FlowBody;
      return { body, prefix: `${at.path}.${name}/`, field: `branches.${name}.nodes`, items: {} };
    });
    return Object.fromEntries(names.map((name, index) => [name, outputs[index] ?? null]));
  }

  async #map(at: At, node: MapNode, items: JsonValue): Promise<JsonValue> {
    if (!Array.isArray(items)) {
      throw new StepFailed({
        code: "flow_expression_failed",
        message: `'items' of '${at.path}' has to come to a list.`,
      });
    }
    const list = items as readonly JsonValue[];
    return this.#threads(at, list.length, node.concurrency, (index) => {
      const item = list[index] ?? null;
      return {
        body: node.body,
        prefix: `${at.path}[${index}]/`,
        field: "body.nodes",
        items: { item, [node.as]: item },
      };
    });
  }

  /** So many at once; what they come to is in order, whichever ends first. */
  async #threads(
    at: At,
    count: number,
    concurrency: number,
    threadAt: (index: number) => {
      readonly body: FlowBody;
      readonly prefix: string;
      readonly field: string;
      readonly items: JsonObject;
    },
  ): Promise<JsonValue[]> {
    const { path, id, node, frame, deadline } = at;
    if (this.#journal.step(path) === undefined) this.#put({ path, node: id, kind: node.kind, state: "running" });
    const group: Group = { parent: frame.group, stopped: false };
    const outputs: JsonValue[] = Array.from({ length: count }, () => null);
    let next = 0;
    let failure: Error | undefined;
    const lane = async (): Promise<void> => {
      while (next < count && !group.stopped) {
        const index = next;
        next += 1;
        const { body, prefix, field, items } = threadAt(index);
        const scope: FlowScope = { ...frame.scope, ...items };
        const inner = { scope, prefix, field: `${frame.field}.${id}.${field}`, deadline, group };
        outputs[index] = await this.#body(body, inner);
      }
    };
    const lanes = Array.from({ length: Math.min(count, concurrency) }, () =>
      this.#waits.thread(lane).catch((thrown: unknown) => {
        if (!(thrown instanceof ThreadStopped)) failure ??= thrown instanceof Error ? thrown : toGatewayError(thrown);
        if (!(thrown instanceof StepFailed) || group.stopped) return;
        group.stopped = true;
        this.#waits.notify();
      }),
    );
    await this.#waits.others(() => Promise.all(lanes));
    if (failure === undefined) {
      requireWanted(group);
      return outputs;
    }
    if (failure instanceof StepFailed) {
      await this.#calls.cancel(this.#journal.openCalls(path));
      const where = failure instanceof BodyFailed ? { failed_at: failure.path } : {};
      throw new StepFailed({ ...failure.error, details: { ...failure.error.details, ...where } });
    }
    throw failure;
  }
}
