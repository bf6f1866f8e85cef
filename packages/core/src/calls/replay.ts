/**
 * Runs a finished call again, with its arguments, as a new call of whoever asks: permission,
 * credentials and approval are theirs and are checked as for any other call. Nothing of the first
 * call changes (design "One record").
 */
import { hasScope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { NewCall } from "../ports/calls.ts";
import { toErrorDetails } from "../tools/outcome.ts";
import { prepareCall, type PreparedCall } from "../tools/prepare.ts";
import { endStates, type Call, type SealedInput } from "./call.ts";
import { callNotFound, findCall } from "./find-call.ts";
import { newToolCall, openInput, usedInlineConfig } from "./new-call.ts";
import { enqueue } from "./enqueue.ts";
import { enterSession } from "./own-session.ts";

export interface ReplayRequest {
  readonly callId: string;
  /** Needed for a write, which may take effect a second time. */
  readonly confirm: boolean;
  readonly idempotencyKey?: string;
}

export interface Replay {
  readonly call: Call;
  /** It was made by an earlier request with the same key. */
  readonly replayed: boolean;
}

/**
 * @returns the new call, queued or waiting for approval
 * @throws GatewayError `not_found`, `permission_denied`, `invalid_request` for a chat, `call_not_finished`,
 * `session_not_found` where the call worked in somebody else's session, `confirmation_required`, `runtime_config_required`, `conflict` where the arguments are no longer stored,
 * `idempotency_key_reused`, and whatever keeps such a call from being accepted
 */
export async function replayCall(deps: CoreDeps, context: CallContext, request: ReplayRequest): Promise<Replay> {
  requireReplayScope(context);
  const original = await findCall(deps, context, request.callId);
  requireReplayable(original, request.confirm);
  const input = await argumentsOf(deps, context, original);
  const within: CallContext = input.sessionId === undefined ? context : { ...context, sessionId: input.sessionId };
  const { call, waits } = prepareReplay(deps, within, input);
  if (input.sessionId !== undefined) await enterSession(deps, context, input.sessionId);
  const row = await newToolCall(deps, within, call, {
    route: "calls.replay",
    parentId: null,
    rootId: null,
    state: waits ? "input_required" : "queued",
    async: true,
    slots: 1,
    delivery: "none",
    ...(request.idempotencyKey === undefined ? {} : { idempotencyKey: request.idempotencyKey }),
  });
  const replay = await recordReplay(deps, context, {
    ...row,
    callerChain: [...row.callerChain, { kind: "replay", id: original.id }],
  });
  deps.reach("async.recorded");
  if (replay.call.state === "queued") {
    const expectedMs = call.timeoutMs * call.maxAttempts;
    await enqueue(deps, { tenant: context.tenant, callId: replay.call.id, expectedMs });
    deps.reach("async.queued");
  }
  return replay;
}

function requireReplayScope({ caller }: CallContext): void {
  if (hasScope(caller, "tools") || hasScope(caller, "calls")) return;
  throw new GatewayError("permission_denied", "Replaying a call needs the scope 'tools' or 'calls'.", {
    param: "tools",
  });
}

function requireReplayable(call: Call, confirmed: boolean): void {
  if (call.kind !== "tool") {
    throw new GatewayError("invalid_request", `'${call.id}' is a chat; only tool calls can be replayed.`, {
      param: "id",
    });
  }
  if (!endStates.includes(call.state)) {
    throw new GatewayError(
      "call_not_finished",
      `Call '${call.id}' is still '${call.state}'; replay it when it has ended.`,
      {
        param: "id",
        retryAfterMs: 1_000,
        extra: { state: call.state },
      },
    );
  }
  requireStoredConfig(call, "POST /v1/tools/invoke");
  if (call.effect === "write" && call.repeat !== "natural" && !confirmed) {
    throw new GatewayError(
      "confirmation_required",
      `'${call.tool}' writes, and a replay may do it a second time; send {"confirm": true} if that is meant.`,
      { param: "confirm", toolName: call.tool },
    );
  }
}

/**
 * @param route that takes the configuration again
 * @throws GatewayError `runtime_config_required` where the request brought it
 */
export function requireStoredConfig(call: Call, route: string): void {
  if (!usedInlineConfig(call)) return;
  throw new GatewayError(
    "runtime_config_required",
    `'${call.id}' ran with an inline 'runtime_config', which is not stored; send it again with ${route}.`,
    { param: "id" },
  );
}

async function argumentsOf(deps: CoreDeps, context: CallContext, { id, input }: Call): Promise<SealedInput> {
  if (input !== null) return openInput(deps, context, { id, input });
  throw new GatewayError("conflict", `The arguments of call '${id}' are no longer stored; it cannot be replayed.`, {
    param: "id",
  });
}

function prepareReplay(
  deps: CoreDeps,
  context: CallContext,
  input: SealedInput,
): { readonly call: PreparedCall; readonly waits: boolean } {
  const prepared = prepareCall(
    deps.adapters,
    context,
    { target: input.uri, arguments: { ...input.arguments } },
    { hasReadOutside: false },
  );
  if (prepared.kind === "refused") {
    const { code, message, details } = prepared.outcome;
    throw new GatewayError(code, message, {
      ...(prepared.tool === undefined ? {} : { toolName: prepared.tool.name }),
      ...toErrorDetails(details),
    });
  }
  return { call: prepared.call, waits: prepared.kind === "needs_approval" };
}

async function recordReplay(deps: CoreDeps, { tenant, caller }: CallContext, row: NewCall): Promise<Replay> {
  const [recorded] = await deps.repos.calls.record(tenant, caller.id, [row]);
  if (recorded?.kind === "existing") {
    const ofSameCall = recorded.call.callerChain.at(-1)?.id === row.callerChain.at(-1)?.id;
    if (ofSameCall && recorded.call.inputHash === row.inputHash) return { call: recorded.call, replayed: true };
    throw new GatewayError(
      "idempotency_key_reused",
      "This Idempotency-Key was used for another request; take a new key.",
      {
        param: "Idempotency-Key",
      },
    );
  }
  const call = await deps.repos.calls.get(tenant, row.id);
  if (call === undefined) throw callNotFound(row.id);
  return { call, replayed: false };
}
