/**
 * AMQP 0-9-1 over a socket that is open already, so that every connection comes from the guarded door. What frames
 * mean is the library's; here are bytes, how many of them a broker may send, and an end of the connection that reaches
 * everybody who waits.
 */
import type { Socket } from "node:net";
// Part by part: as a whole it brings clients that dial by themselves.
import { AMQPBaseClient } from "@cloudamqp/amqp-client/amqp-base-client";
import { AMQPError } from "@cloudamqp/amqp-client/amqp-error";
import { AMQPMessage } from "@cloudamqp/amqp-client/amqp-message";
import { AMQPView } from "@cloudamqp/amqp-client/amqp-view";
import { TooMuchSaid } from "./sockets.ts";

const protocolHeader = Uint8Array.from([65, 77, 81, 80, 0, 0, 9, 1]);
const frameBytes = 131_072;
/** Around what a frame carries: type, channel, length, and end. */
const frameOverhead = 8;
/** The largest that RabbitMQ can be set up to take (`max_message_size`); whoever says more is none. */
const largestAnnounced = 536_870_912;
const header = 2;
const bodyPart = 3;
/** Where in a frame of that type the length of the body stands, and what properties follow. */
const bodyLengthAt = 11;
const propertiesAt = 19;
/** The broker sends a sign of life twice in this time, and so the answer to it goes back. */
const heartbeatSeconds = 60;

export interface AmqpLogin {
  readonly virtualHost: string;
  readonly username: string;
  readonly password: string;
}

export class AmqpConnection extends AMQPBaseClient {
  /** Longer bodies are left where they come in. Whoever publishes has no use for any: only returned ones come. */
  largestBody = 0;
  /** How often something has begun to leave. */
  sent = 0;
  readonly #socket: Socket;
  #rest: Buffer = Buffer.alloc(0);
  /** By channel: the message that comes in there. */
  readonly #bodies = new Map<number, IncomingBody>();
  readonly #unreadable = new WeakMap<AMQPMessage, string>();

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
    if (!this.#socket.destroyed) {
      this.sent += 1;
      this.#socket.write(bytes);
    }
    return Promise.resolve();
  }

  get isOpen(): boolean {
    return !this.closed && !this.#socket.destroyed;
  }

  /** Why a message is not as it was sent; undefined: it is. */
  unreadable(message: AMQPMessage): string | undefined {
    return this.#unreadable.get(message);
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
        const size = rest.readUInt32BE(3) + frameOverhead;
        const agreed = this.frameMax === 0 ? frameBytes : this.frameMax;
        // Some count a frame without what is around it.
        if (size > agreed + frameOverhead)
          throw new TooMuchSaid(`it sends a frame of ${size} bytes, and ${agreed} are agreed`);
        if (rest.length < size) break;
        this.#take(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
      this.#rest = rest;
    } catch (error) {
      this.#rest = Buffer.alloc(0);
      this.#socket.destroy(
        error instanceof TooMuchSaid ? error : new Error("it does not speak AMQP 0-9-1", { cause: error }),
      );
    }
  }

  #take(frame: Buffer): void {
    const type = frame[0];
    const channel = frame.readUInt16BE(1);
    if (type === header) this.#begin(frame, channel);
    else if (type !== bodyPart || this.#goOn(frame, channel)) this.parseFrames(new OneFrame(frame));
  }

  /** The library takes memory for the whole body as soon as it hears how long it will be. */
  #begin(frame: Buffer, channel: number): void {
    const length = Number(frame.readBigUInt64BE(bodyLengthAt));
    if (length > largestAnnounced)
      throw new TooMuchSaid(`it sends a message of ${length} bytes, and no broker takes more than ${largestAnnounced}`);
    const isKept = length <= this.largestBody;
    const message = this.#awaited(channel);
    this.#bodies.set(channel, { left: length, isKept });
    if (!isKept) {
      frame.writeBigUInt64BE(0n, bodyLengthAt);
      const why = `It has ${length} bytes; no more than ${this.largestBody} are taken from a broker.`;
      if (message !== undefined) this.#unreadable.set(message, why);
    }
    try {
      this.parseFrames(new OneFrame(frame));
    } catch {
      // Whoever sends such a message must not keep others from theirs.
      frame.writeUInt16BE(0, propertiesAt);
      if (message !== undefined) this.#unreadable.set(message, "Its properties and headers cannot be read.");
      this.parseFrames(new OneFrame(frame));
    }
  }

  /** @returns whether the library is to have this part of a body */
  #goOn(frame: Buffer, channel: number): boolean {
    const body = this.#bodies.get(channel);
    const length = frame.length - frameOverhead;
    if (body === undefined || length > body.left) throw new Error("a part of no message");
    body.left -= length;
    if (body.left === 0) this.#bodies.delete(channel);
    return body.isKept;
  }

  /** The delivery whose body the library waits for. */
  #awaited(id: number): AMQPMessage | undefined {
    const channel: object | undefined = this.channels[id];
    if (channel === undefined) return undefined;
    if ("delivery" in channel && channel.delivery instanceof AMQPMessage) return channel.delivery;
    return undefined;
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

interface IncomingBody {
  /** Bytes of it that are still to come. */
  left: number;
  readonly isKept: boolean;
}

/**
 * One frame and nothing behind it: where a frame is longer than what it says, the library goes on reading in the rest
 * of it, as if frames that nobody has looked at stood there.
 */
class OneFrame extends AMQPView {
  #isBegun = false;

  constructor({ buffer, byteOffset, byteLength }: Buffer) {
    super(buffer, byteOffset, byteLength);
  }

  override get byteLength(): number {
    if (this.#isBegun) return 0;
    this.#isBegun = true;
    return super.byteLength;
  }
}
