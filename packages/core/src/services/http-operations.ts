/**
 * Operations of services over HTTP, whatever scheme they stand behind (API-1 to API-6, SVC-2): a service has
 * the address, the credentials and the defaults, a tool is an operation of it. What is sent is a blind
 * request like a plugin's, with the same mapping of credentials, reply cache and rules for repetition.
 */
import * as z from "zod";
import type { CredentialContext } from "../blind/credential-resolver.ts";
import { executionFields, pluginDefinitionSchema, type Execution, type PluginDefinition } from "../blind/definition.ts";
import { effectOf, repeatOf } from "../blind/effect.ts";
import { executeBlind, userClientOf, type BlindDeps } from "../blind/execute.ts";
import { explainBlind } from "../blind/explain.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import { recordFromDefinition, registerPlugin } from "../blind/register.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { Egress } from "../ports/egress.ts";
import type { InvocationContext, ToolReply } from "../tools/tool-call.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri, type ToolUri } from "../tools/uri.ts";
import { credentialsIn, headersField } from "./config-fields.ts";
import { authSources, standIns, toHttpAuth, toRefusedCredentials, withLiterals, type AuthFields } from "./http-auth.ts";
import { invalidConfig } from "./invalid-config.ts";
import type { OpenService, ProbeReport, SchemeBehaviour, SchemeDeps, ServiceCall, ServiceTool } from "./scheme.ts";
import type { ToolService } from "./service.ts";
import { openTls, type tlsField } from "./tls.ts";
import { serviceToolName } from "./tool-name.ts";

const methodSchema = executionFields.shape.method;

export const toolIdSchema = z
  .string()
  .regex(
    /^[\p{L}\p{N}_][\p{L}\p{N}._-]{0,63}(?:\/[\p{L}\p{N}_][\p{L}\p{N}._-]{0,63}){0,7}$/u,
    "must be a tool id: 1 to 64 letters, digits, '.', '_' or '-', the first no '.' or '-', in up to 8 such parts between slashes",
  );

