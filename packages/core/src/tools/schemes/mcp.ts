/**
 * `mcp://server/tool`: servers of the Model Context Protocol (tool management specification, "MCP 服务";
 * MCP-1 to MCP-5). The server names its tools; they are kept for every instance, pinned to the definitions
 * that were accepted. One session serves all calls of one tenant and identity, and is begun again where it
 * is lost.
 */
import { createHash } from "node:crypto";
import * as z from "zod";
import { userClientFrom } from "../../blind/auth-mapping.ts";
import { findCredential } from "../../blind/credential-resolver.ts";
import { executionFields, pluginDefinitionSchema } from "../../blind/definition.ts";
import { tellProgress } from "../../calls/progress.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { McpConnections, type McpEndpoint, type McpLink } from "../../mcp/connections.ts";
import { HttpPeer } from "../../mcp/http-peer.ts";
import { toToolReply } from "../../mcp/call-result.ts";
import { mirror, mirroredArguments } from "../../mcp/mirrored-headers.ts";
import type { McpSession, ToolCallRequest } from "../../mcp/session.ts";
import { tenantsOwn, type HeldServer } from "../../mcp/node-messages.ts";
import type { NodeProgram } from "../../mcp/stdio-node.ts";
import type { StdioProgram } from "../../mcp/stdio-once.ts";
import { nodeNameSchema, type NodeTool } from "../../nodes/node.ts";
import { readToolDefinitions, type ToolDefinition } from "../../mcp/tool-definition.ts";
import type { ExchangeOptions } from "../../mcp/transport.ts";
import { breakerField } from "../../services/breaker.ts";
import { credentialsOf, headersField, httpUrlField, policyFields, secretField } from "../../services/config-fields.ts";
import { keepTools, withTools } from "../../services/discovery.ts";
import { authFields, readAuth, toHttpAuth, toRefusedCredentials, withLiterals } from "../../services/http-auth.ts";
import { invalidConfig } from "../../services/invalid-config.ts";
import { quarantineOf } from "../../services/pins.ts";
import {
  defineScheme,
  type DiscoveredTools,
  type OpenService,
  type SchemeDeps,
  type ServiceCall,
  type ServiceTool,
} from "../../services/scheme.ts";
import { credentialVersions } from "../../services/held-connections.ts";
import type { DiscoveredTool, ToolService } from "../../services/service.ts";
import { openTls, tlsField } from "../../services/tls.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tool-call.ts";
import { compileArguments } from "../arguments.ts";
import { formatToolUri } from "../uri.ts";

/** What people know of a tool better than its server says. */
const overrideSchema = z.strictObject({
  effect: z.enum(["read", "write"]).optional().meta({ description: "Beats what the server claims." }),
  repeat: z.enum(["never", "natural"]).optional().meta({ description: "'natural': repeating does no harm." }),
  sensitive: pluginDefinitionSchema.shape.sensitive,
  outward: z.boolean().optional().meta({ description: "Reaches people or places outside the tenant's services." }),
  roles: pluginDefinitionSchema.shape.roles,
  timeout_ms: executionFields.shape.timeout_ms,
  max_attempts: executionFields.shape.max_attempts,
});

const ownHeaders = /^(?:accept|last-event-id|mcp-.*)$/i;

