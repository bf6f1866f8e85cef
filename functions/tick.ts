/** Lambda: what has to happen from time to time, started every minute by EventBridge Scheduler. */
import { tick } from "@toolyard/core/tick";
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import { composeFunction } from "./compose-function.ts";
import type { LambdaContext } from "./lambda-runtime.ts";

const { app, finish } = await composeFunction("all");

/** @public The runtime calls it by name. */
export const handler = async (_event: unknown, context: LambdaContext): Promise<{ readonly resent: number }> => {
  try {
    const remainingMs = (): number => context.getRemainingTimeInMillis();
    const parts = [tick(app.core), deliverWebhooks(app.core, remainingMs)] as const;
    // What is under way when this returns stands still with the environment, so neither fails over the other's head.
    await Promise.allSettled(parts);
    return (await Promise.all(parts))[0];
  } finally {
    await finish();
  }
};