export const endpointSchema = z
  .string()
  .max(2_048)
  .regex(/^\/(?!\/)[^#\s]*$/u, "must start with one '/', and have no '#' part and no spaces")
  .refine((path) => !/(?:^|\/)\.{1,2}(?:\/|\?|$)/.test(path), "must not have '.' or '..' between slashes")
  .meta({ description: "Path below `base_url`, with {name} where an argument stands.", example: "/users/{userId}" });

/** What most operations say comes first: whoever names a field that there is not is told of those in this order. */
export const operationSchema = z.strictObject({
  endpoint: endpointSchema,
  method: z
    .union([methodSchema, z.array(methodSchema).min(1).max(5)])
    .default("GET")
    .meta({ description: "One, or those that `?method=` may choose from; the first is taken where it does not." }),
  title: pluginDefinitionSchema.shape.title,
  description: pluginDefinitionSchema.shape.description,
  parameters: pluginDefinitionSchema.shape.parameters
    .optional()
    .meta({ description: "JSON Schema of the arguments; absent: what the endpoint needs, and whatever else." }),
  param_placement: executionFields.shape.param_placement
    .optional()
    .meta({ description: "Absent: the query for GET and DELETE, else the body." }),
  headers: headersField().optional(),
  ...executionFields.omit({ base_url: true, headers: true, method: true, param_placement: true }).shape,
  sensitive: pluginDefinitionSchema.shape.sensitive,
  roles: pluginDefinitionSchema.shape.roles,
  source: pluginDefinitionSchema.shape.source,
});
type Operation = z.output<typeof operationSchema>;

export interface HttpServiceConfig extends AuthFields {
  /** Endpoints are appended to it. */
  readonly base_url: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, string>> | undefined;
  readonly tls?: z.output<typeof tlsField> | undefined;
  readonly timeout_ms?: number | undefined;
  readonly max_attempts?: number | undefined;
  readonly probe_endpoint?: string | undefined;
  readonly tools: Readonly<Record<string, Operation>>;
}

export type HttpService = OpenService<HttpServiceConfig>;

/** What a scheme over HTTP does; requests leave through the door that is given, or else the gateway's own. */
export interface HttpBehaviour extends Required<
  Pick<SchemeBehaviour<HttpServiceConfig>, "tools" | "explain" | "userClient">
> {
  /** @throws GatewayError `invalid_definition`, `egress_denied` naming the operation's field */
  check(service: HttpService): void;
  invoke(call: ServiceCall<HttpServiceConfig>, context: InvocationContext, egress?: Egress): Promise<ToolReply>;
  probe(service: HttpService, context: InvocationContext, egress?: Egress): Promise<ProbeReport>;
}

export function createHttpBehaviour(deps: SchemeDeps): HttpBehaviour {
  const requests = new Requests();
  const made = new WeakMap<HttpServiceConfig, BlindDeps>();
  const ofService = ({ config }: HttpService): BlindDeps => {
    let own = made.get(config);
    if (own === undefined) {
      own = {
        egress: deps.egress,
        tokens: deps.tokens,
        replies: deps.replies,
        tls: (context) => openTls(config.tls, deps.credentials, context),
        credentials: withLiterals(deps.credentials, toHttpAuth(config).literals),
      };
      made.set(config, own);
    }
    return own;
  };
  const blind = (service: HttpService, egress?: Egress): BlindDeps =>
    egress === undefined ? ofService(service) : { ...ofService(service), egress };
  return {
    check(service) {
      for (const [id, operation] of Object.entries(service.config.tools)) {
        for (const method of methodsOf(operation)) checkOperation(service, { id, operation, method }, deps);
      }
    },
    tools: (service) => Object.entries(service.config.tools).map(([id, operation]) => describe(service, id, operation)),
    invoke: (call, context, egress) =>
      executeBlind(
        blind(call, egress),
        requests.of(call, call.tool.id, call.call.uri.options.method),
        call.call,
        context,
      ),
    explain: (call, { arguments: args, method, context }) =>
      explainBlind(requests.of(call, call.tool.id, method), args, withConfigured(call, context)),
    userClient: (call, context) =>
      userClientOf(blind(call).credentials, requests.of(call, call.tool.id, undefined), context),
    probe: (service, context, egress) => probe(service, blind(service, egress), context),
  };
}

function methodsOf({ method }: Operation): readonly Execution["method"][] {
  return typeof method === "string" ? [method] : [...new Set(method)];
}

function describe(service: HttpService, id: string, operation: Operation): ServiceTool {
  const methods = methodsOf(operation);
  const byMethod = new Map(methods.map((method) => [method, describeFor(service, id, operation, method)]));
  return { ...describeFor(service, id, operation, methods[0] ?? "GET"), byMethod };
}

function describeFor(
  { config }: HttpService,
  id: string,
  operation: Operation,
  method: Execution["method"],
): ServiceTool {
  return {
    id,
    title: operation.title,
    description: operation.description,
    parameters: parametersOf(operation),
    carriesLongNumbers: true,
    effect: effectOf({ method, effect: operation.effect }),
    repeat: repeatOf({ ...operation, method }),
    sensitive: operation.sensitive,
    roles: operation.roles,
    ...(actsForUser(config) ? { actsForUser: true } : {}),
    requiredCredentials: secretsOf(config),
    timeoutMs: operation.timeout_ms ?? config.timeout_ms,
    maxAttempts: operation.max_attempts ?? config.max_attempts,
  };
}

function actsForUser(config: HttpServiceConfig): boolean {
  return toHttpAuth(config).authConfig?.grant === "authorization_code";
}

function secretsOf(config: HttpServiceConfig): readonly string[] {
  return [...new Set([...authSources(toHttpAuth(config)), ...credentialsIn(config.tls)])];
}

/** Whatever the endpoint names is needed. */
function parametersOf({ parameters, endpoint }: Operation): JsonObject {
  if (parameters !== undefined) return parameters;
  const names = [...new Set([...endpoint.matchAll(/\{([^{}/?#\s]{1,128})\}/gu)].map(([, name = ""]) => name))];
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: ["string", "number", "boolean"] }])),
    ...(names.length === 0 ? {} : { required: names }),
  };
}

interface Send {
  readonly id: string;
  readonly operation: Operation;
  readonly method: Execution["method"];
}

/** The blind definition that an operation stands for. */
function definitionOf({ record, config }: HttpService, { id, operation, method }: Send): PluginDefinition {
  const {
    title,
    description,
    endpoint,
    parameters: _given,
    param_placement,
    headers,
    sensitive,
    roles,
    source,
    ...execution
  } = operation;
  const { authConfig } = toHttpAuth(config);
  return {
    schema_version: "v1",
    name: serviceToolName(record.scheme, record.serviceId, id),
    description,
    ...(title === undefined ? {} : { title }),
    parameters: parametersOf(operation),
    execution: {
      ...execution,
      method,
      base_url: addressOf(config, endpoint),
      param_placement: param_placement ?? (method === "GET" || method === "DELETE" ? "query" : "body"),
      headers: mergeHeaders(config.headers, headers),
    },
    ...(authConfig === undefined ? {} : { auth_config: authConfig }),
    ...(sensitive === undefined ? {} : { sensitive }),
    ...(roles === undefined ? {} : { roles }),
    ...(source === undefined ? {} : { source }),
  };
}

/** An operation's header replaces the service's of the same name. */
function mergeHeaders(
  common: Readonly<Record<string, string>> = {},
  own: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const taken = new Set(Object.keys(own).map((name) => name.toLowerCase()));
  return { ...Object.fromEntries(Object.entries(common).filter(([name]) => !taken.has(name.toLowerCase()))), ...own };
}

/** Paths one after the other with one slash between them, and all queries. */
function addressOf({ base_url: base, query = {} }: HttpServiceConfig, endpoint: string): string {
  const [basePath, baseQuery] = splitQuery(base);
  const [path, ownQuery] = splitQuery(endpoint);
  const fixed = Object.entries(query).map(
    ([name, value]) => `${encodeURIComponent(name.toWellFormed())}=${encodeURIComponent(value.toWellFormed())}`,
  );
  const queries = [baseQuery, ownQuery, ...fixed].filter((part) => part !== "").join("&");
  const joined = path === "" ? basePath : basePath.replace(/\/+$/, "") + path;
  return queries === "" ? joined : `${joined}?${queries}`;
}

function splitQuery(text: string): readonly [path: string, query: string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** Blind requests, made once for each service as it is in the snapshot, operation and method. */
class Requests {
  readonly #made = new WeakMap<ToolService, Map<string, PluginRecord>>();

  of(service: HttpService, id: string, method: string | undefined): PluginRecord {
    const operation = service.config.tools[id];
    const chosen = operation === undefined ? undefined : methodsOf(operation).find((each) => each === (method ?? each));
    if (operation === undefined || chosen === undefined) throw invalidConfig(`tools.${id}`, "is not there");
    const known = this.#made.get(service.record) ?? new Map<string, PluginRecord>();
    this.#made.set(service.record, known);
    const key = `${chosen} ${id}`;
    const record = known.get(key) ?? recordFromDefinition(definitionOf(service, { id, operation, method: chosen }));
    known.set(key, record);
    return record;
  }
}

type CheckDeps = Parameters<typeof registerPlugin>[1];

/** Says of the service's fields what registration says of a plugin's. */
function checkOperation(service: HttpService, send: Send, { egress }: CheckDeps): void {
  const at = `tools.${send.id}`;
  try {
    registerPlugin(definitionOf(service, send), { egress });
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { param = "" } = error.details;
    const path = param
      .replace(/^execution\.base_url$/, error.code === "egress_denied" ? "base_url" : `${at}.endpoint`)
      .replace(/^execution\./, `${at}.`)
      .replace(/^(parameters|description|title|roles|sensitive)\b/, `${at}.$1`);
    throw new GatewayError(error.code, error.message.replaceAll(`'${param}'`, `'config.${path}'`), {
      ...error.details,
      param: `config.${path}`,
    });
  }
}

/** Explaining names credentials; what stands in the configuration is one of none. */
function withConfigured<Context extends CredentialContext>({ config }: HttpService, context: Context): Context {
  const literals = standIns(toHttpAuth(config));
  if (literals.size === 0) return context;
  const { runtimeConfig } = context;
  const credentials = { ...runtimeConfig?.credentials, ...Object.fromEntries(literals) };
  return { ...context, runtimeConfig: { plugins: runtimeConfig?.plugins ?? [], credentials } };
}

/** Answers that say no to the address, not to the caller: the API is there. */
const someAnswer: readonly JsonValue[] = [400, 404, 405, 406, 410, 415, 422];

async function probe(
  service: HttpService,
  deps: BlindDeps,
  context: InvocationContext,
): Promise<{ readonly detail: string }> {
  const { record, config } = service;
  const endpoint = config.probe_endpoint ?? "";
  const operation: Operation = {
    description: "Tests the connection.",
    endpoint,
    method: "GET",
    content_type: "application/json",
    parameters: { type: "object", properties: {} },
  };
  const definition = definitionOf(service, { id: "probe", operation, method: "GET" });
  const tool = probingTool(record);
  const request = recordFromDefinition({ ...definition, name: tool.name });
  const call = { id: newId("call"), tool, uri: probingUri(record), arguments: {}, attempt: 1 };
  const { replies: _replies, ...uncached } = deps;
  try {
    await executeBlind(uncached, request, call, context);
    return { detail: `The API answered at ${endpoint === "" ? "its base URL" : `'${endpoint}'`}.` };
  } catch (error) {
    const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
    if (status === 401 || status === 403) throw toRefusedCredentials(config, { status, cause: error });
    if (config.probe_endpoint === undefined && typeof status === "number" && someAnswer.includes(status)) {
      return { detail: `The API answered ${status} at its base URL; name a 'probe_endpoint' to test more.` };
    }
    throw error;
  }
}

function probingUri({ scheme, serviceId }: ToolService): ToolUri {
  return { scheme, service: serviceId, tool: "probe", options: {} };
}

function probingTool({ scheme, serviceId }: ToolService): Tool {
  const uri = formatToolUri(scheme, serviceId);
  return {
    uri,
    name: uri,
    description: "",
    parameters: {},
    kind: "SERVICE",
    enabled: true,
    roles: [],
    effect: "read",
    repeat: "never",
    sensitive: false,
    service: uri,
    requiredCredentials: [],
    outputTrust: "outside",
    hash: "",
  };
}
