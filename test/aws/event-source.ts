/**
 * The event source mapping between a queue and a function, as SQS and Lambda have it: batches, partial
 * failures (`ReportBatchItemFailures`), messages that come again once they are visible, and, where a
 * test asks for it, each message twice. And the schedule that starts a function every so often.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";
import type { LambdaFunction } from "./runtime-api.ts";

export interface QueuedMessage {
  readonly id: string;
  readonly receipt: string;
  readonly body: string;
  readonly receives: number;
}

/** The consumer's side of a queue. */
export interface MessageSource {
  receive(limit: number, visibilityMs: number): Promise<readonly QueuedMessage[]>;
  delete(receipts: readonly string[]): Promise<void>;
}

export interface EventSourceOptions {
  readonly source: MessageSource;
  readonly function: LambdaFunction;
  readonly visibilityMs: number;
  /** Messages of one invocation at most. Default 10. */
  readonly batchSize?: number;
  /** Batches under way at once (`MaximumConcurrency`). Default 2. */
  readonly concurrency?: number;
  /** Deliver each message in two batches at once. */
  readonly duplicates?: boolean;
}

export interface Trigger {
  /** Starts nothing any more until it is resumed. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
}

const pollEveryMs = 100;
const resultSchema = z.object({ batchItemFailures: z.array(z.object({ itemIdentifier: z.string() })) });

export function startEventSource(options: EventSourceOptions): Trigger {
  const { source, concurrency = 2, batchSize = 10, visibilityMs } = options;
  const underWay = new Set<Promise<void>>();
  return startLoop(pollEveryMs, async () => {
    if (underWay.size >= concurrency) return;
    const messages = await source.receive(batchSize, visibilityMs).catch(() => []);
    if (messages.length === 0) return;
    const work = deliver(options, messages).finally(() => underWay.delete(work));
    underWay.add(work);
  });
}

async function deliver(
  { source, function: lambda, duplicates }: EventSourceOptions,
  messages: readonly QueuedMessage[],
): Promise<void> {
  const outcomes = await Promise.all(
    (duplicates === true ? [messages, messages] : [messages]).map((batch) => handled(lambda, batch)),
  );
  // The delivery that succeeded deletes, whatever became of the other one.
  const receipts = new Set(outcomes.flat());
  if (receipts.size > 0) await source.delete([...receipts]).catch(() => undefined);
}

/** Receipts of those that need not come again. */
async function handled(lambda: LambdaFunction, messages: readonly QueuedMessage[]): Promise<readonly string[]> {
  const answer = await lambda.invoke({ Records: messages.map(toRecord) });
  if (answer.kind !== "whole") return [];
  const result = resultSchema.safeParse(JSON.parse(answer.body.toString("utf8")));
  // Without a well-formed report the whole batch counts as failed.
  if (!result.success) return [];
  const failed = new Set(result.data.batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
  return messages.filter(({ id }) => !failed.has(id)).map(({ receipt }) => receipt);
}

function toRecord({ id, receipt, body, receives }: QueuedMessage): object {
  return {
    messageId: id,
    receiptHandle: receipt,
    body,
    attributes: {
      ApproximateReceiveCount: String(receives),
      SentTimestamp: String(Date.now()),
      SenderId: "toolyard",
      ApproximateFirstReceiveTimestamp: String(Date.now()),
    },
    messageAttributes: {},
    md5OfBody: "",
    eventSource: "aws:sqs",
    eventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:toolyard",
    awsRegion: "eu-central-1",
  };
}

/** EventBridge Scheduler with a function as its target. */
export function startSchedule(lambda: LambdaFunction, everyMs: number): Trigger {
  return startLoop(everyMs, async () => {
    await lambda.invoke({ version: "0", id: randomUUID(), "detail-type": "Scheduled Event", source: "aws.scheduler" });
  });
}

function startLoop(everyMs: number, act: () => Promise<void>): Trigger {
  const stopped = new AbortController();
  let isPaused = false;
  const loop = async (): Promise<void> => {
    for (;;) {
      await sleep(everyMs, undefined, { signal: stopped.signal }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      if (!isPaused) await act();
    }
  };
  const looping = loop();
  return {
    pause: () => void (isPaused = true),
    resume: () => void (isPaused = false),
    async stop() {
      stopped.abort();
      await looping;
    },
  };
}
