/** Lambda: queued calls from SQS, with partial batch failure (`ReportBatchItemFailures`). */
import { handleMessage } from "@toolyard/core/calls/worker";
import { composeFunction } from "./compose-function.ts";
import { createQueueHandler } from "./queue-handler.ts";

/** Kept back, so that what a call has come to can be recorded and told. */
const lastMs = 15_000;

const { app, log, finish } = await composeFunction("all");
const { core } = app;

/** @public The runtime calls it by name. */
export const handler = createQueueHandler(
  (message, remainingMs) => handleMessage(core, message, { endsAt: core.clock.now() + remainingMs - lastMs }),
  log,
  finish,
);
