/** Reads documents in threads: one that is caught in a loop, or wants all the memory there is, is ended. */
import { Worker } from "node:worker_threads";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { DocumentFormat, DocumentReader, ReadOptions } from "@toolyard/core/ports/document-reader";
import type { ReadAnswer, ReadOrder } from "./order.ts";
import { programUrl } from "./program-url.ts";

/** Megabytes of a thread's objects, and of its buffers, which V8 does not limit; what it is given comes on top. */
const mostMemory = 512;
const lookEveryMs = 100;
/** Threads of this process, whoever asked for them: each may take all the memory that one may. */
const mostAtOnce = 2;
const tooMuch = `it takes more than ${mostMemory} MB of memory to read`;
const quoted = 200;

export function createDocumentReader(): DocumentReader {
  return {
    async read(format, bytes, options) {
      await placeFor(options.signal);
      try {
        return await readInThread(format, bytes, options);
      } finally {
        leavePlace();
      }
    },
  };
}

let taken = 0;
const waiting = new Set<() => void>();

/** Comes back with a place that is left with `leavePlace`. Waiting is no part of the time that a reading may take. */
function placeFor(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(calledOff());
    if (taken < mostAtOnce) {
      taken += 1;
      return resolve();
    }
    const take = (): void => {
      signal.removeEventListener("abort", giveUp);
      resolve();
    };
    const giveUp = (): void => {
      waiting.delete(take);
      reject(calledOff());
    };
    signal.addEventListener("abort", giveUp, { once: true });
    waiting.add(take);
  });
}

function leavePlace(): void {
  const [next] = waiting;
  if (next === undefined) {
    taken -= 1;
    return;
  }
  waiting.delete(next);
  next();
}

async function readInThread(format: DocumentFormat, bytes: Uint8Array, options: ReadOptions): Promise<string> {
  const { maxCharacters, maxPages } = options;
  const order: ReadOrder = { format, bytes, maxCharacters, maxPages };
  const worker = new Worker(programUrl, {
    workerData: order,
    resourceLimits: { maxOldGenerationSizeMb: mostMemory, maxYoungGenerationSizeMb: 64 },
    // What programs of others print is nobody's business.
    stdout: true,
    stderr: true,
    env: {},
  });
  try {
    const answer = await answerOf(worker, order, options);
    if (answer.kind === "text") return answer.text;
    const reason = answer.reason.slice(0, quoted).replaceAll(/\s+/g, " ");
    if (answer.kind === "too-large") {
      throw new GatewayError("document_too_large", `The document ${reason}.`);
    }
    throw unreadable(format, reason);
  } finally {
    await worker.terminate();
  }
}

function answerOf(
  worker: Worker,
  { format, bytes }: ReadOrder,
  { timeoutMs, signal }: ReadOptions,
): Promise<ReadAnswer> {
  // The whole of the buffer goes over, whatever part of it the document is.
  const mostOutside = bytes.buffer.byteLength + mostMemory * 1_048_576;
  return new Promise((resolve, reject) => {
    const cancel = (): void => end(() => reject(calledOff()));
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      clearInterval(looks);
      signal.removeEventListener("abort", cancel);
      settle();
    };
    const timer = setTimeout(() => {
      end(() => reject(unreadable(format, `it was not read within ${timeoutMs} ms`)));
    }, timeoutMs);
    const look = (held: { readonly external_memory: number }): void => {
      if (held.external_memory > mostOutside) end(() => reject(unreadable(format, tooMuch)));
    };
    // What has ended holds nothing, and says by itself that it has.
    const looks = setInterval(() => void worker.getHeapStatistics().then(look, () => undefined), lookEveryMs);
    if (signal.aborted) return cancel();
    signal.addEventListener("abort", cancel, { once: true });
    worker.once("message", (answer: ReadAnswer) => end(() => resolve(answer)));
    worker.once("error", (cause: NodeJS.ErrnoException) => {
      const isFull = cause.code === "ERR_WORKER_OUT_OF_MEMORY";
      end(() => reject(unreadable(format, isFull ? tooMuch : "reading it failed", cause)));
    });
    worker.once("exit", () => end(() => reject(unreadable(format, "its reader stopped"))));
  });
}

function calledOff(): GatewayError {
  return new GatewayError("call_cancelled", "The reading was called off.");
}

function unreadable(format: DocumentFormat, reason: string, cause?: unknown): GatewayError {
  return new GatewayError(
    "document_unreadable",
    `The document cannot be read as ${format.toUpperCase()}: ${reason.replace(/\.$/, "")}.`,
    {
      cause,
    },
  );
}
