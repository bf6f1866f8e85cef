/** Messages about calls on record: the row is the truth, a message only says that it is worth a look. */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { QueueName } from "../ports/task-queue.ts";

/** Calls expected to take longer than this go to the long queue. */
const shortMs = 60_000;
/** Longest delay of a message; a call that is due later goes from one to the next. */
export const longestHopMs = 900_000;

/** Has a worker look at a call that is on record. Never throws. */
export async function enqueue(
  deps: Pick<CoreDeps, "queue" | "log">,
  work: { readonly tenant: string; readonly callId: string; readonly expectedMs: number; readonly delayMs?: number },
): Promise<void> {
  const queue: QueueName = work.expectedMs > shortMs ? "long" : "short";
  try {
    await deps.queue.send(
      queue,
      [{ tenant: work.tenant, callId: work.callId }],
      work.delayMs === undefined ? {} : { delayMs: work.delayMs },
    );
  } catch (thrown) {
    // The row is on record and the tick sends for it; an error would invite to ask for the call again.
    deps.log.log("warn", "a message was not sent and is left to the tick", {
      call_id: work.callId,
      queue,
      code: toGatewayError(thrown).code,
    });
  }
}
