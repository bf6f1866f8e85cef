/**
 * API Gateway's REST API before functions under the runtime client: proxy events of payload version 1,
 * integrations that answer whole (29 s) or by streaming (`responseTransferMode: STREAM`, 15 minutes, the
 * head as a prelude), and the gateway's own answers where a function gives none. Like the real one it
 * takes 10 MB, renames some headers of answers and, once a stream has begun, can only break it off.
 */
import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import * as z from "zod";
import { readRequest, toProxyEvent } from "../support/proxy-event.ts";
import type { Answer, LambdaFunction } from "./runtime-api.ts";

export interface Integration {
  readonly function: LambdaFunction;
  readonly responseTransferMode: "BUFFERED" | "STREAM";
}

export interface RestApi {
  readonly url: string;
  /** The function behind a path; others are not there. */
  integrate: (method: string, path: string) => Integration | undefined;
  close(): Promise<void>;
}

const largestRequest = 10 * 1024 * 1024;
const timeoutMs = { BUFFERED: 29_000, STREAM: 900_000 } as const;
const preludeType = "application/vnd.awslambda.http-integration-response";
const preludeEnd = Buffer.alloc(8);
/** Answers keep these under another name. */
const remapped = new Set(["www-authenticate", "date", "server"]);

const multi = z.record(z.string(), z.array(z.string())).nullish();
const single = z.record(z.string(), z.coerce.string()).nullish();
const wholeSchema = z.strictObject({
  statusCode: z.int(),
  headers: single,
  multiValueHeaders: multi,
  body: z.string().nullish(),
  isBase64Encoded: z.boolean().nullish(),
});
const headSchema = z.strictObject({
  statusCode: z.int(),
  headers: single,
  multiValueHeaders: multi,
  cookies: z.array(z.string()).nullish(),
});

export async function startRestApi(): Promise<RestApi> {
  const server = createServer((request, response) => {
    serve(api, request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else refuse(response, 502, "Internal server error", String(error));
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const api: RestApi = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    integrate: () => undefined,
    async close() {
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
    },
  };
  return api;
}

async function serve(api: RestApi, request: IncomingMessage, response: ServerResponse): Promise<void> {
  response.on("error", () => undefined);
  const body = await readRequest(request);
  if (body.length > largestRequest) return refuse(response, 413, "Request Too Long");
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  const integration = api.integrate(request.method ?? "GET", pathname);
  if (integration === undefined) return refuse(response, 403, "Missing Authentication Token");
  const mode = integration.responseTransferMode;
  // Whatever the gateway does, the function goes on until it is done.
  const answer = await within(timeoutMs[mode], invoke(integration.function, toProxyEvent(request, body)));
  if (answer === "too late") return refuse(response, 504, "Endpoint request timed out");
  if (answer === "too large") return refuse(response, 413, "Request Too Long");
  if (answer.kind === "failed") return refuse(response, 502, "Internal server error", answer.error.errorType);
  if (mode === "STREAM" && answer.kind === "streamed") return passOn(answer, response);
  if (mode === "BUFFERED" && answer.kind === "whole") return answerWhole(answer.body, response);
  throw new Error(`the function answers ${answer.kind}, the integration is ${mode}`);
}

async function invoke(lambda: LambdaFunction, event: object): Promise<Answer | "too large"> {
  try {
    return await lambda.invoke(event);
  } catch (error) {
    if (error instanceof Error && error.message.startsWith("RequestTooLarge")) return "too large";
    throw error;
  }
}

function answerWhole(payload: Buffer, response: ServerResponse): void {
  const { statusCode, headers, multiValueHeaders, body, isBase64Encoded } = wholeSchema.parse(
    JSON.parse(payload.toString("utf8")),
  );
  setHeaders(response, headers, multiValueHeaders);
  response.writeHead(statusCode).end(Buffer.from(body ?? "", isBase64Encoded === true ? "base64" : "utf8"));
}

/** Takes the prelude off and passes on each part as it comes. */
async function passOn(
  { contentType, body, ended }: Extract<Answer, { kind: "streamed" }>,
  response: ServerResponse,
): Promise<void> {
  if (contentType !== preludeType) throw new Error(`a stream without a prelude: ${contentType}`);
  const parts = (body as AsyncIterable<Buffer> & Readable)[Symbol.asyncIterator]();
  const rest = await writeHead(parts, response);
  if (rest.length > 0) response.write(rest);
  for (let part = await parts.next(); part.done !== true; part = await parts.next()) {
    // A client that has left is not told to the function, which goes on to its end.
    if (!response.destroyed && !response.write(part.value)) await untilWritable(response);
  }
  if ((await ended) === undefined) response.end();
  else response.destroy();
}

async function writeHead(parts: AsyncIterator<Buffer>, response: ServerResponse): Promise<Buffer> {
  let prelude = Buffer.alloc(0);
  for (;;) {
    const end = prelude.indexOf(preludeEnd);
    if (end >= 0) {
      const head = headSchema.parse(JSON.parse(prelude.subarray(0, end).toString("utf8")));
      const cookies = head.cookies ?? [];
      setHeaders(response, head.headers, {
        ...head.multiValueHeaders,
        ...(cookies.length === 0 ? {} : { "set-cookie": cookies }),
      });
      response.writeHead(head.statusCode);
      response.flushHeaders();
      return prelude.subarray(end + preludeEnd.length);
    }
    const part = await parts.next();
    if (part.done === true) throw new Error("the function ended without a head");
    prelude = Buffer.concat([prelude, part.value]);
  }
}

function setHeaders(
  response: ServerResponse,
  headers: z.infer<typeof single>,
  multiValueHeaders: z.infer<typeof multi>,
): void {
  response.setHeader("x-amzn-requestid", randomUUID());
  const all: [string, readonly string[]][] = [
    ...Object.entries(headers ?? {}).map(([name, value]): [string, readonly string[]] => [name, [value]]),
    ...Object.entries(multiValueHeaders ?? {}),
  ];
  for (const [name, values] of all) {
    const isRemapped = remapped.has(name.toLowerCase());
    response.setHeader(isRemapped ? `x-amzn-remapped-${name}` : name, values);
  }
}

function refuse(response: ServerResponse, status: number, message: string, errorType = "GatewayException"): void {
  const headers = { "content-type": "application/json", "x-amzn-errortype": errorType.replaceAll(/[^!-~]+/g, " ") };
  response.writeHead(status, headers).end(JSON.stringify({ message }));
}

function untilWritable(response: ServerResponse): Promise<void> {
  return new Promise((done) => {
    const stop = (): void => {
      response.off("drain", stop).off("close", stop);
      done();
    };
    response.on("drain", stop).on("close", stop);
  });
}

async function within<T>(ms: number, work: Promise<T>): Promise<T | "too late"> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"too late">((done) => {
    timer = setTimeout(() => done("too late"), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
