/**
 * Tools of `hybridservice` plugins (VCP specification s. 4.4; VCP-7): `processToolCall` of a module, in the plugin
 * box or where it is held. What it gives is a plugin's result like that of a process.
 */
import type { JsonValue } from "../../json.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import { failedToRun, outcomeOfResult, type Speaker, type VcpFailure, type VcpOutcome } from "../plugins/outcome.ts";
import type { PluginCall, PluginInvoker } from "../plugins/invoke.ts";
import { toToolReply } from "../plugins/reply.ts";
import type { AdapterDeps } from "../../deps.ts";
import { pushResult } from "../push/web-socket-push.ts";
import { askOnNode } from "./on-node.ts";
import { residenceOf } from "./residence.ts";
import { runOnce } from "./run-once.ts";
import { ModuleFailed } from "./module-failed.ts";
import { needsNode } from "./stage-error.ts";
import { tellWatchers } from "./tell.ts";
import type { Fault, ModuleFault } from "./wire.ts";

export const invokeHybrid: PluginInvoker = async (deps, called, context) => {
  const { plugin, call } = called;
  const { redactor } = context;
  const speaker = { name: plugin.name, at: new Date(deps.clock.now()), maid: call.arguments["maid"], redactor };
  const outcome = await outcomeOf(deps, called, context, speaker);
  return toToolReply(plugin.name, outcome);
};

async function outcomeOf(
  deps: AdapterDeps,
  called: PluginCall,
  context: InvocationContext,
  speaker: Speaker,
): Promise<VcpOutcome> {
  const isHeld = residenceOf(called.plugin, context.config) === "node";
  try {
    const result = isHeld ? await askHeld(deps, called, context) : await askOnce(deps, called, context);
    const outcome = outcomeOfResult(speaker, result);
    if (outcome.kind === "success")
      await pushResult(deps, context, { plugin: called.plugin, callId: called.call.id, result });
    return outcome;
  } catch (thrown) {
    if (!(thrown instanceof ModuleFailed)) throw thrown;
    if (thrown.fault.fault === "open") {
      throw withDelivery(needsNode(called.plugin.name, "wants to stay loaded"), "answered");
    }
    return toFailure(speaker, thrown.fault, called);
  }
}

function askHeld(deps: AdapterDeps, { plugin, call }: PluginCall, context: InvocationContext): Promise<JsonValue> {
  const timeoutMs = call.timeoutMs ?? plugin.manifest.timeoutMs;
  return askOnNode(deps, { plugin, ask: askOf({ plugin, call }), timeoutMs, call }, context);
}

function askOf({ call }: PluginCall): Extract<Parameters<typeof runOnce>[2]["ask"], { kind: "tool" }> {
  return { kind: "tool", arguments: call.arguments, context: { requestIp: null, sourceNode: null } };
}

/** @throws ModuleFailed; GatewayError of the runner */
async function askOnce(deps: AdapterDeps, called: PluginCall, context: InvocationContext): Promise<JsonValue> {
  const { plugin, call } = called;
  const timeoutMs = call.timeoutMs ?? plugin.manifest.timeoutMs;
  context.onSent?.();
  const { stages, told, done, exit } = await runOnce(deps, context, {
    plugins: [plugin],
    ask: askOf(called),
    longestMs: timeoutMs,
    timeoutMs: timeoutMs + startMs,
    signal: context.signal,
  });
  await tellWatchers(deps, context.tenant, told);
  const failed = stages[0]?.failed ?? (done === undefined ? lost(exit.ended) : undefined);
  if (failed !== undefined) throw new ModuleFailed(plugin.name, failed);
  return done?.result ?? null;
}

/** Beside the module's own time. */
const startMs = 5_000;

function lost(ended: string): Fault {
  if (ended === "timeout") return { fault: "timeout", message: "it did not end in time" };
  if (ended === "output") return { fault: "size", message: "it wrote too much" };
  return { fault: "ended", message: `its process ended (${ended}) without an answer` };
}

const reasons = {
  absent: "crashed",
  load: "crashed",
  initialize: "crashed",
  open: "crashed",
  timeout: "timeout",
  stream: "timeout",
  memory: "crashed",
  ended: "crashed",
  size: "output",
  result: "crashed",
  threw: "crashed",
} as const satisfies Record<ModuleFault, VcpFailure["reason"]>;

/** In upstream's words where it has some. */
function toFailure(speaker: Speaker, { fault, message }: Fault, { plugin, call }: PluginCall): VcpFailure {
  const limit = call.timeoutMs ?? plugin.manifest.timeoutMs;
  const said = fault === "timeout" ? `Plugin "${speaker.name}" direct tool call timed out after ${limit}ms.` : message;
  return failedToRun(speaker, reasons[fault], said);
}