const mcpConfigSchema = z
  .strictObject({
    transport: z.enum(["http", "sse", "websocket", "stdio"]).default("http").meta({
      description:
        "`http`: Streamable HTTP, and HTTP with SSE where the server knows nothing else. `sse`: that alone. `websocket`: one connection for all. `stdio`: a program, started for each call.",
    }),
    url: httpUrlField("The server's MCP endpoint, unless it is a program.", { sockets: true })
      .meta({ example: "https://maps.example.com/mcp" })
      .optional(),
    command: z.string().min(1).max(64).optional().meta({
      description:
        "Name of a program, for `stdio`: one that the operator offers (`TOOLYARD_MCP_COMMANDS`), or with `node` one of that node's `mcp_servers`.",
    }),
    node: nodeNameSchema.optional().meta({
      description: "Name of a node that holds the program for all calls, for `stdio`; absent: a process for each call.",
    }),
    env: z
      .record(z.string(), secretField("Value of the variable."))
      .optional()
      .meta({ description: "Variables of the program, those that it is offered with." }),
    ...authFields,
    headers: headersField()
      .refine((headers) => !Object.keys(headers).some((name) => ownHeaders.test(name)), {
        error: "must not hold headers that the protocol sets (Accept, Last-Event-ID, Mcp-…)",
      })
      .optional(),
    tls: tlsField.optional(),
    protocol: z.enum(["auto", "session", "stateless"]).default("auto").meta({
      description: "`session`: revisions until 2025-11-25. `stateless`: 2026-07-28. `auto`: found out.",
    }),
    elicitation: z.enum(["ask", "defaults", "decline"]).default("ask").meta({
      description:
        "Questions that the server has for people: `ask` them, the call waits meanwhile (`stateless` servers; others are told no); fill in the `defaults` of forms that have them, else as `ask`; `decline`.",
    }),
    breaker: breakerField.optional(),
    ...policyFields({
      attempts: "Sends in all, where a tool says nothing; repeated only where that is safe. Absent: 2.",
    }),
    trust_hints: z.boolean().default(false).meta({
      description: "Believe the server which of its tools only read, and which may be repeated. Absent: all write.",
    }),
    approve_destructive: z.boolean().default(false).meta({
      description: "Tools that write wait for approval, unless the server says that they destroy nothing.",
    }),
    pin_definitions: z.enum(["changed", "all", "off"]).default("changed").meta({
      description:
        "Which tools wait until they are accepted: `changed` ones, `all` that were not there at first as well, none (`off`).",
    }),
    tools: z
      .record(z.string().min(1).max(128), overrideSchema)
      .default({})
      .meta({ description: "By tool name: what is known better than the server says." }),
  })
  .superRefine(({ transport, url, command, env, node, auth_type: auth }, check) => {
    const isProgram = transport === "stdio";
    const note = (field: string, problem: string): void =>
      check.addIssue({ code: "custom", message: problem, path: [field] });
    if (isProgram && command === undefined) note("command", "is needed where 'transport' is 'stdio'");
    if (url?.startsWith("ws") === true && transport !== "websocket") note("url", "must be an http or https URL");
    if (!isProgram && url === undefined) note("url", "is needed unless 'transport' is 'stdio'");
    if (isProgram && url !== undefined) note("url", "has no meaning where 'transport' is 'stdio'");
    if (isProgram && auth !== "none") note("auth_type", "has no meaning where 'transport' is 'stdio'; use 'env'");
    if (!isProgram && command !== undefined) note("command", "is for 'transport' 'stdio' alone");
    if (!isProgram && env !== undefined) note("env", "is for 'transport' 'stdio' alone");
    if (!isProgram && node !== undefined) note("node", "is for 'transport' 'stdio' alone");
  })
  .transform(readAuth);
type McpConfig = z.output<typeof mcpConfigSchema>;
type Service = OpenService<McpConfig>;

/** Characters of what a server says of how far it is. */
const longestNote = 200;

/** Sends in all where nobody says. */
const defaultAttempts = 2;

