/** Reads documents in threads: one that is caught in a loop, or wants all the memory there is, is ended. */
import { Worker } from "node:worker_threads";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { DocumentFormat, DocumentReader, ReadOptions } from "@toolyard/core/ports/document-reader";
import type { ReadAnswer, ReadOrder } from "./order.ts";
import { programUrl } from "./program-url.ts";

/** Megabytes of a thread's objects; what it is given lies outside. */
const mostMemory = 512;
const quoted = 200;

export function createDocumentReader(): DocumentReader {
  return {
    async read(format, bytes, options) {
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
        const answer = await answerOf(worker, format, options);
        if (answer.kind === "text") return answer.text;
        const reason = answer.reason.slice(0, quoted).replaceAll(/\s+/g, " ");
        if (answer.kind === "too-large") {
          throw new GatewayError("document_too_large", `The document ${reason}.`);
        }
        throw unreadable(format, reason);
      } finally {
        await worker.terminate();
      }
    },
  };
}

function answerOf(worker: Worker, format: DocumentFormat, { timeoutMs, signal }: ReadOptions): Promise<ReadAnswer> {
  return new Promise((resolve, reject) => {
    const cancel = (): void => end(() => reject(new GatewayError("call_cancelled", "The reading was called off.")));
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", cancel);
      settle();
    };
    const timer = setTimeout(() => {
      end(() => reject(unreadable(format, `it was not read within ${timeoutMs} ms`)));
    }, timeoutMs);
    if (signal.aborted) return cancel();
    signal.addEventListener("abort", cancel, { once: true });
    worker.once("message", (answer: ReadAnswer) => end(() => resolve(answer)));
    worker.once("error", (cause: NodeJS.ErrnoException) => {
      const isFull = cause.code === "ERR_WORKER_OUT_OF_MEMORY";
      const reason = isFull ? `it takes more than ${mostMemory} MB of memory to read` : "reading it failed";
      end(() => reject(unreadable(format, reason, cause)));
    });
    worker.once("exit", () => end(() => reject(unreadable(format, "its reader stopped"))));
  });
}

function unreadable(format: DocumentFormat, reason: string, cause?: unknown): GatewayError {
  return new GatewayError("document_unreadable", `The document cannot be read as ${format.toUpperCase()}: ${reason}.`, {
    cause,
  });
}
