/**
 * Calls of microservices over gRPC (SVC-1): the method's descriptor from the configuration or from the
 * server itself, arguments as a message, the call on a held connection to one instance, the answer as JSON.
 */
import { placeSecrets } from "../blind/auth-mapping.ts";
import { toGivenUp } from "../blind/egress-errors.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { callGrpc, type GrpcReply, type Metadata } from "../grpc/call.ts";
import type { Codec } from "../grpc/codec.ts";
import type { Descriptors, MethodDescriptor } from "../grpc/descriptors.ts";
import { MessageTooLarge } from "../grpc/frames.ts";
import { reflect } from "../grpc/reflection.ts";
import { toStatusError, unauthenticated, unimplemented } from "../grpc/status.ts";
import { loadCodec } from "../grpc/uploaded.ts";
import { readFields } from "../grpc/wire.ts";
import type { AccessToken } from "../oauth/access-token.ts";
import type { Http2Connection } from "../ports/egress.ts";
import { randomHex } from "../random-hex.ts";
import { toHttpAuth, withLiterals } from "../services/http-auth.ts";
import type { DiscoveredTools, OpenService, ProbeReport, SchemeDeps, ServiceCall } from "../services/scheme.ts";
import { openTls } from "../services/tls.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../tools/tool-call.ts";
import { formatToolUri } from "../tools/uri.ts";
import { isSecure, type SvcConfig } from "./config.ts";
import { describe, methodOf } from "./grpc-tools.ts";
import { UploadedSets } from "./uploaded-sets.ts";
import { authorityOf, type Instance } from "./instance.ts";
import { mayTryAnother, type Spread } from "./spread.ts";

type Service = OpenService<SvcConfig>;

/** Milliseconds for opening a connection, TLS included; for all calls that wait for it. */
const openMs = 10_000;
/** Bytes of descriptors that a server may answer with. */
const largestReflection = 16_000_000;

/** How a method's messages are written and read. */
interface Typed {
  readonly method: MethodDescriptor;
  readonly codec: Codec;
}

interface Channel {
  readonly connection: Http2Connection;
  /** What the server says of itself; asked once for each connection. */
  reflected: Promise<{ readonly descriptors: Descriptors; readonly codec: Codec }> | undefined;
}

export interface GrpcBehaviour {
  invoke(call: ServiceCall<SvcConfig>, context: InvocationContext): Promise<ToolReply>;
  discover(service: Service, context: InvocationContext): Promise<DiscoveredTools>;
  probe(service: Service, context: InvocationContext): Promise<ProbeReport>;
}

export function createGrpcBehaviour(deps: SchemeDeps, spread: Spread): GrpcBehaviour {
  return new GrpcClient(deps, spread);
}

class GrpcClient implements GrpcBehaviour {
  readonly #deps: SchemeDeps;
  readonly #spread: Spread;
  readonly #sets: UploadedSets;

  constructor(deps: SchemeDeps, spread: Spread) {
    this.#deps = deps;
    this.#sets = new UploadedSets(deps);
    this.#spread = spread;
  }

  async invoke(call: ServiceCall<SvcConfig>, context: InvocationContext): Promise<ToolReply> {
    const { config } = call;
    const { path } = methodOf(config, call.tool.id);
    // Before anything is connected to: arguments that do not fit cost nobody anything.
    const known = await this.#typedFromUpload(call, context, path);
    const request = known?.codec.encode(known.method, call.call.arguments);
    return this.#onInstance(call, context, async (channel) => {
      const typed = known ?? (await this.#typedFromServer(channel, call, context, path));
      const message = request ?? typed.codec.encode(typed.method, call.call.arguments);
      return toReply(typed, await this.#send(channel, typed, { call, context, message }), call, context);
    });
  }

