/**
 * From a message that a node has taken to a call (MQ-3). The message's id is the idempotency key of the call, so
 * however often and by whomever it is brought, it is one call; and only once that call is on record is the message
 * done with. Whatever would keep any message from becoming a call has it wait at the broker; a message of which no
 * call can be made is given up after some attempts.
 */
import type { ErrorCode } from "../errors/catalog.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import { invokeTool } from "../calls/invoke.ts";
import { refusedCall } from "../calls/new-call.ts";
import { readAll, tenantKey } from "../ports/blob-store.ts";
import type { Beginning } from "../ports/subscriptions.ts";
import { randomHex } from "../random-hex.ts";
import { loadScheme } from "../tools/catalog.ts";
import { prepareCall, rejectedBy } from "../tools/prepare.ts";
import { parseTraceparent } from "../traces/trace-context.ts";
import { mapArguments } from "./mapping.ts";
import { documentOf, keyOf, laneOf, type BroughtMessage, type ReadMessage } from "./message.ts";
import { callerOf, contextOf, fingerprintOf, openSource, requireTarget, type OpenSource } from "./standing.ts";
import { subscriptionRoute, type MessageSubscription } from "./subscription.ts";

export interface Bringing extends ReadMessage {
  readonly subscription: string;
  /** Under which the node consumes; another one by now: it is to look again. */
  readonly fingerprint: string;
  readonly instance: string;
}

export type Taken =
  | { readonly kind: "accepted"; readonly callId: string }
  /** It is a call already. */
  | { readonly kind: "duplicate"; readonly callId: string }
  /** Given up. */
  | { readonly kind: "dead"; readonly code: string; readonly message: string }
  /** No call can be made of it, so far. */
  | { readonly kind: "refused"; readonly code: string; readonly message: string; readonly retryAfterMs: number }
  /** Not now; nothing is wrong with the message. `code`: what is wrong, if anything is. */
  | { readonly kind: "later"; readonly code: string | null; readonly message: string; readonly retryAfterMs: number }
  /** The node is not, or no longer, to consume it. */
  | { readonly kind: "withdrawn" };

/** What is wrong with the message rather than with anything around it. */
const ofMessage: ReadonlySet<ErrorCode> = new Set([
  "invalid_json",
  "invalid_arguments",
  "payload_too_large",
  "internal_error",
]);

/** What may be wrong with arguments as well: whom they speak for, how long it takes to check them. */
const ofArguments: ReadonlySet<ErrorCode> = new Set(["permission_denied", "invalid_definition"]);

const firstPauseMs = 500;
const laneMs = 250;
const roomMs = 1_000;
const blockedMs = 10_000;

export async function takeMessage(deps: CoreDeps, tenant: string, bringing: Bringing): Promise<Taken> {
  const { message, subscription } = bringing;
  try {
    return await take(deps, tenant, bringing);
  } finally {
    // Whatever the answer is: who brings it again uploads it again, and it may be that nobody does.
    if (message.uploaded) await deps.blobs.delete(bodyKey(tenant, subscription, message.delivery));
  }
}

async function take(deps: CoreDeps, tenant: string, bringing: Bringing): Promise<Taken> {
  const { message } = bringing;
  const key = keyOf(message);
  const lane = message.in_order && message.key !== undefined ? laneOf(message.key) : null;
  const begun = await deps.repos.subscriptions.begin(tenant, {
    subscription: bringing.subscription,
    instance: bringing.instance,
    key,
    lane,
  });
  if (begun === undefined || !begun.isHolder || !begun.subscription.enabled) return { kind: "withdrawn" };
  return takeBegun(deps, tenant, { bringing, begun, key });
}

interface Work {
  readonly bringing: Bringing;
  readonly begun: Beginning;
  readonly key: string;
}

async function takeBegun(deps: CoreDeps, tenant: string, work: Work): Promise<Taken> {
  const { begun, bringing } = work;
  const { subscription, callId, failed } = begun;
  if (callId !== null) return { kind: "duplicate", callId };
  if (failed?.isDead === true) return { kind: "dead", code: failed.code, message: failed.message };
  try {
    const config = await deps.configs.get(tenant, begun.configVersion);
    const opened = openSource(config, subscription);
    const context = contextOf({ tenant, config }, callerOf(subscription), idsOf(bringing.message));
    if (fingerprintOf(subscription, opened, context) !== bringing.fingerprint) return { kind: "withdrawn" };
    const wait = whyWait(begun, opened);
    if (wait !== undefined) return wait;
    return await makeCall(deps, context, { ...work, opened });
  } catch (thrown) {
    return notMade(deps, tenant, work, toGatewayError(thrown));
  }
}

function whyWait({ subscription, openCalls, isNext }: Beginning, { inOrder }: OpenSource): Taken | undefined {
  const { name, options } = subscription;
  if (openCalls >= options.max_open_calls) {
    const message = `Subscription '${name}' has ${openCalls} calls that have not ended ('options.max_open_calls'); messages wait at the broker.`;
    return { kind: "later", code: null, message, retryAfterMs: roomMs };
  }
  if (!inOrder || isNext) return undefined;
  const message = "The call of the message before it with the same key has not ended.";
  return { kind: "later", code: null, message, retryAfterMs: laneMs };
}

interface CallWork extends Work {
  readonly opened: OpenSource;
}

