/**
 * Waits for a call that another process works on. Where that process has gone silent, a worker is sent
 * to find out what became of the call, without waiting for the tick (design "Async").
 */
import type { CoreDeps } from "../core-deps.ts";
import type { Call } from "./call.ts";
import { enqueue } from "./enqueue.ts";

const firstWaitMs = 50;
const longestWaitMs = 1_000;

/** The call as it is when it has ended, or when `signal` aborts. */
export async function awaitCall(deps: CoreDeps, call: Call, signal: AbortSignal): Promise<Call> {
  let current = call;
  let isSent = false;
  for (let waitMs = firstWaitMs; current.state === "running" && !signal.aborted;) {
    if (!isSent && current.leaseUntil !== null && current.leaseUntil < deps.clock.now()) {
      isSent = true;
      await enqueue(deps, { tenant: current.tenant, callId: current.id, expectedMs: 0 });
    }
    await deps.clock.sleep(waitMs, signal).catch(() => undefined);
    waitMs = Math.min(waitMs * 2, longestWaitMs);
    current = (await deps.repos.calls.get(current.tenant, current.id)) ?? current;
  }
  return current;
}
