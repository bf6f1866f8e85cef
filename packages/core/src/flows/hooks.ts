/**
 * Addresses that start runs: whoever knows the address, or signs with its secret, gives a flow its input. What is
 * sent twice under one `webhook-id` is one run, however often a sender repeats itself (Standard Webhooks).
 */
import { createHash, randomBytes } from "node:crypto";
import type { Caller } from "../callers/caller.ts";
import { requireMayRunTools } from "../callers/grant.ts";
import { invokeTool } from "../calls/invoke.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../json.ts";
import type { FlowHook, HookedFlow, HookToken, OpenedHook } from "../ports/flows.ts";
import { formatToolUri } from "../tools/uri.ts";
import { newWebhookSecret, openWebhookSecret, verifyMessage } from "../webhooks/secret.ts";
import { noSuchFlow } from "./register.ts";
import { shippedFlows } from "./shipped/index.ts";

/** Of runs that were started so: as it stands in the record, and part of their idempotency. */
const hookRoute = "flow.hook";

/** Seconds by which a sender's clock may be wrong, and how old a signature may be. */
const toleranceS = 300;

/** Of an idempotency key. */
const longestKey = 255;

type HookDeps = Pick<CoreDeps, "repos" | "sealer" | "publicUrl">;

export interface NewHook {
  readonly hook: FlowHook;
  /** Shown once. */
  readonly url: string;
  readonly secret: string | undefined;
}

/** @throws GatewayError `not_found`, `conflict`, `permission_denied` for callers that may not run every tool */
export async function createHook(
  deps: HookDeps,
  { tenant, caller, config }: CallContext,
  { flowId, name, signed }: { readonly flowId: string; readonly name: string; readonly signed: boolean },
): Promise<NewHook> {
  requireMayRunTools(caller, "a hook");
  const id = newId("flowHook");
  const { token, stored } = newToken(tenant);
  const secret = signed ? await newWebhookSecret(deps.sealer, ownerOf(tenant, config.wrappedKey, id)) : undefined;
  const hook = await deps.repos.flows.createHook(tenant, {
    id,
    ...hookedFlow(flowId),
    name,
    // Nobody hands out more than they have, and an operator's place is above the tenant's.
    role: caller.role === "member" ? "member" : "admin",
    sealed: secret?.sealed ?? null,
    ...stored,
  });
  if (hook === undefined) throw noSuchFlow(flowId);
  return { hook, url: urlOf(deps, flowId, token), secret: secret?.secret };
}

/** By its id; those that every tenant has go by their name. */
export function hookedFlow(flowId: string): HookedFlow {
  return { flowId, isShipped: Object.hasOwn(shippedFlows, flowId) };
}

/**
 * A new address, and for signed ones a new secret; those before end at once. One that was signed stays so.
 * @throws GatewayError `not_found`, `permission_denied` for callers that may not run every tool
 */
export async function rotateHook(
  deps: HookDeps,
  { tenant, caller, config }: CallContext,
  { flowId, id, signed }: { readonly flowId: string; readonly id: string; readonly signed: boolean },
): Promise<NewHook> {
  requireMayRunTools(caller, "a hook");
  const { token, stored } = newToken(tenant);
  const { secret, sealed } = await newWebhookSecret(deps.sealer, ownerOf(tenant, config.wrappedKey, id));
  const change = { token: stored, ...(signed ? { sealed } : { resealed: sealed }) };
  const hook = await deps.repos.flows.updateHook(tenant, flowId, id, change);
  if (hook === undefined) throw noSuchHook(id);
  return { hook, url: urlOf(deps, flowId, token), secret: hook.signed ? secret : undefined };
}

function noSuchHook(id: string): GatewayError {
  return new GatewayError("not_found", `There is no hook '${id}'.`, { param: "hook" });
}

export interface HookDelivery {
  readonly flowId: string;
  readonly token: string;
  readonly body: Uint8Array;
  /** By lower-case name. */
  readonly header: (name: string) => string | undefined;
  readonly requestId: string;
  readonly traceId: string;
}

export interface HookStarted {
  readonly tenant: string;
  readonly callerId: string;
  readonly runId: string;
  readonly replayed: boolean;
}

/**
 * @throws GatewayError `not_found` for an address that is none or disabled, `invalid_callback_proof`,
 * `invalid_json`, and whatever keeps the run from starting
 */
