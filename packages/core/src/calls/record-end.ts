/**
 * Writes what a call came to. A process that stood still (a frozen instance, a long pause) may find
 * that another one has taken its call over: then the row is that one's, and only evidence about a call
 * that ended `unknown` still counts (design "The call"). Or that its tenant was erased: then nothing may be left.
 */
import type { CoreDeps } from "../core-deps.ts";
import { throughOutage } from "../errors/outage.ts";
import type { CallFinish } from "../ports/calls.ts";
import { clearErased } from "../tenants/erase.ts";
import { endStates, type Call } from "./call.ts";
import { tellParent } from "./wake.ts";
import { enqueue, longestHopMs } from "./enqueue.ts";

type EndedCall = Pick<Call, "tenant" | "id" | "attempt" | "repeat"> & Partial<Pick<Call, "parentId">>;

/** @returns `false` where the record tells something else */
export async function recordEnd(
  deps: Pick<CoreDeps, "repos" | "blobs" | "queue" | "log">,
  call: EndedCall,
  finish: CallFinish,
): Promise<boolean> {
  const isRecorded = finish.state === "queued" ? await park(deps, call, finish) : await end(deps, call, finish);
  if (!isRecorded) await clearErased(deps, call.tenant);
  return isRecorded;
}

/** Would a write be sent again, and over what was written since, should its end not come on record? Keys tell back ends which one it is. */
export function isSentAgain({ effect, repeat }: Pick<Call, "effect" | "repeat">): boolean {
  return effect === "write" && repeat === "natural";
}

/** Longest that nobody waits for while an end is tried to be recorded; well within its lease. */
export const endKeptMs = 30_000;

/**
 * As `recordEnd`, and through an outage for writes: without their end they are sent again, over what was written since, or
 * stay `unknown` though they were answered.
 */
export function recordEndThroughOutage(
  deps: Pick<CoreDeps, "repos" | "blobs" | "queue" | "log" | "clock">,
  call: EndedCall & Pick<Call, "effect">,
  { finish, keepingMs }: { readonly finish: CallFinish; readonly keepingMs: number },
): Promise<boolean> {
  const record = (): Promise<boolean> => recordEnd(deps, call, finish);
  return call.effect === "write" ? throughOutage(deps.clock, keepingMs, record) : record();
}

async function end(
  deps: Pick<CoreDeps, "repos" | "queue" | "log">,
  call: EndedCall,
  finish: CallFinish,
): Promise<boolean> {
  const { calls } = deps.repos;
  const isWritten =
    (await calls.finish(call.tenant, call.id, call.attempt, finish)) ||
    (isEvidence(call, finish) && (await calls.resolveUnknown(call.tenant, call.id, finish)));
  if (isWritten && endStates.includes(finish.state)) await tellParent(deps, call);
  return isWritten;
}

/** Of a call that waits: nobody holds it until then. A longer time is the tick's to see. */
async function park(
  deps: Pick<CoreDeps, "repos" | "queue" | "log">,
  { tenant, id, attempt }: EndedCall,
  { parked = {} }: CallFinish,
): Promise<boolean> {
  const { wakeInMs = null, ...rest } = parked;
  const dueInMs = await deps.repos.calls.park(tenant, id, attempt, { inMs: wakeInMs, ...rest });
  if (dueInMs === undefined) return false;
  await sendWhenDue(deps, { tenant, callId: id, dueInMs });
  return true;
}

/** The message of a parked call; the tick finds the row where it is lost, or where it would have to wait too long. */
export async function sendWhenDue(
  deps: Pick<CoreDeps, "queue" | "log">,
  { tenant, callId, dueInMs }: { readonly tenant: string; readonly callId: string; readonly dueInMs: number },
): Promise<void> {
  if (dueInMs > longestHopMs) return;
  await enqueue(deps, { tenant, callId, expectedMs: 0, ...(dueInMs > 0 ? { delayMs: dueInMs } : {}) });
}

/**
 * An answer shows that the call took effect, whoever has asked for it. That it failed for one attempt
 * says something about the call only where no other attempt can have sent it.
 */
function isEvidence({ repeat }: Pick<Call, "repeat">, { state }: CallFinish): boolean {
  return state === "completed" || (state === "failed" && repeat === "never");
}
