/** Queued calls: one function for each queue, of the same code, since time and batches differ. */
import { gateway } from "./environment.ts";
import { createFunction } from "./function.ts";
import { pushFrames } from "./gateways.ts";
import { wrapTenantKeys } from "./keys.ts";
import { maxConcurrency, seconds } from "./limits.ts";
import { migrated } from "./migration.ts";
import { runCode } from "./code-box.ts";
import { runPlugins } from "./plugin-box.ts";
import { long, receiveFrom, sendCalls, short, type QueuePair } from "./queue.ts";
import { useBlobs } from "./storage.ts";

interface WorkerSpec {
  readonly pair: QueuePair;
  readonly description: string;
  readonly seconds: number;
  readonly batchSize: number;
  readonly maximumConcurrency: number;
}

function createWorker(name: string, spec: WorkerSpec): sst.aws.Function {
  const worker = createFunction(name, {
    bundle: "worker",
    description: spec.description,
    seconds: spec.seconds,
    memoryMb: 1024,
    variables: gateway,
    may: [...useBlobs, ...wrapTenantKeys, sendCalls, pushFrames, runPlugins, runCode, receiveFrom(spec.pair)],
    after: [migrated],
  });
  spec.pair.queue.subscribe(worker.arn, {
    // Only messages that failed come again.
    batch: { size: spec.batchSize, partialResponses: true },
    transform: {
      eventSourceMapping: { scalingConfig: { maximumConcurrency: spec.maximumConcurrency } },
    },
  });
  return worker;
}

export const workerShort = createWorker("WorkerShort", {
  pair: short,
  description: "Queued calls that are expected to take up to a minute",
  seconds: seconds.workerShort,
  batchSize: 10,
  maximumConcurrency: maxConcurrency.short,
});

export const workerLong = createWorker("WorkerLong", {
  pair: long,
  description: "Queued calls of up to 14 minutes",
  seconds: seconds.workerLong,
  // A batch ends with its slowest call; alone, none waits for another.
  batchSize: 1,
  maximumConcurrency: maxConcurrency.long,
});
