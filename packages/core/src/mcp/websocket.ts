/**
 * WebSocket (MCP-1): one connection for all messages of a session, opened through the guarded door with the
 * credentials of the call that opens it.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import { Correlator } from "./correlator.ts";
import type { HttpPeer, SendOptions } from "./http-peer.ts";
import {
  decodeMessages,
  encodeNotice,
  encodeRequest,
  type RpcNotice,
  type RpcRequest,
  type RpcResponse,
} from "./json-rpc.ts";
import { AsksTooMuch } from "./server-answers.ts";
import { toNoAnswer, type ExchangeOptions, type McpTransport, type RequestAnswerer } from "./transport.ts";
import { closeFrame, FrameError, FrameReader, pongFrame, textFrame } from "./websocket-frames.ts";

/** Of RFC 6455, to show that a server means this. */
const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const subprotocol = "mcp";
/** The other side has so long to end its half. */
const closingMs = 500;

/** Bytes of answers and pongs that may wait to be written; a small one counts for the memory that it takes. */
const mostWaitingBytes = 1_048_576;
const leastWaitingBytes = 1_024;

export class WebSocketLink implements McpTransport {
  readonly tellsNews = true;
  readonly #name: string;
  readonly #socket: Duplex;
  readonly #reader: FrameReader;
  readonly #correlator: Correlator;
  #waitingBytes = 0;

  private constructor(name: string, socket: Duplex, maxBytes: number) {
    this.#name = name;
    this.#socket = socket;
    this.#reader = new FrameReader(maxBytes);
    this.#correlator = new Correlator({ name, reply: (text) => this.#reply(textFrame(text)) });
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    socket.on("error", () => this.#correlator.end());
    socket.on("close", () => this.#correlator.end());
    socket.on("end", () => socket.destroy());
  }

  /** @throws GatewayError as the door does; `tool_failed` for a server that speaks no WebSocket */
  static async open(peer: HttpPeer, options: ExchangeOptions): Promise<WebSocketLink> {
    const key = randomBytes(16).toString("base64");
    const { headers, socket } = await peer.upgrade(
      [
        ["sec-websocket-key", key],
        ["sec-websocket-version", "13"],
        ["sec-websocket-protocol", subprotocol],
      ],
      options,
    );
    const wanted = createHash("sha1")
      .update(key + acceptSuffix)
      .digest("base64");
    const isExtended = headers["sec-websocket-extensions"] !== undefined;
    if (headers["sec-websocket-accept"] === wanted && !isExtended) {
      return new WebSocketLink(peer.name, socket, options.maxBytes);
    }
    socket.destroy();
    throw withDelivery(
      new GatewayError("tool_failed", `'${peer.name}' took another protocol, which is not WebSocket.`),
      "not_sent",
    );
  }

  request(request: RpcRequest, options: ExchangeOptions): Promise<RpcResponse> {
    return this.#correlator.request(request, options, () => {
      options.onSent?.();
      this.#write(textFrame(encodeRequest(request)));
      return Promise.resolve();
    });
  }

  notify(notice: RpcNotice, _options: SendOptions): Promise<void> {
    this.#write(textFrame(encodeNotice(notice)));
    return Promise.resolve();
  }

  listen(_options: SendOptions, onNotice: (notice: RpcNotice) => void): Promise<void> {
    return this.#correlator.listen(onNotice);
  }

  serve(answer: RequestAnswerer): void {
    this.#correlator.serve(answer);
  }

  beginSession(): void {
    // A session is as long as the connection.
  }

  speak(_revision: string): void {
    // No message says it.
  }

  isAlive(): boolean {
    return !this.#correlator.isOver && !this.#socket.destroyed;
  }

  close(): Promise<void> {
    this.#correlator.end();
    this.#write(closeFrame());
    this.#socket.end();
    const timer = setTimeout(() => this.#socket.destroy(), closingMs);
    this.#socket.once("close", () => clearTimeout(timer));
    return Promise.resolve();
  }

  #write(bytes: Buffer, onWritten?: () => void): void {
    if (!this.#socket.destroyed && !this.#socket.writableEnded) this.#socket.write(bytes, onWritten);
  }

  /** To what the server sends unasked, whether it reads or not. @throws AsksTooMuch */
  #reply(bytes: Buffer): void {
    if (this.#waitingBytes > mostWaitingBytes) throw new AsksTooMuch();
    const size = Math.max(bytes.length, leastWaitingBytes);
    this.#waitingBytes += size;
    this.#write(bytes, () => (this.#waitingBytes -= size));
  }

  /** Never throws: nobody would catch it, and the process would end with everybody's calls. */
  #receive(bytes: Buffer): void {
    try {
      for (const received of this.#reader.feed(bytes)) {
        if (received.kind === "text") this.#correlator.receive(decodeMessages(received.text));
        else if (received.kind === "ping") this.#reply(pongFrame(received.payload));
        else this.#end();
      }
    } catch (error) {
      const isTheirs = error instanceof FrameError || error instanceof AsksTooMuch;
      const ended = isTheirs ? toNoAnswer(this.#name, error.message) : toGatewayError(error);
      this.#end(withDelivery(ended, "uncertain"));
    }
  }

  #end(error?: Error): void {
    this.#correlator.end(error);
    this.#write(closeFrame());
    this.#socket.destroy();
  }
}
