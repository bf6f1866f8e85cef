/**
 * What nodes say of the calls that they carried out. A result is kept before it is used, and used by whoever is
 * there: the one that waits for it, else the process that received it, else the tick. So it may come twice, late,
 * or to a process that dies at once.
 */
import * as z from "zod";
import { toolCost } from "../budgets/cost.ts";
import { toolPrice } from "../budgets/price.ts";
import type { Call } from "../calls/call.ts";
import { recordEnd } from "../calls/record-end.ts";
import { shapeReply } from "../calls/result-store.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import { parseJson } from "../json.ts";
import { readAll, tenantKey } from "../ports/blob-store.ts";
import type { CallFinish } from "../ports/calls.ts";
import { Redactor } from "../secrets/redactor.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { parseToolUri } from "../tools/uri.ts";
import { inputKey, isBlob } from "./input.ts";
import { mcpAnswerType, moduleAnswerType, vcpAnswerType, type NodeRun } from "./node.ts";

const resultFields = {
  /**
   * `failed`: the tool says so. `timed_out`, `cancelled`, `lost`: it was stopped or died on the way, what it did is
   * not known. `declined`: it was never begun.
   */
  status: z.enum(["completed", "failed", "timed_out", "cancelled", "lost", "declined"]),
  media_type: z
    .string()
    .regex(/^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}(?:; ?charset=[\w-]{1,40})?$/, "must be a media type")
    .default("text/plain"),
  /** Text; absent where the result was uploaded. */
  output: z.string().optional(),
  uploaded: z.boolean().default(false),
  /** For people and models, where it did not complete. */
  message: z.string().max(4_096).optional(),
};
export const nodeResultSchema = z.strictObject(resultFields);
export type NodeResult = z.infer<typeof nodeResultSchema>;
export const nodeResultShape: typeof resultFields = resultFields;

export function resultKey(tenant: string, runId: string): string {
  return tenantKey(tenant, "nodes", runId, "result");
}

/** @throws GatewayError `internal_error` for what this code never kept */
export function parseNodeResult(text: string): NodeResult {
  const parsed = nodeResultSchema.safeParse(parseJson(text));
  if (!parsed.success) throw new GatewayError("internal_error", "The result of a node cannot be read.");
  return parsed.data;
}

/**
 * The reply of a run that is over.
 * @throws GatewayError with what is known of the call's fate
 */
export async function toReply(
  deps: Pick<AdapterDeps, "blobs">,
  tenant: string,
  run: NodeRun,
  result: NodeResult,
): Promise<ToolReply> {
  if (result.status !== "completed") throw toError(run, result);
  if (!result.uploaded) return { mediaType: result.media_type, body: result.output ?? "" };
  const blob = await deps.blobs.get(resultKey(tenant, run.id));
  if (blob === undefined) {
    throw withDelivery(new GatewayError("tool_failed", `Node '${run.node}' did not upload its result.`), "uncertain");
  }
  const bytes = await readAll(blob.body);
  const isText = /^text\/|[/+](?:json|xml|yaml|javascript)(?:;|$)/.test(result.media_type);
  return { mediaType: result.media_type, body: isText ? Buffer.from(bytes).toString("utf8") : bytes };
}

function toError({ node, tool }: NodeRun, { status, message }: NodeResult): GatewayError {
  const said = message === undefined ? "" : `: ${message}`;
  const details = { toolName: tool };
  switch (status) {
    case "declined":
      return withDelivery(
        new GatewayError("tool_unreachable", `Node '${node}' did not begin '${tool}'${said}`, details),
        "not_sent",
      );
    case "timed_out":
      return withDelivery(
        new GatewayError("tool_timeout", `'${tool}' was stopped by node '${node}' at its time limit${said}`, details),
        "uncertain",
      );
    case "cancelled":
      return withDelivery(new GatewayError("call_cancelled", `'${tool}' was stopped on node '${node}'.`), "uncertain");
    case "lost":
      return withDelivery(
        new GatewayError("tool_unreachable", `'${tool}' ended on node '${node}' without an answer${said}`, details),
        "uncertain",
      );
    case "failed":
    case "completed":
      return withDelivery(
        new GatewayError("tool_failed", message ?? `'${tool}' failed on node '${node}'.`, details),
        "answered",
      );
    default:
      return status satisfies never;
  }
}

/** Results for which nobody waits any more, and calls that ended without one. */
export async function useLateResults(deps: CoreDeps, limit: number): Promise<void> {
  for (const { tenant, run } of await deps.repos.nodes.late(limit)) {
    try {
      await useResult(deps, tenant, run);
    } catch (thrown) {
      deps.log.log("warn", "a node's result was not used and will be looked at again", {
        tenant,
        call_id: run.callId,
        code: toGatewayError(thrown).code,
      });
    }
  }
}

/** What a node has begun of a cancelled call it is told to stop; what it has not begun is over. */
export async function stopOnNodes(deps: CoreDeps, call: Call): Promise<Call> {
  const { tenant, id } = call;
  const stopped = await deps.repos.nodes.cancelCall(tenant, id);
  if (stopped.length === 0) return call;
  await deps.tellNow();
  const over = stopped.filter(({ handedOver, state }) => handedOver && state === "withdrawn");
  for (const run of over) await useResult(deps, tenant, run);
  return over.length === 0 ? call : ((await deps.repos.calls.get(tenant, id)) ?? call);
}

