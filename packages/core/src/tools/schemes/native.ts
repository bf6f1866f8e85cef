/** `native://name`: tools that are part of the gateway, those that the tenant has enabled (NATIVE-2). */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { createWorkspace, type Workspace } from "../../workspace/workspace.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { ToolCall } from "../tool-call.ts";
import { nativeTool, nativeTools } from "../native/index.ts";
import type { NativeTool } from "../native/native-tool.ts";
import { workspaceService, type Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, uriOptions } from "../uri.ts";

/** @param core what all adapters are a part of; asked for with the first call */
export function createNativeAdapter(core: () => CoreDeps): ToolAdapter {
  let workspace: Workspace | undefined;
  return {
    options: { ...dispatcherOptions, method: uriOptions.method },
    resolve: (uri, context) =>
      uri.scheme === "native" && isEnabled(uri.service, context) ? described(uri.service) : undefined,
    find: (name, context) => (isEnabled(name, context) ? described(name) : undefined),
    list: (context) =>
      Object.keys(nativeTools).flatMap((name) => (isEnabled(name, context) ? (described(name) ?? []) : [])),
    async invoke(call, context) {
      const tool = nativeTool(call.uri.service);
      if (tool === undefined) {
        throw withDelivery(new GatewayError("tool_not_found", `Tool '${call.uri.service}' not found`), "not_sent");
      }
      refuseOtherMethod(call);
      const deps = core();
      workspace ??= createWorkspace(deps);
      return tool.invoke(call.arguments, { deps, workspace, call, context });
    },
    whyMissing: ({ service }) => whyNotEnabled(service),
    whyUnknown: whyNotEnabled,
  };
}

function whyNotEnabled(name: string): string | undefined {
  return nativeTool(name) === undefined
    ? undefined
    : `it is not enabled for this tenant; add '${name}' to the setting 'native_tools' with PATCH /v1/settings`;
}

function isEnabled(name: string, context: CallContext): boolean {
  return context.config.settings.native_tools.includes(name);
}

/** `?method=` may repeat what the arguments say, never change it (URI-4). */
function refuseOtherMethod({ uri, arguments: args, tool }: ToolCall): void {
  const { method } = uri.options;
  if (method === undefined || method === args["method"]) return;
  throw withDelivery(
    new GatewayError("invalid_uri", `Option 'method' does not fit the call of '${tool.name}'; leave it out.`, {
      param: "method",
    }),
    "not_sent",
  );
}

/** Each made once, when it is first asked for: equal for every tenant, with one schema object, which is compiled once. */
const descriptions = new Map<string, Tool>();

function described(name: string): Tool | undefined {
  const known = descriptions.get(name);
  if (known !== undefined) return known;
  const tool = nativeTool(name);
  if (tool === undefined) return undefined;
  const made = describe(tool);
  descriptions.set(name, made);
  return made;
}

/** Its schema and hash are made when they are looked at: most chats are told of none of these tools. */
function describe(tool: NativeTool): Tool {
  return {
    uri: formatToolUri("native", tool.name),
    name: tool.name,
    title: tool.title,
    description: tool.description,
    get parameters() {
      return tool.parameters;
    },
    kind: "NATIVE",
    enabled: true,
    roles: [],
    effect: tool.effect,
    effectOf: tool.effectOf,
    repeat: tool.repeat,
    sensitive: false,
    service: tool.usesWorkspace ? workspaceService : `native:${tool.name}`,
    ...(tool.usesWorkspace ? { serviceOf: (context: CallContext) => `workspace:${context.sessionId ?? ""}` } : {}),
    needsNoSession: tool.needsNoSession,
    outward: tool.outward,
    ...(tool.timeoutMs === undefined ? {} : { timeoutMs: tool.timeoutMs }),
    requiredCredentials: [],
    outputTrust: tool.outputTrust,
    get hash() {
      return tool.hash;
    },
  };
}
