/**
 * A scheme at work: makes the adapter that the dispatcher knows out of what the scheme declares. Here,
 * once for all schemes: the service of the tenant's snapshot, its configuration read, its tools made once
 * for each state of the service, names, options, disabled services, credentials that tools need.
 */
import { createHash } from "node:crypto";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson } from "../json.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext, LateTool, ToolCall, ToolReply } from "../tools/tool-call.ts";
import type { ToolAdapter } from "../tools/adapter.ts";
import { attemptTimedOut } from "../tools/execute-call.ts";
import type { Tool } from "../tools/tool.ts";
import { dispatcherOptions, formatToolUri, type ToolUri, type UriOptions } from "../tools/uri.ts";
import { Breakers } from "./breaker.ts";
import { credentialsIn } from "./config-fields.ts";
import type {
  DiscoveredTools,
  OpenService,
  Pinning,
  ProbeReport,
  SchemeBehaviour,
  SchemeDeps,
  ServiceScheme,
  ServiceTool,
  ServiceRuntime,
} from "./scheme.ts";
import type { ToolService } from "./service.ts";
import { serviceToolName } from "./tool-name.ts";
import { toInvalidConfig } from "./invalid-config.ts";

interface MadeTool {
  readonly described: ServiceTool;
  readonly tool: Tool;
  /** By the option `method`. */
  readonly byMethod: ReadonlyMap<string, MadeTool>;
}

/** A service with everything that was made of it; lives as long as the object in the snapshot. */
interface Opened extends OpenService<unknown> {
  readonly byId: ReadonlyMap<string, MadeTool>;
  /** Those that are there without being listed, as far as they were called. */
  readonly unlisted: Map<string, MadeTool>;
  readonly listed: readonly Tool[];
  readonly hash: string;
  readonly credentials: readonly string[];
}

/** Of one service. */
const mostUnlisted = 500;

interface Index {
  readonly services: ReadonlyMap<string, ToolService>;
  readonly tools: readonly Tool[];
  readonly byName: ReadonlyMap<string, Tool>;
}

export function noSuchService(scheme: string, id: string): string {
  return `there is no ${scheme} service '${id}'; create it with POST /v1/tool-services.`;
}

export function createServiceAdapter(scheme: ServiceScheme, deps: SchemeDeps): ToolAdapter {
  return new ServiceAdapter(scheme, deps);
}

class ServiceAdapter implements ToolAdapter, ServiceRuntime {
  readonly scheme: ServiceScheme;
  readonly options: UriOptions;
  readonly discovers: boolean;
  readonly services: ServiceRuntime = this;
  readonly #behaviour: SchemeBehaviour<unknown>;
  readonly #deps: SchemeDeps;
  readonly #breakers: Breakers;
  readonly #opened = new WeakMap<ToolService, Opened>();
  readonly #indexes = new WeakMap<TenantConfig, Index>();

  constructor(scheme: ServiceScheme, deps: SchemeDeps) {
    this.scheme = scheme;
    this.options = { ...dispatcherOptions, ...scheme.options };
    this.#behaviour = scheme.create(deps);
    this.discovers = this.#behaviour.discover !== undefined;
    this.#deps = deps;
    this.#breakers = new Breakers(deps);
  }

  resolve(uri: ToolUri, { config }: CallContext): Tool | undefined {
    const record = this.#index(config).services.get(uri.service);
    return record === undefined ? undefined : this.#toolAt(this.#open(record), uri)?.tool;
  }

  find(name: string, { config }: CallContext): Tool | undefined {
    return this.#index(config).byName.get(name);
  }

  list({ config }: CallContext): readonly Tool[] {
    return this.#index(config).tools;
  }

  whyMissing(uri: ToolUri, { config }: CallContext): string {
    const { scheme } = this.scheme;
    const record = this.#index(config).services.get(uri.service);
    if (record === undefined) return noSuchService(scheme, uri.service);
    return `the ${scheme} service '${uri.service}' has no tool '${uri.tool}'; GET /v1/tool-services/${record.id}/tools lists those it has.`;
  }