export const mcpScheme = defineScheme({
  scheme: "mcp",
  title: "MCP server",
  description: "A server of the Model Context Protocol, which names its tools itself.",
  icon: "plug",
  config: mcpConfigSchema,
  options: {},
  create: (deps) => {
    const servers = new McpServers(deps);
    return {
      check: (service) => {
        if (service.config.url !== undefined) checkAddress(service.config.url, deps);
        // What a node offers shows when it is connected, which it need not be yet.
        if (service.config.command !== undefined && service.config.node === undefined) requireProgram(service, deps);
      },
      tools: ({ record, config }) => (record.discovered?.tools ?? []).map((tool) => describe({ record, config }, tool)),
      // Until the server has been asked, which the first call does, there is a tool of every name.
      findTool: ({ record, config }, id) =>
        record.discovered === null || (id === everyTool && actsForUser(config))
          ? describe({ record, config }, unknownTool(id))
          : undefined,
      pinning: ({ config }) => config.pin_definitions,
      discover: (service, context) => servers.discover(service, context),
      invoke: (call, context) => servers.invoke(call, context),
      handOver: (call, context) => servers.handOver(call, context),
      readLate: async ({ config, tool, name, text }, context) => {
        await hideVariables(config.env ?? {}, deps.credentials, context);
        const { toLateReply } = await import("../../mcp/late-answer.ts");
        return toLateReply(text, { toolName: name, outputSchema: tool.outputSchema, redactor: context.redactor });
      },
      breaker: ({ config }) => config.breaker,
      probe: (service, context) => servers.probe(service, context),
      reachedBy: ({ config }) => (config.url === undefined ? [] : ["url", "transport"]),
      userClient: async ({ config }, context) => {
        const { authConfig, literals } = toHttpAuth(config);
        const names = authConfig?.mapping.map(({ source }) => source) ?? [];
        return userClientFrom(authConfig, await withLiterals(deps.credentials, literals).resolve(context, names));
      },
    };
  },
});

/** @throws GatewayError `egress_denied` */
function checkAddress(url: string, { egress }: Pick<SchemeDeps, "egress">): void {
  try {
    egress.checkUrl(toHttp(url));
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "config.url" });
  }
}

/** Sockets are opened by a request of HTTP. */
function toHttp(url: string): string {
  return url.replace(/^ws/i, "http");
}

type ProgramDeps = Pick<SchemeDeps, "plugins" | "mcpCommands" | "credentials">;

/**
 * The program of a service as the operator offers it now.
 * @throws GatewayError `invalid_definition` naming the field; not sent
 */
function requireProgram(
  { record, config }: Service,
  { plugins, mcpCommands = {}, credentials }: ProgramDeps,
): StdioProgram {
  const { command = "", env = {} } = config;
  const offered = Object.hasOwn(mcpCommands, command) ? mcpCommands[command] : undefined;
  if (offered === undefined || plugins === undefined) {
    const names = Object.keys(mcpCommands);
    const known =
      names.length === 0 ? "the operator offers none (TOOLYARD_MCP_COMMANDS)" : `there are ${names.join(", ")}`;
    throw withDelivery(invalidConfig("command", `names no program that is offered here; ${known}`), "not_sent");
  }
  const refused = Object.keys(env).find((name) => !offered.env.includes(name));
  if (refused !== undefined) {
    const known = offered.env.length === 0 ? "none" : offered.env.join(", ");
    throw withDelivery(
      invalidConfig(`env.${refused}`, `may not be set for this program; of its variables you may set ${known}`),
      "not_sent",
    );
  }
  return {
    name: formatToolUri("mcp", record.serviceId),
    runner: plugins,
    command: offered.command,
    environment: (context) => variablesOf(env, credentials, context),
  };
}

async function variablesOf(
  env: NonNullable<McpConfig["env"]>,
  credentials: SchemeDeps["credentials"],
  context: CallContext,
): Promise<Readonly<Record<string, string>>> {
  const names = Object.values(env).map(({ credential }) => credential);
  const values = await credentials.resolve(context, names);
  const variables = Object.entries(env).map(([variable, { credential }]) => {
    const value = values.get(credential);
    if (value === undefined || value === "" || value.includes("\u0000")) throw unusable(credential);
    context.redactor.add(value);
    return [variable, value] as const;
  });
  return Object.fromEntries(variables);
}

