/**
 * Workers of the server form: what the event source mapping is on AWS. Each queue has its own number
 * of hands, so that long work never keeps short work waiting. A message is deleted once its handler
 * is done; one whose handler failed comes back by itself when it is visible again.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Clock } from "@toolyard/core/ports/clock";
import type { Log } from "@toolyard/core/ports/log";
import type { PolledTaskQueue, QueueMessage, QueueName, ReceivedMessage } from "@toolyard/core/ports/task-queue";

export interface QueueWorkersOptions {
  readonly queue: PolledTaskQueue;
  /** Rejects where the message should come again. */
  readonly handle: (message: QueueMessage) => Promise<void>;
  /** Messages in hand at a time. Default 8 short, 4 long. */
  readonly concurrency?: Readonly<Record<QueueName, number>>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface QueueWorkers {
  /** Looks at once instead of at the next poll; for senders in the same process. */
  wake(): void;
  /** Takes no more messages and resolves when those in hand are done. */
  stop(): Promise<void>;
}

/** Longer than any handler works, so that no message is seen twice while it is in hand. */
const visibilityMs: Readonly<Record<QueueName, number>> = { short: 2 * 60_000, long: 20 * 60_000 };
const shortestNapMs = 50;
const longestNapMs = 1000;

export function startQueueWorkers(options: QueueWorkersOptions): QueueWorkers {
  const concurrency = options.concurrency ?? { short: 8, long: 4 };
  const workers = (["short", "long"] as const).map((name) => startWorker(name, concurrency[name], options));
  return {
    wake: () => workers.forEach((worker) => worker.wake()),
    stop: async () => void (await Promise.all(workers.map((worker) => worker.stop()))),
  };
}

function startWorker(name: QueueName, hands: number, { queue, handle, clock, log }: QueueWorkersOptions): QueueWorkers {
  const inHand = new Set<Promise<void>>();
  let stopped = false;
  let woken = false;
  let nap = new AbortController();
  let napMs = shortestNapMs;
  let failing = false;

  const wake = (): void => {
    woken = true;
    nap.abort();
  };

  /** Naps grow while there is nothing to do, and end when somebody wakes us. */
  async function sleep(): Promise<void> {
    if (!woken) {
      nap = new AbortController();
      await clock.sleep(napMs, nap.signal).catch(() => undefined);
    }
    napMs = woken ? shortestNapMs : Math.min(napMs * 2, longestNapMs);
    woken = false;
  }

  async function receive(): Promise<readonly ReceivedMessage[]> {
    try {
      const messages = await queue.receive(name, { limit: hands - inHand.size, visibilityMs: visibilityMs[name] });
      failing = false;
      return messages;
    } catch (cause) {
      // Once for each outage, not once for each poll of it.
      if (!failing)
        log.log("warn", "The task queue cannot be read; trying again.", { queue: name, code: codeOf(cause) });
      failing = true;
      return [];
    }
  }

  async function work({ receipt, receives, tenant, callId }: ReceivedMessage): Promise<void> {
    try {
      await handle({ tenant, callId });
      await queue.delete(name, [receipt]);
    } catch (cause) {
      const fields = { queue: name, tenant, call_id: callId, receives, code: codeOf(cause) };
      log.log("warn", "A message was not handled and will come again.", fields);
    }
  }

  async function loop(): Promise<void> {
    while (!stopped) {
      if (inHand.size >= hands) {
        await Promise.race(inHand);
        continue;
      }
      const messages = await receive();
      for (const message of messages) {
        const working = work(message).finally(() => inHand.delete(working));
        inHand.add(working);
      }
      if (messages.length > 0) napMs = shortestNapMs;
      // A queue that waits has done so, unless it could not be read.
      else if (!stopped && (failing || !queue.waits)) await sleep();
    }
    await Promise.all(inHand);
  }

  const looping = loop();
  return {
    wake,
    async stop() {
      stopped = true;
      wake();
      await looping;
    },
  };
}

function codeOf(cause: unknown): string {
  return cause instanceof GatewayError ? cause.code : "internal_error";
}
