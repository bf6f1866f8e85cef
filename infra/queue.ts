/**
 * The two queues of asynchronous calls. Messages carry ids only, so SQS's own encryption does; the
 * sender sets `MessageGroupId` to the tenant, which on a standard queue shares it fairly.
 */
import { maxReceives, seconds, visibilitySeconds } from "./limits.ts";
import type { Permission } from "./permission.ts";

/** Long enough to look at a fault and to send its messages back after the fix. */
const deadLetterDays = 14;
const daySeconds = 86_400;

export interface QueuePair {
  readonly queue: sst.aws.Queue;
  readonly deadLetters: sst.aws.Queue;
}

function createQueue(name: string, args: sst.aws.QueueArgs, retentionDays: number): sst.aws.Queue {
  const queue = new sst.aws.Queue(name, {
    ...args,
    transform: { queue: { sqsManagedSseEnabled: true, messageRetentionSeconds: retentionDays * daySeconds } },
  });
  new aws.sqs.QueuePolicy(`${name}TlsOnly`, {
    queueUrl: queue.url,
    policy: aws.iam.getPolicyDocumentOutput({
      statements: [
        {
          effect: "Deny",
          principals: [{ type: "*", identifiers: ["*"] }],
          actions: ["sqs:*"],
          resources: [queue.arn],
          conditions: [{ test: "Bool", variable: "aws:SecureTransport", values: ["false"] }],
        },
      ],
    }).json,
  });
  return queue;
}

export function createDeadLetters(name: string): sst.aws.Queue {
  return createQueue(name, {}, deadLetterDays);
}

function createPair(name: string, workerSeconds: number): QueuePair {
  const deadLetters = createDeadLetters(`${name}DeadLetters`);
  const queue = createQueue(
    name,
    {
      visibilityTimeout: `${visibilitySeconds(workerSeconds)} seconds`,
      dlq: { queue: deadLetters.arn, retry: maxReceives },
    },
    4,
  );
  return { queue, deadLetters };
}

export const short: QueuePair = createPair("CallsShort", seconds.workerShort);
export const long: QueuePair = createPair("CallsLong", seconds.workerLong);

export const sendCalls: Permission = {
  // The second for readiness, which asks whether the queues are there.
  actions: ["sqs:SendMessage", "sqs:GetQueueAttributes"],
  resources: [short.queue.arn, long.queue.arn],
};

/** What Lambda does with a queue in the name of its function. */
export function receiveFrom({ queue }: QueuePair): Permission {
  return {
    actions: ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"],
    resources: [queue.arn],
  };
}