  async invoke(call: ToolCall, context: InvocationContext): Promise<ToolReply> {
    const { opened, made } = this.#required(call, context);
    const send = (): Promise<ToolReply> => this.#behaviour.invoke({ ...opened, tool: made.described, call }, context);
    const options = this.#behaviour.breaker?.(opened);
    if (options === undefined) return send();
    const { record } = opened;
    const guarded = {
      tenant: context.tenant,
      service: record.id,
      version: record.version,
      options,
      name: made.tool.service,
      timeoutMs: call.uri.options.timeoutMs ?? made.tool.timeoutMs ?? context.config.settings.tool_timeout_ms,
      hasTimedOut: () => context.signal.reason === attemptTimedOut,
    };
    return this.#breakers.guard(guarded, send);
  }

  async handOver(call: ToolCall, context: InvocationContext): Promise<boolean> {
    if (this.#behaviour.handOver === undefined) return false;
    const { opened, made } = this.#required(call, context);
    if (this.#behaviour.breaker?.(opened) !== undefined) return false;
    return this.#behaviour.handOver({ ...opened, tool: made.described, call }, context);
  }

  async readLate({ uri, name }: LateTool, text: string, context: CallContext): Promise<ToolReply | undefined> {
    const record = this.#index(context.config).services.get(uri.service);
    const opened = record === undefined ? undefined : this.#open(record);
    const made = opened === undefined ? undefined : this.#toolAt(opened, uri);
    if (opened === undefined || made === undefined) return undefined;
    return this.#behaviour.readLate?.({ ...opened, tool: made.described, name, text }, context);
  }

  async explain(
    call: Pick<ToolCall, "uri" | "arguments">,
    context: CallContext,
  ): ReturnType<NonNullable<ToolAdapter["explain"]>> {
    const { opened, made } = this.#required(call, context);
    const input = { arguments: call.arguments, method: call.uri.options.method, context };
    return (await this.#behaviour.explain?.({ ...opened, tool: made.described }, input)) ?? null;
  }

  async userClient(tool: Tool, context: CallContext): ReturnType<NonNullable<ToolAdapter["userClient"]>> {
    const { services } = this.#index(context.config);
    for (const record of services.values()) {
      const opened = this.#open(record);
      for (const made of [...opened.byId.values(), ...opened.unlisted.values()]) {
        if (made.tool.uri === tool.uri)
          return this.#behaviour.userClient?.({ ...opened, tool: made.described }, context);
      }
    }
    return undefined;
  }

  async check(tenant: string, record: ToolService): Promise<void> {
    const opened = this.#read(record);
    await this.#behaviour.check?.(opened, tenant);
    this.toolsOf(record);
  }

  toolsOf(record: ToolService): readonly Tool[] {
    return this.#open(record).listed;
  }

  discover(record: ToolService, context: InvocationContext): Promise<DiscoveredTools> | undefined {
    return this.#behaviour.discover?.(this.#open(record), context);
  }

  pinning(record: ToolService): Pinning {
    return this.#behaviour.pinning?.(this.#open(record)) ?? "off";
  }

  probe(record: ToolService, context: InvocationContext): Promise<ProbeReport> {
    return this.#behaviour.probe(this.#open(record), context);
  }

  reachedBy(record: ToolService): readonly string[] {
    return this.#behaviour.reachedBy(this.#open(record));
  }

  retire(tenant: string, record: Pick<ToolService, "id">): void {
    this.#deps.connections.retire(tenant, record);
  }

  /** The snapshot that the call came with decides, whatever has been changed since. */
  #required(
    { uri }: Pick<ToolCall, "uri">,
    { config }: CallContext,
  ): { readonly opened: Opened; readonly made: MadeTool } {
    const record = this.#index(config).services.get(uri.service);
    const opened = record === undefined ? undefined : this.#open(record);
    const made = opened === undefined ? undefined : this.#toolAt(opened, uri);
    if (opened !== undefined && made !== undefined) return { opened, made };
    const name = formatToolUri(uri.scheme, uri.service, uri.tool).slice(0, 200);
    throw withDelivery(new GatewayError("tool_not_found", `Tool '${name}' not found`, { toolName: name }), "not_sent");
  }

  #index(config: TenantConfig): Index {
    const known = this.#indexes.get(config);
    if (known !== undefined) return known;
    const own = config.services.filter(({ scheme }) => scheme === this.scheme.scheme);
    const tools = own.flatMap((record) => this.#usableTools(record));
    const index: Index = {
      services: new Map(own.map((record) => [record.serviceId, record])),
      tools: tools.filter(({ enabled }) => enabled),
      byName: new Map(tools.map((tool) => [tool.name, tool])),
    };
    this.#indexes.set(config, index);
    return index;
  }

  /** A row that another release wrote and this one cannot read fails its own calls, not everybody's list. */
  #usableTools(record: ToolService): readonly Tool[] {
    try {
      return this.toolsOf(record);
    } catch (error) {
      if (error instanceof GatewayError) return [];
      throw error;
    }
  }

  #open(record: ToolService): Opened {
    const known = this.#opened.get(record);
    if (known !== undefined) return known;
    const service = this.#read(record);
    const base = {
      ...service,
      hash: hashOf([record.scheme, record.serviceId, record.config]),
      credentials: credentialsIn(record.config),
    };
    const byId = new Map<string, MadeTool>();
    for (const described of this.#behaviour.tools(service)) {
      byId.set(described.id, makeTool(base, described));
    }
    const listed = [...byId.values()].map(({ tool }) => tool);
    const opened: Opened = { ...base, byId, unlisted: new Map(), listed };
    this.#opened.set(record, opened);
    return opened;
  }

