/**
 * Runs of flows: started with their events as the answer, looked at, followed, told something, and run again
 * (FLOWRUN-1; docs/flows.md). A run is a call, and `GET /v1/calls/{id}` shows it, too.
 */
import { runtimeConfigField } from "@toolyard/core/blind/runtime-config";
import { callStates, endStates, type Call } from "@toolyard/core/calls/call";
import { findCall } from "@toolyard/core/calls/find-call";
import { maySeeCall } from "@toolyard/core/calls/view";
import { hasScope } from "@toolyard/core/callers/caller";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { NewRun } from "@toolyard/core/flows/run/start";
import type { StepView } from "@toolyard/core/flows/run/follow";
import { workflowEventSchema } from "@toolyard/core/flows/workflow-events";
import { isJsonObject, jsonOrText, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { toRfc3339 } from "@toolyard/core/time";
import { formatToolUri } from "@toolyard/core/tools/uri";
import * as z from "zod";
import { headerOf, hostOf } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { answerRunEvents } from "../follow-run.ts";
import { readIdempotencyKey, replayHeaders } from "../idempotency-key.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { arrangeFlow } from "./arrange-flow.ts";
import { argumentsField, emptyBody, idOf, idParams, notFound, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["flows"];

const errorSchema = z.looseObject({ code: z.string(), message: z.string() }).nullable();

const runFields = {
  id: z.string().meta({ example: "call_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("run"),
  flow: z.string().meta({ description: "Name of the flow." }),
  state: z
    .enum([...callStates, "waiting"])
    .meta({ description: "`waiting`: it holds nothing, for a time, a person, a signal or another call." }),
  parent_id: z.string().nullable().meta({ description: "What asked for it: another run, a chat." }),
  root_id: z.string().nullable(),
  trace_id: z.string(),
  error: errorSchema,
  created_at: timeSchema,
  started_at: timeSchema.nullable(),
  finished_at: timeSchema.nullable(),
};
const runSchema = z.strictObject(runFields);

const stepSchema = z.strictObject({
  path: z.string().meta({ description: "Place in the run.", example: "orders[3]/notify" }),
  node: z.string(),
  kind: z.string(),
  state: z.enum(["running", "waiting", "completed", "failed", "unknown", "cancelled"]),
  attempt: z.int(),
  input: z.json(),
  output: z.json(),
  error: errorSchema,
  call_id: z.string().nullable().meta({ description: "The call that it made." }),
  question_id: z.string().nullable().meta({ description: "The call by which a person is asked." }),
  wake_at: timeSchema.nullable(),
  started_at: timeSchema,
  finished_at: timeSchema.nullable(),
});
const wholeRunSchema = z
  .strictObject({
    ...runFields,
    output: z.json().meta({ description: "null while there is none, or where it is long: see `output_url`." }),
    output_url: z.string().nullable(),
    steps: z.array(stepSchema),
  })
  .meta({ id: "RunWithSteps" });

function viewRun(call: Call): z.output<typeof runSchema> {
  return {
    id: call.id,
    object: "run",
    flow: flowOf(call),
    state: call.state === "queued" && call.startedAt !== null ? "waiting" : call.state,
    parent_id: call.parentId,
    root_id: call.rootId,
    trace_id: call.traceId,
    error: call.error === null ? null : { ...call.error.details, code: call.error.code, message: call.error.message },
    created_at: toRfc3339(call.createdAt),
    started_at: timeOf(call.startedAt),
    finished_at: timeOf(call.finishedAt),
  };
}

function viewWhole(call: Call, steps: readonly StepView[], publicUrl: string): z.output<typeof wholeRunSchema> {
  const { outcome } = call;
  const isWhole = outcome !== null && outcome.blobKey === undefined;
  return {
    ...viewRun(call),
    output: isWhole ? jsonOrText(outcome.text) : null,
    output_url: outcome === null ? null : `${publicUrl}/v1/calls/${call.id}/result`,
    steps: steps.map((step) => ({
      path: step.path,
      node: step.node,
      kind: step.kind,
      state: step.state,
      attempt: step.attempt,
      input: step.input,
      output: step.output,
      error: step.error === null ? null : { ...step.error },
      call_id: step.callId,
      question_id: step.questionId,
      wake_at: timeOf(step.wakeAt),
      started_at: toRfc3339(step.startedAt),
      finished_at: timeOf(step.finishedAt),
    })),
  };
}

function flowOf({ uri }: Pick<Call, "uri">): string {
  return decodeURIComponent(uri.slice("flow://".length).split("?", 1)[0] ?? "");
}

function timeOf(at: number | null): string | null {
  return at === null ? null : toRfc3339(at);
}

/** @throws GatewayError `not_found`: what the caller may not see does not exist for it */
async function findRun(core: CoreDeps, context: CallContext, id: string): Promise<Call> {
  try {
    const call = await findCall(core, context, id);
    // What a run asks a person is a call of the flow, too.
    if (call.uri.startsWith("flow://") && call.toolHash !== "flow-question") return call;
  } catch (thrown) {
    if (!(thrown instanceof GatewayError) || thrown.code !== "not_found") throw thrown;
  }
  throw notFound("run", id);
}

async function showRun(core: CoreDeps, context: CallContext, id: string): Promise<z.output<typeof wholeRunSchema>> {
  const { viewRun: read } = await import("@toolyard/core/flows/run/follow");
  const { call, steps } = await read(core, context, id);
  return viewWhole(call, steps, core.publicUrl);
}

/** Who decides and may not read the runs of others is shown what was decided, as its call is. */
async function showAnswered(
  core: CoreDeps,
  context: CallContext,
  id: string,
  asked: Call,
): Promise<z.output<typeof wholeRunSchema>> {
  const { viewRun: read } = await import("@toolyard/core/flows/run/follow");
  const { call, steps } = await read(core, context, id);
  if (maySeeCall(context.caller, call)) return viewWhole(call, steps, core.publicUrl);
  const decided = steps.filter(({ callId, questionId }) => callId === asked.id || questionId === asked.id);
  return { ...viewWhole(call, decided, core.publicUrl), error: null, output: null, output_url: null };
}

/** What runs are told is read where there is one. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const control = () => import("@toolyard/core/flows/run/control");

/** It stays under way: ended ones are archived. */
async function arrangeRun(owner: IsolationDriver): Promise<string> {
  const id = await arrangeFlow(owner, { kind: "wait", signal: "go_on" });
  const { name } = await owner.send("patch", `/v1/flows/${id}`, {});
  const started = await owner.send("post", "/v1/run_workflow", { workflow_id: name, stream: false, wait: false });
  return String(started["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeRun(owner) },
});

export const runWorkflow = defineRoute({
  method: "post",
  path: "/v1/run_workflow",
  summary: "Run a flow, and answer with its events",
  description:
    "`workflow_id` is the name of a published flow, or of one that is always there (`knowledge_rag`, `deep_search`). The run goes on when the client leaves, unless `cancel_on_disconnect`; `GET /v1/runs/{run_id}` with `Last-Event-ID` goes on with its events.",
  tags,
  scope: "tools",
  request: {
    body: z.strictObject({
      workflow_id: z.string().min(1).max(64).meta({ description: "Name of the flow.", example: "knowledge_rag" }),
      input: argumentsField.meta({ description: "As the flow's `input` schema has it." }),
      version: z.int().min(1).optional().meta({ description: "Absent: the latest published." }),
      stream: z.boolean().default(true),
      wait: z.boolean().default(true).meta({ description: "With `stream: false`: `false` answers 202 at once." }),
      cancel_on_disconnect: z.boolean().default(false),
      runtime_config: runtimeConfigField.describe(
        "Plugins and credentials for the tools, models and flows of this run only, never stored: the run is carried out within the request, and fails at a step that has to wait for more than a time. Scope `runtime_config`.",
      ),
    }),
    exact: ["input"],
    headers: { "idempotency-key": "The same key is the same run, for 24 hours." },
  },
  responses: {
    200: {
      description: "The run's events, or with `stream: false` the run as it has ended",
      schema: wholeRunSchema,
      content: { "text/event-stream": workflowEventSchema },
    },
    202: {
      description: "The run goes on; it would outlast the answer, or was not to be waited for",
      schema: runSchema,
    },
  },
  isolation: {
    kind: "object",
    arrange: async (owner) => {
      const { name } = await owner.send("patch", `/v1/flows/${await arrangeFlow(owner)}`, {});
      return { params: {}, body: { workflow_id: name } };
    },
  },
  async handler(c, { core, context, presented, config, body }) {
    const [{ requireFlowHead }, { startFlow }] = await Promise.all([
      import("@toolyard/core/flows/find-flow"),
      import("@toolyard/core/flows/run/start"),
    ]);
    const { workflow_id: name, version, input } = body;
    requireFlowHead(config, name, version);
    const bringsConfig = (body.runtime_config ?? null) !== null;
    if (bringsConfig && !body.stream && !body.wait) throw notWithoutWaiting();
    const idempotencyKey = readIdempotencyKey(c);
    const asked = { name, version, input, idempotencyKey };
    const { callId, replayed } = !bringsConfig
      ? await startFlow(core, context, { ...asked, place: { route: "run_workflow", parentId: null, rootId: null } })
      : await startHere(core, context, { asked, runtimeConfig: body.runtime_config });
    const exchange = c.get("exchange");
    exchange.headers["x-toolyard-call-id"] = callId;
    if (replayed) exchange.headers["idempotent-replayed"] = "true";
    const call = await findRun(core, context, callId);
    if (body.stream) {
      return answerRunEvents(c, {
        core,
        context,
        presented,
        call,
        ...(body.cancel_on_disconnect ? { onLeave: () => cancelQuietly(core, context, callId) } : {}),
      });
    }
    const ended = body.wait ? await awaitRun(core, call, waitOf(hostOf(c).lambda?.remainingMs())) : undefined;
    if (ended === undefined) return c.json(viewRun(await findRun(core, context, callId)), 202);
    return c.json(await showRun(core, context, callId));
  },
});

function notWithoutWaiting(): GatewayError {
  return new GatewayError(
    "runtime_config_required",
    "A run with an inline 'runtime_config', which is never stored, is carried out within its request; leave out 'wait': false, or store the plugins.",
    { param: "wait" },
  );
}

/** What it brings along is in this process only, and so is the run. */
async function startHere(
  core: CoreDeps,
  context: CallContext,
  { asked, runtimeConfig }: { readonly asked: Omit<NewRun, "place">; readonly runtimeConfig: unknown },
): Promise<{ readonly callId: string; readonly replayed: boolean }> {
  const { invokeTool } = await import("@toolyard/core/calls/invoke");
  const { tenant, caller, requestId, traceId, span } = context;
  const { name, version, input, idempotencyKey } = asked;
  const recorded = Promise.withResolvers<{ readonly callId: string; readonly replayed: boolean }>();
  const running = invokeTool(core, {
    tenant,
    principal: { kind: "known", caller },
    requestId,
    traceId,
    span,
    target: `${formatToolUri("flow", name)}${version === undefined ? "" : `?version=${version}`}`,
    isUri: true,
    arguments: input,
    async: false,
    runtimeConfig,
    isCounted: true,
    route: "run_workflow",
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    onRecorded: (callId) => recorded.resolve({ callId, replayed: false }),
    signal: new AbortController().signal,
  });
  // Once it is on record, the record says what becomes of it.
  running.then(recorded.resolve, recorded.reject);
  return recorded.promise;
}

/** A request without a stream is not kept waiting longer than the REST API keeps it. */
const longestWaitMs = 25_000;
const marginMs = 3_000;

function waitOf(remainingMs = Number.POSITIVE_INFINITY): number {
  return Math.min(longestWaitMs, remainingMs - marginMs);
}

/** Undefined: it goes on. */
async function awaitRun(core: CoreDeps, { tenant, id }: Call, withinMs: number): Promise<Call | undefined> {
  const until = core.clock.now() + withinMs;
  for (let waitMs = 50; core.clock.now() < until; waitMs = Math.min(waitMs * 2, 1_000)) {
    const call = await core.repos.calls.get(tenant, id);
    if (call === undefined || endStates.includes(call.state)) return call;
    await core.clock.sleep(waitMs);
  }
  return undefined;
}

async function cancelQuietly(core: CoreDeps, context: CallContext, id: string): Promise<void> {
  const { cancelRun } = await control();
  try {
    await cancelRun(core, context, id);
  } catch {
    // It had ended meanwhile, or runs on: nobody is there to be told.
  }
}

export const listRuns = defineRoute({
  method: "get",
  path: "/v1/runs",
  summary: "List runs of flows",
  description: "One's own; with the scope 'calls' those of the tenant.",
  tags,
  scope: null,
  list: true,
  request: {
    query: pageQuery.extend({
      flow: z.string().min(1).max(64).optional().meta({ description: "Name of the flow." }),
      state: z.enum(callStates).optional(),
      parent_id: z.string().min(1).max(200).optional(),
    }),
  },
  responses: { 200: { description: "A page of runs", schema: listSchema(runSchema) } },
  isolation: { kind: "list", arrange: arrangeRun },
  async handler(c, { core, tenant, caller, query }) {
    const filter = {
      runs: true,
      ...withoutUndefined({ tool: query.flow, state: query.state, parentId: query.parent_id }),
      ...(hasScope(caller, "calls") ? {} : { callerId: caller.id }),
    } as const;
    return c.json(toList(await core.repos.calls.list(tenant, filter, toPageRequest(query)), viewRun, idOf));
  },
});

export const getRun = defineRoute({
  method: "get",
  path: "/v1/runs/{id}",
  summary: "One run with its steps, or its events",
  description:
    "With `Accept: text/event-stream` what has happened and what happens, until the run ends; `Last-Event-ID` goes on behind the last event that was seen, on any instance.",
  tags,
  scope: null,
  request: {
    params: idParams,
    headers: { accept: "`text/event-stream`: its events.", "last-event-id": "The last event that was seen." },
  },
  responses: {
    200: {
      description: "The run as it is now",
      schema: wholeRunSchema,
      content: { "text/event-stream": workflowEventSchema },
    },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, presented, params }) {
    const call = await findRun(core, context, params.id);
    const isStream = headerOf(c, "accept")?.includes("text/event-stream") === true;
    return isStream
      ? answerRunEvents(c, { core, context, presented, call })
      : c.json(await showRun(core, context, call.id));
  },
});

export const cancelRun = defineRoute({
  method: "post",
  path: "/v1/runs/{id}/cancel",
  summary: "Cancel a run",
  description: "Steps under way are asked to stop, waits end; what was done stays done.",
  tags,
  scope: null,
  request: { params: idParams, body: emptyBody },
  responses: { 200: { description: "The run as it is now", schema: wholeRunSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    await findRun(core, context, params.id);
    const { cancelRun: cancel } = await control();
    await cancel(core, context, params.id);
    return c.json(await showRun(core, context, params.id));
  },
});

export const signalRun = defineRoute({
  method: "post",
  path: "/v1/runs/{id}/signal",
  summary: "Tell a run something that it waits for",
  description:
    "Kept until a node `wait` of that signal takes it. The same `token` is the same signal, however often it is sent, so people and machines may repeat it; another name or payload needs another one.",
  tags,
  scope: "tools",
  request: {
    params: idParams,
    body: z.strictObject({
      name: z
        .string()
        .min(1)
        .max(64)
        .meta({ description: "As the node's `signal`; one that no node waits for is refused." }),
      token: z.string().min(1).max(200).meta({ description: "Of whoever tells it: one for each thing told." }),
      payload: z.json().default(null).meta({ description: "The output of the node." }),
    }),
    exact: ["payload"],
  },
  responses: {
    200: {
      description: "Kept",
      schema: z.strictObject({
        object: z.literal("run.signal"),
        run_id: z.string(),
        replayed: z.boolean().meta({ description: "It was known by its token." }),
      }),
    },
  },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { name: "go_on", token: "t" } }),
  },
  async handler(c, { core, context, params, body }) {
    await findRun(core, context, params.id);
    const { signalRun: signal } = await control();
    const payload: JsonValue = body.payload;
    const { replayed } = await signal(core, context, params.id, { name: body.name, token: body.token, payload });
    return c.json({ object: "run.signal", run_id: params.id, replayed });
  },
});

const answerFields = {
  step: z.string().min(1).max(512).optional().meta({ description: "Which step is meant, where several ask." }),
  reason: z.string().trim().min(1).max(2_000).optional().meta({ description: "Kept with the call." }),
};
const inputField = z
  .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
  .optional()
  .meta({ type: "object", additionalProperties: true, description: "What is filled into the form." });

function answerRoute(
  verb: "approve" | "reject" | "resume",
  { summary, description }: { readonly summary: string; readonly description: string },
): ReturnType<typeof defineRoute> {
  return defineRoute({
    method: "post",
    path: `/v1/runs/{id}/${verb}`,
    summary,
    description,
    tags,
    scope: null,
    request: {
      params: idParams,
      body: z.strictObject({ ...answerFields, ...(verb === "reject" ? {} : { input: inputField }) }).default({}),
      exact: ["input"],
    },
    responses: { 200: { description: "The run as it is now", schema: wholeRunSchema } },
    isolation: { kind: "object", arrange: arrangeObject },
    async handler(c, { core, context, params, body }) {
      const { answerRun } = await control();
      const { step, reason, input } = body as { step?: string; reason?: string; input?: JsonObject };
      const decision = verb === "reject" ? "rejected" : "approved";
      const asked = await answerRun(core, context, params.id, { step, decision, reason, input });
      return c.json(await showAnswered(core, context, params.id, asked));
    },
  });
}

export const approveRun = answerRoute("approve", {
  summary: "Approve what a run asks",
  description:
    "Of a node `approval`, with its form filled in, or of a step whose tool waits for approval. Said again it changes nothing. Needs the scope 'approve'. Of the runs of others who may not read those ('calls') is shown the step that was answered.",
});
export const rejectRun = answerRoute("reject", {
  summary: "Reject what a run asks",
  description: "The step fails, and `on_error` decides. Said again it changes nothing. Needs the scope 'approve'.",
});
export const resumeRun = answerRoute("resume", {
  summary: "Say how a run goes on",
  description:
    "Of a step whose fate is not known: `input` says what is to be done, as the step asks it. Said again it changes nothing.",
});

export const replayRun = defineRoute({
  method: "post",
  path: "/v1/runs/{id}/replay",
  summary: "Run a flow again from a step",
  description:
    "A new run of the same version with the same input, which passes over what the first one had done before `from`; absent: the whole run.",
  tags,
  scope: "tools",
  request: {
    params: idParams,
    body: z
      .strictObject({ from: z.string().min(1).max(512).optional().meta({ description: "Path of a step." }) })
      .default({}),
    headers: { "idempotency-key": "The same key makes one new run, however often it is sent." },
  },
  responses: { 202: { description: "The new run", schema: runSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, body }) {
    await findRun(core, context, params.id);
    const { replayRun: replay } = await control();
    const idempotencyKey = readIdempotencyKey(c);
    const { callId, replayed } = await replay(core, context, params.id, { from: body.from, idempotencyKey });
    return c.json(viewRun(await findRun(core, context, callId)), 202, replayHeaders(replayed));
  },
});
