/**
 * `node://tool`: a tool on whichever node offers it and has most room; `node://node/tool`: on that very node.
 * Which nodes there are stands in the tenant's configuration, whether they are connected shows when they are
 * called (decision 0028).
 */
import type { AdapterDeps } from "../../deps.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { hashNodeTool, type NodeTool } from "../../nodes/node.ts";
import { offerRun, runOnNode, type NodeWork } from "../../nodes/run.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { withDelivery, type ToolAdapter, type ToolCall } from "../adapter.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri } from "../uri.ts";

interface NodeTools {
  readonly byName: ReadonlyMap<string, Tool>;
  /** By URI. */
  readonly ofNodes: ReadonlyMap<string, Tool>;
}

const known = new WeakMap<TenantConfig, NodeTools>();

export function createNodeAdapter(deps: AdapterDeps): ToolAdapter {
  return {
    options: dispatcherOptions,
    resolve: ({ service, tool }, { config }) => {
      const { byName, ofNodes } = toolsOf(config);
      return tool === "" ? byName.get(service) : ofNodes.get(formatToolUri("node", service, tool));
    },
    find: (name, { config }) => toolsOf(config).byName.get(name),
    list: ({ config }) => [...toolsOf(config).byName.values()],
    whyMissing: ({ service, tool }, context) => whyMissing(service, tool, context),
    invoke: (call, context) => runOnNode(deps, toWork(call), context),
    async handOver(call, context) {
      await offerRun(deps, toWork(call), context, { handedOver: true });
      return true;
    },
  };
}

function toWork({ id, attempt, tool, uri, arguments: args }: ToolCall): NodeWork {
  const node = uri.tool === "" ? null : uri.service;
  return {
    callId: id,
    attempt,
    tool: tool.name,
    toolHash: tool.hash,
    node,
    arguments: args,
    notConnected: () => {
      const named = (node === null ? (tool.nodes ?? []) : [node]).map((name) => `'${name}'`).join(", ");
      return withDelivery(
        new GatewayError(
          "tool_unreachable",
          `No node that offers '${tool.name}' is connected (${named}); start it there with npm run node -- --url <this gateway> --config node.json.`,
          { toolName: tool.name },
        ),
        "not_sent",
      );
    },
  };
}

function whyMissing(service: string, tool: string, { config: { nodes } }: CallContext): string {
  const wanted = tool === "" ? "any node" : `node '${service}'`;
  const there = nodes.map(({ name }) => `'${name}'`).join(", ");
  return `${wanted} offers no such tool; registered nodes: ${there === "" ? "none" : there}. Start one with npm run node.`;
}

function toolsOf(config: TenantConfig): NodeTools {
  let tools = known.get(config);
  if (tools === undefined) known.set(config, (tools = collect(config)));
  return tools;
}

function collect({ nodes }: TenantConfig): NodeTools {
  const byName = new Map<string, Tool>();
  const ofNodes = new Map<string, Tool>();
  for (const node of nodes) {
    for (const offered of node.tools) {
      if (offered.kind !== undefined) continue;
      const uri = formatToolUri("node", node.name, offered.name);
      const tool = toTool(offered, uri, [node.name]);
      ofNodes.set(uri, tool);
      const pooled = byName.get(offered.name);
      const isSame = pooled === undefined || pooled.hash === tool.hash;
      if (!isSame) continue;
      const all = [...(pooled?.nodes ?? []), node.name];
      byName.set(offered.name, { ...tool, uri: formatToolUri("node", offered.name), nodes: all });
    }
  }
  return { byName, ofNodes };
}

function toTool(offered: NodeTool, uri: string, nodes: readonly string[]): Tool {
  return {
    uri,
    name: offered.name,
    description: offered.description,
    parameters: offered.parameters,
    kind: "NODE",
    nodes,
    enabled: true,
    roles: [],
    effect: offered.effect,
    repeat: "never",
    sensitive: offered.sensitive,
    service: uri,
    requiredCredentials: [],
    timeoutMs: offered.timeout_ms,
    outputTrust: "outside",
    hash: hashNodeTool(offered),
  };
}
