/**
 * A socket for libraries that take a broker's bytes by themselves: what is written waits for the guarded door to open,
 * and what is read is looked at before they have it. It has the parts of a `net.Socket` that kafkajs and ioredis use.
 */
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { TooMuchSaid } from "./sockets.ts";

interface LateSocketOptions {
  readonly connecting: Promise<Socket>;
  readonly onConnect: () => void;
  /** Before bytes leave. */
  readonly onWrite: (bytes: Buffer) => void;
  /** Before bytes are given on. @throws Error where nobody should have them */
  readonly onRead: (bytes: Buffer) => void;
}

export class LateSocket extends Duplex {
  readonly #options: LateSocketOptions;
  #socket: Socket | undefined;

  constructor(options: LateSocketOptions) {
    super({ allowHalfOpen: false });
    this.#options = options;
  }

  override _construct(done: (error?: Error | null) => void): void {
    this.#options.connecting.then(
      (socket) => {
        this.#take(socket);
        done();
        this.#options.onConnect();
      },
      (error: unknown) => done(error instanceof Error ? error : new Error(String(error))),
    );
  }

  /** What a library throws about bytes that it has no use for ends the connection, not the process. */
  override emit(event: string | symbol, ...given: unknown[]): boolean {
    if (event === "error") {
      const isHeard = super.emit(event, ...given);
      // Whoever waits for a login hears of an end only.
      super.emit("end");
      return isHeard;
    }
    if (event !== "data") return super.emit(event, ...given);
    try {
      if (Buffer.isBuffer(given[0])) this.#options.onRead(given[0]);
      return super.emit(event, ...given);
    } catch (error) {
      // The library's own words are about the memory of this process.
      this.destroy(
        error instanceof TooMuchSaid ? error : new Error("what it answers is not its protocol", { cause: error }),
      );
      return true;
    }
  }

  override _read(): void {
    this.#socket?.resume();
  }

  override _write(bytes: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#options.onWrite(bytes);
    this.#socket?.write(bytes, done);
  }

  override _final(done: () => void): void {
    const socket = this.#socket;
    socket?.end();
    // A broker that does not hang up in turn is hung up on.
    setTimeout(() => socket?.destroy(), 1_000).unref();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#options.connecting.then(
      (socket) => socket.destroy(),
      () => undefined,
    );
    done(error);
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  ref(): this {
    this.#socket?.ref();
    return this;
  }

  unref(): this {
    this.#socket?.unref();
    return this;
  }

  #take(socket: Socket): void {
    this.#socket = socket;
    socket.on("data", (bytes: Buffer) => {
      if (!this.push(bytes)) socket.pause();
    });
    socket.on("error", (error) => this.destroy(error));
    // Whoever waits hears of it by the end of what is read.
    socket.once("close", () => this.push(null));
    if (socket.destroyed) this.push(null);
  }
}
