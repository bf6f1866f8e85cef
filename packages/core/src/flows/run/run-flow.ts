/**
 * Interprets a flow from what its run has recorded (design "One record"). It begins at the start each time: what is
 * on record is not done again but passed over, and what is not is done and written down. So it does not matter which
 * process goes on, nor where the last one has died.
 */
import type { Call } from "../../calls/call.ts";
import { processEnd } from "../../calls/lease.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { StepError } from "../../ports/flow-runs.ts";
import { attemptTimedOut } from "../../tools/execute-call.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { isOutage } from "../../errors/outage.ts";
import { Parked, type InvocationContext, type ToolCall, type ToolReply } from "../../tools/tool-call.ts";
import { waitForOutage } from "../../tools/wait-for-outage.ts";
import type { FlowBody, FlowDefinition, FlowNode, FlowValue, MapNode, ParallelNode, WaitNode } from "../definition.ts";
import { evaluate, resolveValue, type FlowScope } from "../transform.ts";
import { ChildCalls } from "./child-calls.ts";
import { asTimeout, BodyFailed, boundToRequest, runFailed, StepFailed } from "./failures.ts";
import { Journal, RunLost, stepsExceeded, type KnownStep } from "./journal.ts";
import { askModel } from "./model-step.ts";
import { asText, branchOf, caseOf, earliest, isPure, isTrue, nextOf, pauseMs, timeFor } from "./node-values.ts";
import { readRun } from "./read-run.ts";
import { StepCalls } from "./step-calls.ts";
import type { At, Frame } from "./step-place.ts";
import { StepTime } from "./step-time.ts";
import { requireWanted, RetriedByOperator, ThreadStopped, type Group } from "./threads.ts";
import { flowVariables, requireInput } from "./variables.ts";
import { Waits } from "./waits.ts";

/** Part of an invocation after which no step is begun any more. */
const softShare = 0.8;

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

type StepResult = { readonly output: JsonValue } | { readonly error: StepError };

class FlowRun {
  readonly #deps: CoreDeps;
  readonly #context: InvocationContext;
  readonly #parts: FlowRunParts;
  readonly #journal: Journal;
  readonly #children: ChildCalls;
  readonly #calls: StepCalls;
  readonly #waits: Waits;
  readonly #time: StepTime;
  readonly #stop = new AbortController();
  readonly #softEnd: number;

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
    this.#children = new ChildCalls(deps, context, {
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
    const { journal } = parts;
    const [waits, stop] = [this.#waits, this.#stop.signal];
    this.#time = new StepTime({ clock: deps.clock, journal, waits, stop });
    this.#calls = new StepCalls(deps, context, { children: this.#children, journal, waits, time: this.#time, stop });
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
    await this.#children.cancel(this.#journal.openCalls("")).catch(() => undefined);
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
        this.#journal.putStep({ path, node: id, kind: node.kind, state: "failed", error });
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
        this.#journal.putStep({
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
          this.#journal.putStep({
            path,
            node: id,
            kind: node.kind,
            state: "waiting",
            attempt: attempt + 1,
            error,
            wakeAt,
          });
          await this.#journal.commit();
          continue;
        }
        this.#journal.putStep({
          ...this.#journal.step(path),
          path,
          node: id,
          kind: node.kind,
          state: "failed",
          attempt,
          error,
        });
        if (!isPure(node)) await this.#journal.commit();
        return { error };
      }
    }
  }

  /** Undefined: it is no failure of the step but the end, or the rest, of the whole run. */
  #asFailure(at: At, thrown: unknown): StepFailed | undefined {
    if (thrown instanceof StepFailed) return this.#time.isOver(at) ? asTimeout(thrown, at.path) : thrown;
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
    await this.#time.until(at, known.wakeAt);
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
    this.#journal.putStep({
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
        return this.#calls.call(at, attempt, { target, isUri: node.uri !== undefined, arguments: args });
      }
      case "flow": {
        const given = await this.#object(node.input, scope, place("input"));
        const options = [node.version === undefined ? "" : `version=${node.version}`, node.async ? "async=true" : ""];
        const query = options.filter((option) => option !== "").join("&");
        const target = `flow://${node.name}${query === "" ? "" : `?${query}`}`;
        return this.#calls.call(at, attempt, { target, isUri: true, arguments: given });
      }
      case "agent": {
        const prompt = await resolveValue(node.prompt, scope, place("prompt"));
        const context =
          node.context === undefined ? {} : { context: await this.#object(node.context, scope, place("context")) };
        return this.#calls.call(at, attempt, {
          target: `agent://${encodeURIComponent(node.agent)}`,
          isUri: true,
          arguments: { prompt, ...context },
        });
      }
      case "model":
        return this.#time.within(at, (signal) =>
          askModel(this.#deps, this.#context, {
            node,
            scope,
            place: place("messages"),
            at: { path: at.path, attempt },
            run: this.#parts.row,
            via: this.#children.place.via ?? [],
            signal,
            begin: async () => {
              this.#journal.putStep({ path: at.path, node: id, kind: node.kind, state: "running", attempt });
              await this.#journal.commit();
              this.#deps.reach("flow.step-recorded");
            },
            pause: (ms) => this.#time.until(at, this.#deps.clock.now() + ms),
            onText: (text) => this.#journal.note(at.path, text),
          }),
        );
      case "approval": {
        const message = asText(await resolveValue(node.message, scope, place("message")));
        return this.#calls.approval(at, attempt, { message, form: node.form });
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

  async #wait(at: At, node: WaitNode, attempt: number): Promise<JsonValue> {
    const { path, id, frame } = at;
    const { settings } = this.#context.config;
    const begin = (wakeAt: number | null): void =>
      this.#journal.putStep({ path, node: id, kind: node.kind, state: "waiting", attempt, wakeAt });
    const place = (field: string) => ({ node: id, field: `${frame.field}.${id}.${field}` });
    if (node.signal !== undefined) {
      if (this.#journal.step(path) === undefined) begin(at.deadline ?? null);
      for (;;) {
        const signal = this.#journal.signal(node.signal);
        if (signal !== undefined) {
          this.#journal.put({ taken: { token: signal.token, path } });
          return this.#journal.values.open("signal", signal.token, signal.payload);
        }
        this.#time.require(at);
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
    await this.#time.until(at, until);
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
    if (this.#journal.step(path) === undefined)
      this.#journal.putStep({ path, node: id, kind: node.kind, state: "running" });
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
      await this.#children.cancel(this.#journal.openCalls(path));
      const where = failure instanceof BodyFailed ? { failed_at: failure.path } : {};
      throw new StepFailed({ ...failure.error, details: { ...failure.error.details, ...where } });
    }
    throw failure;
  }
}