/** Ends the call's row with it, where the row is still open to that. Doing it again changes nothing. */
export async function useResult(deps: CoreDeps, tenant: string, run: NodeRun): Promise<void> {
  const call = await deps.repos.calls.get(tenant, run.callId);
  if (call !== undefined && (call.state === "running" || call.state === "unknown")) {
    const finish = await finishOf(deps, call, run);
    await recordEnd(
      deps,
      { tenant, id: call.id, attempt: run.attempt, repeat: call.repeat, parentId: call.parentId },
      finish,
    );
  }
  await settleRun(deps, tenant, run);
}

export async function settleRun(
  deps: Pick<AdapterDeps, "repos" | "blobs">,
  tenant: string,
  run: NodeRun,
): Promise<void> {
  const isUploaded = run.result !== null && parseNodeResult(run.result).uploaded;
  await Promise.all([
    ...(isUploaded ? [deps.blobs.delete(resultKey(tenant, run.id))] : []),
    ...(run.input === isBlob ? [deps.blobs.delete(inputKey(tenant, run.id))] : []),
  ]);
  // Last, since the tick looks no more at what is settled.
  await deps.repos.nodes.settle(tenant, run.id);
}

async function finishOf(deps: CoreDeps, call: Call, run: NodeRun): Promise<CallFinish> {
  const context = await contextOf(deps, call);
  const price = toolPrice(context.config.prices, call.tool, deps.clock.now());
  const cost = price === undefined || run.state === "withdrawn" ? {} : { cost: toolCost(price.per_call) };
  try {
    if (run.result === null) throw notBegun(call, run);
    const given = await toReply(deps, call.tenant, run, parseNodeResult(run.result));
    const reply = await readAnswer(deps, call, given, context);
    const { stored } = await shapeReply(deps, context, call.id, reply);
    return { state: "completed", outcome: stored, ...cost };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (isOutage(error) || error.code === "internal_error") throw error;
    return { ...failedFinish(call, error, context.redactor), ...cost };
  }
}

/** What a held server or a plugin of a VCP node has answered, as its own code reads it. @throws GatewayError with what is known of the call's fate */
async function readAnswer(
  deps: CoreDeps,
  { id, tool, uri: target }: Call,
  reply: ToolReply,
  context: CallContext,
): Promise<ToolReply> {
  const { mediaType, body } = reply;
  if (![mcpAnswerType, moduleAnswerType, vcpAnswerType].includes(mediaType)) return reply;
  const text = typeof body === "string" ? body : Buffer.from(body).toString("utf8");
  // Read by code that is seldom needed.
  if (mediaType === vcpAnswerType) {
    const { takeNodeAnswer } = await import("../vcp/nodes/node-answer.ts");
    return takeNodeAnswer(deps, context, { plugin: tool, callId: id }, text);
  }
  const { adapters } = deps;
  const uri = parseToolUri(target, (scheme) => adapters[scheme]?.options);
  if (mediaType === moduleAnswerType) {
    const { readLateModuleAnswer } = await import("../vcp/modules/late-answer.ts");
    // By its address: routes of a plugin are a tool of another name.
    return readLateModuleAnswer(deps, context, { text, name: uri.service });
  }
  const late = await adapters[uri.scheme]?.readLate?.({ name: tool, uri }, text, context);
  if (late !== undefined) return late;
  const { toWithheldReply } = await import("../mcp/late-answer.ts");
  return toWithheldReply(text, tool);
}

function failedFinish(call: Call, error: GatewayError, redactor: Redactor): CallFinish {
  const message = redactor.redact(error.message);
  const isOpen = deliveryOf(error) === "uncertain";
  if (call.effect === "write" && isOpen) {
    return {
      state: "unknown",
      error: {
        code: "outcome_unknown",
        message: `'${call.tool}' was begun but gave no answer (${message}); whether it took effect is not known, and it is not sent again by itself. Look up its effect before repeating it; call ${call.id}.`,
      },
    };
  }
  const state = error.code === "call_cancelled" ? "cancelled" : "failed";
  return { state, error: { code: error.code, message } };
}

function notBegun(call: Call, run: NodeRun): GatewayError {
  return call.cancelRequested
    ? withDelivery(new GatewayError("call_cancelled", `'${call.tool}' was cancelled before it began.`), "not_sent")
    : withDelivery(
        new GatewayError("tool_unreachable", `Node '${run.node}' went away before it began '${call.tool}'.`),
        "not_sent",
      );
}

/** For the shape of a result, and what must not be in it: nothing is decided by who asked. */
async function contextOf(
  deps: CoreDeps,
  { tenant, callerId, userId, requestId, traceId, sessionId }: Call,
): Promise<CallContext> {
  const row = await deps.repos.tenants.get(tenant);
  if (row === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  return {
    tenant,
    caller: {
      kind: "key",
      id: callerId,
      role: "member",
      scopes: [],
      tools: null,
      ...(userId === null ? {} : { userId }),
    },
    config: await deps.configs.get(tenant, row.configVersion),
    requestId,
    traceId,
    redactor: new Redactor(),
    ...(sessionId === null ? {} : { sessionId }),
  };
}
