/** Calls that go on without the request that asked for them: waited for a while, given as a task, or told of. */
import { cancelCall } from "../calls/cancel.ts";
import { endStates, type Call } from "../calls/call.ts";
import { outcomeOf } from "../calls/new-call.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { replyOf } from "./calls.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { longestWaitS, resultToolName } from "./get-call-result.ts";
import { asRefusal } from "./output-schema.ts";
import { newTask } from "./tasks.ts";

/** Clients give a request up after a minute. */
const patienceMs = longestWaitS * 1_000;
/** Of the time that a host gives a request, for the answer. */
const reserveMs = 5_000;
const firstLookMs = 50;
const longestLookMs = 1_000;

/** A call that a worker carries out. */
export async function answerLater(
  exchange: AdmittedExchange,
  callId: string,
  outputSchema: JsonObject | undefined,
): Promise<JsonObject> {
  const call = await readCall(exchange, callId);
  if (exchange.peer.takesTasks && !endStates.includes(call.state)) return newTask(exchange, call);
  const ended = await waitForEnd(exchange, call, patienceMs);
  if (endStates.includes(ended.state)) {
    return replyOf(exchange, callId, { outcome: outcomeOf(ended), call: ended, outputSchema });
  }
  if (hasLeft(exchange)) await giveUp(exchange, callId);
  return asRefusal(stillRunning(callId), outputSchema);
}

/** @throws GatewayError `not_found` */
export async function readCall({ deps, context }: AdmittedExchange, callId: string): Promise<Call> {
  const call = await deps.repos.calls.get(context.tenant, callId);
  if (call === undefined) throw new GatewayError("not_found", `There is no call '${callId}'.`);
  return call;
}

export function waitForEnd(exchange: AdmittedExchange, call: Call, waitMs: number): Promise<Call> {
  return waitWhile(exchange, call, { waitMs, isOpen: ({ state }) => !endStates.includes(state) });
}

/** The call as it is when it has moved on, or when the time is over or the client has left. */
export async function waitWhile(
  exchange: AdmittedExchange,
  call: Call,
  { waitMs, isOpen }: { readonly waitMs: number; readonly isOpen: (call: Call) => boolean },
): Promise<Call> {
  const { deps, signal, remainingMs = Number.POSITIVE_INFINITY } = exchange;
  const until = deps.clock.now() + Math.min(waitMs, remainingMs - reserveMs);
  let current = call;
  for (let lookMs = firstLookMs; isOpen(current) && !signal.aborted;) {
    const left = until - deps.clock.now();
    if (left <= 0) break;
    await deps.clock.sleep(Math.min(lookMs, left), signal).catch(() => undefined);
    lookMs = Math.min(lookMs * 2, longestLookMs);
    current = await readCall(exchange, call.id);
  }
  return current;
}

/** Since 2026-07-28 a client that is gone has cancelled; before that it would have said so. */
function hasLeft({ peer, signal }: AdmittedExchange): boolean {
  return peer.era === "stateless" && signal.aborted;
}

async function giveUp({ deps, context }: AdmittedExchange, callId: string): Promise<void> {
  await cancelCall(deps, context, callId).catch((error: unknown) => {
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
  });
}

function stillRunning(callId: string): JsonObject {
  const told = {
    status: "pending",
    call_id: callId,
    message: `Still running. Call '${resultToolName}' with this call_id for the result.`,
  };
  return { content: [{ type: "text", text: JSON.stringify(told) }], structuredContent: told };
}
