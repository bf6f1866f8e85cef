/**
 * The app behind API Gateway's REST API (proxy events, payload version 1) as a Lambda function that streams
 * its answers (design "AWS").
 */
import type { Writable } from "node:stream";
import type { Log } from "@toolyard/core/ports/log";
import * as z from "zod";
import { describeThrown } from "../describe-thrown.ts";
import {
  lambdaRuntime,
  nothingAfter,
  streamed,
  type AfterInvocation,
  type StreamingHandler,
} from "../lambda-runtime.ts";
import type { ServingApp } from "./app-env.ts";
import { PlainHeaders, toLightRequest } from "./lambda-request.ts";
import type { LambdaResponseHead, LambdaStream } from "./lambda-stream.ts";
import { longestSilenceMs } from "./silence.ts";
import { isAlreadySent } from "./sink.ts";

/** The part of API Gateway's event that is used. Other parties write it, so the rest passes. */
const requestEventSchema = z.looseObject({
  httpMethod: z.string(),
  path: z.string(),
  headers: z.record(z.string(), z.string().nullish()).nullish(),
  multiValueHeaders: z.record(z.string(), z.array(z.string()).nullish()).nullish(),
  queryStringParameters: z.record(z.string(), z.string().nullish()).nullish(),
  multiValueQueryStringParameters: z.record(z.string(), z.array(z.string()).nullish()).nullish(),
  body: z.string().nullish(),
  isBase64Encoded: z.boolean().nullish(),
  requestContext: z.looseObject({ domainName: z.string().nullish() }).nullish(),
});
type RequestEvent = z.infer<typeof requestEventSchema>;

/** Belong to one connection, not to the message. */
const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);
const noBytes = new Uint8Array();
const methodsWithoutBody = new Set(["GET", "HEAD"]);

export interface StreamingOptions {
  readonly after?: AfterInvocation;
  /** What the gateway before it waits for a word of an answer. */
  readonly silenceMs?: number;
}

export function createStreamingHandler(
  app: ServingApp,
  log: Log,
  { after = nothingAfter, silenceMs = longestSilenceMs }: StreamingOptions = {},
): StreamingHandler {
  const handler: StreamingHandler = async (event, stream, context) => {
    const answer = new StreamedAnswer(stream);
    try {
      const { request, body } = toRequest(requestEventSchema.parse(event));
      const remainingMs = (): number => context.getRemainingTimeInMillis();
      const response = await app.fetch(request, { lambda: { remainingMs, silenceMs, body, stream: answer } });
      if (!isAlreadySent(response)) await answer.send(response);
    } catch (thrown) {
      log.log("error", "an invocation failed", { ...describeThrown(thrown) });
      if (answer.opened) answer.cutOff();
      else await answer.send(internalError());
    }
    answer.finish();
    await after();
    // The runtime ends the stream with it, which the client sees, and uses the environment again.
    if (answer.isCutOff) throw new Error("the answer was cut off");
  };
  return streamed(handler);
}

/** The response stream of one invocation. An error on it ends the execution environment, so none may escape. */
class StreamedAnswer implements LambdaStream {
  readonly #raw: Writable;
  #body: Writable | undefined;
  #written = false;
  #isCutOff = false;

  constructor(raw: Writable) {
    this.#raw = raw;
    raw.on("error", () => undefined);
  }

  get opened(): boolean {
    return this.#body !== undefined;
  }

  readonly open = (head: LambdaResponseHead): Writable => {
    this.#body = lambdaRuntime()?.HttpResponseStream.from(this.#raw, head) ?? this.#raw;
    return this.#body;
  };

  get isCutOff(): boolean {
    return this.#isCutOff;
  }

  readonly cutOff = (): void => {
    this.#isCutOff = true;
  };

  async send(response: Response): Promise<void> {
    const { cookies, headers } = splitHeaders(response.headers);
    const body = this.open({ statusCode: response.status, headers, ...(cookies.length === 0 ? {} : { cookies }) });
    for await (const part of response.body ?? []) {
      this.#written = true;
      if (!body.write(part)) await untilDrained(body);
      if (body.destroyed) return;
    }
    // The runtime sends the head with the first write: an answer without a body needs an empty one.
    if (!this.#written) body.write("");
    body.end();
  }

  /** Whatever happened, the stream must end, or the invocation runs into its time limit. */
  finish(): void {
    if (this.#isCutOff) return;
    const body = this.#body ?? this.#raw;
    if (!body.writableEnded && !body.destroyed) body.end();
  }
}

function untilDrained(body: Writable): Promise<void> {
  return new Promise((done) => {
    const stop = (): void => {
      body.off("drain", stop).off("close", stop);
      done();
    };
    body.on("drain", stop).on("close", stop);
  });
}

function internalError(): Response {
  const body = {
    error: { message: "Something went wrong on our side.", type: "api_error", param: null, code: "internal_error" },
  };
  return Response.json(body, { status: 500, headers: { "cache-control": "private, no-store" } });
}

function toRequest(event: RequestEvent): { readonly request: Request; readonly body: Uint8Array } {
  const headers = toHeaders(event);
  const host = headers.get("host") ?? event.requestContext?.domainName ?? "localhost";
  const protocol = headers.get("x-forwarded-proto")?.split(",", 1)[0]?.trim() === "http" ? "http" : "https";
  const url = new URL(`${protocol}://localhost`);
  url.host = host;
  url.pathname = event.path;
  url.search = toQuery(event);
  const method = event.httpMethod.toUpperCase();
  const body = methodsWithoutBody.has(method) ? null : toBody(event);
  return { request: toLightRequest({ method, url: url.href, headers, body }), body: body ?? noBytes };
}

function toBody({ body, isBase64Encoded }: RequestEvent): Uint8Array<ArrayBuffer> | null {
  if (typeof body !== "string") return null;
  return new Uint8Array(Buffer.from(body, isBase64Encoded === true ? "base64" : "utf8"));
}

/** Each header with all its values; API Gateway gives both forms, a test console may give one. */
function toHeaders({ headers, multiValueHeaders }: RequestEvent): PlainHeaders {
  const result = new PlainHeaders();
  const entries = Object.entries(multiValueHeaders ?? {}).flatMap(([name, values]) =>
    (values ?? []).map((value) => [name, value] as const),
  );
  for (const [name, value] of entries) if (!hopByHop.has(name.toLowerCase())) result.append(name, value);
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (typeof value === "string" && !hopByHop.has(name.toLowerCase()) && !result.has(name)) result.append(name, value);
  }
  return result;
}

/** API Gateway has decoded the parameters, so they are encoded again. */
function toQuery({ queryStringParameters, multiValueQueryStringParameters }: RequestEvent): string {
  const query = new URLSearchParams();
  for (const [name, values] of Object.entries(multiValueQueryStringParameters ?? {})) {
    for (const value of values ?? []) query.append(name, value);
  }
  for (const [name, value] of Object.entries(queryStringParameters ?? {})) {
    if (typeof value === "string" && !query.has(name)) query.append(name, value);
  }
  return query.toString();
}

function splitHeaders(headers: Headers): { readonly headers: Record<string, string>; readonly cookies: string[] } {
  const single: Record<string, string> = {};
  for (const [name, value] of headers) if (name !== "set-cookie" && !hopByHop.has(name)) single[name] = value;
  return { headers: single, cookies: headers.getSetCookie() };
}
