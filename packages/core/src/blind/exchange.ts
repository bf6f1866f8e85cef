/**
 * One request on one connection: takes the parser's callbacks and gives a head and a body that is
 * read at the consumer's pace. This is the path of every streamed token, so a piece of the body is
 * handed on as it came, without copies, web streams or timers of its own.
 */
import type { GatewayError } from "../errors/gateway-error.ts";
import type { Span } from "../ports/traces.ts";
import { withDelivery, type Delivery } from "../errors/delivery.ts";
import { toGivenUp, toSlowAnswer, toUnreachable, type Peer } from "./egress-errors.ts";

/** Bytes kept for a slow consumer before the socket is paused, and the mark at which it goes on. */
const pauseAbove = 65_536;
const resumeBelow = 16_384;

/** Rest of an unwanted body that is still read, so that the connection can be used again. */
const discardLimit = 16_384;

/** `setTimeout` takes no more. */
const longestTimer = 2_147_483_647;

/** What the transport offers to a handler. */
export interface ExchangeController {
  abort(reason: Error): void;
  pause(): void;
  resume(): void;
}

export type ReplyHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface ExchangeHead {
  readonly status: number;
  readonly headers: ReplyHeaders;
}

export interface ExchangeOptions {
  /** For messages. */
  readonly peer: Peer;
  /** `performance.now()` at which everything must have arrived. */
  readonly deadline: number;
  readonly timeoutMs: number;
  readonly idleTimeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onSent?: (() => void) | undefined;
  /** Of this request; ends with it. */
  readonly span?: Span | undefined;
}

interface Following {
  readonly take: (piece: Uint8Array) => boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

interface Waiting {
  readonly resolve: (result: IteratorResult<Uint8Array, undefined>) => void;
  readonly reject: (error: Error) => void;
}

/** The handler of one dispatch, and the iterator over the body it receives. */
export class Exchange implements AsyncIterableIterator<Uint8Array, undefined> {
  readonly head: Promise<ExchangeHead>;
  readonly #options: ExchangeOptions;
  #settle: { readonly resolve: (head: ExchangeHead) => void; readonly reject: (error: Error) => void } | undefined;
  #controller: ExchangeController | undefined;
  /** Bytes may have left for the back end. */
  #isSent = false;
  #isOver = false;
  #isPaused = false;
  #isUnwanted = false;
  #failure: GatewayError | undefined;
  #waiting: Waiting | undefined;
  #following: Following | undefined;
  #chunks: Uint8Array[] = [];
  #queued = 0;
  #lastPieceAt = 0;
  #timer: NodeJS.Timeout | undefined;
  /**
   * A function, and by way of a constant. Node wraps an object that listens in a function of its own, and
   * V8 puts a function written into a field among the old objects, with all that it holds.
   */
  #onAbort: (() => void) | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.head = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    const { signal } = options;
    if (signal?.aborted === true) {
      this.#giveUp();
      return;
    }
    if (signal !== undefined) {
      const onAbort = (): void => this.#giveUp();
      this.#onAbort = onAbort;
      signal.addEventListener("abort", onAbort, { once: true });
    }
    this.#arm(options.deadline - performance.now());
  }

  /** Ended before it was handed to the transport. */
  get isOver(): boolean {
    return this.#isOver;
  }

  // What the transport calls.

