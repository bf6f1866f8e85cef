/**
 * Blind execution (blind-execution specification, section 4.4): configuration, credentials, request,
 * reply. The engine knows the tool from its definition only, and the credentials only while it sends.
 */
import { randomBytes } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress } from "../ports/egress.ts";
import { withDelivery, type InvocationContext, type ToolCall, type ToolReply } from "../tools/adapter.ts";
import { placeSecrets, type TokenSource } from "./auth-mapping.ts";
import { acceptedEncodings } from "./content-encoding.ts";
import type { CredentialResolver } from "./credential-resolver.ts";
import { planOf } from "./plan-cache.ts";
import type { PluginRecord } from "./plugin.ts";
import { decodeReply } from "./reply.ts";
import { buildRequest, type BuiltRequest } from "./request.ts";

export interface BlindDeps {
  readonly egress: Egress;
  readonly credentials: CredentialResolver;
  /** Needed for definitions with `auth_config.type` oauth2. */
  readonly tokens?: TokenSource | undefined;
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
  const request = await prepare(deps, record, call, context).catch((error: unknown) => {
    throw error instanceof Error ? withDelivery(error, "not_sent") : error;
  });
  const response = await deps.egress.request({
    method: request.method,
    url: request.url,
    headers: request.headers,
    ...(request.body === undefined ? {} : { body: request.body }),
    signal: context.signal,
    timeoutMs: call.uri.options.timeoutMs ?? call.tool.timeoutMs ?? context.config.settings.tool_timeout_ms,
    maxRedirects,
    // The tool's address is part of `execution`, which callers and models do not see (BLIND-6).
    peer: record.name,
    sensitiveHeaders: request.secretSlots.flatMap(({ location, name }) =>
      location === "header" ? [name.toLowerCase()] : [],
    ),
    ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
  });
  return decodeReply(response, {
    maxBytes: context.config.settings.result_max_bytes,
    toolName: record.name,
    redact: (text) => context.redactor.redact(text),
  });
}

async function prepare(
  deps: BlindDeps,
  record: PluginRecord,
  call: ToolCall,
  context: InvocationContext,
): Promise<BuiltRequest> {
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
  const names = authConfig?.mapping.map(({ source }) => source) ?? [];
  const values = names.length === 0 ? new Map<string, string>() : await deps.credentials.resolve(context, names);
  const placed = await placeSecrets(authConfig, {
    values,
    tenant: context.tenant,
    signal: context.signal,
    tokens: deps.tokens,
    hide: (secret) => context.redactor.add(secret),
  });
  const built = buildRequest(plan, call.arguments, placed);
  return {
    ...built,
    headers: [...built.headers, ...callHeaders(execution.idempotency_header, call.id, context.traceId)],
  };
}

/** What each call adds. Nothing of the inbound request is passed on but the trace. */
export function callHeaders(
  idempotencyHeader: string | undefined,
  callId: string,
  traceId: string,
): readonly (readonly [name: string, value: string])[] {
  const spanId = randomBytes(8).toString("hex");
  return [
    ["accept-encoding", acceptedEncodings],
    ["traceparent", `00-${traceId}-${spanId}-01`],
    ...(idempotencyHeader === undefined ? [] : [[idempotencyHeader, callId] as const]),
  ];
}
