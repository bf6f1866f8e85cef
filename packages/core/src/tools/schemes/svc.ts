/**
 * `svc://service/tool`: microservices of the tenant (tool management specification, "微服务调用"; SVC-1 to
 * SVC-4). Calls are spread over the instances of a service. HTTP operations are carried out as those of
 * `api://`, with a token signed for each call or a certificate of our own; methods of gRPC on connections
 * that are held.
 */
import { authSlots, userClientFrom } from "../../blind/auth-mapping.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isHttp, svcConfigSchema, toHttpConfig, type SvcConfig } from "../../microservices/config.ts";
import { checkMethods, findOpen, toolsOf } from "../../microservices/grpc-tools.ts";
import { UploadedSets } from "../../microservices/uploaded-sets.ts";
import type { Egress } from "../../ports/egress.ts";
import { credentialsIn } from "../../services/config-fields.ts";
import { authSources, toHttpAuth, withLiterals } from "../../services/http-auth.ts";
import { createHttpBehaviour, type HttpService } from "../../services/http-operations.ts";
import { invalidConfig } from "../../services/invalid-config.ts";
import { defineScheme, type OpenService, type ServiceTool } from "../../services/scheme.ts";
import { lazily } from "../../once.ts";
import { uriOptions } from "../uri.ts";

type Service = OpenService<SvcConfig>;

export const svcScheme = defineScheme({
  scheme: "svc",
  title: "Microservice",
  description: "A service of your own with one or many instances, over gRPC or HTTP.",
  icon: "network",
  config: svcConfigSchema,
  options: { method: uriOptions.method },
  create: (deps) => {
    const http = createHttpBehaviour(deps);
    const sets = new UploadedSets(deps);
    const calls = lazily(async () => (await import("../../microservices/calls.ts")).createCalls(deps));
    return {
      async check(service, tenant) {
        checkProtocol(service);
        checkInstances(service, deps.egress);
        if (service.config.protocol === "http") http.check(asHttp(service));
        else await checkGrpc(service, sets, tenant);
      },
      tools: (service) =>
        (isHttp(service.config) ? http.tools(asHttp(service)) : toolsOf(service)).map((tool) =>
          withCommon(tool, service),
        ),
      findTool(service, id) {
        const tool = isHttp(service.config) ? undefined : findOpen(service, id);
        return tool === undefined ? undefined : withCommon(tool, service);
      },
      discover(service, context) {
        const isKnown = isHttp(service.config) || service.config.grpc?.descriptors !== undefined;
        return isKnown ? undefined : calls().then((loadedCalls) => loadedCalls.discover(service, context));
      },
      invoke: async (call, context) => (await calls()).invoke(call, context),
      async explain(call, input) {
        return isHttp(call.config) ? http.explain({ ...call, ...asHttp(call) }, input) : null;
      },
      async userClient({ config }, context) {
        const { authConfig, literals } = toHttpAuth(config);
        const names = authConfig?.mapping.map(({ source }) => source) ?? [];
        return userClientFrom(authConfig, await withLiterals(deps.credentials, literals).resolve(context, names));
      },
      breaker: ({ config }) => config.breaker,
      probe: async (service, context) => (await calls()).probe(service, context),
      reachedBy: ({ config }) => [config.discovery === undefined ? "endpoints" : "discovery", "secure"],
    };
  },
});

function asHttp({ record, config }: Service): HttpService {
  return { record, config: toHttpConfig(config) };
}

/** What the service says for all of its tools. */
function withCommon(tool: ServiceTool, { record, config }: Service): ServiceTool {
  const isUsers = toHttpAuth(config).authConfig?.grant === "authorization_code";
  return {
    ...tool,
    ...(isUsers ? { actsForUser: true } : {}),
    requiredCredentials: [...new Set([...authSources(toHttpAuth(config)), ...credentialsIn(record.config)])],
    timeoutMs: tool.timeoutMs ?? config.timeout_ms,
    maxAttempts: tool.maxAttempts ?? config.max_attempts,
  };
}

/** Fields that the other protocol has. */
const ofHttp = ["base_path", "query", "probe_endpoint"] as const;

/** @throws GatewayError `invalid_definition` naming a field that this protocol has no use for */
function checkProtocol({ config }: Service): void {
  if (config.protocol === "http") {
    if (config.grpc !== undefined) throw invalidConfig("grpc", "is for services with 'protocol': 'grpc'");
    return;
  }
  for (const field of ofHttp) {
    if (config[field] !== undefined) throw invalidConfig(field, "is for services with 'protocol': 'http'");
  }
  for (const name of Object.keys(config.headers ?? {})) checkMetadataName(`headers.${name}`, name);
  const { authConfig } = toHttpAuth(config);
  for (const { location, name } of authConfig === undefined ? [] : authSlots(authConfig)) {
    if (location === "query")
      throw invalidConfig("auth_config", "places a credential in the query, which gRPC has not");
    checkMetadataName("auth_config", name);
  }
}

function checkMetadataName(path: string, name: string): void {
  if (!/^[0-9a-z_.-]+$/i.test(name)) throw invalidConfig(path, `names '${name}', which is no name of gRPC metadata`);
  if (/^grpc-/i.test(name)) throw invalidConfig(path, "is metadata that only the gateway sets ('grpc-…')");
  if (/-bin$/i.test(name)) throw invalidConfig(path, "is metadata of bytes ('…-bin'), which has no fixed text");
}

/** @throws GatewayError `invalid_definition` naming the field */
async function checkGrpc(service: Service, sets: UploadedSets, tenant: string): Promise<void> {
  const { grpc } = service.config;
  if (grpc?.descriptors !== undefined && grpc.descriptor_set !== undefined)
    throw invalidConfig("grpc.descriptor_set", "and 'config.grpc.descriptors' exclude each other");
  const uploaded = await sets.of(service.config, tenant);
  if (uploaded === undefined) return;
  const field = grpc?.descriptors === undefined ? "grpc.descriptor_set" : "grpc.descriptors";
  checkMethods(service, uploaded.descriptors, field);
  await uploaded.codec(grpc?.emit_defaults ?? true);
}

/** @throws GatewayError `invalid_definition`; `egress_denied` naming the endpoint or the registry's address */
function checkInstances({ config }: Service, egress: Egress): void {
  const { endpoints, discovery } = config;
  if ((endpoints === undefined) === (discovery === undefined)) {
    throw invalidConfig("endpoints", "or 'config.discovery' must say where the service is, one of them");
  }
  if (discovery !== undefined) atField("discovery.url", () => egress.checkUrl(discovery.url));
  for (const [index, { host, port }] of (endpoints ?? []).entries()) {
    atField(`endpoints.${index}.host`, () => egress.checkTarget({ host, port }));
  }
}

function atField(path: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: `config.${path}` });
  }
}
