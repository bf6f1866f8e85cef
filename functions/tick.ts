/** Lambda: what has to happen from time to time, started every minute by EventBridge Scheduler. */
import { tick } from "@toolyard/core/calls/tick";
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import { composeFunction } from "./compose-function.ts";
import type { LambdaContext } from "./http/lambda.ts";

const { app, finish } = await composeFunction("all");

/** @public The runtime calls it by name. */
export const handler = async (_event: unknown, context: LambdaContext): Promise<{ readonly resent: number }> => {
  try {
    const remainingMs = (): number => context.getRemainingTimeInMillis();
    const [ticked] = await Promise.all([tick(app.core), deliverWebhooks(app.core, remainingMs)]);
    return ticked;
  } finally {
    await finish();
  }
};
