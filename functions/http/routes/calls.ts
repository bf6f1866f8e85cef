/**
 * The record of what was asked and what came of it (CHAT-13): read, read on, cancel, decide, replay.
 * A caller sees its own calls; with the scope `calls` those of the whole tenant.
 */
import { callStates, type Call } from "@toolyard/core/calls/call";
import { runtimeConfigField } from "@toolyard/core/blind/runtime-config";
import { cancelCall as cancel } from "@toolyard/core/calls/cancel";
import { decideCall } from "@toolyard/core/calls/decide";
import { findCall } from "@toolyard/core/calls/find-call";
import { inputAnswersSchema } from "@toolyard/core/calls/input-request";
import { mostInterruptions } from "@toolyard/core/calls/interruptions";
import { openResult, presignResult } from "@toolyard/core/calls/result-store";
import { replayCall as replay } from "@toolyard/core/calls/replay";
import { viewCall, type CallView } from "@toolyard/core/calls/view";
import { hasScope, type Caller } from "@toolyard/core/callers/caller";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { placesOf } from "@toolyard/core/every-page";
import type { CallFilter, CallPageRequest } from "@toolyard/core/ports/calls";
import type { Page } from "@toolyard/core/ports/page";
import * as z from "zod";
import { answerBytes, ofAnyType, knownToClient, tooLargeHere } from "../answer-bytes.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { readIdempotencyKey, replayHeaders } from "../idempotency-key.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { answerThroughSink } from "../sink.ts";
import { defaultExpiresInMs, downloadSchema, expiresInField, viewDownload } from "./links.ts";
import { emptyBody, givenTimeSchema, idOf, idParams, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["calls"];

const callSchema = z.strictObject({
  id: z.string().meta({ example: "call_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("call"),
  kind: z.enum(["chat", "tool"]),
  state: z.enum(callStates).meta({ description: "'unknown': sent, and whether it took effect is not known." }),
  tool: z.string(),
  uri: z.string(),
  effect: z.enum(["read", "write"]),
  async: z.boolean(),
  attempt: z.int().meta({ description: "How often a process has taken it." }),
  interruptions: z.int().meta({
    description: `How many of them in a row have ended or gone silent over it; after ${mostInterruptions} it is not carried out again.`,
  }),
  parent_id: z.string().nullable().meta({ description: "The chat that asked for it." }),
  root_id: z.string().nullable().meta({ description: "The first of a row of retried chats." }),
  session_id: z.string().nullable(),
  caller: z
    .strictObject({ id: z.string(), chain: z.array(z.strictObject({ kind: z.string(), id: z.string() })) })
    .meta({ description: "Who stands behind the call, outermost first." }),
  route: z.string(),
  idempotency_key: z.string().nullable(),
  input: z.json().meta({ description: "The arguments, redacted; text where they were cut." }),
  result: z
    .strictObject({
      preview: z.string(),
      complete: z.boolean().meta({ description: "'preview' is all of it." }),
      media_type: z.string(),
      bytes: z.int(),
      url: z.string().meta({ description: "Where the whole result is." }),
    })
    .nullable(),
  input_requests: z.json().meta({
    description: "Of a call that waits for input: what a person is asked, by name; answered with POST …/approve.",
  }),
  error: z
    .strictObject({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()).optional() })
    .nullable(),
  usage: z.record(z.string(), z.unknown()).nullable(),
  cost: z
    .strictObject({
      micros: z.int().meta({ description: "Of the call itself: a chat's model tokens, a tool's price." }),
      tokens: z.int(),
      context_tokens: z.int().meta({ description: "Of a tool call: its schema and its result in the chat's prompts." }),
      context_micros: z.int().meta({ description: "What those cost; part of the chat's own cost." }),
      total_micros: z.int().meta({ description: "With the calls below it that have ended." }),
      estimated: z.boolean().meta({ description: "The back end did not tell all of the tokens." }),
    })
    .nullable()
    .meta({ description: "In micro-units (millionths), as in GET /v1/prices." }),
  cancel_requested: z.boolean(),
  approval: z
    .strictObject({
      decision: z.enum(["approved", "rejected"]),
      by: z.string(),
      at: timeSchema,
      reason: z.string().nullable(),
    })
    .nullable(),
  request_id: z.string(),
  trace_id: z.string(),
  created_at: timeSchema,
  started_at: timeSchema.nullable(),
  finished_at: timeSchema.nullable(),
  duration_ms: z.int().nullable(),
});

/** A line of an archive. */
export const archivedCallSchema = callSchema
  .extend({
    result: callSchema.shape.result.unwrap().omit({ url: true }).nullable(),
  })
  .meta({ id: "ArchivedCall" });

const callReply = { 200: { description: "The call as it is now", schema: callSchema } };

async function showCalls(core: CoreDeps, tenant: string, calls: readonly Call[]): Promise<readonly CallView[]> {
  const below = await core.repos.calls.costsBelow(
    tenant,
    calls.map(({ id }) => id),
  );
  return calls.map((call) => viewCall(call, below.get(call.id) ?? 0));
}

async function showCall(core: CoreDeps, call: Call): Promise<CallView> {
  const below = await core.repos.calls.costsBelow(call.tenant, [call.id]);
  return viewCall(call, below.get(call.id) ?? 0);
}

/** A call of the owner that waits for approval, so that it stays as it is. */
async function arrangeCall(owner: IsolationDriver): Promise<string> {
  const name = newId("request");
  await owner.send("post", "/v1/plugins", {
    schema_version: "v1",
    name,
    description: "Waits for approval.",
    parameters: { type: "object", properties: {} },
    execution: { method: "POST", base_url: "https://crm.example.com/notes", param_placement: "body" },
    sensitive: true,
  });
  const call = await owner.send("post", "/v1/tools/invoke", { name, arguments: {} });
  return String(call["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeCall(owner) },
});

const filters = {
  state: z.enum(callStates).optional(),
  kind: z.enum(["chat", "tool"]).optional(),
  tool: z.string().min(1).max(200).optional().meta({ description: "Name of the tool." }),
  session_id: z.string().min(1).max(200).optional(),
  parent_id: z.string().min(1).max(200).optional(),
  caller_id: z.string().min(1).max(1_024).optional(),
  from: givenTimeSchema.optional().meta({ description: "Created at or after this time." }),
  to: givenTimeSchema.optional().meta({ description: "Created before this time." }),
};

const callsQuery = pageQuery.extend(filters);
const exportQuery = z.strictObject(filters);

function toFilter(caller: Caller, query: z.output<typeof exportQuery>): CallFilter {
  const callerId = visibleCaller(caller, query);
  return {
    ...(query.state === undefined ? {} : { state: query.state }),
    ...(query.kind === undefined ? {} : { kind: query.kind }),
    ...(query.tool === undefined ? {} : { tool: query.tool }),
    ...(query.session_id === undefined ? {} : { sessionId: query.session_id }),
    ...(query.parent_id === undefined ? {} : { parentId: query.parent_id }),
    ...(callerId === undefined ? {} : { callerId }),
    ...(query.from === undefined ? {} : { from: Date.parse(query.from) }),
    ...(query.to === undefined ? {} : { to: Date.parse(query.to) }),
  };
}

/** Whose calls are listed; undefined: everybody's. Who approves may see what waits for that. */
function visibleCaller(caller: Caller, query: z.output<typeof exportQuery>): string | undefined {
  const wanted = query.caller_id;
  if (hasScope(caller, "calls")) return wanted;
  if (hasScope(caller, "approve") && query.state === "input_required") return wanted;
  if (wanted !== undefined && wanted !== caller.id) {
    throw new GatewayError("permission_denied", "Reading the calls of others needs the scope 'calls'.", {
      param: "caller_id",
    });
  }
  return caller.id;
}

export const listCalls = defineRoute({
  method: "get",
  path: "/v1/calls",
  summary: "List calls",
  description:
    "One's own; with the scope 'calls' those of the tenant. The approvals inbox is '?state=input_required', for holders of 'approve'. An 'after' that is no call of the tenant, or none any more since it was archived, is refused.",
  tags,
  scope: null,
  list: true,
  request: { query: callsQuery },
  responses: { 200: { description: "A page of calls", schema: listSchema(callSchema) } },
  isolation: { kind: "list", arrange: arrangeCall },
  async handler(c, { core, tenant, caller, query }) {
    const page = await core.repos.calls.list(tenant, toFilter(caller, query), toPageRequest(query));
    return c.json(toList({ ...page, data: await showCalls(core, tenant, page.data) }, (view) => view, idOf));
  },
});

const exportPage = 100;

/** Where the next page begins. By the call's place: the archive may take the call itself meanwhile. */
function placeBehind(page: Page<Call>): Pick<CallPageRequest, "after" | "beyond"> | undefined {
  const [{ last }, call] = [placesOf(page, idOf), page.data.at(-1)];
  if (call?.id === last) return call === undefined ? undefined : { beyond: call };
  return last === undefined ? undefined : { after: last };
}

export const exportCalls = defineRoute({
  method: "get",
  path: "/v1/calls/export",
  summary: "All calls that fit, as NDJSON",
  description:
    "One call a line, oldest first, as GET /v1/calls/{id} shows it. Sent while it is read, so it may be long; an answer that breaks off, maybe within a line, was cut off: go on with 'from'.",
  tags,
  scope: null,
  request: { query: exportQuery },
  responses: { 200: { description: "One JSON object a line", mediaType: "application/x-ndjson", schema: callSchema } },
  isolation: { kind: "list", arrange: arrangeCall },
  handler: (c, { core, tenant, caller, query }) => {
    const filter = toFilter(caller, query);
    return answerThroughSink(c, async (sink) => {
      let from: Pick<CallPageRequest, "after" | "beyond"> | undefined = {};
      do {
        const page = await core.repos.calls.list(tenant, filter, { limit: exportPage, order: "asc", ...from });
        sink.head(200, { "content-type": "application/x-ndjson" });
        const lines: object[] = [...(await showCalls(core, tenant, page.data))];
        for (const { id, at } of page.unreadable ?? []) lines.splice(at, 0, { id, object: "call", unreadable: true });
        await sink.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
        from = page.hasMore ? placeBehind(page) : undefined;
      } while (from !== undefined && !sink.closed);
    });
  },
});

export const getCall = defineRoute({
  method: "get",
  path: "/v1/calls/{id}",
  summary: "One call",
  description:
    "Who asked for what, how it stands, what it cost and, where it failed, why. The result itself is at `/result`.",
  tags,
  scope: null,
  request: { params: idParams },
  responses: callReply,
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, context, params }) =>
    c.json(await showCall(core, await findCall(core, context, params.id))),
});

/** Calls of a tree that are shown; what is below further ones can be asked for by their ids. */
const mostInTree = 500;

const treeSchema = z.strictObject({
  object: z.literal("call_tree"),
  id: z.string(),
  nodes: z
    .array(
      z.strictObject({
        ...callSchema.pick({
          id: true,
          parent_id: true,
          kind: true,
          state: true,
          tool: true,
          uri: true,
          created_at: true,
          duration_ms: true,
        }).shape,
        depth: z.int().meta({ description: "0 for the call itself." }),
        error: z.string().nullable().meta({ description: "Its code." }),
        tokens: z.int(),
        micros: z.int().meta({ description: "Of the call itself." }),
        total_micros: z.int().meta({ description: "With what is below it, as far as that has ended." }),
      }),
    )
    .meta({ description: "Each before what it has asked for, the oldest first." }),
  complete: z.boolean().meta({ description: `False where there are more than ${mostInTree} of them.` }),
});

function viewTree(root: Call, calls: readonly Call[]): z.output<typeof treeSchema> {
  const below = Map.groupBy(calls, ({ parentId }) => parentId);
  const nodes: z.output<typeof treeSchema>["nodes"] = [];
  const visit = (call: Call, depth: number): number => {
    const { id, parent_id, kind, state, tool, uri, created_at, duration_ms, cost, error } = viewCall(call, 0);
    const { micros = 0, tokens = 0 } = cost ?? {};
    const code = error?.code ?? null;
    const at = { id, parent_id, kind, state, tool, uri, created_at, duration_ms, depth, error: code, tokens, micros };
    const node = { ...at, total_micros: micros };
    nodes.push(node);
    for (const child of below.get(id) ?? []) node.total_micros += visit(child, depth + 1);
    return node.total_micros;
  };
  visit(root, 0);
  return { object: "call_tree", id: root.id, nodes, complete: calls.length <= mostInTree };
}

export const getCallTree = defineRoute({
  method: "get",
  path: "/v1/calls/{id}/tree",
  summary: "A call and all that it has led to",
  description: "Runs of agents and flows with what they called, down to the last tool, and what each has cost.",
  tags,
  scope: null,
  request: { params: idParams },
  responses: { 200: { description: "The tree", schema: treeSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const root = await findCall(core, context, params.id);
    const calls = await core.repos.calls.family(root.tenant, root.id, { limit: mostInTree + 1 });
    return c.json(viewTree(root, calls));
  },
});

export const getCallResult = defineRoute({
  method: "get",
  path: "/v1/calls/{id}/result",
  summary: "The whole result of a call, or a range of it",
  description:
    "As the tool gave it, with secrets redacted. A call that has not ended is a 409 with Retry-After; one that failed has its error at GET /v1/calls/{id}.",
  tags,
  scope: null,
  request: { params: idParams, headers: { range: "One range of bytes, for example `bytes=0-1023`." } },
  responses: {
    200: { description: "The bytes, in the result's own media type", mediaType: ofAnyType },
    206: { description: "The bytes of the range", mediaType: ofAnyType },
    304: knownToClient,
    307: tooLargeHere,
    416: { description: "Nothing of the result lies in the range" },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { app, core, context, params }) {
    const call = await findCall(core, context, params.id);
    // Read for its checks; the range is known only with the size.
    const { bytes, mediaType } = call.outcome ?? (await openResult(core, context.tenant, call));
    return answerBytes(c, {
      bytes,
      // Texts are kept as UTF-8, whatever the tool sent them in.
      mediaType: mediaType.startsWith("text/") ? `${mediaType}; charset=utf-8` : mediaType,
      etag: call.id,
      fileName: call.id,
      open: async (range) => (await openResult(core, context.tenant, call, range)).body,
      ...(app.blobLinks === undefined ? { link: () => presignResult(core, call, defaultExpiresInMs) } : {}),
    });
  },
});

export const createResultDownload = defineRoute({
  method: "post",
  path: "/v1/calls/{id}/result/download",
  summary: "Ask for a link to download a long result",
  description:
    "For results that are too large for an answer; of those that 'complete' is false of. The link needs no key: whoever has it can read the result until it runs out.",
  tags,
  scope: null,
  request: {
    params: idParams,
    body: z.strictObject({ expires_in_ms: expiresInField }).default({ expires_in_ms: defaultExpiresInMs }),
  },
  responses: { 201: { description: "The link", schema: downloadSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, body }) {
    const call = await findCall(core, context, params.id);
    const expiresAt = core.clock.now() + body.expires_in_ms;
    const request = await presignResult(core, call, body.expires_in_ms);
    const { bytes = 0, mediaType = "" } = call.outcome ?? {};
    return c.json(viewDownload(request, { bytes, mediaType, expiresAt }), 201);
  },
});

export const cancelCall = defineRoute({
  method: "post",
  path: "/v1/calls/{id}/cancel",
  summary: "Cancel a call",
  description:
    "A call that has not begun never runs. One under way is asked to stop: 'cancel_requested' is true until it has. A write that was already sent may end 'unknown'.",
  tags,
  scope: null,
  request: { params: idParams, body: emptyBody },
  responses: callReply,
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, context, params }) => c.json(await showCall(core, await cancel(core, context, params.id))),
});