/** What a process was given is not to be shown; a value that is gone cannot be known any more. */
async function hideVariables(
  env: NonNullable<McpConfig["env"]>,
  credentials: SchemeDeps["credentials"],
  context: CallContext,
): Promise<void> {
  const names = Object.values(env).map(({ credential }) => credential);
  for (const value of (await credentials.resolve(context, names)).values()) context.redactor.add(value);
}

function unusable(name: string): GatewayError {
  return withDelivery(
    new GatewayError(
      "credential_missing",
      `Credential '${name}' is not set, or cannot be a variable; add it with PUT /v1/credentials/${encodeURIComponent(name)}.`,
      { param: name },
    ),
    "not_sent",
  );
}

/** What users are asked to give access to where no call is asked for, as it is not where a server is asked for its tools. */
const everyTool = "*";

function actsForUser(config: McpConfig): boolean {
  return toHttpAuth(config).authConfig?.grant === "authorization_code";
}

function describe({ record, config }: Service, tool: DiscoveredTool): ServiceTool {
  const { id, title, description, parameters, outputSchema, hints = {} } = tool;
  const own = Object.hasOwn(config.tools, id) ? config.tools[id] : undefined;
  const isRead = config.trust_hints && hints.read_only === true;
  const mayRepeat = config.trust_hints && hints.idempotent === true;
  const effect = own?.effect ?? (isRead ? "read" : "write");
  const isDestructive = config.approve_destructive && effect === "write" && hints.destructive !== false;
  const { discovered } = record;
  const isQuarantined = discovered !== null && quarantineOf(discovered, tool, config.pin_definitions) !== undefined;
  return {
    id,
    title,
    description,
    parameters,
    carriesLongNumbers: isSentAsWritten(config),
    outputSchema,
    hints,
    effect,
    repeat: own?.repeat ?? (mayRepeat ? "natural" : "never"),
    sensitive: own?.sensitive ?? isDestructive,
    roles: own?.roles,
    outward: own?.outward,
    ...(isQuarantined ? { quarantined: true } : {}),
    ...(actsForUser(config) ? { actsForUser: true } : {}),
    timeoutMs: own?.timeout_ms ?? config.timeout_ms,
    maxAttempts: own?.max_attempts ?? config.max_attempts ?? defaultAttempts,
  };
}

/** Nodes read a request before they pass it on. */
function isSentAsWritten({ node }: McpConfig): boolean {
  return node === undefined;
}

function unknownTool(id: string): DiscoveredTool {
  return { id, description: "", parameters: { type: "object" }, effect: "write" };
}

function toServiceTool(definition: ToolDefinition): ServiceTool {
  const { name, title, description, inputSchema, outputSchema, hints } = definition;
  return { id: name, title, description, parameters: inputSchema, outputSchema, hints, effect: "write" };
}

const mostStrangers = 20;

/** What is configured for a tool that the server has not, or calls otherwise by now, holds for none. */
function strangers(config: McpConfig, listed: readonly JsonValue[]): readonly string[] {
  const names = new Set(listed.map((entry) => (isJsonObject(entry) ? entry["name"] : undefined)));
  return Object.keys(config.tools)
    .filter((name) => !names.has(name))
    .slice(0, mostStrangers)
    .map((name) => `'config.tools.${name}' is for no tool that the server lists.`);
}

interface AskedTool {
  readonly exchange: ExchangeOptions;
  /** As the server describes it. */
  readonly known: ServiceTool;
  readonly request: ToolCallRequest;
}

/** The servers behind all services of the scheme. */
class McpServers {
  readonly #deps: SchemeDeps;
  readonly #connections: McpConnections;
  readonly #endpoints = new WeakMap<ToolService, McpEndpoint>();

  constructor(deps: SchemeDeps) {
    this.#deps = deps;
    this.#connections = new McpConnections(deps.connections, deps.clock);
  }