  async discover(service: Service, context: InvocationContext): Promise<DiscoveredTools> {
    const uploaded = await this.#sets.of(service.config, context.tenant);
    if (uploaded !== undefined) return { tools: describe(service.config, uploaded.descriptors), warnings: [] };
    return this.#onInstance(service, context, async (channel) => {
      const { descriptors } = await this.#reflected(channel, service, context);
      return { tools: describe(service.config, descriptors), warnings: [] };
    });
  }

  probe(service: Service, context: InvocationContext): Promise<ProbeReport> {
    return this.#onInstance(service, context, async ({ connection }) => {
      const { status, messages } = await callGrpc(connection, {
        path: "grpc.health.v1.Health/Check",
        messages: [new Uint8Array()],
        metadata: (await this.#metadata(service, context)).metadata,
        timeoutMs: openMs,
        signal: context.signal,
        maxBytes: 65_536,
        isUnary: true,
      });
      if (status.code === unimplemented) {
        return { detail: "The server answered; it has no health service to ask further." };
      }
      const toolName = nameOf(service);
      if (status.code === unauthenticated || status.code === 7) throw refusedCredentials(status.code);
      if (status.code !== 0) {
        throw toStatusError(status, { toolName, redact: (text) => context.redactor.redact(text) });
      }
      const [answer = new Uint8Array()] = messages;
      const [health] = readFields(answer, 1);
      if (health?.value === 1) return { detail: "The server answered that it is serving." };
      throw new GatewayError("tool_failed", `'${toolName}' answered that it is not serving.`, { toolName });
    });
  }

  /** On a held connection to one instance after the other, until one is there. */
  #onInstance<Result>(
    service: Service,
    context: InvocationContext,
    work: (channel: Channel) => Promise<Result>,
  ): Promise<Result> {
    return this.#spread.run(service, context, async (instance) => {
      let used: Channel | undefined;
      const onChannel = (): Promise<Result> =>
        this.#onChannel(service, context, { instance, work: (channel) => work((used = channel)) });
      try {
        return await onChannel();
      } catch (error) {
        const isOver = used?.connection.isAlive() === false && mayTryAnother(error);
        if (!isOver || context.signal.aborted) throw error;
        // Servers end connections that are old, and refuse unseen what comes by them meanwhile.
        return onChannel();
      }
    });
  }

  #onChannel<Result>(
    service: Service,
    context: InvocationContext,
    { instance, work }: { readonly instance: Instance; readonly work: (channel: Channel) => Promise<Result> },
  ): Promise<Result> {
    const { signal } = context;
    return new Promise((resolve, reject) => {
      // Others may wait for the same connection, so it is not this call's to give up.
      const giveUp = (): void => reject(withDelivery(toGivenUp(signal.reason), "not_sent"));
      if (signal.aborted) return giveUp();
      signal.addEventListener("abort", giveUp, { once: true });
      const part = authorityOf(instance);
      const open = (): ReturnType<GrpcClient["open"]> => this.open(service, context, instance);
      this.#deps.connections
        .use({ service: service.record, context, part, open }, (channel) => {
          signal.removeEventListener("abort", giveUp);
          return signal.aborted ? Promise.reject(withDelivery(toGivenUp(signal.reason), "not_sent")) : work(channel);
        })
        .then(resolve, reject)
        .finally(() => signal.removeEventListener("abort", giveUp));
    });
  }

  async open(
    { config }: Service,
    context: InvocationContext,
    { host, port }: Instance,
  ): Promise<{ readonly connection: Channel; readonly close: () => Promise<void>; readonly isAlive: () => boolean }> {
    const tls = isSecure(config) ? ((await openTls(config.tls, this.#deps.credentials, context)) ?? {}) : undefined;
    const signal = AbortSignal.timeout(openMs);
    const connection = await this.#deps.egress.connectHttp2({ host, port, tls, signal });
    return {
      connection: { connection, reflected: undefined },
      close: () => connection.close(),
      isAlive: () => connection.isAlive(),
    };
  }

  async #send(channel: Channel, { method }: Typed, sending: Sending): Promise<GrpcReply> {
    const first = await this.#metadata(sending.call, sending.context, sending.call);
    const reply = await this.#sendOnce(channel, method, sending, first.metadata);
    if (reply.status.code !== unauthenticated || first.token?.cached !== true) return reply;
    // Refused and not done: even a write is sent again, once, with a new token.
    const second = await this.#metadata(sending.call, sending.context, sending.call, first.token);
    return this.#sendOnce(channel, method, sending, second.metadata);
  }

  #sendOnce(
    { connection }: Channel,
    method: MethodDescriptor,
    { call, context, message }: Sending,
    metadata: Metadata,
  ): Promise<GrpcReply> {
    const { settings } = context.config;
    const { maxMessages } = methodOf(call.config, call.tool.id);
    return callGrpc(connection, {
      path: method.path,
      messages: [message],
      metadata,
      timeoutMs: call.call.uri.options.timeoutMs ?? call.call.tool.timeoutMs ?? settings.tool_timeout_ms,
      signal: context.signal,
      maxBytes: settings.result_max_bytes,
      isUnary: !method.isServerStreaming,
      ...(maxMessages === undefined ? {} : { maxMessages }),
      ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
    });
  }

  async #metadata(
    service: Service,
    context: InvocationContext,
    call?: ServiceCall<SvcConfig>,
    refused?: AccessToken,
  ): Promise<{ readonly metadata: Metadata; readonly token: AccessToken | undefined }> {
    const { authConfig, literals } = toHttpAuth(service.config);
    const names = authConfig?.mapping.map(({ source }) => source) ?? [];
    const credentials = withLiterals(this.#deps.credentials, literals);
    const name = call?.call.tool.name ?? nameOf(service);
    const uri = call?.call.tool.uri ?? nameOf(service);
    let token: AccessToken | undefined;
    const placed = await placeSecrets(authConfig, {
      values: names.length === 0 ? new Map() : await credentials.resolve(context, names),
      accessToken: async (client) => {
        const { signal } = context;
        token = await this.#deps.tokens.accessToken(client, { context, signal, tool: uri, toolName: name, refused });
        return token.value;
      },
      hide: (secret) => context.redactor.add(secret),
    });
    const fixed = Object.entries(service.config.headers ?? {});
    const secrets = placed.map(({ name: header, value }) => [header, value] as const);
    const metadata = [...fixed, ...secrets].map(([header, value]) => [header.toLowerCase(), value] as const);
    const trace = context.span?.traceparent ?? `00-${context.traceId}-${randomHex(8)}-01`;
    return { metadata: [...metadata, ["traceparent", trace]], token };
  }

  /** Undefined: nothing is uploaded, the server has to be asked. */
  async #typedFromUpload({ config }: Service, { tenant }: InvocationContext, path: string): Promise<Typed | undefined> {
    const uploaded = await this.#sets.of(config, tenant).catch((error: unknown) => {
      throw error instanceof Error ? withDelivery(error, "not_sent") : error;
    });
    if (uploaded === undefined) return undefined;
    const method = requireMethod(uploaded.descriptors, path);
    return { method, codec: await uploaded.codec(config.grpc?.emit_defaults ?? true) };
  }

  async #typedFromServer(
    channel: Channel,
    call: ServiceCall<SvcConfig>,
    context: InvocationContext,
    path: string,
  ): Promise<Typed> {
    const { descriptors, codec } = await this.#reflected(channel, call, context).catch((error: unknown) => {
      // The call itself has not been sent.
      throw error instanceof Error ? withDelivery(error, "not_sent") : error;
    });
    return { method: requireMethod(descriptors, path), codec };
  }

  #reflected(channel: Channel, service: Service, context: InvocationContext): NonNullable<Channel["reflected"]> {
    channel.reflected ??= this.#reflect(channel.connection, service, context);
    const asked = channel.reflected;
    asked.catch(() => {
      if (channel.reflected === asked) channel.reflected = undefined;
    });
    return asked;
  }

  async #reflect(
    connection: Http2Connection,
    service: Service,
    context: InvocationContext,
  ): NonNullable<Channel["reflected"]> {
    const { config } = service;
    const toolName = nameOf(service);
    const { metadata } = await this.#metadata(service, context);
    try {
      const descriptors = await reflect(connection, {
        toolName,
        redact: (text) => context.redactor.redact(text),
        metadata,
        timeoutMs: openMs,
        signal: context.signal,
        maxBytes: largestReflection,
        services: config.grpc?.services,
      });
      return { descriptors, codec: await loadCodec(descriptors, config.grpc?.emit_defaults ?? true) };
    } catch (error) {
      throw toReflectionError(error, toolName);
    }
  }
}

