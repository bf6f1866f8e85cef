/**
 * Long reads of a file database in a thread of their own, one after the other: whoever needs the event loop meanwhile
 * has it. Owners take turns, so that who asks for much waits for itself. The thread is started by the first read.
 */
import { Worker } from "node:worker_threads";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { LongRead, Statement, StatementResult } from "./database.ts";
import type { ReaderAnswer, ReaderData, ReaderOrder } from "./reader-order.ts";
import { readerProgramUrl } from "./reader-program-url.ts";

/** Reads of one owner. A search of the largest base takes about a second, so who is last waits about a minute. */
const mostWaiting = 64;
const comeAgainMs = 1_000;

interface Waiting extends LongRead {
  readonly statements: readonly Statement[];
  readonly resolve: (results: readonly StatementResult[]) => void;
  readonly reject: (error: unknown) => void;
}

export class ThreadReader {
  readonly #data: ReaderData;
  /** Who waits, by owner; the owners in the order of their turns. */
  readonly #lines = new Map<string, readonly Waiting[]>();
  #underWay: Waiting | undefined;
  #worker: Worker | undefined;

  constructor(data: ReaderData) {
    this.#data = data;
  }

  /**
   * @throws an error as SQLite's binding throws it; an ordinary one where the thread has ended; GatewayError
   * `concurrency_limited` where as many of the owner's wait as may, `call_cancelled` where nobody waits any more
   */
  read(statements: readonly Statement[], { owner, signal }: LongRead): Promise<readonly StatementResult[]> {
    return new Promise((resolve, reject) => {
      const line = this.#wanted(owner);
      if (line.length >= mostWaiting) throw tooMany();
      this.#lines.set(owner, [...line, { owner, signal, statements, resolve, reject }]);
      this.#begin();
    });
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  /** The line of an owner, without those who have left. */
  #wanted(owner: string): readonly Waiting[] {
    const line = this.#lines.get(owner) ?? [];
    for (const { signal, reject } of line) if (signal?.aborted === true) reject(givenUp());
    return line.filter(({ signal }) => signal?.aborted !== true);
  }

  /** The first of the owner whose turn it is. */
  #begin(): void {
    if (this.#underWay !== undefined) return;
    for (const owner of this.#lines.keys()) {
      const [first, ...others] = this.#wanted(owner);
      if (others.length > 0) this.#lines.set(owner, others);
      else this.#lines.delete(owner);
      if (first === undefined) continue;
      const worker = (this.#worker ??= this.#start());
      this.#underWay = first;
      worker.ref();
      worker.postMessage({ statements: first.statements } satisfies ReaderOrder);
      return;
    }
  }

  /** Its turn is over. */
  #standBehind(owner: string): void {
    const line = this.#lines.get(owner);
    if (line === undefined) return;
    this.#lines.delete(owner);
    this.#lines.set(owner, line);
  }

  #start(): Worker {
    const worker = new Worker(readerProgramUrl, { workerData: this.#data, env: {} });
    // Nobody waits for it to end.
    worker.unref();
    worker.on("message", (answer: ReaderAnswer) => this.#settle(worker, answer));
    const end = (cause?: unknown): void => {
      if (this.#worker !== worker) return;
      const left = [this.#underWay, ...[...this.#lines.values()].flat()];
      this.#worker = undefined;
      this.#underWay = undefined;
      this.#lines.clear();
      for (const waiting of left) waiting?.reject(new Error("the reading thread has ended", { cause }));
    };
    worker.once("error", end);
    worker.once("exit", () => end());
    return worker;
  }

  #settle(worker: Worker, answer: ReaderAnswer): void {
    if (this.#worker !== worker) return;
    const waiting = this.#underWay;
    this.#underWay = undefined;
    if (waiting !== undefined) this.#standBehind(waiting.owner);
    this.#begin();
    if (this.#underWay === undefined) worker.unref();
    if ("results" in answer) waiting?.resolve(answer.results);
    else
      waiting?.reject(
        Object.assign(new Error(answer.failure.message), { code: "ERR_SQLITE_ERROR", errcode: answer.failure.errcode }),
      );
  }
}

function tooMany(): GatewayError {
  return new GatewayError(
    "concurrency_limited",
    `${mostWaiting} reads of this tenant that take long wait already, which is as many as may: searches in knowledge bases, lists of calls by state, kind or tool, sums of usage. Try again when some have been made, or ask for fewer at once.`,
    { retryAfterMs: comeAgainMs, extra: { limit: mostWaiting } },
  );
}

function givenUp(): GatewayError {
  return new GatewayError("call_cancelled", "The read was given up before it was made.");
}
