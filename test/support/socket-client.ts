/** A client of `/ws`, as a user of the npm package `ws` would write it. */
import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import type { Json } from "./gateway-client.ts";

export interface SocketClient {
  readonly socket: WebSocket;
  /** Every frame so far. */
  readonly frames: Json[];
  /** Close code and reason, once it has been closed. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  say(message: Json): void;
  /** Says something and returns the answer, which carries the same id. */
  ask(message: Json): Promise<Json>;
  /** Frames of these types so far. */
  of(...types: string[]): Json[];
  close(): Promise<void>;
}

export interface ConnectOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly protocols?: readonly string[];
  /** Does not answer pings, as if its network were gone. */
  readonly isDeaf?: boolean;
}

/** What a server says that refuses the handshake. */
export class HandshakeRefused extends Error {
  readonly status: number;
  readonly body: Json;

  constructor(status: number, text: string) {
    super(`the handshake was answered with ${status}: ${text}`);
    this.status = status;
    this.body = text.startsWith("{") ? JSON.parse(text) : undefined;
  }
}

/** @throws HandshakeRefused */
export async function connectSocket(url: string, options: ConnectOptions = {}): Promise<SocketClient> {
  const socket = new WebSocket(url, [...(options.protocols ?? [])], {
    headers: { ...options.headers },
    autoPong: options.isDeaf !== true,
  });
  const frames: Json[] = [];
  const closed = new Promise<{ code: number; reason: string }>((done) => {
    socket.once("close", (code, reason) => done({ code, reason: reason.toString("utf8") }));
  });
  // Before it opens: a frame may come with the handshake.
  socket.on("message", (data: Buffer) => void frames.push(JSON.parse(data.toString("utf8"))));
  await opened(socket);
  let asked = 0;
  return {
    socket,
    frames,
    closed,
    say: (message) => socket.send(typeof message === "string" ? message : JSON.stringify(message)),
    async ask(message) {
      asked += 1;
      const id = typeof message.id === "string" ? message.id : `ask-${asked}`;
      const from = frames.length;
      socket.send(JSON.stringify({ ...message, id }));
      for (const until = Date.now() + 10_000; Date.now() < until;) {
        const answer = frames.slice(from).find((frame) => frame.id === id);
        if (answer !== undefined) return answer;
        await new Promise((next) => setTimeout(next, 5));
      }
      throw new Error(`no answer to ${JSON.stringify(message)}`);
    },
    of: (...types) => frames.filter((frame) => types.includes(frame.type)),
    async close() {
      socket.close(1000);
      await closed;
    },
  };
}

function opened(socket: WebSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
    socket.once("unexpected-response", (_request, response: IncomingMessage) => {
      let text = "";
      response.on("data", (part: Buffer) => (text += part.toString("utf8")));
      response.on("end", () => reject(new HandshakeRefused(response.statusCode ?? 0, text)));
    });
  });
}
