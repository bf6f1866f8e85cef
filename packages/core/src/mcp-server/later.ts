/** Calls that go on without the request that asked for them: waited for a while, or told of. */
import { cancelCall } from "../calls/cancel.ts";
import { processEnd } from "../calls/lease.ts";
import type { Call } from "../calls/call.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { longestWaitS, resultToolName } from "./get-call-result.ts";
import { asRefusal } from "./output-schema.ts";

/** Clients give a request up after a minute. */
export const patienceMs = longestWaitS * 1_000;
/** Of the time that a host gives a request, for the answer. */
const reserveMs = 5_000;
const firstLookMs = 50;
const longestLookMs = 1_000;

/** @throws GatewayError `not_found` */
export async function readCall({ deps, context }: AdmittedExchange, callId: string): Promise<Call> {
  const call = await deps.repos.calls.get(context.tenant, callId);
  if (call === undefined) throw new GatewayError("not_found", `There is no call '${callId}'.`);
  return call;
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

/** A call that nobody waits for any longer. Since 2026-07-28 a client that is gone has cancelled; before that it would have said so. */
export async function leaveRunning(
  exchange: AdmittedExchange,
  call: Call,
  outputSchema: JsonObject | undefined,
): Promise<JsonObject> {
  const { peer, signal } = exchange;
  // The end of the process that waited is no word of the client's.
  if (peer.era === "stateless" && signal.aborted && processEnd(signal) === undefined) await giveUp(exchange, call.id);
  return asRefusal(stillRunning(call), outputSchema);
}

async function giveUp({ deps, context }: AdmittedExchange, callId: string): Promise<void> {
  await cancelCall(deps, context, callId).catch((error: unknown) => {
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
  });
}

function stillRunning({ id, outcome }: Call): JsonObject {
  const told = {
    status: "pending",
    call_id: id,
    ...(outcome === null ? {} : { first_answer: outcome.text }),
    message: `Still running. Call '${resultToolName}' with this call_id for the result.`,
  };
  return { content: [{ type: "text", text: JSON.stringify(told) }], structuredContent: told };
}
