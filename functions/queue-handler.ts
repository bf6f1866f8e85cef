/** Messages of SQS as a Lambda function takes them, a batch at a time (design "AWS"). */
import type { Log } from "@toolyard/core/ports/log";
import type { QueueMessage } from "@toolyard/core/ports/task-queue";
import * as z from "zod";
import { describeThrown } from "./describe-thrown.ts";
import { nothingAfter, type LambdaContext } from "./lambda-runtime.ts";

const queueEventSchema = z.looseObject({
  Records: z.array(z.looseObject({ messageId: z.string(), body: z.string() })),
});
const queueMessageSchema = z.looseObject({ tenant: z.string(), callId: z.string() });

interface QueueResult {
  readonly batchItemFailures: readonly { readonly itemIdentifier: string }[];
}

/**
 * Handles the messages of one SQS batch side by side. Only those that failed are named, and come again;
 * one that is no message of ours fails too, so that it ends in the dead-letter queue and is seen.
 */
export function createQueueHandler(
  handle: (message: QueueMessage, remainingMs: number) => Promise<void>,
  log: Log,
  after = nothingAfter,
): (event: unknown, context?: LambdaContext) => Promise<QueueResult> {
  return async (event, context) => {
    const { Records: records } = queueEventSchema.parse(event);
    const failures = await Promise.all(
      records.map(async ({ messageId, body }) => {
        try {
          const { tenant, callId } = queueMessageSchema.parse(JSON.parse(body));
          await handle({ tenant, callId }, context?.getRemainingTimeInMillis() ?? Number.POSITIVE_INFINITY);
          return [];
        } catch (thrown) {
          log.log("error", "a queue message failed", { message_id: messageId, ...describeThrown(thrown) });
          return [{ itemIdentifier: messageId }];
        }
      }),
    );
    await after();
    return { batchItemFailures: failures.flat() };
  };
}
