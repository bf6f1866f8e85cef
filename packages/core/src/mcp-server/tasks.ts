/** The tasks extension of 2026-07-28: a task is the call's row, and its id the call's (design "One record"). */
import { cancelCall } from "../calls/cancel.ts";
import { endStates, type Call } from "../calls/call.ts";
import { inputRequestsOf, outcomeOf } from "../calls/new-call.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { tasksExtension } from "../mcp/revisions.ts";
import { toRfc3339 } from "../time.ts";
import { answerCall, mayAsk, requestsOf } from "./approvals.ts";
import { protocolFault } from "./call-reply.ts";
import { ownCall, replyOf } from "./calls.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { invalidParams, missingCapability } from "./fault.ts";
import { calledSchema } from "./output-schema.ts";

const pollMs = 1_000;
const dayMs = 86_400_000;

/** What answers a call that goes on without the request. */
export function newTask(exchange: AdmittedExchange, call: Call): JsonObject {
  return { resultType: "task", ...fieldsOf(exchange, call, isWaiting(exchange, call) ? "input_required" : "working") };
}

/** @throws RpcFault */
export async function getTask(exchange: AdmittedExchange, params: JsonObject): Promise<JsonObject> {
  return describeTask(exchange, await findTask(exchange, params));
}

export async function describeTask(exchange: AdmittedExchange, call: Call): Promise<JsonObject> {
  if (isWaiting(exchange, call)) {
    return {
      ...fieldsOf(exchange, call, "input_required"),
      inputRequests: requestsOf(call),
    };
  }
  if (call.state === "cancelled") return fieldsOf(exchange, call, "cancelled");
  if (!endStates.includes(call.state)) return fieldsOf(exchange, call, "working");
  const fault = call.error === null ? undefined : protocolFault(call.error);
  if (fault !== undefined) {
    return { ...fieldsOf(exchange, call, "failed"), error: { code: fault.code, message: fault.message } };
  }
  const outputSchema = calledSchema(exchange, call.uri);
  const result = await replyOf(exchange, call.id, { outcome: outcomeOf(call), call, outputSchema });
  return { ...fieldsOf(exchange, call, "completed"), result };
}

/** @throws RpcFault; a task that has ended already is none */
export async function cancelTask(exchange: AdmittedExchange, params: JsonObject): Promise<JsonObject> {
  const { id } = await findTask(exchange, params);
  await cancelCall(exchange.deps, exchange.context, id).catch((error: unknown) => {
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
  });
  return {};
}

/** Answers to what the task asks; others are left alone, as the extension says. */
export async function updateTask(exchange: AdmittedExchange, params: JsonObject): Promise<JsonObject> {
  const call = await findTask(exchange, params);
  const { inputResponses } = params;
  if (!isJsonObject(inputResponses)) throw invalidParams("'params.inputResponses' must be an object.");
  if (isWaiting(exchange, call)) await answerCall(exchange, call, inputResponses);
  return {};
}

export function requireTasks({ peer }: Pick<AdmittedExchange, "peer">): void {
  if (!peer.takesTasks) throw missingCapability({ extensions: { [tasksExtension]: {} } });
}

async function findTask(exchange: AdmittedExchange, { taskId }: JsonObject): Promise<Call> {
  requireTasks(exchange);
  const call = typeof taskId === "string" ? await ownCall(exchange, taskId) : undefined;
  if (call === undefined) throw invalidParams("There is no task of that id.");
  return call;
}

/** Whoever asked may decide as well. */
function isWaiting(exchange: AdmittedExchange, call: Call): boolean {
  return call.state === "input_required" && mayAsk(exchange, call);
}

function fieldsOf({ context }: AdmittedExchange, call: Call, status: string): JsonObject {
  const message = messageOf(call);
  return {
    taskId: call.id,
    status,
    ...(message === undefined ? {} : { statusMessage: message }),
    createdAt: toRfc3339(call.createdAt),
    lastUpdatedAt: toRfc3339(call.finishedAt ?? call.approval?.at ?? call.startedAt ?? call.createdAt),
    ttlMs: context.config.settings.calls_retention_days * dayMs,
    pollIntervalMs: pollMs,
  };
}

function messageOf(call: Call): string | undefined {
  const { state, error, cancelRequested } = call;
  if (state === "input_required" && inputRequestsOf(call) === undefined) return "Waits for a person's approval.";
  if (state === "running" && cancelRequested) return "Was asked to stop.";
  return error?.message;
}
