/**
 * The task queue on SQS: two standard queues, each with a redrive policy of its own. Messages carry their
 * tenant as message group, so that SQS serves tenants fairly. Functions get them from the event source
 * mapping; processes of the server form receive them here, waiting for a first one at SQS itself.
 */
import { createHash } from "node:crypto";
import { parseJson } from "@toolyard/core/json";
import type { PolledTaskQueue, QueueMessage, QueueName, ReceivedMessage } from "@toolyard/core/ports/task-queue";
import { lazily } from "@toolyard/core/once";
import * as z from "zod";
import { pause, reasonOf, unavailable } from "./aws-error.ts";
import { clientSettings, regionOfUrl, type AwsClientOptions } from "./client-options.ts";

export interface SqsTaskQueueOptions {
  readonly urls: Readonly<Record<QueueName, string>>;
  readonly client?: AwsClientOptions;
  /** How long a receive waits for a first message, 0 to 20. Default 5: a process that is told to stop waits it out. */
  readonly waitSeconds?: number;
}

const longestDelayMs = 900_000;
const mostInBatch = 10;
const mostBatchBytes = 1024 ** 2;
const sendAttempts = 5;
const deadLettersRead = 1_000;
/** While the dead letters are looked through, so that none is seen twice. */
const lookSeconds = 30;

const messageSchema = z.looseObject({ tenant: z.string(), callId: z.string() });
const redrivePolicySchema = z.looseObject({ deadLetterTargetArn: z.string() });

interface Entry {
  readonly Id: string;
  readonly MessageBody: string;
  readonly MessageGroupId: string;
  readonly DelaySeconds: number;
}

interface FailedEntry {
  readonly Id?: string | undefined;
  readonly Code?: string | undefined;
  readonly SenderFault?: boolean | undefined;
}

export function createSqsTaskQueue({
  urls,
  client: given = {},
  waitSeconds = 5,
}: SqsTaskQueueOptions): PolledTaskQueue {
  const load = lazily(async () => {
    const sdk = await import("./sdk/sqs.ts");
    const at = { endpoint: new URL(urls.short).origin, ...regionOfUrl(urls.short) };
    const client = new sdk.SQSClient(clientSettings({ ...at, ...given }, { answerMs: (waitSeconds + 10) * 1_000 }));
    return { ...sdk, client };
  });

  async function sendBatch(queue: QueueName, batch: readonly Entry[]): Promise<void> {
    const { client, SendMessageBatchCommand } = await load();
    let left = batch;
    for (let attempt = 1; ; attempt += 1) {
      const request = { QueueUrl: urls[queue], Entries: [...left] };
      const { Failed: failed = [] } = await client.send(new SendMessageBatchCommand(request));
      if (failed.length === 0) return;
      const ours = failed.find(({ SenderFault }) => SenderFault === true);
      if (ours !== undefined || attempt === sendAttempts) throw new RefusedEntries(ours ?? failed[0]);
      left = left.filter(({ Id }) => failed.some((entry) => entry.Id === Id));
      await pause(attempt);
    }
  }

  async function deleteBatch(queue: QueueName, receipts: readonly string[]): Promise<void> {
    const { client, DeleteMessageBatchCommand } = await load();
    let left = receipts.map((ReceiptHandle, index) => ({ Id: String(index), ReceiptHandle }));
    for (let attempt = 1; ; attempt += 1) {
      const { Failed: all = [] } = await client.send(
        new DeleteMessageBatchCommand({ QueueUrl: urls[queue], Entries: left }),
      );
      // A receipt that SQS does not know holds no message any more.
      const failed = all.filter(({ SenderFault }) => SenderFault !== true);
      if (failed.length === 0) return;
      if (attempt === sendAttempts) throw new RefusedEntries(failed[0]);
      left = left.filter(({ Id }) => failed.some((entry) => entry.Id === Id));
      await pause(attempt);
    }
  }

  async function attributeOf(queue: QueueName, name: "QueueArn" | "RedrivePolicy"): Promise<string | undefined> {
    const { client, GetQueueAttributesCommand } = await load();
    const request = { QueueUrl: urls[queue], AttributeNames: [name] };
    return (await client.send(new GetQueueAttributesCommand(request))).Attributes?.[name];
  }

  async function deadLetterUrl(queue: QueueName): Promise<string | undefined> {
    const policy = redrivePolicySchema.safeParse(parseJson((await attributeOf(queue, "RedrivePolicy")) ?? ""));
    if (!policy.success) return undefined;
    const [QueueOwnerAWSAccountId, QueueName] = policy.data.deadLetterTargetArn.split(":").slice(-2);
    const { client, GetQueueUrlCommand } = await load();
    return (await client.send(new GetQueueUrlCommand({ QueueName, QueueOwnerAWSAccountId }))).QueueUrl;
  }

  /** Looks, and makes what it saw visible again. */
  async function lookThrough(QueueUrl: string): Promise<readonly QueueMessage[]> {
    const { client, ReceiveMessageCommand, ChangeMessageVisibilityBatchCommand } = await load();
    const found: QueueMessage[] = [];
    const seen: string[] = [];
    while (found.length < deadLettersRead) {
      const request = { QueueUrl, MaxNumberOfMessages: mostInBatch, VisibilityTimeout: lookSeconds };
      const { Messages = [] } = await client.send(new ReceiveMessageCommand(request));
      if (Messages.length === 0) break;
      seen.push(...Messages.flatMap(({ ReceiptHandle }) => ReceiptHandle ?? []));
      found.push(...Messages.flatMap(({ Body }) => readMessage(Body) ?? []));
    }
    for (const batch of inBatches(seen, () => 0)) {
      const Entries = batch.map((ReceiptHandle, index) => ({ Id: String(index), ReceiptHandle, VisibilityTimeout: 0 }));
      await client.send(new ChangeMessageVisibilityBatchCommand({ QueueUrl, Entries }));
    }
    return found;
  }

  return {
    waits: waitSeconds > 0,
    /** @throws RangeError for a delay above 15 minutes */
    send: async (queue, messages, { delayMs = 0 } = {}) => {
      if (delayMs > longestDelayMs) {
        throw new RangeError(`A message waits ${longestDelayMs} ms at most; a longer wait is a row with 'run_at'.`);
      }
      const entries = messages.map((message, index) => toEntry(message, index, delayMs));
      await asQueue(queue, async () => {
        for (const batch of inBatches(entries, bytesOf)) await sendBatch(queue, batch);
      });
    },
    ping: async () => {
      const names = ["short", "long"] as const;
      await Promise.all(names.map((queue) => asQueue(queue, () => attributeOf(queue, "QueueArn"))));
    },
    receive: (queue, { limit, visibilityMs }) =>
      asQueue(queue, async () => {
        const { client, ReceiveMessageCommand } = await load();
        const { Messages = [] } = await client.send(
          new ReceiveMessageCommand({
            QueueUrl: urls[queue],
            MaxNumberOfMessages: Math.min(limit, mostInBatch),
            VisibilityTimeout: Math.ceil(visibilityMs / 1_000),
            WaitTimeSeconds: waitSeconds,
            MessageSystemAttributeNames: ["ApproximateReceiveCount"],
          }),
        );
        return Messages.flatMap((message) => toReceived(message) ?? []);
      }),
    delete: (queue, receipts) =>
      asQueue(queue, async () => {
        const known = receipts.filter((receipt) => receipt !== "");
        for (const batch of inBatches(known, () => 0)) await deleteBatch(queue, batch);
      }),
    deadLetters: (queue) =>
      asQueue(queue, async () => {
        const url = await deadLetterUrl(queue);
        return url === undefined ? [] : lookThrough(url);
      }),
  };
}