const reason = z.string().trim().min(1).max(2_000).optional().meta({ description: "Kept with the call." });
const rejectionBody = z.strictObject({ reason }).default({});
const approvalBody = z
  .strictObject({
    reason,
    input: inputAnswersSchema.optional().meta({
      description:
        "Of a call with `input_requests`: by their names, `accept` with `content` as asked for, `decline` or `cancel`.",
    }),
    runtime_config: runtimeConfigField.describe(
      "The configuration that came with the request of the call, which is never stored; the call then runs before the answer. Scope `runtime_config`.",
    ),
  })
  .default({});

export const approveCall = defineRoute({
  method: "post",
  path: "/v1/calls/{id}/approve",
  summary: "Approve a call that waits, or answer what it asks",
  description:
    "The call is queued. Permission, definition and credentials are checked again before it runs; the session's next chat receives its result. Needs the scope 'approve', or for the input of one's own call none.",
  tags,
  scope: null,
  request: { params: idParams, body: approvalBody, exact: ["input"] },
  responses: callReply,
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, body }) {
    const { reason: given, runtime_config: inline, input } = body;
    const call = await decideCall(core, context, {
      callId: params.id,
      decision: "approved",
      ...(given === undefined ? {} : { reason: given }),
      ...(input === undefined ? {} : { input }),
      ...((inline ?? null) === null ? {} : { runtimeConfig: inline }),
    });
    return c.json(await showCall(core, call));
  },
});

