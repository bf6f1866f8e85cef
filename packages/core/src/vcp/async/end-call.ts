/**
 * A result of an asynchronous plugin ends its call (VCP-5): the row that was recorded when the plugin was asked,
 * whether its process still waits for it, has died, or never came to read the plugin's first answer.
 */
import { noCost, toolCost, type CallCost } from "../../budgets/cost.ts";
import { toolPrice } from "../../budgets/price.ts";
import type { Call } from "../../calls/call.ts";
import { recordEnd } from "../../calls/record-end.ts";
import { shapeReply } from "../../calls/result-store.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";
import type { VcpTask } from "../../ports/vcp-callbacks.ts";
import type { CallFinish } from "../../ports/calls.ts";
import type { ToolReply } from "../../tools/tool-call.ts";
import { parseToolUri } from "../../tools/uri.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { logToolCall } from "../log/vcp-log.ts";
import { distributedToolsOf } from "../nodes/distributed-tools.ts";
import { vcpPluginsOf } from "../plugins/plugin.ts";
import { contentOf, dataOfPart, toToolReply } from "../plugins/reply.ts";
import { hasFailed, textOfResult } from "./results.ts";

export interface TaskResult {
  readonly task: VcpTask;
  /** The callback's body as it is kept: redacted JSON. */
  readonly text: string;
}

/** Doing it again changes nothing. @returns whether the call has ended by it */
export async function endCall(deps: CoreDeps, config: TenantConfig, { task, text }: TaskResult): Promise<boolean> {
  const { tenant } = config;
  const call = await deps.repos.calls.get(tenant, task.callId);
  const isOpen = call !== undefined && (call.state === "running" || call.state === "unknown");
  const parentId = call?.parentId ?? null;
  const row = { tenant, id: task.callId, attempt: task.attempt, repeat: "never", parentId } as const;
  const finish = isOpen ? await finishOf(deps, config, { call, task, text }) : undefined;
  const ended = finish !== undefined && (await recordEnd(deps, row, finish));
  await deps.repos.vcpCallbacks.settle(tenant, task);
  if (ended && call !== undefined) {
    const { state, error } = finish;
    const serverId = serverIdOf(config, call, task.plugin);
    logToolCall(deps, contextOf(config, call), {
      callId: call.id,
      tool: call.tool,
      status: state === "completed" ? "success" : "error",
      content: error?.message ?? text,
      taskId: task.taskId,
      ...(serverId === undefined ? {} : { serverId }),
      source: "callback",
      state,
    });
    await deps.tellNow();
  }
  return ended;
}

/** Of the node that the call named, else of one that has the plugin. */
function serverIdOf(config: TenantConfig, { uri }: Call, plugin: string): string | undefined {
  const { scheme, service, tool } = parseToolUri(uri);
  if (scheme === "node" && tool !== "") return config.nodes.find(({ name }) => name === service)?.serverId;
  return vcpPluginsOf(config).has(plugin) ? undefined : distributedToolsOf(config).get(plugin)?.serverId;
}

async function finishOf(
  deps: CoreDeps,
  config: TenantConfig,
  { call, ...result }: TaskResult & { readonly call: Call },
): Promise<CallFinish> {
  const cost = costOf(deps, config, call);
  const end = endOf(result);
  if (end.kind === "failed") {
    const { message, details } = end;
    return { state: "failed", error: { code: "tool_failed", message, details }, ...cost };
  }
  const { stored } = await shapeReply(deps, contextOf(config, call), call.id, end.reply);
  return { state: "completed", outcome: stored, ...cost };
}

type TaskEnd =
  | { readonly kind: "completed"; readonly reply: ToolReply }
  | { readonly kind: "failed"; readonly message: string; readonly details: JsonObject };

/** Pure: what a result makes of its call. */
export function endOf({ task, text }: TaskResult): TaskEnd {
  const body = parseJsonExactly(text);
  if (!isJsonObject(body) || !hasFailed(body)) {
    const inParts = isJsonObject(body) ? inPartsOf(task, body) : undefined;
    return { kind: "completed", reply: inParts ?? { mediaType: "application/json", body: text } };
  }
  const message = textOfResult(task, text).slice(0, longestMessage);
  const callback = text.length <= longestDetails ? { callback: body } : {};
  return { kind: "failed", message, details: { task_id: task.taskId, ...callback } };
}

/** Where it brings pictures or files, as a plugin's result that does; undefined: what it says is text. */
function inPartsOf({ plugin }: VcpTask, { base64, ...value }: JsonObject): ToolReply | undefined {
  const file = typeof base64 === "string" && base64 !== "" ? { base64 } : {};
  const brings = contentOf(value)?.some((part) => dataOfPart(part)?.startsWith("data:") === true);
  if (file.base64 === undefined && brings !== true) return undefined;
  const { message } = value;
  const words = typeof message === "string" && message !== "" ? { messageForAI: message } : {};
  return toToolReply(plugin, { kind: "success", value, ...words, ...file });
}

const longestMessage = 4_096;
const longestDetails = 16_384;

/** The price of the tool beside what is known of the chat that it was called in; on record already with a first answer. */
function costOf(deps: CoreDeps, config: TenantConfig, { tool, cost }: Call): { readonly cost?: CallCost } {
  if (cost !== null && cost.micros > 0) return {};
  const price = toolPrice(config.prices, tool, deps.clock.now());
  if (price === undefined) return {};
  return { cost: { ...(cost ?? noCost), micros: toolCost(price.per_call).micros } };
}

/** For the shape of the result only: nothing is decided by who asked, and secrets are taken out already. */
function contextOf(config: TenantConfig, { callerId, requestId, traceId, sessionId }: Call): CallContext {
  return {
    tenant: config.tenant,
    caller: { kind: "key", id: callerId, role: "member", scopes: [], tools: null },
    config,
    requestId,
    traceId,
    redactor: new Redactor(),
    ...(sessionId === null ? {} : { sessionId }),
  };
}

/** For what goes wrong where nobody waits. */
export function logUnused(
  deps: Pick<CoreDeps, "log">,
  tenant: string,
  { callId, taskId }: VcpTask,
  thrown: unknown,
): void {
  const { code } = toGatewayError(thrown);
  deps.log.log("warn", "a plugin's result was not used and will be looked at again", {
    tenant,
    call_id: callId,
    task: taskId,
    code,
  });
}
