/** Makes the row of a tool call before it runs, and reads an outcome back from a row. */
import { createHash } from "node:crypto";
import { nothing } from "../budgets/budget.ts";
import { reserveTool } from "../budgets/reservation.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { catalog } from "../errors/catalog.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, type JsonObject } from "../json.ts";
import type { NewCall } from "../ports/calls.ts";
import type { PendingOutcome, ToolOutcome } from "../tools/outcome.ts";
import type { Preparation, PreparedCall } from "../tools/prepare.ts";
import { formatToolUri, formatUriOptions } from "../tools/uri.ts";
import type { Call, CallError, CallerLink, SealedInput } from "./call.ts";
import { isChat } from "./wake.ts";

/** Bytes of arguments shown to people in the audit. */
const viewBytes = 4_096;

export interface CallPlace {
  readonly route: string;
  readonly parentId: string | null;
  readonly rootId: string | null;
  /** Who else stands behind the call, after the caller. */
  readonly via?: readonly CallerLink[];
}

export interface RowOptions extends CallPlace {
  readonly state: "queued" | "running" | "input_required";
  readonly async: boolean;
  readonly idempotencyKey?: string;
  readonly effectKey?: string;
  readonly slots: number;
  readonly delivery: "none" | "due";
  /** Not before; absent: as soon as somebody takes it. */
  readonly runAt?: number;
}

/** Limits where they are known; else they are found when it runs. */
export type CallToRecord = Pick<PreparedCall, "id" | "tool" | "uri" | "arguments" | "effect" | "repeat"> &
  Partial<Pick<PreparedCall, "timeoutMs" | "maxAttempts">>;

export async function newToolCall(
  deps: AdapterDeps,
  context: CallContext,
  call: CallToRecord,
  options: RowOptions,
): Promise<NewCall> {
  const { tenant, config } = context;
  const uri = formatToolUri(call.uri.scheme, call.uri.service, call.uri.tool);
  const text = canonicalJson({ uri, arguments: call.arguments });
  const [inputHash, input] = await Promise.all([
    deps.sealer.hash(tenant, config.wrappedKey, text),
    sealInput(deps, context, call.id, inputOf(context, call)),
  ]);
  return {
    ...commonFields(context, options),
    id: call.id,
    uri,
    tool: call.tool.name,
    toolHash: call.tool.hash,
    effect: call.effect,
    repeat: call.repeat,
    state: options.state,
    async: options.async,
    idempotencyKey: options.idempotencyKey ?? null,
    inputHash,
    input,
    inputView: viewOf(context, call.arguments),
    effectKey: options.effectKey ?? null,
    slots: options.slots,
    // What runs within a chat is covered by the chat's own reservation; what runs later has to stand for itself.
    reserved: options.slots === 0 ? nothing : reserveTool(context, call.tool.name, deps.clock),
    leaseMs: deps.timing.leaseMs,
    delivery: options.delivery,
    runAt: options.runAt ?? null,
  };
}

/** What whoever carries the call out later needs. */
export function inputOf(context: CallContext, call: CallToRecord): SealedInput {
  return {
    arguments: call.arguments,
    uri: fullUri(call),
    caller: context.caller,
    ...(call.tool.scope === undefined ? {} : { scope: call.tool.scope }),
    ...(context.sessionId === undefined ? {} : { sessionId: context.sessionId }),
    ...(context.span === undefined ? {} : { traceparent: context.span.traceparent }),
  };
}

export function sealInput(
  { sealer }: Pick<AdapterDeps, "sealer">,
  { tenant, config }: Pick<CallContext, "tenant" | "config">,
  callId: string,
  input: SealedInput,
): Promise<string> {
  return sealer.seal(tenant, config.wrappedKey, inputAad(callId), JSON.stringify(input));
}

/** @throws GatewayError `credential_unreadable` naming the call, `master_key_unavailable` where it cannot be opened */
export async function openInput(
  { sealer }: Pick<AdapterDeps, "sealer">,
  { tenant, config }: Pick<CallContext, "tenant" | "config">,
  { id, input }: { readonly id: string; readonly input: string },
): Promise<SealedInput> {
  try {
    // Sealed by this code for this row; nobody else can have written it.
    return JSON.parse(await sealer.open(tenant, config.wrappedKey, inputAad(id), input)) as SealedInput;
  } catch (cause) {
    if (!(cause instanceof GatewayError) || cause.code !== "credential_unreadable") throw cause;
    const message = `What call '${id}' was given cannot be opened with this tenant's key; ask for it anew.`;
    throw new GatewayError(cause.code, message, { ...cause.details, cause });
  }
}

/** The row of a call that was refused before it could run. */
export function refusedCall(
  context: CallContext,
  place: CallPlace,
  refused: Extract<Preparation, { kind: "refused" }>,
  given: string | JsonObject,
): NewCall {
  const { outcome } = refused;
  const error = errorForRecord(context, {
    code: outcome.code,
    message: context.redactor.redact(outcome.message),
    ...(outcome.details === undefined ? {} : { details: outcome.details }),
  });
  return {
    ...commonFields(context, place),
    id: refused.id,
    uri: refused.tool?.uri ?? refused.target,
    tool: refused.tool?.name ?? refused.target,
    toolHash: refused.tool?.hash ?? null,
    effect: refused.tool?.effect ?? "write",
    repeat: "never",
    state: "rejected",
    async: false,
    idempotencyKey: null,
    inputHash: "",
    input: null,
    inputView: viewOf(context, given),
    effectKey: null,
    slots: 0,
    reserved: nothing,
    leaseMs: 0,
    delivery: "none",
    end: { state: "rejected", error },
  };
}

