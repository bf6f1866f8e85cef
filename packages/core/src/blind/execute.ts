/**
 * Blind execution (blind-execution specification, section 4.4): configuration, credentials, request,
 * reply. The engine knows the tool from its definition only, and the credentials only while it sends.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { OAuthClient } from "../oauth/client.ts";
import type { AccessToken, TokenSource } from "../oauth/access-token.ts";
import type { Egress, EgressRequest, EgressResponse, EgressTls } from "../ports/egress.ts";
import { randomHex } from "../random-hex.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tools/tool-call.ts";
import { placeSecrets, userClientFrom } from "./auth-mapping.ts";
import { acceptedEncodings } from "./content-encoding.ts";
import type { CredentialContext, CredentialResolver } from "./credential-resolver.ts";
import type { AuthConfig } from "./definition.ts";
import { planOf } from "./plan-cache.ts";
import type { PluginRecord } from "./plugin.ts";
import { cacheKey, hasValidator, type KeptReply, type ReplyCache } from "./reply-cache.ts";
import { decodeReply, leave } from "./reply.ts";
import { buildRequest, type BuiltRequest } from "./request.ts";

export interface BlindDeps {
  readonly egress: Egress;
  readonly credentials: CredentialResolver;
  readonly tokens: Pick<TokenSource, "accessToken">;
  /** How the back end is to be trusted, and to know us, where its service says so. */
  readonly tls?: (context: InvocationContext) => Promise<EgressTls | undefined>;
  /** Absent: every reply is asked for in full. */
  readonly replies?: ReplyCache;
}

/** Redirects that a back end may answer with. */
const maxRedirects = 3;

/**
 * @param record an HTTP plugin, stored or inline
 * @throws GatewayError with the fate of the request known to `deliveryOf`: everything before the
 * connection is `not_sent`
 */
export async function executeBlind(
  deps: BlindDeps,
  record: PluginRecord,
  call: ToolCall,
  context: InvocationContext,
): Promise<ToolReply> {
  const tls = await deps.tls?.(context);
  const work: BlindWork = { deps, record, call, context, tls };
  const earlier = earlierReply(deps.replies, call, context);
  const response = await sendWithToken(work, earlier?.found?.conditions ?? []);
  if (response.status === 304 && earlier?.found !== undefined) {
    await response.body[Symbol.asyncIterator]().next();
    return earlier.found.reply;
  }
  const reply = await decodeReply(response, {
    maxBytes: context.config.settings.result_max_bytes,
    toolName: record.name,
    redact: (text) => context.redactor.redact(text),
  });
  earlier?.keep(response, reply);
  return reply;
}

interface BlindWork {
  readonly deps: BlindDeps;
  readonly record: PluginRecord;
  readonly call: ToolCall;
  readonly context: InvocationContext;
  readonly tls: EgressTls | undefined;
}

type Headers = EgressRequest["headers"];

/**
 * A back end that no longer takes an access token from before has answered and done nothing, so even a
 * write is sent again, once, with a new one. A new token that is refused is the definition's fault.
 */
async function sendWithToken(work: BlindWork, conditions: Headers): Promise<EgressResponse> {
  const first = await prepareOrRefuse(work);
  const response = await send(work, first.request, conditions);
  if (response.status !== 401 || first.token?.cached !== true || !isFrom(response, first.request.url)) return response;
  await leave(response.body);
  const second = await prepareOrRefuse(work, first.token);
  return send(work, second.request, conditions);
}

/** The token went to the first origin only; what another says about its absence counts for nothing. */
function isFrom(response: EgressResponse, url: string): boolean {
  return new URL(response.url).origin === new URL(url).origin;
}

async function send(
  { deps, record, call, context, tls }: BlindWork,
  request: BuiltRequest,
  conditions: Headers,
): Promise<EgressResponse> {
  return deps.egress.request({
    method: request.method,
    url: request.url,
    headers: [...request.headers, ...conditions],
    ...(request.body === undefined ? {} : { body: request.body }),
    signal: context.signal,
    timeoutMs: call.uri.options.timeoutMs ?? call.tool.timeoutMs ?? context.config.settings.tool_timeout_ms,
    maxRedirects,
    // The tool's address is part of `execution`, which callers and models do not see (BLIND-6).
    peer: record.name,
    sensitiveHeaders: request.secretHeaders,
    hasSecretBody: request.hasSecretBody,
    ...(tls === undefined ? {} : { tls }),
    ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
    span: context.span,
  });
}

