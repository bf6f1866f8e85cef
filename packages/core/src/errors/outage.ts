/** Errors of what everything is kept with: they say nothing of the work that met them. */
import type { Clock } from "../ports/clock.ts";
import { toGatewayError, type GatewayError } from "./gateway-error.ts";

/** It did nothing wrong, and is done later as it would have been done now. */
export function isOutage({ code }: GatewayError): boolean {
  return code === "database_unavailable" || code === "blobs_unavailable" || code === "master_key_unavailable";
}

/** Before another try. */
export const outageMs = 5_000;

const firstPauseMs = 250;
const longestPauseMs = 2_000;

/**
 * Does again, for so long, what only an outage keeps from being done: where what was asked of others cannot be asked
 * for a second time. `work` must be good to repeat.
 */
export async function throughOutage<T>(clock: Clock, forMs: number, work: () => Promise<T>): Promise<T> {
  const until = clock.now() + forMs;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
    try {
      return await work();
    } catch (thrown) {
      if (!isOutage(toGatewayError(thrown)) || clock.now() >= until) throw thrown;
      await clock.sleep(pauseMs);
    }
  }
}
