/** The three ways an answer leaves the process; sink.ts puts one face on them. */
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";
import type { LambdaStream } from "./lambda-stream.ts";

export interface TransportEvents {
  /** There is room again. */
  readonly drain: () => void;
  /** The other side has left before the end. */
  readonly gone: () => void;
  /** The process must end: what can be said is to be said now. */
  readonly stopping: () => void;
}

/** What the server form emits on the answers that are under way when it can wait no longer. */
export const stoppingEvent = "toolyard:stopping";

export interface Transport {
  /** Called once, before anything else. */
  listen(events: TransportEvents): void;
  /** @param flush send the head without waiting for a body */
  open(status: number, headers: Readonly<Record<string, string>>, flush: boolean): void;
  /** False: full, wait for `drain`. */
  write(chunk: string | Uint8Array): boolean;
  end(last?: string | Uint8Array): void;
  /** Ends an answer that lacks its end, in such a way that the other side sees that. */
  cutOff(): void;
  destroy(): void;
}

export function nodeTransport(outgoing: ServerResponse): Transport {
  let isChunked = false;
  let isBegun = false;
  return {
    listen({ drain, gone, stopping }) {
      outgoing.on("drain", drain).on(stoppingEvent, stopping);
      outgoing.on("close", () => {
        if (!outgoing.writableFinished) gone();
      });
      // A socket that breaks while we write is reported by `close`.
      outgoing.on("error", () => undefined);
      if (outgoing.destroyed) gone();
    },
    open(status, headers, flush) {
      outgoing.writeHead(status, headers);
      // Node writes a chunk as three pieces; in one piece it costs the system half as much.
      isChunked = outgoing.chunkedEncoding;
      outgoing.chunkedEncoding = false;
      if (!flush) return;
      // Where the first chunk follows at once, the head goes out with it.
      process.nextTick(() => {
        if (!isBegun) outgoing.flushHeaders();
      });
    },
    write(chunk) {
      if (chunk.length === 0) return true;
      isBegun = true;
      return outgoing.write(isChunked ? toHttpChunk(chunk) : chunk);
    },
    end(last = "") {
      isBegun = true;
      if (!isChunked) {
        outgoing.end(last);
        return;
      }
      if (last.length > 0) outgoing.write(toHttpChunk(last));
      outgoing.end(lastHttpChunk);
    },
    cutOff() {
      isBegun = true;
      // Without a last chunk, or with fewer bytes than its length; what has been written still arrives.
      if (outgoing.socket === null) outgoing.destroy();
      else outgoing.socket.destroySoon();
    },
    destroy: () => void outgoing.destroy(),
  };
}

const lastHttpChunk = "0\r\n\r\n";

/** RFC 9112, 7.1. */
function toHttpChunk(chunk: string | Uint8Array): string | Uint8Array {
  if (typeof chunk === "string") return `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`;
  const size = `${chunk.length.toString(16)}\r\n`;
  const framed = Buffer.allocUnsafe(size.length + chunk.length + 2);
  framed.write(size, "latin1");
  framed.set(chunk, size.length);
  framed.write("\r\n", size.length + chunk.length, "latin1");
  return framed;
}

export function lambdaTransport(stream: LambdaStream): Transport {
  let events: TransportEvents | undefined;
  let body: Writable | undefined;
  let written = false;
  return {
    listen(given) {
      events = given;
    },
    open(status, headers) {
      body = stream.open({ statusCode: status, headers });
      body.on("drain", () => events?.drain());
      body.on("close", () => events?.gone());
      body.on("error", () => events?.gone());
    },
    write(chunk) {
      written = true;
      return body?.write(chunk) ?? true;
    },
    end(last = "") {
      // The runtime sends the head with the first write, so there must be one.
      if (!written || last.length > 0) body?.write(last);
      body?.end();
    },
    cutOff: () => stream.cutOff(),
    destroy: () => void body?.destroy(),
  };
}

/** Bytes that may wait for a reader before `write` asks to pause. */
const webBufferBytes = 65_536;
const bodilessStatuses: readonly number[] = [101, 204, 205, 304];

export function webTransport(answer: (response: Response) => void, signal: AbortSignal): Transport {
  let events: TransportEvents | undefined;
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const encoder = new TextEncoder();
  return {
    listen(given) {
      events = given;
      if (signal.aborted) given.gone();
      else signal.addEventListener("abort", () => given.gone(), { once: true });
    },
    open(status, headers) {
      const body = new ReadableStream<Uint8Array>(
        {
          start(started) {
            controller = started;
          },
          pull: () => events?.drain(),
          cancel() {
            controller = undefined;
            events?.gone();
          },
        },
        new ByteLengthQueuingStrategy({ highWaterMark: webBufferBytes }),
      );
      answer(new Response(bodilessStatuses.includes(status) ? null : body, { status, headers }));
    },
    write(chunk) {
      controller?.enqueue(typeof chunk === "string" ? encoder.encode(chunk) : chunk);
      return (controller?.desiredSize ?? 1) > 0;
    },
    end(last = "") {
      if (last.length > 0) this.write(last);
      controller?.close();
      controller = undefined;
    },
    cutOff() {
      controller?.error(new Error("the answer was cut off"));
      controller = undefined;
    },
    destroy() {
      controller?.error(new Error("the reader takes nothing"));
      controller = undefined;
      events?.gone();
    },
  };
}