  onRequestStart(controller: ExchangeController): void {
    // Thrown before a byte is written: the request leaves the queue and the connection stays usable.
    if (this.#isOver) throw new Error("given up while waiting for a connection");
    // A second start would be the transport sending the same bytes twice, which a write must never be.
    if (this.#isSent) throw new Error("already sent");
    this.#controller = controller;
    this.#isSent = true;
    this.#options.onSent?.();
  }

  onResponseStart(_controller: ExchangeController, status: number, headers: ReplyHeaders): void {
    if (status < 200) return;
    const { idleTimeoutMs, deadline, span } = this.#options;
    if (span !== undefined) tellStatus(span, status);
    if (idleTimeoutMs !== undefined) {
      this.#lastPieceAt = performance.now();
      if (this.#lastPieceAt + idleTimeoutMs < deadline) this.#arm(idleTimeoutMs);
    }
    this.#settle?.resolve({ status, headers });
    this.#settle = undefined;
  }

  onResponseData(controller: ExchangeController, chunk: Uint8Array): void {
    if (this.#options.idleTimeoutMs !== undefined) this.#lastPieceAt = performance.now();
    const waiting = this.#waiting;
    if (waiting !== undefined) {
      this.#waiting = undefined;
      waiting.resolve({ done: false, value: chunk });
      return;
    }
    const following = this.#following;
    if (following !== undefined) {
      if (!following.take(chunk)) this.#unfollow()?.resolve();
      return;
    }
    this.#queued += chunk.byteLength;
    if (this.#isUnwanted) {
      if (this.#queued > discardLimit) this.#leave();
      return;
    }
    this.#chunks.push(chunk);
    if (this.#queued > pauseAbove && !this.#isPaused) {
      this.#isPaused = true;
      controller.pause();
    }
  }

  onResponseEnd(): void {
    this.#finish();
    this.#tellOver();
  }

  onResponseError(_controller: ExchangeController | null, error: Error): void {
    if (!this.#isOver) this.#fail(toUnreachable(error, { peer: this.#options.peer, isSent: this.#isSent }));
  }

  // What the consumer calls.

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const chunk = this.#shift();
    if (chunk !== undefined) return Promise.resolve({ done: false, value: chunk });
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  /** Instead of `next`, while nobody waits for that. */
  follow(take: (piece: Uint8Array) => boolean): Promise<void> {
    for (let chunk = this.#shift(); chunk !== undefined; chunk = this.#shift()) {
      if (!take(chunk)) return Promise.resolve();
    }
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#isOver) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#following = { take, resolve, reject };
    });
  }

  #shift(): Uint8Array | undefined {
    const chunk = this.#chunks.shift();
    if (chunk === undefined) return undefined;
    this.#queued -= chunk.byteLength;
    if (this.#isPaused && this.#queued < resumeBelow) {
      this.#isPaused = false;
      this.#lastPieceAt = performance.now();
      this.#controller?.resume();
    }
    return chunk;
  }

  #unfollow(): Following | undefined {
    const following = this.#following;
    this.#following = undefined;
    return following;
  }

  /** The consumer has enough: what is still to come is not read, and the connection is closed. */
  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#leave();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** The body is not wanted: a short rest is read, so that the connection can be used again. */
  discard(): void {
    this.#isUnwanted = true;
    if (this.#queued > discardLimit) this.#leave();
    this.#chunks = [];
    if (this.#isPaused) {
      this.#isPaused = false;
      this.#controller?.resume();
    }
  }

  // Ends.

  #giveUp(): void {
    if (this.#isOver) return;
    this.#chunks = [];
    this.#stop(toGivenUp(this.#options.signal?.reason));
  }

  // One function for all timers: a closure for each request would be garbage on the hottest path.
  static readonly #fire = (exchange: Exchange): void => exchange.#onTimer();

  #onTimer(): void {
    const { deadline, idleTimeoutMs, timeoutMs, peer } = this.#options;
    const now = performance.now();
    const hasHead = this.#settle === undefined;
    if (now >= deadline) {
      const missing = hasHead ? "finish its answer" : "answer";
      this.#stop(toSlowAnswer(peer, `did not ${missing} within ${timeoutMs} ms`));
      return;
    }
    let wait = deadline - now;
    if (hasHead && idleTimeoutMs !== undefined) {
      // While we hold the socket back the silence is ours.
      const silence = this.#isPaused ? 0 : now - this.#lastPieceAt;
      if (silence >= idleTimeoutMs) {
        this.#stop(toSlowAnswer(peer, `sent nothing for ${idleTimeoutMs} ms in the middle of its answer`));
        return;
      }
      wait = Math.min(wait, idleTimeoutMs - silence);
    }
    this.#arm(wait);
  }

  #arm(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(Exchange.#fire, Math.min(Math.max(Math.ceil(ms), 1), longestTimer), this);
  }

  /** Ends on our side: the connection is closed. */
  #stop(error: GatewayError): void {
    this.#fail(withDelivery(error, this.#delivery()));
    this.#controller?.abort(error);
  }

  #delivery(): Delivery {
    return this.#isSent ? "uncertain" : "not_sent";
  }

  #fail(error: GatewayError): void {
    this.#options.span?.fail(error.code);
    this.#finish();
    this.#failure = error;
    this.#settle?.reject(error);
    this.#settle = undefined;
    this.#waiting?.reject(error);
    this.#waiting = undefined;
    this.#unfollow()?.reject(error);
  }

  #leave(): void {
    this.#chunks = [];
    if (this.#isOver) return;
    this.#finish();
    this.#tellOver();
    this.#controller?.abort(new Error("the reader left"));
  }

  #tellOver(): void {
    this.#waiting?.resolve({ done: true, value: undefined });
    this.#waiting = undefined;
    this.#unfollow()?.resolve();
  }

  #finish(): void {
    this.#options.span?.end();
    this.#isOver = true;
    clearTimeout(this.#timer);
    if (this.#onAbort !== undefined) this.#options.signal?.removeEventListener("abort", this.#onAbort);
  }
}

function tellStatus(span: Span, status: number): void {
  span.set({ "http.response.status_code": status });
  if (status >= 400) span.fail(String(status));
}
