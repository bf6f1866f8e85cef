/**
 * Takes what an asynchronous plugin says of its task (design "Callbacks"; VCP-5): early, late, repeated, several a
 * call, at any instance. The result is written once; whoever comes second adopts what is stored. Nothing is
 * written for a task that is nobody's.
 */
import { currentConfig } from "../../current-config.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";
import type { CallAttempt, TaskName } from "../../ports/vcp-callbacks.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { openConfiguration } from "../plugins/configuration.ts";
import { vcpPluginsOf } from "../plugins/plugin.ts";
import { callbackSecret, isSignedBy, readCallbackToken, type CallbackSignature } from "./callback-token.ts";
import { completeTask } from "./complete-task.ts";
import { readResult } from "./results.ts";
import { isTaskName, resultKey } from "./task.ts";

/** Bytes of a callback. */
export const largestCallback = 4_194_304;

export interface CallbackRequest {
  /** As the path says. */
  readonly task: TaskName;
  readonly body: string;
  readonly proof: CallbackProof;
}

/** `node`: the tenant's own node hands it on, which has proven who it is. */
export type CallbackProof =
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "signature"; readonly tenant: string; readonly signature: CallbackSignature }
  | { readonly kind: "node"; readonly tenant: string }
  | { readonly kind: "none" };

/**
 * @returns whose it was
 * @throws GatewayError `invalid_callback_proof` without token or signature; `not_found` for a task that is nobody's;
 *   `invalid_json`, `invalid_request` for a body that is none, or another task's; `conflict` for the id of another
 *   call, or one too many. Nothing is written then.
 */
export async function takeCallback(deps: CoreDeps, request: CallbackRequest): Promise<{ readonly tenant: string }> {
  const { tenant, call } = await authorize(deps, request);
  requireOwnBody(request);
  refuseForeign(await deps.repos.vcpCallbacks.bind(tenant, call, request.task));
  const config = await currentConfig(deps, tenant);
  if (config === undefined) throw unknownTask();
  const text = await redacted(deps, config, request);
  const kept = await keep(deps, tenant, { name: request.task, text });
  const completed = await completeTask(deps, config, { task: { ...request.task, callId: call.callId }, text: kept });
  if (completed === undefined) throw unknownTask();
  return { tenant };
}

interface Authorized {
  readonly tenant: string;
  /** Whose the task is, or becomes. */
  readonly call: CallAttempt;
}

async function authorize(deps: CoreDeps, { task, proof, body }: CallbackRequest): Promise<Authorized> {
  switch (proof.kind) {
    case "token":
      return authorizeToken(deps, task, proof.token);
    case "signature": {
      const { tenant, signature } = proof;
      const row = await deps.repos.tenants.get(tenant);
      const secret =
        row === undefined ? undefined : await callbackSecret(deps, { tenant, wrappedKey: row.wrappedKey }, task.plugin);
      if (secret === undefined || !isSignedBy(secret, signature, { body, now: deps.clock.now() })) throw notProven();
      return authorizeKnown(deps, tenant, task);
    }
    case "node":
      return authorizeKnown(deps, proof.tenant, task);
    case "none":
      throw notProven();
    default:
      return proof satisfies never;
  }
}

async function authorizeToken(deps: CoreDeps, task: TaskName, token: string): Promise<Authorized> {
  const read = readCallbackToken(token);
  const call = read === undefined ? undefined : await deps.repos.vcpCallbacks.find(read.tenant, read.hash);
  if (read === undefined || call === undefined || call.plugin !== task.plugin) throw unknownTask();
  const { tenant } = read;
  if (!isTaskName(task)) {
    const message = `The task id in the path must be 1 to 128 letters, digits, '_', '-' and '.'.`;
    throw new GatewayError("invalid_request", message, { param: "taskId" });
  }
  return { tenant, call };
}

/** Who proves itself for the whole plugin has to name a task that a call has. */
async function authorizeKnown(deps: CoreDeps, tenant: string, task: TaskName): Promise<Authorized> {
  const known = isTaskName(task) ? await deps.repos.vcpCallbacks.task(tenant, task) : undefined;
  if (known === undefined) throw unknownTask();
  return { tenant, call: known };
}

function refuseForeign(binding: "bound" | "foreign" | "full"): void {
  if (binding === "bound") return;
  const message =
    binding === "foreign"
      ? "This task id belongs to another call; every call needs task ids of its own."
      : "This call has 32 task ids already, and more than that it may not have.";
  throw new GatewayError("conflict", message, { param: "taskId" });
}

function notProven(): GatewayError {
  return new GatewayError(
    "invalid_callback_proof",
    "A callback needs the address that the plugin was given in CALLBACK_BASE_URL, or a signature with CALLBACK_SECRET (Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature) and x-toolyard-tenant.",
  );
}

function unknownTask(): GatewayError {
  return new GatewayError("not_found", "There is no such task of this plugin; nothing was stored.");
}

/** @throws GatewayError `invalid_json`, `invalid_request` */
function requireOwnBody({ body, task }: CallbackRequest): void {
  const parsed = parseJsonExactly(body);
  if (parsed === undefined)
    throw new GatewayError("invalid_json", "The body of a callback must be JSON; nothing was stored.");
  if (!isJsonObject(parsed)) {
    throw new GatewayError("invalid_request", "The body of a callback must be a JSON object; nothing was stored.");
  }
  requireSame(parsed, "requestId", task.taskId);
  requireSame(parsed, "pluginName", task.plugin);
}

function requireSame(body: JsonObject, field: "requestId" | "pluginName", expected: string): void {
  const given = body[field];
  if (given === undefined || given === null || given === expected) return;
  // Ids that are numbers.
  if (typeof given === "number" && String(given) === expected) return;
  const message = `'${field}' in the body is not the one in the path; nothing was stored.`;
  throw new GatewayError("invalid_request", message, { param: field });
}

/** Plugins may repeat what they were configured with; it must not reach a model, as nothing else of it does. */
async function redacted(deps: CoreDeps, config: TenantConfig, { task, body, proof }: CallbackRequest): Promise<string> {
  const redactor = new Redactor();
  if (proof.kind === "token") redactor.add(proof.token);
  const plugin = vcpPluginsOf(config).get(task.plugin);
  if (plugin !== undefined) {
    await openConfiguration(deps, { tenant: config.tenant, config, redactor }, plugin).catch((thrown: unknown) => {
      // What cannot be opened could not be given to the plugin either.
      if (!(thrown instanceof GatewayError) || thrown.code !== "credential_unreadable") throw thrown;
    });
  }
  return redactor.redact(body);
}

/** @returns the result that counts */
async function keep(
  deps: CoreDeps,
  tenant: string,
  { name, text }: { readonly name: TaskName; readonly text: string },
): Promise<string> {
  const options = { mediaType: "application/json", ifAbsent: true };
  const isFirst = await deps.blobs.put(resultKey(tenant, name), Buffer.from(text, "utf8"), options);
  deps.reach("callback.stored");
  return isFirst ? text : ((await readResult(deps, tenant, name)) ?? text);
}
