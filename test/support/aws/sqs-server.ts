/**
 * An SQS of one's own: standard queues with visibility, delays, long polling, receive counts and redrive,
 * and the limits that SQS enforces. Its time can be moved on.
 */
import { createHash, randomUUID } from "node:crypto";
import * as z from "zod";
import { AwsFailure, jsonService, startAwsServer, type AwsServer } from "./aws-server.ts";
import type { Signer } from "./sigv4.ts";

type QueueName = "short" | "long";

interface Message {
  readonly id: string;
  readonly body: string;
  readonly group: string | undefined;
  visibleAt: number;
  receives: number;
  receipt: string;
}

interface Queue {
  readonly name: string;
  messages: Message[];
  readonly deadLetters?: string;
}

export interface SqsServer extends AwsServer {
  readonly urls: Readonly<Record<QueueName, string>>;
  /** Message groups of all that was ever sent, in order. */
  readonly groups: (string | undefined)[];
  /** Entries of batches to refuse one by one, as SQS does where it is busy; used up from the front. */
  readonly refusals: { readonly Code: string; readonly SenderFault: boolean }[];
  pass(ms: number): void;
  /** Puts a body into a queue past the service. */
  plant(queue: string, body: string): void;
  bodies(queue: string): readonly string[];
  /** As the event source mapping of a function has its messages, which is AWS's own. */
  receive(queue: QueueName, options: { readonly limit: number; readonly visibilityMs: number }): readonly Received[];
  delete(queue: QueueName, receipts: readonly string[]): void;
  /** Forgets every message. */
  purge(): void;
  /** Messages that were worked off, whoever did it. */
  deleted(): number;
}

export type Received = Readonly<Pick<Message, "id" | "body" | "receipt" | "receives" | "group">>;

const account = "000000000000";
const maxReceives = 5;
const mostBatchBytes = 1024 ** 2;

const sendSchema = z.object({
  QueueUrl: z.string(),
  Entries: z.array(
    z.object({
      Id: z.string(),
      MessageBody: z.string(),
      DelaySeconds: z.number().optional(),
      MessageGroupId: z.string().optional(),
    }),
  ),
});
const receiveSchema = z.object({
  QueueUrl: z.string(),
  MaxNumberOfMessages: z.number().default(1),
  VisibilityTimeout: z.number().default(30),
  WaitTimeSeconds: z.number().default(0),
});
const receiptsSchema = z.object({
  QueueUrl: z.string(),
  Entries: z.array(z.object({ Id: z.string(), ReceiptHandle: z.string(), VisibilityTimeout: z.number().optional() })),
});
const attributesSchema = z.object({ QueueUrl: z.string(), AttributeNames: z.array(z.string()).default([]) });
const nameSchema = z.object({ QueueName: z.string() });

