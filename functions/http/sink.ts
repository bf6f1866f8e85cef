/**
 * Where a route writes an answer by itself: straight to Node's response on the server form, to the
 * response stream on Lambda, to a web `Response` elsewhere. Web streams cost several times the CPU of
 * a direct write, and end the process when a client leaves at the wrong moment. Event streams get a
 * comment every 15 s, so that no proxy gives them up (design "Public contract").
 */
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { hostOf, type AppContext, type Exchange } from "./app-env.ts";
import { lambdaTransport, nodeTransport, webTransport, type Transport } from "./transports.ts";

export interface ResponseSink {
  /** Status and headers, once and first. The headers of the exchange are added. */
  head(status: number, headers: Readonly<Record<string, string>>): void;
  /**
   * Begins an event stream that says nothing for a while: proxies wait a minute for an answer's first byte, and models
   * may think longer. From then on what goes wrong is said in the stream.
   */
  beginWhenQuiet(): void;
  /** A promise where the client is slower than we are: it resolves when there is room, or nobody is left. */
  write(chunk: string | Uint8Array): Promise<void> | undefined;
  /** Ends the answer; a later call does nothing. */
  end(chunk?: string | Uint8Array): void;
  /**
   * Runs once if the client goes away before the end; at once if it already has. Or if the process has to stop: then with
   * that as the reason, and whoever is asked still hears what is written within a moment.
   */
  onClose(callback: (why?: GatewayError) => void): void;
  /** True when writing has become pointless: the client has left or the answer has ended. */
  readonly closed: boolean;
  readonly headSent: boolean;
}

export interface SinkTiming {
  readonly keepAliveMs: number;
  /** Before an event stream is begun that has nothing to say yet. */
  readonly quietMs: number;
  /** A client that takes nothing for this long is cut off. */
  readonly stallMs: number;
}

const defaultTiming: SinkTiming = { keepAliveMs: 15_000, quietMs: 10_000, stallMs: 120_000 };

export const eventStreamHeaders: Readonly<Record<string, string>> = {
  // Without parameters: clients of the chat specification compare the whole value (CHAT-17).
  "content-type": "text/event-stream",
  "x-accel-buffering": "no",
};

/**
 * Stands for an answer that the route has written itself. Nobody looks into it, and a function that streams
 * must not make a `Response`: its first use costs as much of a cold start as that of `Request`.
 */
const writtenToHost = {} as Response;
let writtenToNode: Response | undefined;

/** The same for the Node server, which knows the header. */
function alreadySentOnNode(): Response {
  if (writtenToNode === undefined) {
    writtenToNode = new Response(null, { headers: { "x-hono-already-sent": "true" } });
    // The Node server's own light `Response` is written out without a look at its headers; asking for the
    // body turns it into an ordinary one, which is not.
    void writtenToNode.body;
  }
  return writtenToNode;
}

export function isAlreadySent(response: Response): boolean {
  return response === writtenToHost || response === writtenToNode;
}

/**
 * Gives the route a sink and waits until it is done (with a web `Response`: until the head is there).
 * An error before the head is thrown, to be answered as any other; one after it is logged and cuts the
 * answer off, since nothing else can be said and a client must not take it for a whole one.
 */
export function answerThroughSink(
  c: AppContext,
  write: (sink: ResponseSink) => Promise<void>,
  timing: SinkTiming = defaultTiming,
): Promise<Response> {
  const exchange = c.get("exchange");
  const { outgoing, lambda } = hostOf(c);
  const silent = c.req.raw.method === "HEAD";
  const runOn = (transport: Transport, sent: () => Response): Promise<Response> =>
    runSink(new Sink({ transport, exchange, timing, silent }), { write, exchange, sent });
  if (outgoing !== undefined) return runOn(nodeTransport(outgoing), alreadySentOnNode);
  if (lambda !== undefined) return runOn(lambdaTransport(lambda.stream), () => writtenToHost);
  return new Promise((resolve, reject) => {
    const nobodyLeft = (): void => resolve(new Response(null, { status: 499 }));
    runOn(webTransport(resolve, c.req.raw.signal), () => writtenToHost).then(nobodyLeft, reject);
  });
}

interface SinkRun {
  readonly write: (sink: ResponseSink) => Promise<void>;
  readonly exchange: Exchange;
  /** Stands for the answer. */
  readonly sent: () => Response;
}

async function runSink(sink: Sink, { write, exchange, sent }: SinkRun): Promise<Response> {
  try {
    await write(sink);
    if (!sink.headSent && !sink.closed) throw new Error("the route ended without an answer");
  } catch (error) {
    sink.stayQuiet();
    if (!sink.headSent && !sink.closed) throw error;
    const { log, requestId, route } = exchange;
    log.log("error", "an answer ended early", { request_id: requestId, route, code: toGatewayError(error).code });
    sink.cutOff();
  }
  sink.end();
  return sent();
}

interface SinkOptions {
  readonly transport: Transport;
  readonly exchange: Exchange;
  readonly timing: SinkTiming;
  /** The answer to HEAD has no body. */
  readonly silent: boolean;
}

