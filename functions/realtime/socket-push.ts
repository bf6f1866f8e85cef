/**
 * The `Push` of a server process: to the WebSockets that it holds. A client that reads more slowly than it
 * is told is cut off rather than buffered for, and comes back when it can.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Push } from "@toolyard/core/ports/push";
import { createMemoryPush } from "@toolyard/platform/memory/memory-push";
import { WebSocket } from "ws";

/** Bytes that may wait for a client: for a moment, and at all. */
const fewBytes = 1_048_576;
const mostBytes = 8_388_608;
/** A client may be behind for so long. */
const behindMs = 5_000;
/** Others wait for one that is behind for so long, and no longer. */
const momentMs = 250;
/** A closing handshake may take this long, since what waits for a slow client stays in memory until then. */
const closingMs = 5_000;

/** WebSocket close codes (RFC 6455, section 7.4.1, and IANA's registry). */
export const closeCodes = {
  goingAway: 1001,
  unsupportedData: 1003,
  policyViolation: 1008,
  tryAgainLater: 1013,
} as const;

export interface OpenedSocket {
  /** @throws Error where the socket takes no more */
  readonly write: (frame: string) => void;
  readonly forget: () => void;
}

export interface SocketPush extends Push {
  /** Resolves when no client is behind, or after a moment: who is slow for longer keeps nobody waiting. */
  caughtUp(): Promise<void>;
  /** @param hear takes frames for the connection instead of the socket */
  open(connectionId: string, socket: WebSocket, hear?: (frame: string) => void): OpenedSocket;
}

export function createSocketPush(): SocketPush {
  const memory = createMemoryPush();
  const behind = new Set<Reader>();
  let whenNone = Promise.withResolvers<void>();
  const note = (reader: Reader, isBehind: boolean): void => {
    if (isBehind) behind.add(reader);
    else if (behind.delete(reader) && behind.size === 0) {
      whenNone.resolve();
      whenNone = Promise.withResolvers();
    }
  };
  return {
    send: (connectionId, frame) => memory.send(connectionId, frame),
    open(connectionId, socket, hear) {
      const reader = new Reader(socket, note);
      const write = (frame: string): void => reader.write(frame);
      return { write, forget: memory.register(connectionId, hear ?? write) };
    },
    async caughtUp() {
      if (behind.size === 0) return;
      const moment = new AbortController();
      const { signal } = moment;
      await Promise.race([whenNone.promise, sleep(momentMs, undefined, { signal }).catch(() => undefined)]);
      moment.abort();
    },
  };
}

type NoteReader = (reader: Reader, isBehind: boolean) => void;

/** A client, as fast as it reads. */
class Reader {
  readonly #socket: WebSocket;
  readonly #note: NoteReader;
  /** Runs while the client is behind. */
  #patience: NodeJS.Timeout | undefined;

  constructor(socket: WebSocket, note: NoteReader) {
    this.#socket = socket;
    this.#note = note;
    socket.once("close", () => this.#endWaiting());
  }

  /** @throws Error where the socket takes no more */
  write(frame: string): void {
    const socket = this.#socket;
    if (socket.readyState !== WebSocket.OPEN) throw new Error("the socket is closed");
    if (socket.bufferedAmount > mostBytes) {
      this.#cutOff();
      throw new Error("the client is too slow");
    }
    socket.send(frame, () => {
      if (socket.bufferedAmount <= fewBytes) this.#endWaiting();
    });
    if (socket.bufferedAmount <= fewBytes) return;
    this.#note(this, true);
    this.#patience ??= setTimeout(() => this.#cutOff(), behindMs).unref();
  }

  #endWaiting(): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
    this.#note(this, false);
  }

  #cutOff(): void {
    this.#endWaiting();
    closeSocket(this.#socket, closeCodes.tryAgainLater, "read faster, or subscribe to less");
  }
}

/** Says why, and does not wait for long until the other side has heard it. */
export function closeSocket(socket: WebSocket, code: number, reason: string): void {
  if (socket.readyState !== WebSocket.OPEN) return;
  socket.close(code, reason);
  // Its answer is to be read, however slowly it was read before.
  socket.resume();
  const timer = setTimeout(() => socket.terminate(), closingMs).unref();
  socket.once("close", () => clearTimeout(timer));
}
