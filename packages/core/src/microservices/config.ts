/**
 * Configuration of a `svc://` service (tool management specification, "微服务调用"): protocol, where its
 * instances are, how calls are spread, how it is known who calls, and the tools.
 */
import * as z from "zod";
import { breakerField } from "../services/breaker.ts";
import { headersField, policyFields, queryField, SchemaVariants, variantsKeyword } from "../services/config-fields.ts";
import { authFields, readAuth } from "../services/http-auth.ts";
import { endpointSchema, operationSchema, toolIdSchema, type HttpServiceConfig } from "../services/http-operations.ts";
import { addProblems } from "../services/invalid-config.ts";
import { tlsField } from "../services/tls.ts";
import { discoveryField } from "./discovery/fields.ts";
import { grpcField, methodSchema, type ConfiguredMethod } from "./grpc-fields.ts";
import { balances, instanceHostSchema, mostInstances, portSchema } from "./fields.ts";

const instanceSchema = z.strictObject({
  host: instanceHostSchema.meta({ description: "Name or address." }),
  port: portSchema,
  weight: z
    .number()
    .positive()
    .max(10_000)
    .default(1)
    .meta({ description: "Share of the calls where `balance` is `weighted`." }),
});

const toolsByProtocol = { http: operationSchema, grpc: methodSchema } as const;
export type Protocol = keyof typeof toolsByProtocol;

const protocols = Object.keys(toolsByProtocol) as readonly Protocol[];

export const svcConfigSchema = z
  .strictObject({
    protocol: z.enum(protocols).meta({ description: "What the service speaks." }),
    endpoints: z
      .array(instanceSchema)
      .min(1)
      .max(mostInstances)
      .optional()
      .meta({ description: "Its instances, where they are known." }),
    discovery: discoveryField.optional(),
    balance: z.enum(balances).default("round_robin").meta({ description: "How calls are spread over instances." }),
    secure: z.boolean().optional().meta({ description: "TLS; absent: where `tls` is given." }),
    tls: tlsField.optional(),
    ...authFields,
    base_path: endpointSchema.optional().meta({ description: "Path that endpoints are appended to." }),
    grpc: grpcField.optional(),
    headers: headersField().optional(),
    query: queryField().optional(),
    breaker: breakerField.optional(),
    ...policyFields(),
    probe_endpoint: endpointSchema.optional().meta({
      description: "What a test of the connection asks for with GET; absent: the base path, any answer will do.",
    }),
    tools: z
      .record(toolIdSchema, z.unknown())
      .default({})
      .meta({
        description:
          "Tools by id: operations over HTTP, or methods of gRPC where theirs is to be another id or policy.",
        "x-depends-on": "protocol",
        [variantsKeyword]: new SchemaVariants(toolsByProtocol),
      }),
  })
  .transform(readAuth)
  .transform(readTools);
export type SvcConfig = z.output<typeof svcConfigSchema>;

interface ToolFields {
  readonly protocol: Protocol;
  readonly tools: Record<string, unknown>;
}

/** Parses `tools` by `protocol`. */
function readTools<Config extends ToolFields>(config: Config, check: z.RefinementCtx): Config {
  const parsed = z.record(z.string(), toolsByProtocol[config.protocol]).safeParse(config.tools);
  if (parsed.success) return { ...config, tools: parsed.data };
  addProblems(check, parsed.error, "tools");
  return z.NEVER;
}

export function isHttp({ protocol }: Pick<SvcConfig, "protocol">): boolean {
  return protocol === "http";
}

export function isSecure({ secure, tls }: SvcConfig): boolean {
  return secure ?? tls !== undefined;
}

const methods = new WeakMap<SvcConfig, Readonly<Record<string, ConfiguredMethod>>>();

/** `tools` of a service that speaks gRPC. */
export function methodsIn(config: SvcConfig): Readonly<Record<string, ConfiguredMethod>> {
  const known = methods.get(config);
  if (known !== undefined) return known;
  const parsed = z.record(z.string(), methodSchema).parse(config.tools);
  methods.set(config, parsed);
  return parsed;
}

/** Stands for whichever instance a call goes to; belongs to nobody (RFC 2606). */
export const anyInstance = "instance.invalid";

const views = new WeakMap<SvcConfig, HttpServiceConfig>();

/** As services over HTTP are carried out, with the address of no instance in particular. */
export function toHttpConfig(config: SvcConfig): HttpServiceConfig {
  const known = views.get(config);
  if (known !== undefined) return known;
  const { auth_type, auth_config, headers, query, tls, timeout_ms, max_attempts, probe_endpoint, base_path } = config;
  const view: HttpServiceConfig = {
    base_url: `${isSecure(config) ? "https" : "http"}://${anyInstance}${base_path ?? ""}`,
    auth_type,
    auth_config,
    headers,
    query,
    tls,
    timeout_ms,
    max_attempts,
    probe_endpoint,
    tools: z.record(z.string(), operationSchema).parse(config.tools),
  };
  views.set(config, view);
  return view;
}