export async function takeDelivery(deps: CoreDeps, delivery: HookDelivery): Promise<HookStarted> {
  const tenant = tenantOf(delivery.token);
  const { stored } = tokenOf(delivery.token);
  const hook =
    tenant === undefined ? undefined : await deps.repos.flows.openHook(tenant, delivery.flowId, stored.tokenHash);
  if (tenant === undefined || hook?.enabled !== true) throw new GatewayError("not_found", "There is no hook here.");
  const text = decode(delivery.body);
  await requireProof(deps, tenant, hook, { ...delivery, text });
  const key = told(delivery, "webhook-id") ?? told(delivery, "idempotency-key");
  const caller: Caller = { kind: "hook", id: hook.id, role: hook.role, scopes: ["tools"], tools: null };
  const { callId, replayed } = await invokeTool(deps, {
    tenant,
    principal: { kind: "known", caller },
    requestId: delivery.requestId,
    traceId: delivery.traceId,
    target: formatToolUri("flow", hook.flowName),
    isUri: true,
    arguments: inputOf(text),
    async: true,
    route: hookRoute,
    ...(key === undefined ? {} : { idempotencyKey: fitting(key) }),
    signal: new AbortController().signal,
  });
  return { tenant, callerId: caller.id, runId: callId, replayed };
}

/** A header without a value says nothing. */
function told({ header }: Pick<HookDelivery, "header">, name: string): string | undefined {
  const value = header(name);
  return value === "" ? undefined : value;
}

/** Long ones by their digest: many differ in their ends only. */
function fitting(key: string): string {
  return key.length <= longestKey ? key : createHash("sha256").update(key).digest("hex");
}

async function requireProof(
  { sealer, clock }: Pick<CoreDeps, "sealer" | "clock">,
  tenant: string,
  hook: OpenedHook,
  delivery: HookDelivery & { readonly text: string },
): Promise<void> {
  if (hook.sealed === null) return;
  const id = told(delivery, "webhook-id");
  const timestamp = Number(told(delivery, "webhook-timestamp"));
  const signature = told(delivery, "webhook-signature");
  if (id === undefined || signature === undefined || !Number.isInteger(timestamp)) {
    throw notProven("needs the headers 'webhook-id', 'webhook-timestamp' and 'webhook-signature'");
  }
  if (Math.abs(clock.now() / 1_000 - timestamp) > toleranceS) {
    throw notProven(`has a 'webhook-timestamp' that is more than ${toleranceS} seconds away from our clock`);
  }
  const secret = await openWebhookSecret(sealer, ownerOf(tenant, hook.wrappedKey, hook.id), hook.sealed);
  if (!verifyMessage({ id, timestamp, body: delivery.text }, signature, secret)) {
    throw notProven("has a 'webhook-signature' that its secret does not make of this body");
  }
}

function notProven(problem: string): GatewayError {
  return new GatewayError("invalid_callback_proof", `This hook takes signed requests only, and this one ${problem}.`, {
    param: "webhook-signature",
  });
}

/** An object is the input itself; anything else is its `body`. */
function inputOf(text: string): JsonObject {
  if (text.trim() === "") return {};
  const value: JsonValue | undefined = parseJsonExactly(text);
  if (value === undefined) {
    throw new GatewayError(
      "invalid_json",
      "The body is not valid JSON; a hook takes JSON: an object is the flow's input, and any other value its 'body'.",
    );
  }
  return isJsonObject(value) ? value : { body: value };
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new GatewayError("invalid_json", "The body is not valid UTF-8 text.", { cause });
  }
}

/** The tenant in front, by which the database is found; then 256 random bits. */
function newToken(tenant: string): ReturnType<typeof tokenOf> {
  return tokenOf(`${Buffer.from(tenant).toString("base64url")}.${randomBytes(32).toString("base64url")}`);
}

function tokenOf(token: string): { readonly token: string; readonly stored: HookToken } {
  const secret = token.slice(token.indexOf(".") + 1);
  return { token, stored: { tokenHash: createHash("sha256").update(token).digest("hex"), hint: secret.slice(0, 6) } };
}

function tenantOf(token: string): string | undefined {
  const [tenant = "", secret = "", ...more] = token.length > 256 ? [] : token.split(".");
  const name = Buffer.from(tenant, "base64url").toString("utf8");
  return name === "" || secret === "" || more.length > 0 ? undefined : name;
}

function urlOf({ publicUrl }: Pick<CoreDeps, "publicUrl">, flowId: string, token: string): string {
  return `${publicUrl}/v1/flows/${flowId}/hooks/${token}`;
}

function ownerOf(tenant: string, wrappedKey: string, id: string): Parameters<typeof newWebhookSecret>[1] {
  return { tenant, wrappedKey, webhookId: id };
}