export const rejectCall = defineRoute({
  method: "post",
  path: "/v1/calls/{id}/reject",
  summary: "Reject a call that waits",
  description: "Needs the scope 'approve', or for a call of one's own that waits for input none.",
  tags,
  scope: null,
  request: { params: idParams, body: rejectionBody },
  responses: callReply,
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, body }) {
    const call = await decideCall(core, context, {
      callId: params.id,
      decision: "rejected",
      ...withoutUndefined(body),
    });
    return c.json(await showCall(core, call));
  },
});

export const replayCall = defineRoute({
  method: "post",
  path: "/v1/calls/{id}/replay",
  summary: "Run a finished tool call again",
  description:
    "Makes a new call with the same arguments, as the caller of this request. A write needs {\"confirm\": true}, since it may take effect a second time. A call that worked in a session is replayed in it by whoever may use that (`session_not_found`). Needs the scope 'tools' or 'calls'.",
  tags,
  scope: null,
  request: {
    params: idParams,
    body: z.strictObject({ confirm: z.boolean().default(false) }).default({ confirm: false }),
    headers: { "idempotency-key": "The same key makes one new call, however often it is sent." },
  },
  responses: { 202: { description: "The new call", schema: callSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, body }) {
    const key = readIdempotencyKey(c);
    const { call, replayed } = await replay(core, context, {
      callId: params.id,
      confirm: body.confirm,
      ...(key === undefined ? {} : { idempotencyKey: key }),
    });
    return c.json(await showCall(core, call), 202, replayHeaders(replayed));
  },
});
