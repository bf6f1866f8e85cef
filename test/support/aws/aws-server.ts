/**
 * What the stand-ins for services of AWS have in common: a server on loopback that checks signatures,
 * takes its time, and fails as it is told to.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as timer } from "node:timers/promises";
import { checkSignature, type Refusal, type Signer } from "./sigv4.ts";

export interface AwsRequest {
  readonly method: string;
  readonly target: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Buffer;
}

export interface AwsReply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string | number>>;
  readonly body?: string | Buffer | AsyncIterable<Buffer>;
}

export type AwsFault = {
  /** Which requests it waits for; without it, the next one. */
  readonly when?: (request: AwsRequest) => boolean;
} & (
  | { readonly kind: "reply"; readonly reply: AwsReply }
  /** The connection is cut before anything is done. */
  | { readonly kind: "reset" }
  /** It is done, and then the connection is cut. */
  | { readonly kind: "lost" }
  /** The answer's body is cut after so many bytes. */
  | { readonly kind: "cut"; readonly after: number }
);

export interface AwsServer {
  readonly url: string;
  readonly region: string;
  readonly credentials: Signer;
  /** How a client reaches it. */
  readonly client: { readonly endpoint: string; readonly region: string; readonly credentials: Signer };
  /** Each is used once, by the first request that it is for. */
  readonly faults: AwsFault[];
  readonly requests: AwsRequest[];
  latencyMs: number;
  close(): Promise<void>;
}

export interface AwsService {
  /** As signatures name it. */
  readonly name: string;
  readonly refuse: (refusal: NonNullable<Refusal>) => AwsReply;
  readonly handle: (request: AwsRequest) => AwsReply | Promise<AwsReply>;
}

export async function startAwsServer({ name, refuse, handle }: AwsService, signer?: Signer): Promise<AwsServer> {
  const credentials = signer ?? newSigner();
  const faults: AwsFault[] = [];
  const requests: AwsRequest[] = [];
  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const request = await read(incoming);
    requests.push(request);
    if (started.latencyMs > 0) await timer(started.latencyMs);
    const at = faults.findIndex(({ when }) => when?.(request) ?? true);
    const [fault] = at === -1 ? [] : faults.splice(at, 1);
    if (fault?.kind === "reset") {
      outgoing.destroy();
      return;
    }
    const refusal = checkSignature(request, name, credentials);
    const reply =
      fault?.kind === "reply" ? fault.reply : refusal === undefined ? await handle(request) : refuse(refusal);
    if (fault?.kind === "lost") outgoing.destroy();
    else
      await write(outgoing, reply, {
        method: request.method,
        cutAfter: fault?.kind === "cut" ? fault.after : Infinity,
      });
  };
  const server = createServer((incoming, outgoing) => {
    answer(incoming, outgoing).catch(() => outgoing.destroy());
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const region = "eu-west-1";
  const started: AwsServer = {
    url,
    region,
    credentials,
    client: { endpoint: url, region, credentials },
    faults,
    requests,
    latencyMs: 0,
    async close() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return started;
}

export function newSigner(): Signer {
  return {
    accessKeyId: `AKIA${randomBytes(8).toString("hex").toUpperCase()}`,
    secretAccessKey: randomBytes(30).toString("base64"),
  };
}

/** One of the services with JSON bodies, whose operation is a header. */
export function jsonService(
  name: string,
  operations: Readonly<Record<string, (input: Readonly<Record<string, unknown>>) => object | Promise<object>>>,
): AwsService {
  const fail = (status: number, type: string, message: string): AwsReply => ({
    status,
    headers: { "content-type": "application/x-amz-json-1.0" },
    body: JSON.stringify({ __type: type, message }),
  });
  return {
    name,
    refuse: ({ code, message }) => fail(403, code, message),
    async handle({ headers, body }) {
      const operation = operations[(headers["x-amz-target"] ?? "").split(".").at(-1) ?? ""];
      if (operation === undefined) return fail(400, "UnknownOperationException", "No such operation.");
      try {
        const output = await operation(JSON.parse(body.toString("utf8")) as Record<string, unknown>);
        return { status: 200, headers: { "content-type": "application/x-amz-json-1.0" }, body: JSON.stringify(output) };
      } catch (thrown) {
        if (thrown instanceof AwsFailure) return fail(thrown.status, thrown.name, thrown.message);
        throw thrown;
      }
    },
  };
}

export class AwsFailure extends Error {
  readonly status: number;

  constructor(name: string, message: string, status = 400) {
    super(message);
    this.name = name;
    this.status = status;
  }
}

async function read(incoming: IncomingMessage): Promise<AwsRequest> {
  const parts: Buffer[] = [];
  for await (const part of incoming) parts.push(part as Buffer);
  const target = incoming.url ?? "/";
  const [path = "/", query = ""] = target.split("?", 2);
  const headers = Object.fromEntries(
    Object.entries(incoming.headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(",") : value]),
  );
  const method = incoming.method ?? "GET";
  return { method, target, path, query: new URLSearchParams(query), headers, body: Buffer.concat(parts) };
}

async function write(
  outgoing: ServerResponse,
  { status, headers, body = "" }: AwsReply,
  { method, cutAfter }: { readonly method: string; readonly cutAfter: number },
): Promise<void> {
  outgoing.writeHead(status, { "x-amzn-requestid": randomUUID(), ...headers });
  if (method === "HEAD") {
    outgoing.end();
    return;
  }
  if (typeof body !== "string" && !Buffer.isBuffer(body)) {
    for await (const part of body) outgoing.write(part);
    outgoing.end();
    return;
  }
  const bytes = Buffer.from(body);
  if (bytes.length <= cutAfter) outgoing.end(bytes);
  else outgoing.write(bytes.subarray(0, cutAfter), () => setTimeout(() => outgoing.destroy(), 5));
}
