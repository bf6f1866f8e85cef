/** Lambda: what has to happen from time to time, started every minute by EventBridge Scheduler. */
import { tick } from "@toolyard/core/calls/tick";
import { composeFunction } from "./compose-function.ts";

const { app } = await composeFunction();

/** @public The runtime calls it by name. */
export const handler = async (): Promise<{ readonly resent: number }> => tick(app.core);
