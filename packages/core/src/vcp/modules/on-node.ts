/**
 * Asks a module that is held on a node of the tenant's (VCP-7). The question travels as a run of the node
 * (nodes/run.ts): what was not begun was not sent, and what died on the way is uncertain.
 */
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { hashNodeTool, moduleAnswerType } from "../../nodes/node.ts";
import { runOnNode } from "../../nodes/run.ts";
import { deliveryOf, withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../../tools/tool-call.ts";
import { openConfiguration } from "../plugins/configuration.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { moduleProgram, readModuleAnswer, type ModuleAsk, type ModuleRunWire } from "./node-wire.ts";
import { ModuleFailed } from "./module-failed.ts";
import { needsNode } from "./stage-error.ts";

export interface NodeQuestion {
  readonly plugin: VcpPlugin;
  readonly ask: ModuleAsk;
  readonly timeoutMs: number;
  /** Of the dispatcher; absent: the question belongs to a chat. */
  readonly call?: Pick<ToolCall, "id" | "attempt">;
}

/** @throws GatewayError `node_required` where no node holds modules; ModuleFailed with what the module says */
export async function askOnNode(
  deps: AdapterDeps,
  { plugin, ask, timeoutMs, call }: NodeQuestion,
  context: InvocationContext,
): Promise<JsonValue> {
  // The node has given the module its values; whatever it says of them comes back through this call.
  await openConfiguration(deps, context, plugin);
  const run: ModuleRunWire = {
    plugin: plugin.name,
    fingerprint: fingerprintOf(context.config, plugin),
    ask,
    timeout_ms: timeoutMs,
  };
  const limit = AbortSignal.timeout(timeoutMs + graceMs);
  const about = { callId: call?.id ?? newId("call"), attempt: call?.attempt ?? 1, run };
  const limited = { ...context, signal: AbortSignal.any([context.signal, limit]) };
  try {
    return toResult(plugin, await runAtFirst(deps, plugin, about, limited));
  } catch (thrown) {
    if (!limit.aborted || context.signal.aborted) throw thrown;
    const message = `The module of '${plugin.name}' did not answer within ${timeoutMs} ms.`;
    throw withDelivery(new GatewayError("tool_timeout", message, { toolName: plugin.name }), deliveryOf(thrown));
  }
}

/** The node ends what takes too long by itself, and says so. */
const graceMs = 5_000;

/** The first of the nodes that is connected: the others stand by. */
async function runAtFirst(
  deps: AdapterDeps,
  plugin: VcpPlugin,
  { callId, attempt, run }: { readonly callId: string; readonly attempt: number; readonly run: ModuleRunWire },
  context: InvocationContext,
): Promise<ToolReply> {
  for (const { name, tools } of context.config.nodes) {
    const offered = tools.find(({ kind }) => kind === "modules");
    if (offered === undefined) continue;
    const absent = new GatewayError("node_required", `Node '${name}' is not connected.`);
    const work = {
      callId,
      attempt,
      tool: moduleProgram,
      toolHash: hashNodeTool(offered),
      node: name,
      // Written by the schema's own type.
      arguments: run as unknown as JsonObject,
      notConnected: () => absent,
    };
    try {
      return await runOnNode(deps, work, context);
    } catch (thrown) {
      if (thrown !== absent) throw thrown;
    }
  }
  throw withDelivery(needsNode(plugin.name, "runs on a node, and none that holds modules is connected"), "not_sent");
}

function toResult({ name }: VcpPlugin, { mediaType, body }: ToolReply): JsonValue {
  const answer = mediaType === moduleAnswerType && typeof body === "string" ? readModuleAnswer(body) : undefined;
  if (answer === undefined)
    throw new GatewayError("tool_failed", `The node gave no answer of the module of '${name}'.`, { toolName: name });
  if ("failed" in answer) throw new ModuleFailed(name, answer.failed);
  return answer.result;
}