function commonFields(context: CallContext, place: CallPlace) {
  return {
    kind: "tool" as const,
    parentId: place.parentId,
    rootId: place.rootId,
    sessionId: context.sessionId ?? null,
    userId: context.caller.userId ?? null,
    callerChain: callerChain(context, place),
    route: place.route,
    deadlineMs: null,
    runAt: null,
    requestId: context.requestId,
    traceId: context.traceId,
  };
}

const inlineConfigLink = "runtime_config";

/** Did the request bring the configuration of this call? Then it is stored nowhere (BLIND-7). */
export function usedInlineConfig(call: Call): boolean {
  return call.callerChain.some((link) => link.kind === inlineConfigLink);
}

export const reasonNotKept = "The reason is not kept: the request brought a 'runtime_config', which is never stored.";

/**
 * What back ends say is a result; our own words may quote the definition or name its credentials. A
 * connect link is for the one who asked, not for everybody who may read the record.
 */
export function errorForRecord(context: Pick<CallContext, "runtimeConfig">, error: CallError): CallError {
  if (context.runtimeConfig === undefined || catalog[error.code].type === "tool_execution_error") {
    if (error.details?.["connect_url"] === undefined) return error;
    const { connect_url: _link, ...details } = error.details;
    return { ...error, details };
  }
  return { code: error.code, message: reasonNotKept };
}

/** Who stands behind the call, outermost first. */
function callerChain(context: CallContext, place: CallPlace): CallerLink[] {
  const chain: CallerLink[] = [{ kind: context.caller.kind, id: context.caller.id }];
  if (context.caller.userId !== undefined) chain.push({ kind: "user", id: context.caller.userId });
  chain.push(...(place.via ?? []));
  // Other parents are named by whoever makes the call for them.
  if (place.parentId !== null && isChat(place.parentId)) chain.push({ kind: "chat", id: place.parentId });
  if (context.runtimeConfig !== undefined) chain.push({ kind: inlineConfigLink, id: "inline" });
  return chain;
}

function viewOf(context: CallContext, given: string | JsonObject): string {
  const text = context.redactor.redact(typeof given === "string" ? given : JSON.stringify(given));
  return text.length <= viewBytes ? text : `${text.slice(0, viewBytes)}…`;
}

/** With the limits that it was taken on with; `async` has been obeyed. */
function fullUri({ uri, tool, timeoutMs, maxAttempts }: CallToRecord): string {
  const { async: _async, ...options } = uri.options;
  const limits = {
    ...(tool.version === undefined ? {} : { version: tool.version }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
  };
  const text = formatUriOptions({ ...options, ...limits });
  const address = formatToolUri(uri.scheme, uri.service, uri.tool);
  return text === "" ? address : `${address}?${text}`;
}

/** Authenticated with the sealed input of a call, so that it opens in its own row only. */
export function inputAad(callId: string): readonly string[] {
  return ["call-input", callId];
}

/** Identity of a write within its chat, whichever attempt of the chat makes it. */
export function effectKeyOf(call: PreparedCall, occurrence: number): string {
  const text = canonicalJson({ uri: call.tool.uri, arguments: call.arguments, occurrence });
  return createHash("sha256").update(text).digest("base64url");
}

/** What a person is asked for before the call goes on; undefined: nothing. */
export function inputRequestsOf({ state, error }: Pick<Call, "state" | "error">): JsonObject | undefined {
  if (state !== "input_required") return undefined;
  if (error?.code !== "input_required" && error?.details?.["input_requests"] === undefined) return undefined;
  const requests = error.details?.["input_requests"];
  return isJsonObject(requests) ? requests : {};
}

/** What a recorded call came to, for whoever asks again. */
export function outcomeOf(call: Call): ToolOutcome {
  const requests = inputRequestsOf(call);
  if (requests !== undefined) return { kind: "pending", reason: "input", callId: call.id, requests };
  if (call.state === "completed" && call.outcome !== null) {
    const { text, mediaType, bytes, blobKey } = call.outcome;
    return {
      kind: "completed",
      text,
      mediaType,
      reused: "replay",
      ...(blobKey === undefined ? {} : { handle: { callId: call.id, bytes, mediaType } }),
    };
  }
  if (call.error !== null) {
    return {
      kind: call.state === "rejected" ? "rejected" : "failed",
      code: call.error.code,
      message: call.error.message,
      ...(call.error.details === undefined ? {} : { details: call.error.details }),
    };
  }
  if (call.state === "input_required") return { kind: "pending", reason: "approval", callId: call.id };
  return { kind: "pending", reason: "async", callId: call.id, ...firstAnswerOf(call) };
}

/** Of a call whose back end has answered first and works on. */
function firstAnswerOf({ id, outcome }: Call): Pick<PendingOutcome, "first"> {
  if (outcome === null) return {};
  const { text, mediaType, bytes, blobKey } = outcome;
  return { first: { text, mediaType, ...(blobKey === undefined ? {} : { handle: { callId: id, bytes, mediaType } }) } };
}
