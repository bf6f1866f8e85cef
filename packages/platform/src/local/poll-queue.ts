/**
 * Workers of the server form: what the event source mapping is on AWS. Each queue has its own number
 * of hands, so that long work never keeps short work waiting, and a tenant its share of them. A message
 * is deleted once its handler is done; one whose handler failed comes back by itself when it is visible
 * again.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Clock } from "@toolyard/core/ports/clock";
import type { Log } from "@toolyard/core/ports/log";
import type { PolledTaskQueue, QueueMessage, QueueName, ReceivedMessage } from "@toolyard/core/ports/task-queue";

/** Messages in hand at a time. */
export interface Hands {
  readonly all: number;
  /** Well below `all`, so that whoever comes finds a hand, however long others' work takes. */
  readonly ofTenant: number;
}

export interface QueueWorkersOptions {
  readonly queue: PolledTaskQueue;
  /** Rejects where the message should come again. */
  readonly handle: (message: QueueMessage) => Promise<void>;
  readonly hands?: Readonly<Record<QueueName, Hands>>;
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
/**
 * They wait for the network most of the time. Of the short ones a tenant has as many as it has slots for calls; long ones
 * may hold a document each, of up to 32 MB unless a tenant asks for more.
 */
const usualHands: Readonly<Record<QueueName, Hands>> = {
  short: { all: 64, ofTenant: 16 },
  long: { all: 16, ofTenant: 4 },
};
const shortestNapMs = 50;
const longestNapMs = 1000;

export function startQueueWorkers(options: QueueWorkersOptions): QueueWorkers {
  const hands = options.hands ?? usualHands;
  const workers = (["short", "long"] as const).map((name) => startWorker(name, hands[name], options));
  return {
    wake: () => workers.forEach((worker) => worker.wake()),
    stop: async () => void (await Promise.all(workers.map((worker) => worker.stop()))),
  };
}

function startWorker(name: QueueName, hands: Hands, { queue, handle, clock, log }: QueueWorkersOptions): QueueWorkers {
  /** With whose they are. */
  const inHand = new Map<Promise<void>, string>();
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
      const messages = await queue.receive(name, {
        limit: hands.all - inHand.size,
        visibilityMs: visibilityMs[name],
        share: { most: hands.ofTenant, inHand: [...inHand.values()] },
      });
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

  function begin(message: ReceivedMessage): void {
    const { tenant } = message;
    const working = work(message).finally(() => {
      const held = [...inHand.values()].filter((owner) => owner === tenant).length;
      inHand.delete(working);
      // What was left where it was for its tenant's share has its turn now.
      if (held >= hands.ofTenant) wake();
    });
    inHand.set(working, tenant);
  }

  async function loop(): Promise<void> {
    while (!stopped) {
      if (inHand.size >= hands.all) {
        await Promise.race(inHand.keys());
        continue;
      }
      const messages = await receive();
      messages.forEach(begin);
      if (messages.length > 0) napMs = shortestNapMs;
      // A queue that waits has done so, unless it could not be read.
      else if (!stopped && (failing || !queue.waits)) await sleep();
    }
    await Promise.all(inHand.keys());
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