interface Sending {
  readonly call: ServiceCall<SvcConfig>;
  readonly context: InvocationContext;
  readonly message: Uint8Array;
}

function requireMethod({ methods }: Descriptors, path: string): MethodDescriptor {
  const method = methods.get(path);
  if (method !== undefined && !method.isClientStreaming) return method;
  const problem = method === undefined ? "does not exist there" : "takes a stream of requests, which a call has not";
  throw withDelivery(
    new GatewayError("tool_not_found", `The method '${path}' ${problem}; list the tools again with ?refresh=true.`, {
      toolName: path,
    }),
    "not_sent",
  );
}

function toReply(
  { method, codec }: Typed,
  { messages, status, cut }: GrpcReply,
  call: ServiceCall<SvcConfig>,
  context: InvocationContext,
): ToolReply {
  const toolName = call.call.tool.name;
  if (status.code !== 0) throw toStatusError(status, { toolName, redact: (text) => context.redactor.redact(text) });
  let left = context.config.settings.result_max_bytes;
  const decode = (message: Uint8Array): string => {
    try {
      const text = codec.decode(method, message, left);
      left -= text.length;
      return text;
    } catch (error) {
      throw error instanceof MessageTooLarge ? tooLarge(toolName, context) : error;
    }
  };
  if (method.isServerStreaming) {
    const collected = messages.map(decode).join(",");
    return {
      mediaType: "application/json",
      body: `{"messages":[${collected}]${cut === undefined ? "" : ',"truncated":true'}}`,
    };
  }
  const [message] = messages;
  if (cut === "bytes") throw tooLarge(toolName, context);
  if (message !== undefined) return { mediaType: "application/json", body: decode(message) };
  throw new GatewayError("tool_failed", `'${toolName}' answered OK without a message.`, { toolName });
}