export async function startSqsServer(signer?: Signer): Promise<SqsServer> {
  const queues = new Map<string, Queue>(
    ["short", "long"].flatMap((name): [string, Queue][] => [
      [name, { name, messages: [], deadLetters: `${name}-dead` }],
      [`${name}-dead`, { name: `${name}-dead`, messages: [] }],
    ]),
  );
  const groups: (string | undefined)[] = [];
  const refusals: { readonly Code: string; readonly SenderFault: boolean }[] = [];
  const waiting = new Set<() => void>();
  let ahead = 0;
  let deleted = 0;
  const now = (): number => Date.now() + ahead;
  const wake = (): void => waiting.forEach((each) => each());

  const find = (url: string): Queue => {
    const queue = queues.get(url.split("/").at(-1) ?? "");
    if (queue === undefined) throw new AwsFailure("com.amazonaws.sqs#QueueDoesNotExist", "No such queue.");
    return queue;
  };
  const add = (queue: Queue, body: string, delaySeconds = 0, group?: string): string => {
    const id = randomUUID();
    queue.messages.push({ id, body, group, visibleAt: now() + delaySeconds * 1_000, receives: 0, receipt: "" });
    return id;
  };
  const take = (queue: Queue, most: number, visibilitySeconds: number): Message[] => {
    const taken: Message[] = [];
    for (const message of queue.messages) {
      if (taken.length === most) break;
      if (message.visibleAt > now()) continue;
      if (queue.deadLetters !== undefined && message.receives >= maxReceives) {
        queue.messages = queue.messages.filter((each) => each !== message);
        const dead = queues.get(queue.deadLetters);
        if (dead !== undefined) add(dead, message.body, 0, message.group);
        continue;
      }
      message.receives += 1;
      message.visibleAt = now() + visibilitySeconds * 1_000;
      message.receipt = `${queue.name}:${message.id}:${randomUUID()}`;
      taken.push(message);
    }
    return taken;
  };
  const drop = (queue: Queue, message: Message): void => {
    queue.messages = queue.messages.filter((each) => each !== message);
    deleted += 1;
  };
  const checkBatch = (ids: readonly string[]): void => {
    if (ids.length === 0) throw new AwsFailure("EmptyBatchRequest", "The batch is empty.");
    if (ids.length > 10) throw new AwsFailure("TooManyEntriesInBatchRequest", "More than ten entries.");
    if (new Set(ids).size < ids.length) throw new AwsFailure("BatchEntryIdsNotDistinct", "Ids repeat.");
  };
  const eachReceipt = (input: unknown, use: (queue: Queue, message: Message, seconds: number) => void): object => {
    const { QueueUrl, Entries } = receiptsSchema.parse(input);
    checkBatch(Entries.map(({ Id }) => Id));
    const queue = find(QueueUrl);
    const Successful: object[] = [];
    const Failed: object[] = [];
    for (const { Id, ReceiptHandle, VisibilityTimeout = 0 } of Entries) {
      const refusal = refusals.shift();
      const message = queue.messages.find(({ receipt }) => receipt === ReceiptHandle);
      if (refusal !== undefined) Failed.push({ Id, ...refusal });
      else if (!ReceiptHandle.startsWith(`${queue.name}:`)) {
        Failed.push({ Id, Code: "ReceiptHandleIsInvalid", SenderFault: true });
      } else {
        if (message !== undefined) use(queue, message, VisibilityTimeout);
        Successful.push({ Id });
      }
    }
    return { Successful, Failed };
  };

  const server = await startAwsServer(
    jsonService("sqs", {
      GetQueueUrl: (input) => ({
        QueueUrl: `${server.url}/${account}/${find(nameSchema.parse(input).QueueName).name}`,
      }),
      GetQueueAttributes(input) {
        const { QueueUrl, AttributeNames } = attributesSchema.parse(input);
        const { name, deadLetters } = find(QueueUrl);
        const arn = (of: string): string => `arn:aws:sqs:eu-west-1:${account}:${of}`;
        const all = {
          QueueArn: arn(name),
          ...(deadLetters === undefined
            ? {}
            : {
                RedrivePolicy: JSON.stringify({ deadLetterTargetArn: arn(deadLetters), maxReceiveCount: maxReceives }),
              }),
        };
        return { Attributes: Object.fromEntries(Object.entries(all).filter(([key]) => AttributeNames.includes(key))) };
      },
      SendMessageBatch(input) {
        const { QueueUrl, Entries } = sendSchema.parse(input);
        const queue = find(QueueUrl);
        checkBatch(Entries.map(({ Id }) => Id));
        const bytes = Entries.reduce((sum, { MessageBody }) => sum + Buffer.byteLength(MessageBody), 0);
        if (bytes > mostBatchBytes) throw new AwsFailure("BatchRequestTooLong", "More than 1 MiB.");
        const Successful: object[] = [];
        const Failed: object[] = [];
        for (const { Id, MessageBody, DelaySeconds = 0, MessageGroupId } of Entries) {
          const refusal = refusals.shift();
          if (refusal !== undefined) Failed.push({ Id, ...refusal });
          else if (DelaySeconds < 0 || DelaySeconds > 900 || !Number.isInteger(DelaySeconds)) {
            Failed.push({ Id, Code: "InvalidParameterValue", SenderFault: true });
          } else if (MessageGroupId !== undefined && !/^[!-~]{1,128}$/.test(MessageGroupId)) {
            Failed.push({ Id, Code: "InvalidParameterValue", SenderFault: true });
          } else {
            groups.push(MessageGroupId);
            const MessageId = add(queue, MessageBody, DelaySeconds, MessageGroupId);
            Successful.push({ Id, MessageId, MD5OfMessageBody: md5(MessageBody) });
          }
        }
        wake();
        return { Successful, Failed };
      },
      async ReceiveMessage(input) {
        const { QueueUrl, MaxNumberOfMessages: most, VisibilityTimeout, WaitTimeSeconds } = receiveSchema.parse(input);
        if (most < 1 || most > 10 || VisibilityTimeout > 43_200 || WaitTimeSeconds > 20) {
          throw new AwsFailure("InvalidParameterValue", "Out of range.");
        }
        const queue = find(QueueUrl);
        const until = Date.now() + WaitTimeSeconds * 1_000;
        let taken = take(queue, most, VisibilityTimeout);
        while (taken.length === 0 && Date.now() < until) {
          await new Promise<void>((resolve) => {
            const go = (): void => {
              clearTimeout(timer);
              waiting.delete(go);
              resolve();
            };
            const timer = setTimeout(go, Math.min(100, until - Date.now()));
            waiting.add(go);
          });
          taken = take(queue, most, VisibilityTimeout);
        }
        return {
          Messages: taken.map(({ id, body, group, receives, receipt }) => ({
            MessageId: id,
            Body: body,
            MD5OfBody: md5(body),
            ReceiptHandle: receipt,
            Attributes: { ApproximateReceiveCount: String(receives), ...(group && { MessageGroupId: group }) },
          })),
        };
      },
      DeleteMessageBatch: (input) => eachReceipt(input, drop),
      ChangeMessageVisibilityBatch: (input) =>
        eachReceipt(input, (_queue, message, seconds) => {
          message.visibleAt = now() + seconds * 1_000;
        }),
    }),
    signer,
  );
  return Object.assign(server, {
    urls: { short: `${server.url}/${account}/short`, long: `${server.url}/${account}/long` },
    groups,
    refusals,
    pass(ms: number) {
      ahead += ms;
      wake();
    },
    plant: (queue: string, body: string) => void add(find(queue), body),
    bodies: (queue: string) => find(queue).messages.map(({ body }) => body),
    receive: (queue: QueueName, { limit, visibilityMs }: { readonly limit: number; readonly visibilityMs: number }) =>
      take(find(queue), limit, visibilityMs / 1_000).map((message) => ({ ...message })),
    delete(name: QueueName, receipts: readonly string[]) {
      const queue = find(name);
      for (const message of queue.messages) if (receipts.includes(message.receipt)) drop(queue, message);
    },
    purge: () => queues.forEach((queue) => (queue.messages = [])),
    deleted: () => deleted,
  });
}

function md5(text: string): string {
  return createHash("md5").update(text).digest("hex");
}
