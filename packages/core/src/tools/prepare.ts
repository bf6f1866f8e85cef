/**
 * From what a model or a caller asked for to a call that could run: address, permission, arguments,
 * limits, approval (design "The dispatcher, in this order and nowhere else"). No I/O.
 */
import { describeMissing, missingCredentials } from "../blind/credential-resolver.ts";
import { mayUseTool, type Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { ToolService } from "../services/service.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { findTool, type Adapters, type FoundTool } from "./catalog.ts";
import type { ToolAdapter } from "./adapter.ts";
import type { ToolCall } from "./tool-call.ts";
import { compileArguments, parseToolArguments, type CheckedArguments } from "./arguments.ts";
import { withOwnNames } from "./argument-names.ts";
import { toOutcomeDetails, type RejectedOutcome } from "./outcome.ts";
import type { Effect, Repeat } from "./effect.ts";
import type { Tool } from "./tool.ts";
import { parseToolUri, type ToolUri } from "./uri.ts";

export interface DispatchItem {
  /** Tool name or tool URI. */
  readonly target: string;
  /** The target is said to be a URI: a text that is none is no name either (URI-2). */
  readonly isUri?: boolean;
  /** JSON text as a model wrote it, or an object. */
  readonly arguments: string | JsonObject;
  /** False where a model names what it was not told of: the caller's request does not have it. */
  readonly isOffered?: boolean;
  /** Why it must not run, where that is known already. */
  readonly refusal?: string;
  /** Where the tool belongs to the conversation itself and has no registration. */
  readonly found?: FoundTool;
}

export interface PreparedCall {
  readonly id: string;
  readonly adapter: ToolAdapter;
  readonly tool: Tool;
  readonly uri: ToolUri;
  readonly arguments: JsonObject;
  readonly effect: Effect;
  readonly repeat: Repeat;
  /** Writes with equal text run in call order. */
  readonly service: string;
  readonly timeoutMs: number;
  readonly maxAttempts: number;
  readonly answers?: ToolCall["answers"];
  /** The conversation that asks had read content from outside. */
  readonly readOutside: boolean;
}

export type Preparation =
  | { readonly kind: "ready"; readonly call: PreparedCall }
  | { readonly kind: "needs_approval"; readonly call: PreparedCall }
  | {
      readonly kind: "refused";
      readonly id: string;
      readonly target: string;
      readonly tool: Tool | undefined;
      readonly outcome: RejectedOutcome;
    };

export interface PrepareOptions {
  /** This turn has read content from outside the tenant's own services. */
  readonly hasReadOutside: boolean;
  /** Skips the approval of sensitive tools: a person has already approved this very call. */
  readonly approved?: boolean;
}

export function prepareCall(
  adapters: Adapters,
  context: CallContext,
  item: DispatchItem,
  options: PrepareOptions,
): Preparation {
  const id = newId("call");
  let tool: Tool | undefined;
  try {
    if (item.isOffered === false) throw notOffered(adapters, context, item.target);
    if (item.isUri === true && !item.target.includes("://")) parseToolUri(item.target);
    const found = item.found ?? findTool(adapters, context, item.target);
    tool = found.tool;
    if (item.found === undefined) requireUse(context, tool, item.target);
    if (item.refusal !== undefined) throw refusedAsked(tool, item.refusal);
    const args = checkArguments(tool, item.arguments);
    tool.check?.(args, context);
    requireCredentials(context, tool);
    const call = assemble(id, context, { ...found, args, readOutside: options.hasReadOutside });
    return { kind: needsApproval(call, context, options) ? "needs_approval" : "ready", call };
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    return { kind: "refused", id, target: item.target.slice(0, 2_048), tool, outcome: rejectedBy(error) };
  }
}

export function rejectedBy(error: GatewayError): RejectedOutcome {
  const { code, message } = error;
  const details = toOutcomeDetails(error);
  return { kind: "rejected", code, message, ...(details === undefined ? {} : { details }) };
}

/** A tool that a caller may not use does not exist for it; a disabled one that it might use says so. */
function requireUse(context: CallContext, tool: Tool, target: string): void {
  if (mayUseTool(context.caller, tool)) return;
  if (isKeptByAgent(context.caller, tool)) throw notBound(context.caller, target);
  if (!tool.enabled && mayUseTool(context.caller, { ...tool, enabled: true })) {
    if (tool.quarantined === true) throw quarantined(context, tool);
    throw new GatewayError("service_disabled", disabledMessage(context, tool), { toolName: tool.name });
  }
  throw notFound(target);
}

/** What a model names and was not told of. Where an agent may not call what its caller may, that is said. */
function notOffered(adapters: Adapters, context: CallContext, target: string): GatewayError {
  const { caller } = context;
  if (caller.bound === undefined) return notFound(target);
  try {
    const { tool } = findTool(adapters, context, target);
    return isKeptByAgent(caller, tool) ? notBound(caller, target) : notFound(target);
  } catch (error) {
    if (error instanceof GatewayError) return notFound(target);
    throw error;
  }
}

/** Might the caller use it, were it not for the agent that acts? */
function isKeptByAgent(caller: Caller, tool: Tool): boolean {
  if (caller.bound === undefined || mayUseTool(caller, tool)) return false;
  const { bound: _bound, ...unbound } = caller;
  return mayUseTool(unbound, tool);
}

function notBound({ bound }: Caller, target: string): GatewayError {
  const name = target.slice(0, 200);
  return new GatewayError(
    "tool_not_bound",
    `'${name}' is none of the tools of agent '${bound?.path.at(-1) ?? ""}', so it was not run; add it to the agent's 'tools' where it should be.`,
    { toolName: name },
  );
}

function quarantined({ config }: CallContext, { uri, name }: Tool): GatewayError {
  const tools = `/v1/tool-services/${serviceRow(config, uri)?.id ?? "{id}"}/tools`;
  return new GatewayError(
    "tool_quarantined",
    `The definition of '${uri}' is not the accepted one; an administrator can look at it with GET ${tools} and accept it with POST ${tools}/accept.`,
    { toolName: name },
  );
}

/** Says the very request that helps, since ids and names are different things to most routes. */
function disabledMessage({ config }: CallContext, { kind, name, uri, service }: Tool): string {
  const enable = (path: string): string => `an administrator can enable it with PATCH /v1/${path} {"enabled": true}.`;
  if (kind === "SERVICE") {
    const id = serviceRow(config, uri)?.id ?? "{id}";
    return `The tool service '${service}' is disabled; an administrator can enable it with POST /v1/tool-services/${id}/enable.`;
  }
  if (kind === "AGENT" || kind === "FLOW") {
    const rows = kind === "AGENT" ? config.agents : config.flows;
    const id = rows.find((row) => row.name === parseToolUri(uri).service)?.id ?? "{id}";
    return `Tool '${name}' is disabled; ${enable(`${kind === "AGENT" ? "agents" : "flows"}/${id}`)}`;
  }
  const plugin = config.plugins.find((row) => row.name === parseToolUri(uri).service);
  const path = `plugins/${plugin === undefined ? "{id}" : `plg_${plugin.pluginId}`}`;
  // Switched on, a plugin of VCP may still lack a value that its manifest requires.
  return plugin?.enabled === true
    ? `Tool '${name}' cannot run yet; an administrator can see what it lacks in 'reason' of GET /v1/${path}.`
    : `Tool '${name}' is disabled; ${enable(path)}`;
}

function serviceRow({ services }: TenantConfig, uri: string): ToolService | undefined {
  const { scheme, service } = parseToolUri(uri);
  return services.find((row) => row.scheme === scheme && row.serviceId === service);
}

function notFound(target: string): GatewayError {
  const name = target.slice(0, 200);
  return new GatewayError("tool_not_found", `Tool '${name}' not found`, { toolName: name });
}

function refusedAsked({ name }: Tool, why: string): GatewayError {
  return new GatewayError("invalid_arguments", `'${name}' was not run. ${why}`, { param: "arguments", toolName: name });
}

function checkArguments(tool: Tool, given: string | JsonObject): JsonObject {
  const parsed = typeof given === "string" ? parseToolArguments(given) : ({ ok: true, value: given } as const);
  const checked = parsed.ok ? validateArguments(tool, parsed.value) : parsed;
  if (checked.ok) return checked.value;
  const list = checked.errors.map((error) => `${error.pointer === "" ? "arguments" : error.pointer}: ${error.message}`);
  throw new GatewayError(
    "invalid_arguments",
    `The arguments of '${tool.name}' do not fit its schema, nothing was run. ${list.join("; ")}`,
    {
      param: "arguments",
      toolName: tool.name,
      extra: { errors: checked.errors as unknown as JsonValue },
    },
  );
}

export function validateArguments(tool: Tool, given: JsonObject): CheckedArguments {
  return compileArguments(tool.parameters).validate(withOwnNames(tool, given), {
    longNumbers: tool.carriesLongNumbers,
  });
}

function requireCredentials(context: CallContext, tool: Tool): void {
  const missing = missingCredentials(context, tool.requiredCredentials);
  const first = missing[0];
  if (first === undefined) return;
  throw new GatewayError(
    "credential_missing",
    `Tool '${tool.name}' needs the credential '${first}', which ${describeMissing(context, first)}.`,
    { param: first, toolName: tool.name, extra: { missing: [...missing] } },
  );
}

function assemble(
  id: string,
  context: CallContext,
  found: FoundTool & { readonly args: JsonObject; readonly readOutside: boolean },
): PreparedCall {
  const { tool, uri, adapter, args, readOutside } = found;
  const { settings } = context.config;
  const asked = uri.options;
  const { tool_timeout_ms: tenantMs } = settings;
  const longestMs = Math.max(tenantMs, tool.timeoutMs ?? 0);
  if (asked.timeoutMs !== undefined && asked.timeoutMs > longestMs) {
    throw new GatewayError(
      "invalid_uri",
      longestMs === tenantMs
        ? `Option 'timeout' is above this tenant's cap of ${tenantMs} ms ('tool_timeout_ms').`
        : `Option 'timeout' is above the ${longestMs} ms that '${tool.name}' may take ('timeout_ms' of its configuration).`,
      { param: "timeout" },
    );
  }
  if (asked.maxAttempts !== undefined && asked.maxAttempts > settings.max_attempts) {
    throw new GatewayError(
      "invalid_uri",
      `Option 'max-attempts' is above this tenant's cap of ${settings.max_attempts} ('max_attempts').`,
      { param: "max-attempts" },
    );
  }
  return {
    id,
    adapter,
    tool,
    uri,
    arguments: args,
    readOutside,
    effect: tool.effectOf?.(args) ?? tool.effect,
    repeat: tool.repeat,
    service: tool.serviceOf?.(context) ?? tool.service,
    timeoutMs: asked.timeoutMs ?? tool.timeoutMs ?? settings.tool_timeout_ms,
    maxAttempts: asked.maxAttempts ?? Math.min(tool.maxAttempts ?? 1, settings.max_attempts),
  };
}

function needsApproval(call: PreparedCall, context: CallContext, options: PrepareOptions): boolean {
  if (options.approved === true) return false;
  return call.tool.sensitive || isAskedFromOutside(call, context);
}

/** What leaves the tenant in a turn that has read content from outside, which may be what asks for it. */
export function isAskedFromOutside(
  { tool, effect, readOutside }: Pick<PreparedCall, "tool" | "effect" | "readOutside">,
  { config }: Pick<CallContext, "config">,
): boolean {
  return readOutside && effect === "write" && tool.outward === true && config.settings.untrusted_write_approval;
}
