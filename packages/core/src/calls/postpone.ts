/**
 * A tool call for later: a row that is due at a time, which any worker of any instance carries out then, with
 * permission, arguments and credentials checked anew. It outlives restarts, and can be read and cancelled like any call.
 */
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { ToolCall } from "../tools/tool-call.ts";
import { newToolCall } from "./new-call.ts";
import { enqueue, longestHopMs } from "./enqueue.ts";

export interface Postponed {
  /** Of the call that is to come, where its arguments name it; absent: a new one. */
  readonly callId?: string;
  readonly delayMs: number;
  /** What is called then; the URI with the options that are to hold then. */
  readonly uri: ToolCall["uri"];
  readonly arguments: JsonObject;
}

/**
 * @returns the new call's id and when it is due; on record once this returns
 * @throws GatewayError `runtime_config_required`; `not_sent`
 */
export async function postpone(
  deps: AdapterDeps,
  context: CallContext,
  { tool }: Pick<ToolCall, "tool">,
  { callId = newId("call"), delayMs, uri, arguments: args }: Postponed,
): Promise<{ readonly callId: string; readonly dueAt: number }> {
  if (context.runtimeConfig !== undefined) {
    throw withDelivery(
      new GatewayError(
        "runtime_config_required",
        `'${tool.name}' would run later, when the inline 'runtime_config' is gone, since it is never stored; call it without one, or without a delay.`,
        { param: "runtime_config", toolName: tool.name },
      ),
      "not_sent",
    );
  }
  const dueAt = deps.clock.now() + delayMs;
  const { effect, repeat } = tool;
  const row = await newToolCall(
    deps,
    context,
    { id: callId, tool, uri, arguments: args, effect, repeat },
    {
      route: "tools.postponed",
      parentId: null,
      rootId: null,
      state: "queued",
      async: true,
      slots: 1,
      delivery: "none",
      runAt: dueAt,
    },
  );
  await deps.repos.calls.record(context.tenant, context.caller.id, [row]);
  await enqueue(deps, {
    tenant: context.tenant,
    callId,
    expectedMs: 0,
    delayMs: Math.min(longestHopMs, Math.max(0, dueAt - deps.clock.now())),
  });
  return { callId, dueAt };
}