function tooLarge(toolName: string, { config }: InvocationContext): GatewayError {
  return withDelivery(
    new GatewayError(
      "tool_output_too_large",
      `'${toolName}' has answered, but its result is larger than ${config.settings.result_max_bytes} bytes (setting 'result_max_bytes'); ask for less.`,
      { toolName },
    ),
    "answered",
  );
}

function toReflectionError(error: unknown, toolName: string): unknown {
  if (error instanceof GatewayError) {
    if (error.details.extra?.["grpc_status"] !== "UNIMPLEMENTED") return error;
    return new GatewayError(
      "tool_failed",
      `'${toolName}' has no server reflection; upload its FileDescriptorSet with POST /v1/descriptor-sets and name it as 'config.grpc.descriptor_set', or give it as 'config.grpc.descriptors'.`,
      { toolName, extra: { grpc_status: "UNIMPLEMENTED" }, cause: error },
    );
  }
  if (!(error instanceof RangeError) && !(error instanceof TypeError)) return error;
  return new GatewayError("tool_failed", `'${toolName}' describes itself by reflection in a way that cannot be read.`, {
    toolName,
    cause: error,
  });
}

function refusedCredentials(code: number): GatewayError {
  const name = code === unauthenticated ? "UNAUTHENTICATED" : "PERMISSION_DENIED";
  return new GatewayError(
    "credential_invalid",
    `The server refused who is calling (${name}); check 'config.auth_type' and 'config.auth_config'.`,
    { param: "config.auth_config", extra: { grpc_status: name } },
  );
}

function nameOf({ record }: Service): string {
  return formatToolUri(record.scheme, record.serviceId);
}
