/**
 * AMQP 0-9-1 over a socket that is open already, so that every connection comes from the guarded door. Frames
 * are the library's; here are bytes, and an end of the connection that reaches everybody who waits.
 */
import type { Socket } from "node:net";
// Part by part: as a whole it brings clients that dial by themselves.
import { AMQPBaseClient } from "@cloudamqp/amqp-client/amqp-base-client";
import { AMQPError } from "@cloudamqp/amqp-client/amqp-error";
import { AMQPView } from "@cloudamqp/amqp-client/amqp-view";

const protocolHeader = Uint8Array.from([65, 77, 81, 80, 0, 0, 9, 1]);
const frameBytes = 131_072;
/** The broker sends a sign of life twice in this time, and so the answer to it goes back. */
const heartbeatSeconds = 60;

export interface AmqpLogin {
  readonly virtualHost: string;
  readonly username: string;
  readonly password: string;
}

export class AmqpConnection extends AMQPBaseClient {
  readonly #socket: Socket;
  #rest: Buffer = Buffer.alloc(0);

  constructor(socket: Socket, { virtualHost, username, password }: AmqpLogin) {
    super(virtualHost, username, password, "toolyard", "Node.js", frameBytes, heartbeatSeconds);
    this.#socket = socket;
    this.closed = true;
    this.onerror = () => undefined;
  }

  /** @throws Error with what the broker said, or that it said nothing */
  override connect(): Promise<AMQPBaseClient> {
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      this.connectPromise = [resolve, reject];
      let reason = "it closed the connection";
      socket.on("error", (error) => {
        reason = error.message;
      });
      socket.once("close", () => this.#end(reason));
      socket.on("data", (bytes: Buffer) => this.#read(bytes));
      socket.setTimeout(heartbeatSeconds * 1_500, () => socket.destroy(new Error("it went silent")));
      socket.write(protocolHeader);
      if (socket.destroyed) this.#end(reason);
    });
  }

  /** Never rejects: the library leaves such a rejection to nobody. What is lost shows by the connection's end. */
  override send(bytes: Uint8Array): Promise<void> {
    if (!this.#socket.destroyed) this.#socket.write(bytes);
    return Promise.resolve();
  }

  get isOpen(): boolean {
    return !this.closed && !this.#socket.destroyed;
  }

  /** Ends it without a word. */
  abandon(): void {
    this.#socket.destroy();
  }

  protected override closeSocket(): void {
    this.closed = true;
    this.#socket.end();
    // A broker that does not hang up in turn is hung up on.
    setTimeout(() => this.#socket.destroy(), 1_000).unref();
  }

  #read(bytes: Buffer): void {
    let rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    try {
      while (rest.length >= 7) {
        const size = rest.readUInt32BE(3) + 8;
        if (size > frameBytes + 8) throw new Error(`a frame of ${size} bytes`);
        if (rest.length < size) break;
        this.parseFrames(new AMQPView(rest.buffer, rest.byteOffset, size));
        rest = rest.subarray(size);
      }
      this.#rest = rest;
    } catch (error) {
      this.#socket.destroy(new Error("it does not speak AMQP 0-9-1", { cause: error }));
    }
  }

  #end(reason: string): void {
    const error = new AMQPError(reason, this);
    this.closed = true;
    for (const channel of this.channels) channel?.setClosed(error);
    this.connectPromise?.[1](error);
    delete this.connectPromise;
    this.closePromise?.[0]();
    delete this.closePromise;
    this.ondisconnect?.(error);
  }
}