const comment = ": keep-alive\n\n";

class Sink implements ResponseSink {
  readonly #transport: Transport;
  readonly #exchange: Exchange;
  readonly #timing: SinkTiming;
  readonly #silent: boolean;
  readonly #closeCallbacks: ((why?: GatewayError) => void)[] = [];
  #state: "new" | "open" | "ended" | "gone" = "new";
  #drained: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;
  #keepAlive: NodeJS.Timeout | undefined;
  #quiet: NodeJS.Timeout | undefined;
  #commentDue = false;
  /** Last four bytes written: a comment may only stand between events. */
  #tail = 0;
  #headSent = false;

  constructor({ transport, exchange, timing, silent }: SinkOptions) {
    this.#transport = transport;
    this.#exchange = exchange;
    this.#timing = timing;
    this.#silent = silent;
    transport.listen({ drain: () => this.#release(), gone: () => this.#leave(), stopping: () => this.#stop() });
  }

  get closed(): boolean {
    return this.#state === "ended" || this.#state === "gone";
  }

  get headSent(): boolean {
    return this.#headSent;
  }

  beginWhenQuiet(): void {
    if (this.#headSent || this.closed) return;
    this.#quiet = setTimeout(() => {
      this.head(200, eventStreamHeaders);
      if (!this.#silent) this.#writeComment();
    }, this.#timing.quietMs);
  }

  stayQuiet(): void {
    clearTimeout(this.#quiet);
  }

  head(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.#headSent || this.closed) return;
    this.stayQuiet();
    this.#headSent = true;
    this.#state = "open";
    this.#exchange.status = status;
    const isEventStream = headers["content-type"]?.startsWith("text/event-stream") === true;
    this.#transport.open(status, Object.assign(this.#exchange.headers, headers), isEventStream);
    if (isEventStream && !this.#silent) {
      this.#keepAlive = setInterval(() => {
        this.#commentDue = true;
        this.#writeComment();
      }, this.#timing.keepAliveMs);
    }
  }

  write(chunk: string | Uint8Array): Promise<void> | undefined {
    if (this.#state !== "open" || this.#silent || chunk.length === 0) return undefined;
    const hasRoom = this.#transport.write(chunk);
    if (this.#keepAlive !== undefined) {
      this.#tail = withLastBytes(this.#tail, chunk);
      if (this.#commentDue) this.#writeComment();
    }
    if (hasRoom || this.#state !== "open") return undefined;
    return this.#untilDrained();
  }

  end(chunk?: string | Uint8Array): void {
    if (this.#state !== "open") return;
    this.#state = "ended";
    clearInterval(this.#keepAlive);
    this.#transport.end(this.#silent ? undefined : chunk);
    this.#release();
  }

  /** Ends an answer that is not whole; after its end this does nothing. */
  cutOff(): void {
    if (this.#state !== "open") return;
    this.#state = "ended";
    clearInterval(this.#keepAlive);
    this.#transport.cutOff();
    this.#release();
  }

  onClose(callback: (why?: GatewayError) => void): void {
    if (this.#state === "gone") callback();
    else this.#closeCallbacks.push(callback);
  }

  #writeComment(): void {
    if (this.#drained !== undefined || !isBetweenEvents(this.#tail)) return;
    this.#commentDue = false;
    this.#transport.write(comment);
  }

  #untilDrained(): Promise<void> {
    if (this.#drained === undefined) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const stalled = setTimeout(() => this.#transport.destroy(), this.#timing.stallMs);
      this.#drained = {
        promise,
        resolve() {
          clearTimeout(stalled);
          resolve();
        },
      };
    }
    return this.#drained.promise;
  }

  #release(): void {
    this.#drained?.resolve();
    this.#drained = undefined;
  }

  #leave(): void {
    if (this.closed) return;
    this.#state = "gone";
    this.#exchange.status ??= 499;
    clearInterval(this.#keepAlive);
    this.stayQuiet();
    this.#release();
    for (const callback of this.#closeCallbacks.splice(0)) callback();
  }

  #stop(): void {
    if (this.closed) return;
    const why = new GatewayError("shutting_down", "The process that answered was told to stop before it was done.");
    for (const callback of this.#closeCallbacks.splice(0)) callback(why);
  }
}

/** This is done for every token, so without a text or a copy. Characters beyond ASCII only have to differ from line ends. */
function withLastBytes(tail: number, chunk: string | Uint8Array): number {
  let last = tail;
  for (let at = Math.max(0, chunk.length - 4); at < chunk.length; at += 1) {
    const byte = typeof chunk === "string" ? Math.min(chunk.charCodeAt(at), 0xff) : (chunk[at] ?? 0);
    last = (last << 8) | byte;
  }
  return last;
}

/** Nothing written yet, or the last event is closed by a blank line, in any line ending. */
function isBetweenEvents(tail: number): boolean {
  const two = tail & 0xffff;
  return tail === 0 || two === 0x0a0a || two === 0x0d0d || (tail & 0xffffff) === 0x0a0d0a;
}
