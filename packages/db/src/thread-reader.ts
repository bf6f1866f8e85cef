/**
 * Long reads of a file database in a thread of their own, one after the other: whoever needs the event loop meanwhile
 * has it. The thread is started by the first of them.
 */
import { Worker } from "node:worker_threads";
import type { Statement, StatementResult } from "./database.ts";
import type { ReaderAnswer, ReaderData, ReaderOrder } from "./reader-order.ts";
import { readerProgramUrl } from "./reader-program-url.ts";

interface Waiting {
  readonly resolve: (results: readonly StatementResult[]) => void;
  readonly reject: (error: unknown) => void;
}

export class ThreadReader {
  readonly #data: ReaderData;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #asked = 0;

  constructor(data: ReaderData) {
    this.#data = data;
  }

  /** @throws an error as SQLite's binding throws it; an ordinary one where the thread has ended */
  read(statements: readonly Statement[]): Promise<readonly StatementResult[]> {
    const worker = (this.#worker ??= this.#start());
    this.#asked += 1;
    const id = this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      worker.ref();
      worker.postMessage({ id, statements } satisfies ReaderOrder);
    });
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const worker = new Worker(readerProgramUrl, { workerData: this.#data, env: {} });
    // Nobody waits for it to end.
    worker.unref();
    worker.on("message", (answer: ReaderAnswer) => this.#settle(worker, answer));
    const end = (cause?: unknown): void => {
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      for (const { reject } of this.#waiting.values()) reject(new Error("the reading thread has ended", { cause }));
      this.#waiting.clear();
    };
    worker.once("error", end);
    worker.once("exit", () => end());
    return worker;
  }

  #settle(worker: Worker, answer: ReaderAnswer): void {
    const waiting = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if (this.#waiting.size === 0) worker.unref();
    if ("results" in answer) waiting?.resolve(answer.results);
    else
      waiting?.reject(
        Object.assign(new Error(answer.failure.message), { code: "ERR_SQLITE_ERROR", errcode: answer.failure.errcode }),
      );
  }
}