  #read(record: ToolService): OpenService<unknown> {
    const parsed = this.scheme.config.safeParse(record.config);
    if (!parsed.success) throw toInvalidConfig(parsed.error);
    return { record, config: parsed.data };
  }

  /** @throws GatewayError `invalid_uri` for a method that the tool does not allow */
  #toolAt(opened: Opened, uri: ToolUri): MadeTool | undefined {
    const made = opened.byId.get(uri.tool) ?? this.#makeOpen(opened, uri.tool);
    const { method } = uri.options;
    if (made === undefined || method === undefined) return made;
    const variant = made.byMethod.get(method);
    if (variant !== undefined) return variant;
    const allowed = [...made.byMethod.keys()].join(", ");
    throw new GatewayError(
      "invalid_uri",
      `Option 'method' of '${made.tool.uri}' may be ${allowed === "" ? "left out only" : allowed}; got '${method}'.`,
      { param: "method", toolName: made.tool.name },
    );
  }

  #makeOpen(opened: Opened, id: string): MadeTool | undefined {
    const known = opened.unlisted.get(id);
    if (known !== undefined) return known;
    const described = this.#behaviour.findTool?.(opened, id);
    if (described === undefined) return undefined;
    const made = makeTool(opened, described);
    // Whoever calls a new name each time keeps none.
    if (opened.unlisted.size >= mostUnlisted) opened.unlisted.clear();
    opened.unlisted.set(id, made);
    return made;
  }
}

type ToolOwner = Omit<Opened, "byId" | "unlisted" | "listed">;

function makeTool(owner: ToolOwner, described: ServiceTool): MadeTool {
  const variants = [...(described.byMethod ?? [])].map(([method, variant]): [string, MadeTool] => [
    method,
    makeTool(owner, variant),
  ]);
  return { described, tool: toTool(owner, described), byMethod: new Map(variants) };
}

function toTool(service: ToolOwner, described: ServiceTool): Tool {
  const { record } = service;
  const { carriesLongNumbers, ...definition } = described;
  const { id, title, description, parameters, outputSchema, effect, effectOf, timeoutMs, maxAttempts } = definition;
  return {
    uri: formatToolUri(record.scheme, record.serviceId, id),
    name: serviceToolName(record.scheme, record.serviceId, id),
    ...(title === undefined ? {} : { title }),
    description,
    parameters,
    ...(carriesLongNumbers === true ? { carriesLongNumbers } : {}),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    kind: "SERVICE",
    enabled: record.enabled && described.quarantined !== true,
    ...(described.quarantined === true ? { quarantined: true } : {}),
    roles: described.roles ?? [],
    effect,
    ...(effectOf === undefined ? {} : { effectOf }),
    repeat: described.repeat ?? "never",
    sensitive: described.sensitive ?? false,
    service: formatToolUri(record.scheme, record.serviceId),
    ...(described.outward === undefined ? {} : { outward: described.outward }),
    requiredCredentials: described.requiredCredentials ?? service.credentials,
    ...(described.actsForUser === true ? { actsForUser: true } : {}),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
    outputTrust: described.outputTrust ?? "outside",
    hash: hashOf([service.hash, { ...definition, byMethod: null, effectOf: null }]),
  };
}

function hashOf(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value), "utf8").digest("hex");
}
