/** What a run begins and goes on with. */
import type { Call } from "../../calls/call.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { FlowRunRecord } from "../../ports/flow-runs.ts";
import type { InvocationContext, ToolCall } from "../../tools/tool-call.ts";
import type { FlowDefinition } from "../definition.ts";
import { readDefinition } from "../find-flow.ts";

/** @throws GatewayError `flow_depth_exceeded` */
export async function readRun(
  deps: CoreDeps,
  call: ToolCall,
  context: InvocationContext,
): Promise<{ readonly record: FlowRunRecord; readonly definition: FlowDefinition }> {
  const record = await deps.repos.flowRuns.load(context.tenant, call.id);
  if (record === undefined) throw new GatewayError("internal_error", "A run of a flow has no row.");
  requireDepth(record.call, context, call.uri.service);
  return { record, definition: await readDefinition(deps, context.tenant, record.call.toolHash ?? call.tool.hash) };
}

function requireDepth(call: Call, { config }: InvocationContext, flow: string): void {
  const depth = call.callerChain.filter(({ kind }) => kind === "flow").length;
  const most = config.settings.flow_depth_max;
  if (depth < most) return;
  throw withDelivery(
    new GatewayError(
      "flow_depth_exceeded",
      `'flow://${flow}' would be flow number ${depth + 1} within another; this tenant allows ${most} (setting 'flow_depth_max').`,
      { param: "flow_depth_max", extra: { depth: depth + 1 } },
    ),
    "answered",
  );
}
