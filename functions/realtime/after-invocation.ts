/**
 * What functions do for connected clients at the end of an invocation, which is their last chance: an event
 * is a row by then, so one whose function dies is told by the next that comes by, at the latest by the tick.
 */
import { enqueue } from "@toolyard/core/calls/enqueue";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import { deliverEvents } from "@toolyard/core/realtime/deliver";
import type { Composition } from "../compose.ts";

/**
 * `own`: sends where this invocation has changed something that somebody listens to; its answer is out by
 * then. `handed-on`: leaves that to the worker, since the caller is still waiting. `all`: sends what is due.
 */
export type Telling = "own" | "handed-on" | "all";

export async function tellClients(
  { app: { core }, realtime, push }: Pick<Composition, "app" | "realtime" | "push">,
  telling: Telling,
): Promise<void> {
  await realtime.callLogs.flush();
  const changed = realtime.listening.take();
  if (push === undefined) return;
  if (telling === "handed-on") {
    // The message says "look at this row": the worker finds that there is nothing to do, and what is due.
    await Promise.all(changed.map((call) => enqueue(core, { ...call, expectedMs: 0 })));
    return;
  }
  if (telling === "own" && changed.length === 0) return;
  try {
    await deliverEvents(core, push);
  } catch (thrown) {
    core.log.log("warn", "events were not pushed and are left to the tick", { code: toGatewayError(thrown).code });
  }
}
