/**
 * `node://tool`: a tool on whichever node offers it and has most room; `node://node/tool`: on that very node.
 * Which nodes there are stands in the tenant's configuration, whether they are connected shows when they are
 * called (decision 0028).
 */
import type { AdapterDeps } from "../../deps.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { hashNodeTool, vcpAnswerType, type NodeTool, type RegisteredNode } from "../../nodes/node.ts";
import { mentionsFile } from "../../vcp/files/file-url.ts";
import { cloudMark, describeOffered } from "../../vcp/nodes/distributed-tools.ts";
import { offerRun, runOnNode } from "../../nodes/run.ts";
import type { NodeWork } from "../../nodes/work.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tool-call.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, parseToolUri } from "../uri.ts";

interface NodeTools {
  readonly byName: ReadonlyMap<string, Tool>;
  /** Under the names that prompts of VCP have for them. */
  readonly byVcpName: ReadonlyMap<string, Tool>;
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
    find(name, { config }) {
      const { byName, byVcpName } = toolsOf(config);
      return byName.get(name) ?? byVcpName.get(name);
    },
    list: ({ config }) => [...toolsOf(config).byName.values()],
    whyMissing: ({ service, tool }, context) => whyMissing(service, tool, context),
    invoke: (call, context) => run(deps, call, context),
    async handOver(call, context) {
      // Its first answer says how the call goes on, which somebody has to read.
      if (call.tool.distributed?.isAsynchronous === true) return false;
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
    tool: node === null ? uri.service : uri.tool,
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

/** The plugin of this name on a node of VCP, for callers that know no other address of it. */
export function distributedTool(name: string, { config }: CallContext): Tool | undefined {
  return toolsOf(config).byVcpName.get(name);
}

/** A call of it, however it was addressed. */
export function runDistributed(deps: AdapterDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  return run(deps, { ...call, uri: parseToolUri(call.tool.uri) }, context);
}

async function run(deps: AdapterDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  const send = async (sent: ToolCall): Promise<ToolReply> =>
    asReply(deps, sent, context, await runOnNode(deps, toWork(sent), context));
  // A plugin of a node finds the files of its own machine; what it does not find may be elsewhere.
  if (call.tool.distributed === undefined || !mentionsFile(call.arguments)) return send(call);
  const { callThenWithFiles } = await import("../../vcp/files/file-arguments.ts");
  return callThenWithFiles(deps, call, context, send);
}

/** What plugins of VCP say is read where it is used, as that of plugins here. */
async function asReply(
  deps: AdapterDeps,
  { id, attempt, tool }: ToolCall,
  context: InvocationContext,
  reply: ToolReply,
): Promise<ToolReply> {
  if (reply.mediaType !== vcpAnswerType || typeof reply.body !== "string") return reply;
  const { takeNodeAnswer, readFirstAnswer } = await import("../../vcp/nodes/node-answer.ts");
  const asked = { plugin: tool.name, callId: id, attempt };
  if (tool.distributed?.isAsynchronous !== true) return takeNodeAnswer(deps, context, asked, reply.body);
  return readFirstAnswer(deps, context, asked, reply.body);
}

function whyMissing(service: string, tool: string, { config: { nodes } }: CallContext): string {
  const missing = tool === "" ? "no node offers such a tool" : `node '${service}' offers no such tool`;
  const there = nodes.map(({ name }) => `'${name}'`).join(", ");
  return `${missing}; registered nodes: ${there === "" ? "none" : there}. Start one with npm run node.`;
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
      const tool = toTool(offered, uri, node);
      ofNodes.set(uri, tool);
      const pooled = byName.get(offered.name);
      const isSame = pooled === undefined || pooled.hash === tool.hash;
      if (!isSame) continue;
      const all = [...(pooled?.nodes ?? []), node.name];
      byName.set(offered.name, { ...(pooled ?? tool), uri: formatToolUri("node", offered.name), nodes: all });
    }
  }
  const named = [...byName.values()].flatMap((tool) =>
    tool.distributed === undefined ? [] : [[tool.distributed.vcpName, tool] as const],
  );
  return { byName, byVcpName: new Map(named), ofNodes };
}

function toTool(offered: NodeTool, uri: string, { name: node, serverId }: RegisteredNode): Tool {
  const { vcp } = offered;
  return {
    uri,
    name: vcp?.name ?? offered.name,
    ...(vcp === undefined ? {} : { title: `${cloudMark}${vcp.display_name}` }),
    ...(vcp === undefined || serverId === undefined
      ? {}
      : { distributed: { serverId, vcpName: vcp.name, isAsynchronous: vcp.asynchronous === true } }),
    description: describeOffered(offered),
    parameters: offered.parameters,
    kind: "NODE",
    nodes: [node],
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