/** Some entries of a batch were not taken, although the batch was. */
class RefusedEntries extends Error {
  constructor(entry: FailedEntry | undefined) {
    super("SQS did not take every entry of a batch.");
    this.name = entry?.Code ?? "RefusedEntries";
  }
}

function toEntry({ tenant, callId }: QueueMessage, index: number, delayMs: number): Entry {
  return {
    Id: String(index),
    MessageBody: JSON.stringify({ tenant, callId }),
    MessageGroupId: groupOf(tenant),
    DelaySeconds: Math.max(0, Math.ceil(delayMs / 1_000)),
  };
}

/** What SQS takes as a group's name; other names are told apart by their hash. */
function groupOf(tenant: string): string {
  return /^[!-~]{1,128}$/.test(tenant) ? tenant : createHash("sha256").update(tenant).digest("hex");
}

function bytesOf({ MessageBody }: Entry): number {
  return Buffer.byteLength(MessageBody);
}

/** As many in one request as SQS takes. */
function inBatches<T>(items: readonly T[], bytes: (item: T) => number): readonly (readonly T[])[] {
  const batches: T[][] = [];
  let room = 0;
  for (const item of items) {
    const last = batches.at(-1);
    const needed = bytes(item);
    if (last === undefined || last.length === mostInBatch || needed > room) {
      batches.push([item]);
      room = mostBatchBytes - needed;
    } else {
      last.push(item);
      room -= needed;
    }
  }
  return batches;
}

function readMessage(body: string | undefined): QueueMessage | undefined {
  const parsed = messageSchema.safeParse(parseJson(body ?? ""));
  return parsed.success ? { tenant: parsed.data.tenant, callId: parsed.data.callId } : undefined;
}

/** What is no message of ours is left alone, and ends among the dead letters. */
function toReceived({
  Body,
  ReceiptHandle,
  Attributes,
}: {
  readonly Body?: string | undefined;
  readonly ReceiptHandle?: string | undefined;
  readonly Attributes?: Readonly<Partial<Record<string, string>>> | undefined;
}): ReceivedMessage | undefined {
  const message = readMessage(Body);
  if (message === undefined || ReceiptHandle === undefined) return undefined;
  return { ...message, receipt: ReceiptHandle, receives: Number(Attributes?.["ApproximateReceiveCount"] ?? 1) };
}

const settingOf: Readonly<Record<QueueName, string>> = { short: "QUEUE_URL", long: "QUEUE_LONG_URL" };

/** @throws GatewayError `queue_unavailable` where SQS refuses or cannot be reached */
async function asQueue<T>(queue: QueueName, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    const message = `The task queue failed (${reasonOf(cause)}); see the log, and check ${settingOf[queue]} and what the process may do with that queue.`;
    throw unavailable("queue_unavailable", message, cause);
  }
}
