/**
 * API Gateway's WebSocket API, small: `$connect`, `$disconnect` and `$default` as events for a function,
 * `@connections` for whoever pushes, its own answers where a function gives none, and the limits that
 * clients feel: one address and nothing below it, messages of 128 KB in frames of 32 KB, an end for the
 * silent and for everybody after two hours.
 */
import { randomBytes } from "node:crypto";
import { createServer, STATUS_CODES, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import type { SocketResult } from "../../functions/realtime/lambda.ts";
import { checkSignature, type Signer } from "./aws/sigv4.ts";

/** Part of every address; nothing lies below it but `@connections`. */
const stage = "test";
const longestMessage = 131_072;
const longestFrame = 32_768;

export interface WebSocketApi {
  /** Where clients connect. */
  readonly url: string;
  /** Where `@connections` is. */
  readonly managementUrl: string;
  /** Frames that were pushed, to whomever. */
  readonly pushed: readonly string[];
  /** What functions answered to events, by type. */
  readonly results: { readonly type: string; readonly result: SocketResult }[];
  /** Ends every connection as if its network had failed: nobody is told. */
  cut(): void;
  /** Answers the next pushes with this status instead. */
  failPushes(count: number, status: number): void;
  /** From now on pushes wait before anything is done, until the returned function is called. */
  holdPushes(): () => void;
  /** Pushes that wait. */
  readonly held: number;
  close(): Promise<void>;
}

export interface WebSocketApiOptions {
  /** Rejects where the function has failed. */
  readonly handler: () => (event: unknown) => Promise<SocketResult>;
  /** Who may push; default: anybody. */
  readonly signer?: Signer;
  readonly idleMs?: number;
  readonly longestMs?: number;
}

interface Open {
  readonly socket: WebSocket;
  readonly since: number;
  readonly heard: () => void;
}

/** What the gateway itself says of a function that failed. */
const failed: SocketResult = { statusCode: 502 };

export async function startWebSocketApi({
  handler,
  signer,
  idleMs = 600_000,
  longestMs = 7_200_000,
}: WebSocketApiOptions): Promise<WebSocketApi> {
  const open = new Map<string, Open>();
  const pushed: string[] = [];
  const results: { type: string; result: SocketResult }[] = [];
  let failing = { count: 0, status: 500 };
  let mayPush = Promise.resolve();
  let held = 0;
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: longestMessage,
    // Only what the function has chosen is sent back, see below.
    handleProtocols: () => false,
  });

  const invoke = async (
    type: "CONNECT" | "DISCONNECT" | "MESSAGE",
    id: string,
    more: object,
  ): Promise<SocketResult> => {
    const routeKey = { CONNECT: "$connect", DISCONNECT: "$disconnect", MESSAGE: "$default" }[type];
    const requestId = newName();
    const requestContext = { routeKey, eventType: type, connectionId: id, requestId, stage };
    const event = { requestContext, isBase64Encoded: false, ...more };
    const result = await handler()(event).catch(() => failed);
    results.push({ type, result });
    if (result === failed && type === "MESSAGE") {
      open.get(id)?.socket.send(JSON.stringify({ message: "Internal server error", connectionId: id, requestId }));
    }
    return result;
  };

  const server = createServer((request, response) => void manage(request, response));
  const manage = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const target = request.url ?? "";
    const [, at = "", name = ""] = /^\/(\w+)\/@connections\/(.+)$/.exec(target) ?? [];
    const body = await read(request);
    const answer = (status: number, type?: string): void =>
      void response.writeHead(status, type === undefined ? {} : { "x-amzn-errortype": type }).end("{}");
    held += 1;
    await mayPush;
    held -= 1;
    if (at !== stage) return answer(403, "ForbiddenException");
    if (signer !== undefined && !isSigned(request, body, signer)) return answer(403, "ForbiddenException");
    const connection = open.get(decodeURIComponent(name));
    if (failing.count > 0) {
      failing = { ...failing, count: failing.count - 1 };
      return answer(failing.status, "LimitExceededException");
    }
    if (connection === undefined) return answer(410, "GoneException");
    if (request.method === "DELETE") {
      connection.socket.close(1000);
      return answer(204);
    }
    if (body.length > longestMessage) return answer(413, "PayloadTooLargeException");
    pushed.push(body.toString("utf8"));
    connection.socket.send(body.toString("utf8"));
    return answer(200);
  };

  const connect = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    socket.on("error", () => undefined);
    const id = newName();
    const refuse = (status: number): void =>
      void socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
    const url = new URL(request.url ?? "/", "http://localhost");
    // No function hears of whoever asks for another path.
    if (url.pathname !== `/${stage}`) return refuse(403);
    const headers = Object.fromEntries(
      Object.entries(request.headers).map(([name, value]) => [titled(name), Array.isArray(value) ? value[0] : value]),
    );
    const result = await invoke("CONNECT", id, {
      headers,
      queryStringParameters: Object.fromEntries(url.searchParams),
    });
    if (result.statusCode >= 300) return refuse(result.statusCode);
    const chosen = result.headers?.["Sec-WebSocket-Protocol"];
    sockets.once("headers", (lines) => {
      if (chosen !== undefined) lines.push(`Sec-WebSocket-Protocol: ${chosen}`);
    });
    let isTooLarge = false;
    watchFrames(socket, () => (isTooLarge = true));
    sockets.handleUpgrade(request, socket, head, (accepted) => {
      let idle = setTimeout(() => accepted.close(1001, "Going away"), idleMs);
      const end = setTimeout(() => accepted.close(1001, "Going away"), longestMs);
      const heard = (): void => {
        clearTimeout(idle);
        idle = setTimeout(() => accepted.close(1001, "Going away"), idleMs);
      };
      open.set(id, { socket: accepted, since: Date.now(), heard });
      accepted.on("error", () => undefined);
      accepted.on("ping", heard);
      accepted.on("message", (data: Buffer) => {
        heard();
        if (isTooLarge) accepted.close(1009, "Message too long");
        else void invoke("MESSAGE", id, { body: data.toString("utf8") });
      });
      accepted.on("close", () => {
        clearTimeout(idle);
        clearTimeout(end);
        if (open.delete(id)) void invoke("DISCONNECT", id, {});
      });
    });
  };
  server.on("upgrade", (request, socket: Duplex, head: Buffer) => void connect(request, socket, head));

  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  return {
    url: `ws://127.0.0.1:${port}/${stage}`,
    pushed,
    results,
    managementUrl: `http://127.0.0.1:${port}/${stage}`,
    cut() {
      for (const [id, { socket }] of open) {
        open.delete(id);
        socket.terminate();
      }
    },
    failPushes: (count, status) => void (failing = { count, status }),
    holdPushes() {
      const { promise, resolve } = Promise.withResolvers<void>();
      mayPush = promise;
      return resolve;
    },
    get held() {
      return held;
    },
    async close() {
      for (const { socket } of open.values()) socket.terminate();
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

function newName(): string {
  return randomBytes(9).toString("base64");
}

/** API Gateway hands headers on as they were written; most clients write them like this. */
function titled(name: string): string {
  return name.replaceAll(/(^|-)([a-z])/g, (_whole, before: string, letter: string) => before + letter.toUpperCase());
}

function isSigned({ method = "", url: target = "", headers }: IncomingMessage, body: Buffer, signer: Signer): boolean {
  const single = Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join() : value]);
  return (
    checkSignature({ method, target, headers: Object.fromEntries(single), body }, "execute-api", signer) === undefined
  );
}

async function read(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** Reads the lengths of a client's frames as they come by (RFC 6455, section 5.2); `ws` only knows messages. */
function watchFrames(socket: Duplex, tooLarge: () => void): void {
  let waiting = Buffer.alloc(0);
  let skip = 0;
  socket.on("data", (chunk: Buffer) => {
    waiting = Buffer.concat([waiting, chunk]);
    for (;;) {
      const skipped = Math.min(skip, waiting.length);
      waiting = waiting.subarray(skipped);
      skip -= skipped;
      if (skip > 0 || waiting.length < 2) return;
      const short = (waiting[1] ?? 0) & 0x7f;
      const extended = short === 126 ? 2 : short === 127 ? 8 : 0;
      if (waiting.length < 2 + extended) return;
      const length =
        extended === 0 ? short : extended === 2 ? waiting.readUInt16BE(2) : Number(waiting.readBigUInt64BE(2));
      if (length > longestFrame) tooLarge();
      const mask = ((waiting[1] ?? 0) & 0x80) === 0 ? 0 : 4;
      skip = 2 + extended + mask + length;
    }
  });
}
