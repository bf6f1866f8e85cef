/** Methods of gRPC as tools (SVC-1): ids, parameters and effects, from descriptors and what is configured besides. */
import type { Descriptors, MethodDescriptor } from "../grpc/descriptors.ts";
import { ParameterSchemas } from "../grpc/parameters.ts";
import { configuredSet } from "../grpc/uploaded.ts";
import { invalidConfig } from "../services/invalid-config.ts";
import type { OpenService, ServiceTool } from "../services/scheme.ts";
import { methodsIn, type SvcConfig } from "./config.ts";
import { methodPathSchema, type ConfiguredMethod } from "./grpc-fields.ts";

type Service = OpenService<SvcConfig>;

/** What is known without asking the server. */
export function toolsOf({ record, config }: Service): readonly ServiceTool[] {
  const uploaded = config.grpc?.descriptors;
  if (uploaded !== undefined) return describe(config, configuredSet(uploaded).descriptors);
  const configured = methodsIn(config);
  const discovered = (record.discovered?.tools ?? []).filter(({ id }) => !Object.hasOwn(configured, id));
  const known = new Map((record.discovered?.tools ?? []).map((tool) => [tool.id, tool]));
  const named = Object.entries(configured).map(([id, method]) => withPolicy(known.get(id) ?? toOpen(id), method));
  return [...discovered, ...named];
}

/** A method of a server that has not been asked yet. */
export function findOpen({ record, config }: Service, id: string): ServiceTool | undefined {
  const isOpen = config.grpc?.descriptors === undefined && record.discovered === null;
  return isOpen && methodPathSchema.safeParse(id).success ? toOpen(id) : undefined;
}

/**
 * @param field where the descriptors are said
 * @throws GatewayError `invalid_definition` naming a type that the descriptors do not hold, or of what they hold too much
 */
export function describe(config: SvcConfig, descriptors: Descriptors, field = "grpc"): readonly ServiceTool[] {
  try {
    return toTools(config, descriptors);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw invalidConfig(field, `cannot be used: ${error.message}`);
  }
}

function toTools(config: SvcConfig, descriptors: Descriptors): readonly ServiceTool[] {
  const schemas = new ParameterSchemas(descriptors);
  const configured = Object.entries(methodsIn(config));
  const renamed = new Set(configured.map(([, { method }]) => method));
  const wanted = config.grpc?.services;
  const plain = [...descriptors.methods.values()].filter(
    ({ path, service, isClientStreaming }) =>
      !isClientStreaming && !renamed.has(path) && (wanted === undefined || wanted.includes(service)),
  );
  const named = configured.flatMap(([id, method]) => {
    const descriptor = descriptors.methods.get(method.method);
    return descriptor === undefined ? [] : [withPolicy(toTool(id, descriptor, schemas), method)];
  });
  return [...named, ...plain.map((method) => toTool(method.path, method, schemas))];
}

/** The method that a tool's id stands for. */
export function methodOf(config: SvcConfig, id: string): { readonly path: string; readonly maxMessages?: number } {
  const configured = methodsIn(config);
  const method = Object.hasOwn(configured, id) ? configured[id] : undefined;
  if (method === undefined) return { path: id };
  const { method: path, max_messages: maxMessages } = method;
  return { path, ...(maxMessages === undefined ? {} : { maxMessages }) };
}

function toTool(id: string, method: MethodDescriptor, schemas: ParameterSchemas): ServiceTool {
  const { path, comment, idempotency, input } = method;
  return {
    id,
    description: comment === "" ? `Calls ${path}.` : comment,
    parameters: schemas.of(input),
    effect: idempotency === "no_side_effects" ? "read" : "write",
    ...(idempotency === "idempotent" ? { repeat: "natural" as const } : {}),
  };
}

function toOpen(id: string): ServiceTool {
  return { id, description: `Calls ${id}.`, parameters: { type: "object" }, effect: "write" };
}

function withPolicy(tool: ServiceTool, method: ConfiguredMethod): ServiceTool {
  const { title, description, effect, sensitive, roles, timeout_ms: timeoutMs, max_attempts: maxAttempts } = method;
  return {
    ...tool,
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(effect === undefined ? {} : { effect }),
    sensitive,
    roles,
    timeoutMs,
    maxAttempts,
  };
}

/**
 * @param field where the descriptors are said: `grpc.descriptors`
 * @throws GatewayError `invalid_definition` naming the field
 */
export function checkMethods({ config }: Service, descriptors: Descriptors, field: string): void {
  if (descriptors.methods.size === 0) throw invalidConfig(field, "holds no service");
  const services = new Set([...descriptors.methods.values()].map(({ service }) => service));
  for (const [index, name] of (config.grpc?.services ?? []).entries()) {
    if (!services.has(name))
      throw invalidConfig(`grpc.services.${index}`, `is not in the descriptors, which have ${list(services)}`);
  }
  for (const [id, { method }] of Object.entries(methodsIn(config))) {
    const found = descriptors.methods.get(method);
    if (found === undefined) {
      throw invalidConfig(
        `tools.${id}.method`,
        `is not in the descriptors, which have ${list(descriptors.methods.keys())}`,
      );
    }
    if (found.isClientStreaming)
      throw invalidConfig(`tools.${id}.method`, "takes a stream of requests, which a call has not");
  }
  describe(config, descriptors, field);
}

function list(names: Iterable<string>): string {
  const all = [...names];
  return all.length <= 10 ? all.join(", ") : `${all.slice(0, 10).join(", ")} and ${all.length - 10} more`;
}
