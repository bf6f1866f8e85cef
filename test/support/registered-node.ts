/** Nodes as rows, for suites that care for no process behind them. */
import { newId } from "@toolyard/core/ids";
import { hashNodeTool, type NewNodeRun, type NodeRegistration, type NodeTool } from "@toolyard/core/nodes/node";
import type { Gateway } from "./gateway.ts";

export function nodeTool(name: string, change: Partial<NodeTool> = {}): NodeTool {
  return {
    name,
    description: "Measures.",
    parameters: { type: "object", properties: {} },
    effect: "read",
    sensitive: false,
    timeout_ms: 60_000,
    concurrency: 1,
    ...change,
  };
}

export function registrationOf(name: string, change: Partial<NodeRegistration> = {}): NodeRegistration {
  return {
    id: newId("node"),
    name,
    version: "1",
    instance: newId("request"),
    callerId: "key_1",
    connectionId: newId("socket"),
    tools: [nodeTool("measure")],
    ...change,
  };
}

export function runOf(tool: string, change: Partial<NewNodeRun> = {}): NewNodeRun {
  return {
    id: newId("nodeRun"),
    callId: newId("call"),
    attempt: 1,
    tool,
    toolHash: hashNodeTool(nodeTool(tool)),
    node: null,
    handedOver: false,
    input: "sealed",
    leaseMs: 60_000,
    ...change,
  };
}

export async function registerNode({ core }: Gateway, tenant: string, name: string): Promise<void> {
  await core.repos.nodes.register(tenant, registrationOf(name));
}
