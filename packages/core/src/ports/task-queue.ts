/**
 * Messages that say "look at this row". At least once, in no order; the row is the truth.
 * Contract: test/contract/task-queue.ts.
 */
export interface QueueMessage {
  readonly tenant: string;
  readonly callId: string;
}

/**
 * In place of a call's id: what an erased tenant's last requests have stored is to go (tenants/erase.ts). Erasing rows
 * leaves such messages. An older worker finds no such call and lets it be.
 */
export const afterErasure = "tenant-erased";

/** `short`: expected to end within a minute; `long`: anything else. */
export type QueueName = "short" | "long";

export interface TaskQueue {
  /** `delayMs` up to 15 minutes; longer waits are rows with `run_at` that the tick sends. */
  send(queue: QueueName, messages: readonly QueueMessage[], options?: { readonly delayMs?: number }): Promise<void>;
  /** Rejects where messages cannot be sent now. */
  ping(): Promise<void>;
}

/** Polled by the server form; for functions on AWS the event source mapping does it. */
export interface PolledTaskQueue extends TaskQueue {
  /** `receive` itself waits a few seconds for a first message; else a poller has to pause where there is none. */
  readonly waits: boolean;
  /** Hides up to `limit` messages for `visibilityMs`. A message seen more than `maxReceives` times goes to the dead-letter list. */
  receive(
    queue: QueueName,
    options: { readonly limit: number; readonly visibilityMs: number; readonly share?: Share },
  ): Promise<readonly ReceivedMessage[]>;
  delete(queue: QueueName, receipts: readonly string[]): Promise<void>;
  deadLetters(queue: QueueName): Promise<readonly QueueMessage[]>;
}

/** What a receiver takes of one tenant. SQS knows no such thing, and is fair to message groups by itself. */
export interface Share {
  /** In hand at a time. */
  readonly most: number;
  /** The tenant of each message that the receiver has in hand. */
  readonly inHand: readonly string[];
}

export interface ReceivedMessage extends QueueMessage {
  readonly receipt: string;
  readonly receives: number;
}
