/** Lambda: queued calls from SQS, with partial batch failure (`ReportBatchItemFailures`). */
import { handleMessage } from "@toolyard/core/calls/worker";
import { composeFunction } from "./compose-function.ts";
import { createQueueHandler } from "./http/lambda.ts";

const { app, log, finish } = await composeFunction("all");

/** @public The runtime calls it by name. */
export const handler = createQueueHandler((message) => handleMessage(app.core, message), log, finish);
