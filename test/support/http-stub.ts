/** A back end that keeps what it was sent, byte for byte, and answers as told. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export interface RecordedRequest {
  readonly method: string;
  /** Raw request target, as on the request line. */
  readonly target: string;
  /** Raw names and values in the order received. */
  readonly rawHeaders: readonly string[];
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  /** Everything as it came over the socket: request line, headers, body. */
  readonly raw: Buffer;
  readonly at: number;
}

export interface StubReply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly delayMs?: number;
}

export type Answer = (
  request: RecordedRequest,
  response: ServerResponse,
) => StubReply | undefined | Promise<StubReply | undefined>;

export interface HttpStub {
  readonly url: string;
  readonly port: number;
  readonly requests: RecordedRequest[];
  /** How to answer from now on; returning undefined means the answer wrote to the response itself. */
  answer: Answer;
  close(): Promise<void>;
}

export async function startHttpStub(answer: Answer = () => ({ body: "{}" })): Promise<HttpStub> {
  const requests: RecordedRequest[] = [];
  const server = createServer((request, response) => void handle(request, response));
  /** Bytes of the request under way; a client sends its next request only after our answer. */
  const received = new WeakMap<Socket, Buffer[]>();
  server.on("connection", (socket: Socket) => {
    received.set(socket, []);
    socket.on("data", (part: Buffer) => received.get(socket)?.push(part));
  });
  const stub = {
    requests,
    answer,
    url: "",
    port: 0,
    async close() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const raw = Buffer.concat(received.get(request.socket) ?? []);
    received.set(request.socket, []);
    const recorded: RecordedRequest = {
      method: request.method ?? "",
      target: request.url ?? "",
      rawHeaders: request.rawHeaders,
      headers: request.headers,
      body: Buffer.concat(parts),
      raw,
      at: Date.now(),
    };
    requests.push(recorded);
    const reply = await stub.answer(recorded, response);
    if (reply === undefined) return;
    if (reply.delayMs !== undefined) await new Promise((done) => setTimeout(done, reply.delayMs));
    response.writeHead(reply.status ?? 200, { "content-type": "application/json", ...reply.headers });
    response.end(reply.body ?? "{}");
  }
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  stub.port = (server.address() as AddressInfo).port;
  stub.url = `http://127.0.0.1:${stub.port}`;
  return stub;
}