interface Earlier {
  readonly found: KeptReply | undefined;
  keep(response: EgressResponse, reply: ToolReply): void;
}

/** What is kept of earlier replies to this very read; a write makes what was read from its service void. */
function earlierReply(
  replies: ReplyCache | undefined,
  call: ToolCall,
  context: InvocationContext,
): Earlier | undefined {
  if (replies === undefined) return undefined;
  const place = `${context.tenant} ${call.tool.service}`;
  if (call.tool.effect !== "read") {
    replies.forget(place);
    return undefined;
  }
  // Nothing of an inline configuration is kept beyond its request (BLIND-7).
  if (context.runtimeConfig !== undefined) return undefined;
  let made: string | undefined;
  const key = (): string => (made ??= cacheKey(call, context));
  return {
    found: replies.has(place) ? replies.find(key()) : undefined,
    keep(response, reply) {
      if (replies.has(place) || hasValidator(response)) replies.keep(key(), place, { response, reply });
    },
  };
}

interface Prepared {
  readonly request: BuiltRequest;
  /** The access token in it, where it has one. */
  readonly token: AccessToken | undefined;
}

async function prepareOrRefuse(work: BlindWork, refused?: AccessToken): Promise<Prepared> {
  return prepare(work, refused).catch((error: unknown) => {
    throw error instanceof Error ? withDelivery(error, "not_sent") : error;
  });
}

async function prepare({ deps, record, call, context }: BlindWork, refused?: AccessToken): Promise<Prepared> {
  const { plan, execution, authConfig } = planOf(record);
  const method = call.uri.options.method;
  if (method !== undefined && method !== execution.method) {
    throw new GatewayError(
      "invalid_uri",
      `Tool '${record.name}' is called with ${execution.method} only; leave out 'method'.`,
      {
        param: "method",
      },
    );
  }
  let token: AccessToken | undefined;
  const placed = await placeSecrets(authConfig, {
    values: await valuesFor(deps.credentials, authConfig, context),
    accessToken: async (client) => {
      const { signal } = context;
      const { uri: tool, name: toolName } = call.tool;
      token = await deps.tokens.accessToken(client, { context, signal, tool, toolName, refused });
      return token.value;
    },
    hide: (secret) => context.redactor.add(secret),
  });
  const built = buildRequest(plan, call.arguments, placed);
  const headers = [...built.headers, ...callHeaders(execution.idempotency_header, call.id, context.traceId)];
  return { request: { ...built, headers }, token };
}

async function valuesFor(
  credentials: CredentialResolver,
  config: AuthConfig | undefined,
  context: CredentialContext,
): Promise<ReadonlyMap<string, string>> {
  const names = config?.mapping.map(({ source }) => source) ?? [];
  return names.length === 0 ? new Map() : credentials.resolve(context, names);
}

/**
 * The OAuth client of a tool that acts for its user; undefined for all others.
 * @throws GatewayError `credential_missing`, `credential_invalid`, `credential_unreadable` as the call would
 */
export async function userClientOf(
  credentials: CredentialResolver,
  record: PluginRecord,
  context: CredentialContext,
): Promise<OAuthClient | undefined> {
  const { authConfig } = planOf(record);
  if (authConfig?.grant !== "authorization_code") return undefined;
  return userClientFrom(authConfig, await valuesFor(credentials, authConfig, context));
}

/** What each call adds. Nothing of the inbound request is passed on but the trace. */
export function callHeaders(
  idempotencyHeader: string | undefined,
  callId: string,
  traceId: string,
): readonly (readonly [name: string, value: string])[] {
  const spanId = randomHex(8);
  return [
    ["accept-encoding", acceptedEncodings],
    ["traceparent", `00-${traceId}-${spanId}-01`],
    ...(idempotencyHeader === undefined ? [] : [[idempotencyHeader, callId] as const]),
  ];
}