/** @throws GatewayError whatever keeps it from becoming a call */
async function makeCall(
  deps: CoreDeps,
  context: ReturnType<typeof contextOf>,
  { bringing, begun, key, opened }: CallWork,
): Promise<Taken> {
  const { subscription, failed } = begun;
  const { tenant, caller, requestId, traceId } = context;
  if (bringing.fault !== undefined) throw bringing.fault;
  const body = await bodyOf(deps, tenant, { bringing, opened, subscription });
  const args = mapArguments(subscription.target.arguments, documentOf(subscription, bringing.message, body));
  await loadScheme(deps.adapters, subscription.target.uri);
  // Looked at before it is recorded: else each attempt would be a row of its own.
  const looked = prepareCall(
    deps.adapters,
    context,
    { target: subscription.target.uri, isUri: true, arguments: args },
    { hasReadOutside: false },
  );
  if (looked.kind === "refused") {
    const { code, message } = looked.outcome;
    // What the target refuses of this message and of no other, it refuses however often it is brought.
    if (ofArguments.has(code)) await requireTarget(deps.adapters, context, subscription);
    throw new GatewayError(ofArguments.has(code) ? "invalid_arguments" : code, message);
  }
  const { callId, replayed } = await invokeTool(deps, {
    tenant,
    principal: { kind: "known", caller },
    requestId,
    traceId,
    target: subscription.target.uri,
    isUri: true,
    arguments: args,
    async: true,
    idempotencyKey: key,
    route: subscriptionRoute,
    signal: new AbortController().signal,
  });
  if (failed !== null) await deps.repos.subscriptions.recover(tenant, subscription.id, key);
  return { kind: replayed ? "duplicate" : "accepted", callId };
}

async function bodyOf(
  deps: CoreDeps,
  tenant: string,
  {
    bringing: { message },
    opened: { config, service },
    subscription,
  }: { readonly bringing: Bringing; readonly opened: OpenSource; readonly subscription: MessageSubscription },
): Promise<Uint8Array> {
  if (message.bytes > config.max_message_bytes) {
    throw new GatewayError(
      "payload_too_large",
      `The message has ${message.bytes} bytes; ${config.max_message_bytes} are allowed ('config.max_message_bytes' of the mq service '${service.serviceId}').`,
    );
  }
  if (!message.uploaded) return Buffer.from(message.body ?? "", "base64");
  const blob = await deps.blobs.get(bodyKey(tenant, subscription.id, message.delivery));
  if (blob !== undefined) return readAll(blob.body);
  throw new GatewayError("upload_incomplete", "The node has not uploaded the message yet.");
}

/** The message waits, or is given up where it is to blame itself. */
async function notMade(deps: CoreDeps, tenant: string, work: Work, error: GatewayError): Promise<Taken> {
  const { begun, bringing, key } = work;
  const { subscription } = begun;
  const message = `Subscription '${subscription.name}': ${error.message}`;
  // The same message, mapped by another configuration since.
  if (error.code === "idempotency_key_reused") return { kind: "duplicate", callId: "" };
  if (!ofMessage.has(error.code)) {
    const { retryAfterMs = error.spec.retryable ? roomMs : blockedMs } = error.details;
    return { kind: "later", code: error.code, message, retryAfterMs };
  }
  const failed = await deps.repos.subscriptions.fail(tenant, {
    id: newId("failedMessage"),
    subscription: subscription.id,
    key,
    messageId: bringing.message.message_id ?? null,
    code: error.code,
    message: error.message.slice(0, 2_000),
    maxAttempts: subscription.options.max_attempts,
  });
  if (!failed.isDead) {
    const retryAfterMs = firstPauseMs * 2 ** Math.min(failed.attempts - 1, 6);
    return { kind: "refused", code: error.code, message, retryAfterMs };
  }
  await recordDead(deps, tenant, work, error);
  deps.log.log("warn", "a message was given up", {
    tenant,
    subscription: subscription.id,
    message_id: bringing.message.message_id ?? null,
    code: error.code,
    attempts: failed.attempts,
  });
  return { kind: "dead", code: error.code, message };
}

/** A refused call, so that the audit, webhooks and who listens hear of it like of any other. */
async function recordDead(
  deps: CoreDeps,
  tenant: string,
  { begun, bringing }: Work,
  error: GatewayError,
): Promise<void> {
  const { subscription, configVersion } = begun;
  const config = await deps.configs.get(tenant, configVersion);
  const context = contextOf({ tenant, config }, callerOf(subscription), idsOf(bringing.message));
  const { message_id: id = null, place, bytes } = bringing.message;
  const given: JsonObject = { message_id: id, place, bytes };
  const refused = {
    kind: "refused",
    id: newId("call"),
    target: subscription.target.uri,
    tool: undefined,
    outcome: rejectedBy(error),
  } as const;
  const row = refusedCall(context, { route: subscriptionRoute, parentId: null, rootId: null }, refused, given);
  await deps.repos.calls.record(tenant, context.caller.id, [row]);
}

export function bodyKey(tenant: string, subscription: string, delivery: string): string {
  return tenantKey(tenant, "subscriptions", subscription, delivery);
}

function idsOf({ headers }: BroughtMessage): { readonly requestId: string; readonly traceId: string } {
  const traceId = parseTraceparent(headers["traceparent"])?.traceId ?? randomHex(16);
  return { requestId: newId("request"), traceId };
}
