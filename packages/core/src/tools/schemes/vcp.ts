/**
 * `vcp://Plugin` and `vcp://Plugin/command`: VCP plugins of the tenant as tools (VCP-3). The same tool is an OpenAI
 * function, an MCP tool and what a `TOOL_REQUEST` block names.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { invokeRoute, routesSegment, routesToolOf } from "../../vcp/modules/routes.ts";
import { invokerOf } from "../../vcp/plugins/invoke.ts";
import { describeTool, type DescribedTool } from "../../vcp/plugins/parameters.ts";
import { longestRunMs } from "../../vcp/plugins/plugin-types.ts";
import { vcpPluginsOf, type VcpPlugin } from "../../vcp/plugins/plugin.ts";
import { mentionsFile } from "../../vcp/files/file-url.ts";
import { distributedToolsOf } from "../../vcp/nodes/distributed-tools.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { ToolCall, ToolReply } from "../tool-call.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, type ToolUri } from "../uri.ts";
import { distributedTool, runDistributed } from "./node.ts";

/** The longest for the first answer of a plugin that works on after it, whose time limit is meant for all of its work. */
const longestAnswerMs = 300_000;

export function createVcpAdapter(deps: AdapterDeps): ToolAdapter {
  return {
    options: dispatcherOptions,
    resolve(uri, context) {
      if (uri.tool === routesSegment) return routesAt(uri.service, context);
      const plugin = callable(uri.service, context);
      if (plugin === undefined) return ofNode(uri, context);
      return uri.tool === "" || commandOf(plugin, uri.tool) !== undefined ? toolOf(plugin) : undefined;
    },
    find(name, context) {
      const plugin = callable(name, context);
      return plugin === undefined ? undefined : toolOf(plugin);
    },
    list: (context) => [...vcpPluginsOf(context.config).values()].filter(isTool).map(toolOf),
    whyMissing: (uri, context) => whyMissing(uri, context),
    async invoke(call, context) {
      if (call.tool.distributed !== undefined) {
        // A node is told its commands by their names.
        return runDistributed(deps, { ...call, arguments: withCommand(call, call.uri.tool) }, context);
      }
      const sendFiles = mentionsFile(call.arguments)
        ? (await import("../../vcp/files/file-arguments.ts")).callWithFiles
        : undefined;
      const plugin = vcpPluginsOf(context.config).get(call.uri.service);
      if (plugin !== undefined && call.uri.tool === routesSegment) return invokeRoute(deps, { plugin, call }, context);
      const load = plugin === undefined ? undefined : invokerOf(plugin.manifest.pluginType);
      if (plugin === undefined || load === undefined) throw notFound(call);
      const invoke = await load();
      const send = (sent: ToolCall): Promise<ToolReply> =>
        invoke(deps, { plugin, call: { ...sent, arguments: argumentsOf(plugin, sent) } }, context);
      return sendFiles === undefined ? send(call) : sendFiles(deps, call, context, send);
    },
  };
}

/** Of plugins whose modules have any. */
function routesAt(name: string, context: CallContext): Tool | undefined {
  const plugin = vcpPluginsOf(context.config).get(name);
  return plugin === undefined ? undefined : routesToolOf(plugin);
}

function isTool(plugin: VcpPlugin): boolean {
  return plugin.type.isTool && invokerOf(plugin.manifest.pluginType) !== undefined;
}

function callable(name: string, context: CallContext): VcpPlugin | undefined {
  const plugin = vcpPluginsOf(context.config).get(name);
  return plugin !== undefined && isTool(plugin) ? plugin : undefined;
}

/** A plugin of a node, under a name that no plugin of the tenant has. */
function ofNode({ service, tool: command }: ToolUri, context: CallContext): Tool | undefined {
  if (vcpPluginsOf(context.config).has(service)) return undefined;
  const tool = distributedTool(service, context);
  return tool === undefined || command === "" || commandsOnNode(service, context).includes(command) ? tool : undefined;
}

function commandsOnNode(name: string, { config }: CallContext): readonly string[] {
  return (
    distributedToolsOf(config)
      .get(name)
      ?.commands.flatMap(({ command }) => command ?? []) ?? []
  );
}

/** The value of argument `command` behind the address; empty where the plugin takes none; undefined: no such command. */
function commandOf(plugin: VcpPlugin, name: string): string | undefined {
  return describedOf(plugin).commands.get(name);
}

function argumentsOf(plugin: VcpPlugin, call: ToolCall): JsonObject {
  return withCommand(call, call.uri.tool === "" ? "" : (commandOf(plugin, call.uri.tool) ?? ""));
}

/** The address may say the command that the arguments leave out, not another one. */
function withCommand({ arguments: args }: ToolCall, command: string): JsonObject {
  if (command === "") return args;
  const given = args["command"];
  if (given !== undefined && given !== command) {
    const message = `The address names the command '${command}', and argument 'command' another one; leave one of them out.`;
    throw withDelivery(new GatewayError("invalid_arguments", message, { param: "command" }), "not_sent");
  }
  return { command, ...args };
}

function whyMissing({ service, tool }: ToolUri, context: CallContext): string | undefined {
  const plugin = vcpPluginsOf(context.config).get(service);
  const onNode = plugin === undefined ? distributedTool(service, context) : undefined;
  if (plugin === undefined && onNode === undefined) return `there is no VCP plugin '${service}'`;
  if (plugin !== undefined && !isTool(plugin))
    return `'${service}' is a plugin of type ${plugin.manifest.pluginType}, which is not called`;
  if (tool === "") return undefined;
  const known = plugin === undefined ? commandsOnNode(service, context) : [...describedOf(plugin).commands.keys()];
  return `'${service}' has no command '${tool}'; ${known.length === 0 ? "it has none" : `known: ${known.join(", ")}`}`;
}

function notFound({ uri }: ToolCall): GatewayError {
  return withDelivery(
    new GatewayError("tool_not_found", `Tool '${uri.service}' not found`, { toolName: uri.service }),
    "not_sent",
  );
}

const described = new WeakMap<VcpPlugin["manifest"], DescribedTool>();

function describedOf({ manifest }: VcpPlugin): DescribedTool {
  let tool = described.get(manifest);
  if (tool === undefined) described.set(manifest, (tool = describeTool(manifest)));
  return tool;
}

const tools = new WeakMap<VcpPlugin["record"], Tool>();

/** The same object while plugin and state are the same: what models are told of it is kept beside it. */
function toolOf(plugin: VcpPlugin): Tool {
  const known = tools.get(plugin.record);
  if (known !== undefined && known.enabled === plugin.enabled) return known;
  const tool = toTool(plugin);
  tools.set(plugin.record, tool);
  return tool;
}

function toTool(plugin: VcpPlugin): Tool {
  const { name, displayName, manifest, enabled, record } = plugin;
  const { description, parameters } = describedOf(plugin);
  return {
    uri: formatToolUri("vcp", name),
    name,
    title: displayName,
    description,
    parameters,
    kind: "VCP",
    enabled,
    roles: record.roles,
    // Nothing says what a plugin does.
    effect: "write",
    repeat: "never",
    sensitive: record.sensitive,
    service: formatToolUri("vcp", name),
    requiredCredentials: [],
    timeoutMs: Math.min(manifest.timeoutMs, manifest.pluginType === "asynchronous" ? longestAnswerMs : longestRunMs),
    endsInTime: true,
    maxAttempts: 1,
    outputTrust: "outside",
    hash: record.hash,
  };
}