  async invoke(call: ServiceCall<McpConfig>, context: InvocationContext): Promise<ToolReply> {
    return this.#connections.use(this.#endpointOf(call, context), context, async (session) => {
      const { exchange, known, request } = await this.#toRequest(call, session, context);
      const result = await session.callTool(request, exchange);
      const { redactor } = context;
      return toToolReply(result, { toolName: call.call.tool.name, outputSchema: known.outputSchema, redactor });
    });
  }

  async handOver(call: ServiceCall<McpConfig>, context: InvocationContext): Promise<boolean> {
    if (call.config.node === undefined) return false;
    return this.#connections.use(this.#endpointOf(call, context), context, async (session) => {
      const { exchange, request } = await this.#toRequest(call, session, context);
      return session.handOver(request, exchange);
    });
  }

  async #toRequest(
    { record, config, tool, call }: ServiceCall<McpConfig>,
    session: McpSession,
    context: InvocationContext,
  ): Promise<AskedTool> {
    const timeoutMs = call.uri.options.timeoutMs ?? tool.timeoutMs ?? context.config.settings.tool_timeout_ms;
    const { signal, onSent } = context;
    const row = { id: call.id, attempt: call.attempt };
    const exchange = { context, signal, timeoutMs, onSent, maxBytes: messageBytes(context), call: row };
    const known = await this.#required({ record, config }, tool, { session, exchange });
    const args = known === tool ? call.arguments : checkedArguments(known, call);
    const mirrored = mirroredArguments(known.parameters);
    const request = {
      name: known.id,
      arguments: isSentAsWritten(config) ? compileArguments(known.parameters).withLongNumbers(args) : args,
      token: call.id,
      answers: call.answers,
      mirrored: typeof mirrored === "string" ? [] : mirror(mirrored, args),
      onProgress: (progress: JsonObject) => this.#tellProgress(call, context, progress),
    };
    return { exchange, known, request };
  }

  #tellProgress({ id, tool }: ToolCall, context: InvocationContext, told: JsonObject): void {
    const { progress, total, message } = told;
    if (typeof progress !== "number") return;
    const far = {
      progress,
      total: typeof total === "number" ? total : undefined,
      message: typeof message === "string" ? context.redactor.redact(message).slice(0, longestNote) : undefined,
    };
    tellProgress(this.#deps.log, {
      tenant: context.tenant,
      callId: id,
      tool: tool.name,
      callerId: context.caller.id,
      sessionId: context.sessionId,
      ...far,
    });
    context.onProgress?.({
      progress,
      ...(far.total === undefined ? {} : { total: far.total }),
      ...(far.message === undefined ? {} : { message: far.message }),
    });
  }

  async discover(service: Service, context: InvocationContext): Promise<DiscoveredTools> {
    return this.#connections.use(this.#endpointOf(service, context), context, (session) =>
      this.#list(session, exchangeOf(service, context), service.config),
    );
  }

  /** Begins a session of its own, so that nothing held can hide what is wrong. */
  async probe(service: Service, context: InvocationContext): Promise<{ readonly detail: string }> {
    const { config } = service;
    try {
      return await this.#connections.once(this.#endpointOf(service, context), context, async (session) => {
        const { tools, warnings } = await this.#list(session, exchangeOf(service, context), config);
        const { name, version, revision } = session.about;
        const server = `${name} ${version}`.trim().slice(0, 200);
        const left = warnings.length === 0 ? "" : ` ${warnings.length} warnings: ${warnings.join(" ").slice(0, 1_000)}`;
        return {
          detail: `${server === "" ? "The server" : `'${server}'`} speaks ${revision}; it has ${tools.length} tools.${left}`,
        };
      });
    } catch (error) {
      const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
      if (status === 401 || status === 403) throw toRefusedCredentials(config, { status, cause: error });
      throw error;
    }
  }

  /** The tool as the server describes it; the first call of a service asks. */
  async #required(
    service: Service,
    tool: ServiceTool,
    { session, exchange }: { readonly session: McpSession; readonly exchange: ExchangeOptions },
  ): Promise<ServiceTool> {
    if (service.record.discovered !== null) return tool;
    const beside = { ...exchange, onSent: undefined, call: undefined };
    const kept = await this.#refresh(service, session, beside).catch((error: unknown) => {
      throw error instanceof Error ? withDelivery(error, "not_sent") : error;
    });
    const found = kept.discovered?.tools.find(({ id }) => id === tool.id);
    if (found !== undefined) return describe({ record: kept, config: service.config }, found);
    const uri = formatToolUri("mcp", service.record.serviceId, tool.id);
    throw withDelivery(
      new GatewayError("tool_not_found", `Tool '${uri.slice(0, 200)}' not found: the server has none of that name.`, {
        toolName: uri,
      }),
      "not_sent",
    );
  }

  async #list(session: McpSession, exchange: ExchangeOptions, config: McpConfig): Promise<DiscoveredTools> {
    const listed = await session.listTools(exchange);
    const hide = (text: string): string => exchange.context.redactor.redact(text);
    const { tools, warnings } = await readToolDefinitions(listed.tools, hide);
    return {
      tools: tools.map(toServiceTool),
      warnings: [...listed.warnings.map(hide), ...warnings, ...strangers(config, listed.tools)],
    };
  }

  /** Asks for the tools again and keeps them, by what is stored now; what one user sees is not kept for all. */
  async #refresh({ record, config }: Service, session: McpSession, exchange: ExchangeOptions): Promise<ToolService> {
    const { tenant } = exchange.context;
    const found = { ...(await this.#list(session, exchange, config)), pinning: config.pin_definitions };
    if (!isTenants(exchange.context, { record, config })) return withTools(record, found, this.#deps.clock.now());
    const service = await this.#deps.repos.services.get(tenant, record.id);
    // Changed or deleted meanwhile: what was asked is no longer the service's server.
    if (service?.version !== record.version) return { ...record, discovered: { tools: [], at: 0 } };
    return keepTools(this.#deps, tenant, { service, found });
  }

  #linkOf(service: Service): McpLink {
    const { record, config } = service;
    const { url, transport, node } = config;
    if (node !== undefined) return { kind: "node", deps: this.#deps, program: this.#heldProgram(service, node) };
    if (transport === "stdio" || url === undefined)
      return { kind: "stdio", program: requireProgram(service, this.#deps) };
    const peer = new HttpPeer(this.#deps, {
      url: toHttp(url),
      name: formatToolUri("mcp", record.serviceId),
      tool: formatToolUri("mcp", record.serviceId, everyTool),
      auth: toHttpAuth(config),
      headers: config.headers ?? {},
      tls: (context) => openTls(config.tls, this.#deps.credentials, context),
    });
    return { kind: transport, peer };
  }

  /** The program of a service on the node that holds it. */
  #heldProgram({ record, config }: Service, node: string): NodeProgram {
    const { command = "", env = {}, elicitation } = config;
    return {
      name: formatToolUri("mcp", record.serviceId),
      node,
      program: command,
      offered: (context) => offeredBy(node, { command, env }, context),
      server: async (context) => ({
        service: record.id,
        version: record.version,
        ...identityOf(record, node, context),
        environment: { ...(await variablesOf(env, this.#deps.credentials, context)) },
        elicitation,
      }),
    };
  }

  /** Made once for each state of a service; only who calls is another each time. */
  #endpointOf(service: Service, context: CallContext): McpEndpoint {
    let endpoint = this.#endpoints.get(service.record);
    if (endpoint === undefined) this.#endpoints.set(service.record, (endpoint = this.#toEndpoint(service)));
    return isTenants(context, service) ? endpoint : { ...endpoint, isTenants: false };
  }

  #toEndpoint(service: Service): McpEndpoint {
    const { record, config } = service;
    return {
      service: record,
      name: formatToolUri("mcp", record.serviceId),
      link: this.#linkOf(service),
      era: config.protocol === "auto" ? undefined : config.protocol,
      elicitation: config.elicitation,
      isUsersOwn: actsForUser(config),
      isTenants: true,
      refresh: async (session, exchange) => {
        try {
          await this.#refresh(service, session, exchange);
        } catch (error) {
          this.#deps.log.log("info", "the tools of an MCP server could not be looked at again", {
            service: record.id,
            error: error instanceof GatewayError ? error.code : "unknown",
          });
        }
      },
    };
  }
}

/**
 * A node's program as the tenant's snapshot has it.
 * @throws GatewayError `invalid_definition` naming the field; not sent
 */
function offeredBy(
  node: string,
  { command, env }: { readonly command: string; readonly env: NonNullable<McpConfig["env"]> },
  { config: { nodes } }: CallContext,
): NodeTool | undefined {
  const tools = nodes.find(({ name }) => name === node)?.tools;
  const offered = tools?.find(({ name, kind }) => kind === "mcp" && name === command);
  const { variables = [] } = offered ?? {};
  const refused = offered === undefined ? undefined : Object.keys(env).find((name) => !variables.includes(name));
  if (refused === undefined) return offered;
  const known = variables.length === 0 ? "none" : variables.join(", ");
  throw withDelivery(
    invalidConfig(
      `env.${refused}`,
      `may not be set for this program; of its variables node '${node}' lets you set ${known}`,
    ),
    "not_sent",
  );
}

/**
 * Whose process it is, and with which values of the credentials.
 * @throws GatewayError `invalid_request`, not sent, where the request brought them, which are kept nowhere (BLIND-7)
 */
function identityOf(record: ToolService, node: string, context: CallContext): Pick<HeldServer, "owner" | "generation"> {
  const origins = credentialsOf(record).map((name) => findCredential(context, name));
  if (origins.some((origin) => origin?.level === "inline")) {
    const uri = formatToolUri("mcp", record.serviceId);
    throw withDelivery(
      new GatewayError(
        "invalid_request",
        `'${uri}' is held on node '${node}', which would keep the credentials of this request's 'runtime_config'; store them with PUT /v1/credentials instead.`,
        { param: "runtime_config" },
      ),
      "not_sent",
    );
  }
  const isUsers = origins.some((origin) => origin?.level === "user");
  // User ids may be of any length and are nobody else's business.
  const owner = isUsers ? hashOf(`user ${context.caller.userId ?? ""}`) : tenantsOwn;
  return { owner, generation: hashOf(canonicalJson(credentialVersions(record, context))) };
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Is it the tenant that calls, rather than one of its users or whoever brings credentials along? */
function isTenants(context: CallContext, { record, config }: Service): boolean {
  if (actsForUser(config)) return false;
  return credentialsOf(record).every((name) => findCredential(context, name)?.level === "tenant");
}

function exchangeOf({ config }: Service, context: InvocationContext): ExchangeOptions {
  const timeoutMs = config.timeout_ms ?? context.config.settings.tool_timeout_ms;
  return { context, signal: context.signal, timeoutMs, maxBytes: messageBytes(context) };
}

/** A result as large as the tenant may have, in base64 or with escapes, and what the protocol adds. */
function messageBytes({ config }: InvocationContext): number {
  return Math.ceil(config.settings.result_max_bytes * 1.5) + 65_536;
}

/** What the dispatcher does for tools that are known. */
function checkedArguments(
  tool: ServiceTool,
  { arguments: args, tool: { name } }: ServiceCall<McpConfig>["call"],
): typeof args {
  const { parameters, carriesLongNumbers: longNumbers } = tool;
  const checked = compileArguments(parameters).validate(args, { longNumbers });
  if (checked.ok) return checked.value;
  const list = checked.errors.map(({ pointer, message }) => `${pointer === "" ? "arguments" : pointer}: ${message}`);
  throw withDelivery(
    new GatewayError(
      "invalid_arguments",
      `The arguments of '${name}' do not fit its schema, nothing was run. ${list.join("; ")}`,
      { param: "arguments", toolName: name },
    ),
    "not_sent",
  );
}
