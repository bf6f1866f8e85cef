/**
 * Stands between a database client and its server: counts trips, takes the time of a distant region
 * and injects what goes wrong on the way. One POST is one trip.
 */
import { Agent, createServer, request as send, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";

export type DatabaseFault =
  /** The batch finds the write lock taken; nothing is executed. */
  | { readonly kind: "busy" }
  /** HTTP 429; nothing is executed. */
  | { readonly kind: "rate-limited"; readonly retryAfterS?: number }
  | { readonly kind: "status"; readonly status: number }
  /** The connection breaks before the server has seen the request. */
  | { readonly kind: "lost-before" }
  /** The connection breaks after the server has carried it out. */
  | { readonly kind: "lost-after" }
  /** The answer stops half way. */
  | { readonly kind: "cut-answer" };

export interface DatabaseProxy {
  readonly url: string;
  /** Requests so far, failed ones included. */
  trips(): number;
  /** Connections that clients have opened so far. */
  connections(): number;
  /** Added to every trip. */
  latencyMs: number;
  /** Applied to the next trips, one each, in order. */
  readonly faults: DatabaseFault[];
  close(): Promise<void>;
}

interface Answer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

export async function startDatabaseProxy({ target }: { readonly target: string }): Promise<DatabaseProxy> {
  const agent = new Agent({ keepAlive: true });
  const faults: DatabaseFault[] = [];
  let trips = 0;
  let connections = 0;

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await collect(request);
    trips += 1;
    const fault = faults.shift();
    await pause(proxy.latencyMs / 2);
    const answer = await answerOf(fault, () => forward(agent, target, request, body), body);
    await pause(proxy.latencyMs / 2);
    if (answer === undefined || fault?.kind === "lost-after") {
      request.socket.destroy();
      return;
    }
    const retryAfter =
      fault?.kind === "rate-limited" && fault.retryAfterS !== undefined ? String(fault.retryAfterS) : [];
    response.writeHead(answer.status, {
      "content-type": answer.contentType,
      "content-length": answer.body.byteLength,
      ...(typeof retryAfter === "string" ? { "retry-after": retryAfter } : {}),
    });
    if (fault?.kind === "cut-answer") {
      response.write(answer.body.subarray(0, Math.floor(answer.body.byteLength / 2)), () => request.socket.destroy());
      return;
    }
    response.end(answer.body);
  };

  const server = createServer((request, response) => {
    serve(request, response).catch(() => request.socket.destroy());
  });
  server.on("connection", () => (connections += 1));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const proxy: DatabaseProxy = {
    url: `http://127.0.0.1:${port}`,
    trips: () => trips,
    connections: () => connections,
    latencyMs: 0,
    faults,
    close: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      agent.destroy();
    },
  };
  return proxy;
}

/** `undefined`: the connection is to be broken. */
async function answerOf(
  fault: DatabaseFault | undefined,
  pass: () => Promise<Answer>,
  body: Buffer,
): Promise<Answer | undefined> {
  switch (fault?.kind) {
    case "busy":
      return { status: 200, contentType: "application/json", body: busyAnswer(body) };
    case "rate-limited":
      return { status: 429, contentType: "text/plain", body: Buffer.from("slow down") };
    case "status":
      return { status: fault.status, contentType: "text/plain", body: Buffer.from("no") };
    case "lost-before":
      return undefined;
    case "lost-after":
    case "cut-answer":
    case undefined:
      return pass();
  }
}

const requestsSchema = z.object({
  requests: z.array(z.object({ type: z.string(), batch: z.object({ steps: z.array(z.unknown()) }).optional() })),
});

/** As a server answers whose first step, BEGIN IMMEDIATE, was refused. */
function busyAnswer(body: Buffer): Buffer {
  const { requests } = requestsSchema.parse(JSON.parse(body.toString("utf8")));
  const busy = { message: "database is locked", code: "SQLITE_BUSY" };
  const results = requests.map(({ type, batch }) => {
    const steps = batch?.steps ?? [];
    const result = {
      step_results: steps.map(() => null),
      step_errors: steps.map((_step, index) => (index === 0 ? busy : null)),
    };
    return { type: "ok", response: batch === undefined ? { type } : { type, result } };
  });
  return Buffer.from(JSON.stringify({ baton: null, base_url: null, results }));
}

async function forward(agent: Agent, target: string, request: IncomingMessage, body: Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { host: _host, connection: _connection, ...headers } = request.headers;
    const onward = send(new URL(request.url ?? "/", target), { method: request.method, headers, agent }, (response) => {
      collect(response).then(
        (bytes) =>
          resolve({
            status: response.statusCode ?? 502,
            contentType: response.headers["content-type"] ?? "text/plain",
            body: bytes,
          }),
        reject,
      );
    });
    onward.on("error", reject);
    onward.end(body);
  });
}

async function collect(stream: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

async function pause(ms: number): Promise<void> {
  if (ms > 0) await sleep(ms, undefined, { ref: false });
}
